"""Backoff of list refreshes and of process restarts. Pure."""

import math
import time
from collections.abc import Callable

from gateway.upstreams.http.source_pools import UpstreamFailed

FIRST_PAUSE_S = 0.5

AT_ONCE = 12  # changes that are followed without delay: the server may be being edited
FIRST_S, LONGEST_S = 1.0, 60.0
QUIET_S = 60.0  # without a change, after which the backoff is reset


class RestartBackoff:
    """Exponential backoff for restarts of one source's command: each pause is twice the one before,
    and is reset once a process has lived for longer than the longest pause."""

    def __init__(
        self, name: str, longest_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._longest_s = longest_s
        self._clock = clock
        self._pause_s = 0.0
        self._not_before = 0.0
        self.why = ""  # reason why the last process ended

    def check(self) -> None:
        """Check that the backoff is over. Raises UpstreamFailed."""
        left_s = self._not_before - self._clock()
        if left_s > 0:
            raise UpstreamFailed(
                f"{self._name} {self.why}; it is not started again for another {left_s:.1f} s"
            )

    def record_end(self, lived_s: float, why: str) -> None:
        """Record that a process ended unexpectedly; `why` follows the source's name in errors."""
        if lived_s > self._longest_s:
            self._pause_s = 0.0
        self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), self._longest_s)
        self._not_before = self._clock() + self._pause_s
        self.why = why


class RefreshBackoff:
    """Backoff for list changes: the first few are read at once, later ones at growing intervals."""

    def __init__(self) -> None:
        self._pause_s = 0.0
        self._at_once = AT_ONCE
        self._read = -math.inf

    def wait_s(self, now: float) -> float:
        """Seconds until the lists may be read after a change announced at `now`; all times here are
        seconds."""
        since_s = now - self._read
        if since_s >= QUIET_S:
            self._pause_s = 0.0
            self._at_once = AT_ONCE
        pause_s = self._pause_s
        if since_s >= pause_s:
            return 0.0
        self._pause_s = min(pause_s * 2, LONGEST_S)
        return pause_s - since_s

    def read(self, now: float) -> None:
        """Record that the lists were read at `now`."""
        self._read = now
        if self._at_once:
            self._at_once -= 1
        else:
            self._pause_s = max(self._pause_s, FIRST_S)
