"""Work that follows from a request, and is done whatever becomes of the request."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from schemas.errors import Fault

T = TypeVar("T")

log = logging.getLogger("toolgate.sessions")


class BackgroundTasks:
    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Soon; a failure is for the log alone."""
        task = asyncio.create_task(_quietly(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def whole(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which goes on when this is cancelled."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def done(self) -> None:
        """Wait for what is under way."""
        while self._running:
            await asyncio.wait(self._running)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # nobody may be left to hear of it


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Fault as fault:
        log.warning("session_work_failed", extra={"reason": fault.message[:300]})
    except Exception:
        log.exception("session_work_crashed")
