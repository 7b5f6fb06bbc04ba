"""Background tasks of one MCP server: cancellations, and the ends of sessions and streams."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import aiohttp

from gateway.upstreams.http.deadline import Deadline
from schemas.errors import ToolgateError

log = logging.getLogger("toolgate.upstream")

ASIDE_S = 10.0


class Aside:
    """Background tasks of one server, each with a time limit; `close` cancels them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, work: Coroutine[Any, Any, Any], limit_s: float = ASIDE_S) -> None:
        async def run() -> None:
            try:
                with Deadline(limit_s):
                    await work
            except (aiohttp.ClientError, OSError, ToolgateError) as error:
                kind = type(error).__name__
                log.info("mcp_aside_failed", extra={"source": self._name, "error": kind})

        def ended(task: asyncio.Task[None]) -> None:
            work.close()  # otherwise a coroutine that never started would warn
            self._tasks.discard(task)

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(ended)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
