"""Circuit breaker as a state machine. Pure: the time is an argument.

closed      calls pass and are counted; a failure rate above the threshold opens it
open        calls are rejected; half-open after the open period
half-open   probes pass one at a time: the configured number of successes closes it, one failure
            opens it again, for twice as long
"""

from collections import deque
from collections.abc import Callable
from typing import Literal

from config.access import BreakerSettings

SLOTS = 10  # of the window
LEAST = 0.8  # of the open period (jitter): nodes must not probe simultaneously

State = Literal["closed", "open", "half-open"]


class Circuit:
    __slots__ = ("_counts", "_jitter", "_passed", "_pause_s", "_probe_until", "_settings",
                 "_until", "calls", "failures", "round", "state")  # fmt: skip

    def __init__(self, settings: BreakerSettings, jitter: Callable[[], float]) -> None:
        """`jitter` returns numbers from 0 to 1."""
        self._settings = settings
        self._jitter = jitter
        self._counts: deque[list[int]] = deque()  # slot, calls, failures; oldest first
        self._pause_s = settings.open_s  # next open period
        self._until = 0.0
        self._probe_until = 0.0  # deadline of the running probe
        self._passed = 0  # successful probes
        self.calls = self.failures = 0  # in the window
        self.round = 0  # generation of the state: outcomes of calls of earlier rounds are ignored
        self.state: State = "closed"

    def admit(self, now: float) -> int | None:
        """The round of an admitted call; None when it is rejected."""
        if self.state == "closed":
            return self.round
        if self.state == "open":
            if now < self._until:
                return None
            self._enter("half-open")
            self._passed, self._probe_until = 0, now
        elif now < self._probe_until:
            return None
        self._probe_until = now + self._settings.open_s
        return self.round

    def wait_s(self, now: float) -> float:
        """Estimated time until calls are admitted again."""
        return (self._until if self.state == "open" else self._probe_until) - now

    def done(self, began: int, failed: bool | None, now: float) -> None:
        """Record the outcome of a call of the round `began`; None: inconclusive."""
        if began != self.round:
            return
        if self.state == "half-open":
            self._probe_until = now
            if failed:
                self._open(now)
            elif failed is False:
                self._passed += 1
                if self._passed >= self._settings.probes:
                    self._close()
        elif failed is not None:
            self._count(int(failed), now)
            enough = self.calls >= self._settings.calls
            if failed and enough and self.failures >= self._settings.failures * self.calls:
                self._open(now)

    def close(self) -> None:
        """Close the circuit; outcomes of running calls are ignored."""
        if self.state != "closed":
            self._close()

    def _count(self, failed: int, now: float) -> None:
        slot = int(now * SLOTS / self._settings.window_s)
        counts = self._counts
        while counts and counts[0][0] <= slot - SLOTS:
            _, calls, failures = counts.popleft()
            self.calls -= calls
            self.failures -= failures
        if not counts or counts[-1][0] != slot:
            counts.append([slot, 0, 0])
        counts[-1][1] += 1
        counts[-1][2] += failed
        self.calls += 1
        self.failures += failed

    def _open(self, now: float) -> None:
        self._until = now + self._pause_s * (LEAST + (1 - LEAST) * self._jitter())
        self._pause_s = min(2 * self._pause_s, max(self._settings.longest_s, self._pause_s))
        self._enter("open")

    def _close(self) -> None:
        self._pause_s = self._settings.open_s
        self._counts.clear()
        self.calls = self.failures = 0
        self._enter("closed")

    def _enter(self, state: State) -> None:
        self.state = state
        self.round += 1
