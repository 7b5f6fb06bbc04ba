"""How long an answer is waited for: an idle time that every sign of life begins anew, and an end.

One timer, set again only when it goes off: a sign of life is an assignment.
"""

import asyncio
from types import TracebackType

from gateway.upstreams.http.deadline import Deadline
from gateway.upstreams.mcp.link import Timeout

CLOCK_S = 0.001  # timers may go off this much too early


class Patience(Deadline):
    """Cancels the task that entered when nothing was heard for too long, and raises TimeoutError
    where it is left."""

    __slots__ = ("_end", "_heard", "_loop", "_still", "limit_s", "timeout")

    def __init__(self, timeout: Timeout) -> None:
        super().__init__(min(timeout.idle_s, timeout.most_s))
        self.timeout = timeout
        self.limit_s = timeout.idle_s  # which of the two it was, in the end
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
        if self._loop is not None:  # a stream that may be silent for ever is never entered
            self._heard = self._loop.time()

    def stop(self) -> None:
        """The idle time stands still until as many `go`: it is us who have to answer."""
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
