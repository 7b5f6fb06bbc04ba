"""Whether the client is still there, while a request is worked on and while a stream is sent."""

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

from starlette.types import Message, Receive

from gateway.transports.responses import Responder

WATCH_AFTER_S = 0.05  # most calls are over by then, and need no second task


class Watch:
    """Cancels the task that entered it when the client goes away.

    Inside, nobody else may call `receive`: the request body has been read.
    """

    __slots__ = ("_receive", "_task", "_timer", "_watcher", "gone")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Any] | None = None
        self.gone = False

    def __enter__(self) -> "Watch":
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._begin)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        task, self._task = self._task, None
        if kind is asyncio.CancelledError and self.gone and task is not None:
            return task.uncancel() == 0  # ours, and only ours: the request just ends here
        return False

    def give_up(self) -> None:
        """The client is not worth waiting for: as if it had gone."""
        if self._task is not None and not self.gone:
            self.gone = True
            self._task.cancel("the client went away")

    def _begin(self) -> None:
        self._timer = None
        self._watcher = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        message: Message = await self._receive()
        while message["type"] != "http.disconnect":
            message = await self._receive()
        self.give_up()


async def send_all(responder: Responder, chunks: AsyncIterator[bytes], watch: Watch) -> None:
    """The rest of a stream, and its end.

    A client that has gone is looked for, too: under Python 3.11 a client of a database may miss
    that its task was cancelled (`asyncio.wait_for` drops it when an answer comes at that moment).
    """
    async for chunk in chunks:
        if watch.gone:
            return
        await responder.chunk(chunk)
    await responder.chunk(b"", more=False)
