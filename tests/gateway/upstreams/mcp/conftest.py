"""Links to servers that a test scripts, and ears that remember what they heard."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from config.sources import SourceSettings
from gateway.upstreams.http.source_pools import SourcePools
from gateway.upstreams.mcp.handshake import UNKNOWN
from gateway.upstreams.mcp.link_and_handlers import ClientProfile, Timeout
from gateway.upstreams.mcp.streamable_http_links import HttpLink, StatelessLink
from schemas.errors import MethodNotFound
from schemas.source import McpOptions, Source
from tests.gateway.upstreams.conftest import limits

PATIENT = Timeout(30, 30)
HELLO = ClientProfile({"name": "toolgate", "version": "1"}, {"sampling": {}})
LIMIT_BYTES = 20_000


@dataclass
class Ears:
    """A MessageHandler: remembers, and answers what it is asked by `answer`."""

    heard: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    asked_for: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    answer: Callable[[str, dict[str, Any]], Awaitable[Any]] | None = None
    _stirred: asyncio.Event = field(default_factory=asyncio.Event)

    async def on_notification(self, method: str, params: dict[str, Any]) -> None:
        self.heard.append((method, params))
        self._stirred.set()

    async def on_request(self, method: str, params: dict[str, Any]) -> Any:
        self.asked_for.append((method, params))
        self._stirred.set()
        if self.answer is None:
            raise MethodNotFound("Nobody is here")
        return await self.answer(method, params)

    async def until(self, count: int) -> None:
        """Until so much was heard and asked."""
        while len(self.heard) + len(self.asked_for) < count:
            self._stirred.clear()
            await self._stirred.wait()


def mcp_source(url: str, name: str = "things", **options: Any) -> Source:
    return Source("id", name, "mcp", url, None, True, options=McpOptions(**options))


@pytest.fixture
async def connections(anyio_backend: str) -> AsyncIterator[SourcePools]:
    made = SourcePools(limits(response_limit_bytes=LIMIT_BYTES), {})
    yield made
    await made.close()


@pytest.fixture
async def session(connections: SourcePools) -> AsyncIterator[Any]:
    """`await session(url)` opens one; it is closed when the test ends."""
    links: list[HttpLink] = []

    async def open_session(url: str, background: Ears | None = None, **options: Any) -> HttpLink:
        pool = connections.of(mcp_source(url + "/mcp"))
        link = await HttpLink.open(pool, HELLO, background or Ears(), PATIENT, **options)
        links.append(link)
        return link

    yield open_session
    for link in links:
        await link.close()


@pytest.fixture
async def stateless(connections: SourcePools) -> AsyncIterator[Any]:
    links: list[StatelessLink] = []

    def open_stateless(url: str) -> StatelessLink:
        links.append(StatelessLink(connections.of(mcp_source(url + "/mcp")), HELLO, UNKNOWN))
        return links[-1]

    yield open_stateless
    for link in links:
        await link.close()


def settings(**values: Any) -> SourceSettings:
    return SourceSettings(**values)
