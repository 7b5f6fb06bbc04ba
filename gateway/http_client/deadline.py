"""Deadlines of calls: `asyncio.timeout` at a fifth of its cost, which was 7% of a batch item, since
every call has one."""

import asyncio
from types import TracebackType
from typing import Any

from msgspec import Struct


class Deadline:
    """Cancels the task that entered after `seconds`, and raises TimeoutError on exit."""

    __slots__ = ("_cancelling", "_expired", "_seconds", "_task", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._expired = False
        self._cancelling = 0
        self._task: asyncio.Task[Any] | None = None

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(loop)
        self._cancelling = self._task.cancelling() if self._task else 0
        self._timer = loop.call_later(self._seconds, self._expire)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        if not self._expired or self._task is None:
            return
        others = self._task.uncancel() - self._cancelling  # an outside cancel() takes precedence
        if others <= 0 and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _expire(self) -> None:
        self._expired = True
        if self._task is not None:
            self._task.cancel()


class RunningCall(Struct, eq=False):
    """A call that has a deadline."""

    task: "asyncio.Task[Any]"
    until: float  # in the time of the event loop
    cancelling: int  # requests to cancel the task before
    expired: bool = False

    def settle(self) -> bool:
        """Take back the cancellation at the deadline. Whether there was no other one."""
        self.expired = False
        return self.task.uncancel() <= self.cancelling


class Deadlines:
    """Deadlines of calls that all may take equally long: the first to begin is the first to expire,
    so one timer serves them all. A call ends by its deletion from `running`, and settles if it has
    expired."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.running: dict[RunningCall, None] = {}  # in the order of their beginnings
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> RunningCall:
        """Cancel the present task when its time is over. Raises RuntimeError outside of one."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a call with a deadline runs in a task")
        call = RunningCall(task, loop.time() + self._seconds, task.cancelling())
        self.running[call] = None
        if self._timer is None:
            self._timer = loop.call_at(call.until, self._expire)
        return call

    def _expire(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for call in self.running:
            if call.until > now:
                self._timer = loop.call_at(call.until, self._expire)
                return
            if not call.expired:
                call.expired = True
                call.task.cancel()
