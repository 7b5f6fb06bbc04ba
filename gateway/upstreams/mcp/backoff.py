"""Backoff: how soon lists are read again, and how often a process may be restarted. Pure."""

import math
import time
from collections.abc import Callable

from gateway.upstreams.http.connections import UpstreamFailed

FIRST_PAUSE_S = 0.5


class Respawn:
    """The pauses of one source's command: each is twice as long as the one before, until a process
    has lived for longer than the longest."""

    def __init__(
        self, name: str, longest_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._longest_s = longest_s
        self._clock = clock
        self._pause_s = 0.0
        self._not_before = 0.0
        self.why = ""  # the last one ended

    def check(self) -> None:
        """Raises UpstreamFailed while the pause is not over."""
        left_s = self._not_before - self._clock()
        if left_s > 0:
            raise UpstreamFailed(
                f"{self._name} {self.why}; it is not started again for another {left_s:.1f} s"
            )

    def ended(self, lived_s: float, why: str) -> None:
        """A process ended that was not told to; `why` follows the source's name."""
        if lived_s > self._longest_s:
            self._pause_s = 0.0
        self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), self._longest_s)
        self._not_before = self._clock() + self._pause_s
        self.why = why


AT_ONCE = 12  # a server that is being changed by hand is followed without delay
FIRST_S, LONGEST_S = 1.0, 60.0
QUIET_S = 60.0  # without a change: the next is the first again


class Calm:
    """A few changes are read at once; those that follow closely wait, longer and longer."""

    def __init__(self) -> None:
        self._pause_s = 0.0
        self._at_once = AT_ONCE
        self._read = -math.inf

    def wait_s(self, now: float) -> float:
        """How long a change that is heard of `now` has to wait; in seconds, as all here."""
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
        """The lists have been read."""
        self._read = now
        if self._at_once:
            self._at_once -= 1
        else:
            self._pause_s = max(self._pause_s, FIRST_S)
