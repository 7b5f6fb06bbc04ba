"""Rest of what failed, so that searches do not wait for it. Pure."""

import time
from collections.abc import Callable

FIRST_REST_S = 1.0


class SearchBreaker:
    """A circuit breaker whose rests double until it answers. When one is over, one search tries."""

    def __init__(self, longest_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._longest_s = longest_s
        self._clock = clock
        self._rest_s = 0.0  # 0: it answered last time
        self._until = 0.0
        self._tries = False  # a search after a rest

    def rests(self) -> bool:
        """Whether it is left alone; if not, the caller has to say how the try ended."""
        if not self._rest_s:
            return False
        if self._clock() < self._until:
            return True
        self._until = self._clock() + self._rest_s
        self._tries = True
        return False

    def record_failure(self) -> float:
        """Begin a rest, unless another search of the same time has begun one; returns its
        seconds."""
        if self._tries or not self._rest_s:
            self._rest_s = min(max(2 * self._rest_s, FIRST_REST_S), self._longest_s)
            self._until = self._clock() + self._rest_s
            self._tries = False
        return self._rest_s

    def record_answer(self) -> bool:
        """End the rests; returns whether there was one."""
        rested, self._rest_s = self._rest_s > 0, 0.0
        return rested
