"""How often a process may be started that ends by itself."""

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
