"""`subscriptions/listen` (2026-07-28), over whatever: a request that is answered when it is over,
and whose stream begins with an acknowledgement."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from gateway.upstreams.http.connections import UpstreamFailed
from gateway.upstreams.http.deadline import Deadline
from gateway.upstreams.mcp.link import Hearer

LISTEN = "subscriptions/listen"


class Acknowledged:
    """A Hearer that knows when it was told the first time."""

    def __init__(self, hearer: Hearer) -> None:
        self.event = asyncio.Event()
        self._hearer = hearer

    async def notified(self, method: str, params: dict[str, Any]) -> None:
        await self._hearer.notified(method, params)
        self.event.set()

    async def asked(self, method: str, params: dict[str, Any]) -> Any:
        return await self._hearer.asked(method, params)


@asynccontextmanager
async def listening(
    work: Coroutine[Any, Any, Any], told: Acknowledged, name: str, limit_s: float
) -> AsyncIterator["asyncio.Future[Any]"]:
    """Run `work`, which hears the stream, inside. Raises what it raises before it began, and
    UpstreamFailed when it does not begin within `limit_s`."""
    following = asyncio.create_task(work)
    begun = asyncio.create_task(told.event.wait())
    try:
        try:
            with Deadline(limit_s):
                await asyncio.wait({following, begun}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError as error:
            text = f"{name} did not acknowledge within {limit_s:g} s what it was asked to tell"
            raise UpstreamFailed(text, late=True) from error
        if not told.event.is_set():
            following.result()
        yield following
    finally:
        begun.cancel()
        following.cancel()
        await asyncio.gather(following, begun, return_exceptions=True)
