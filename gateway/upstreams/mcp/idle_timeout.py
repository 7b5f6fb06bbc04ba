"""Idle timeout and deadline of one request; every sign of life restarts the idle time.

One timer, rearmed only when it fires: a sign of life is a mere assignment.
"""

import asyncio
from types import TracebackType

from gateway.upstreams.http.deadline import Deadline
from gateway.upstreams.mcp.link import Timeout

CLOCK_S = 0.001  # timers may fire this much too early


class Patience(Deadline):
    """Cancels the task that entered when the idle timeout or the deadline expires, and raises
    TimeoutError on exit."""

    __slots__ = ("_end", "_heard", "_loop", "_still", "limit_s", "timeout")

    def __init__(self, timeout: Timeout) -> None:
        super().__init__(min(timeout.idle_s, timeout.most_s))
        self.timeout = timeout
        self.limit_s = timeout.idle_s  # the limit that expired, once one has
        self._still = 0
        self._loop: asyncio.AbstractEventLoop | None = None  # while it is entered

    def __enter__(self) -> None:
        super().__enter__()
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._end = self._heard + self.timeout.most_s

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)

    def heard(self) -> None:
        if self._loop is not None:  # a stream without an idle timeout is never entered
            self._heard = self._loop.time()

    def stop(self) -> None:
        """Pause the idle timeout until `go` was called as often: the gateway has to answer."""
        self._still += 1

    def go(self) -> None:
        self._still -= 1
        self.heard()

    def _expire(self) -> None:
        loop, due = asyncio.get_running_loop(), self._end
        if not self._still:
            due = min(due, self._heard + self.timeout.idle_s)
        else:
            due = min(due, loop.time() + self.timeout.idle_s)
        if due - loop.time() > CLOCK_S:
            self._timer = loop.call_at(due, self._expire)
        else:
            if due == self._end:
                self.limit_s = self.timeout.most_s
            super()._expire()
