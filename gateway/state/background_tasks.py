"""Background tasks that outlive the request that started them, and the wait for one of several."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from schemas.errors import Fault
from schemas.hybrid import UNAVAILABLE, StatusFault

T = TypeVar("T")

log = logging.getLogger("toolgate.sessions")


class ShieldedTasks:
    """Runs work shielded from cancellation, at most `limit` at a time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which continues when the caller is cancelled. Raises StatusFault at
        the limit, and then `work` was not begun."""
        if len(self._running) >= self._limit:
            work.close()
            raise StatusFault(UNAVAILABLE, f"{self._limit} actions run already; try again later")
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._on_end)
        return await asyncio.shield(task)

    async def settle(self, until: float) -> None:
        """Wait for work whose clients have disconnected, at most until the monotonic time
        `until`."""
        left_s = until - time.monotonic()
        if self._running and left_s > 0:
            await asyncio.wait(self._running, timeout=left_s)

    def _on_end(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved: the caller may have been cancelled


class BackgroundTasks:
    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start `work` in the background; failures are only logged."""
        task = asyncio.create_task(_log_failure(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def shield(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which continues when the caller is cancelled."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._on_end)
        return await asyncio.shield(task)

    async def drain(self) -> None:
        """Wait for all running work."""
        while self._running:
            await asyncio.wait(self._running)

    def _on_end(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved: the caller may have been cancelled


async def wait_for_first(*waits: Awaitable[Any]) -> None:
    """Wait until one of `waits` ends. Coroutines that have not ended by then, or when the wait is
    cancelled, are cancelled; futures and tasks go on."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait, task in zip(waits, tasks, strict=True):
            if task is not wait:
                task.cancel()


async def _log_failure(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Fault as fault:
        log.warning("session_task_failed", extra={"reason": fault.message[:300]})
    except Exception:
        log.exception("session_task_crashed")
