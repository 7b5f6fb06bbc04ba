"""A gateway in front of MCP servers of the eras that a test names."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import anyio
import pytest
from msgspec.structs import replace

from config.settings import DatabaseSettings, Settings
from config.sources import SourceSettings
from schemas.mcp.headers import NAMED_BY
from tests.fixtures_database import Cluster, lend_database
from tests.fixtures_gateway import META, MODERN, Client, SessionClient, running, wordless
from tests.fixtures_servers import serving
from tests.recycling import Recycling
from tests.servers.everything import everything
from tests.servers.everything_wire import Era

CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
Behind = Callable[..., Any]
SERVERS: tuple[Era, ...] = ("handshake", "stateless", "both")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture
def bare(database_settings: DatabaseSettings) -> Settings:
    """Settings without a source."""
    return replace(wordless(), database=database_settings)


@asynccontextmanager
async def gateway_to(settings: Settings, **eras: Era) -> AsyncIterator[Client]:
    """A gateway with one "everything" server for each source that is named."""
    async with AsyncExitStack() as stack:
        sources = {}
        for name, era in eras.items():
            app, lifespan = everything(era)
            await stack.enter_async_context(lifespan)
            url = await stack.enter_async_context(serving(app))
            sources[name] = SourceSettings(mcp=f"{url}/mcp")
        client = await stack.enter_async_context(running(replace(settings, sources=sources)))
        with anyio.fail_after(30):
            while client.gateway.federation.servers.failures():  # noqa: ASYNC110 - it tells nobody
                await anyio.sleep(0.01)
        yield client


@asynccontextmanager
async def shared_gateway_to(
    cluster: Cluster, recycling: Recycling, era: Era
) -> AsyncIterator[Client]:
    """`gateway_to` one server, with a database that it shares with no other gateway."""
    for database in lend_database(cluster, recycling):
        async with gateway_to(replace(wordless(), database=database), every=era) as client:
            yield client


@pytest.fixture(scope="module", params=SERVERS)
async def every(
    cluster: Cluster, recycling: Recycling, request: pytest.FixtureRequest
) -> AsyncIterator[Client]:
    """A gateway in front of one server of each era in turn, for tests that leave it as it was."""
    async with shared_gateway_to(cluster, recycling, request.param) as client:
        yield client


@pytest.fixture(scope="module")
async def both(cluster: Cluster, recycling: Recycling) -> AsyncIterator[Client]:
    """A gateway in front of one server of both eras, for tests that leave it as it was. Not beside
    `every` in one module: gateways of one task close in the opposite order."""
    async with shared_gateway_to(cluster, recycling, "both") as client:
        yield client


class Stream:
    """The answer to one POST, message by message, whether JSON or a stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self._response = response
        self._lines = response.content

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        if self._response.content_type == "application/json":
            yield json.loads(await self._response.read())
            return
        async for line in self._lines:
            if line.startswith(b"data:") and line[5:].strip():
                yield json.loads(line[5:])

    async def next(self) -> dict[str, Any]:
        with anyio.fail_after(20):
            async for message in self:
                return message
        raise AssertionError("the stream ended")

    async def all(self) -> list[dict[str, Any]]:
        with anyio.fail_after(20):
            return [message async for message in self]


@asynccontextmanager
async def post_message(
    client: Client, message: Mapping[str, Any], headers: Mapping[str, str]
) -> AsyncIterator[Stream]:
    sent = {"Accept": "application/json, text/event-stream", **headers}
    async with client.http.post(client.url + "/mcp", json=message, headers=sent) as response:
        yield Stream(response)


class Caller:
    """A client of one era that can be asked all that there is, and says how it was told."""

    def __init__(self, client: Client, session: SessionClient | None, capabilities: Any) -> None:
        self.client = client
        self.session = session
        self._capabilities = capabilities
        self._ids = iter(range(100, 10_000))

    @asynccontextmanager
    async def send_request(
        self, method: str, params: Mapping[str, Any], meta: Mapping[str, Any] | None = None
    ) -> AsyncIterator[Stream]:
        """A request of the next id."""
        own = {} if self.session else {**META, CAPABILITIES: self._capabilities}
        params = {**params, "_meta": {**own, **(meta or {})}}
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        async with post_message(self.client, message, self._headers(method, params)) as stream:
            yield stream

    async def result(
        self, method: str, params: Mapping[str, Any], meta: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        async with self.send_request(method, params, meta) as stream:
            return (await stream.all())[-1]

    async def answer(self, id_: Any, result: Any) -> None:
        assert self.session is not None
        status, _ = await self.session.post({"jsonrpc": "2.0", "id": id_, "result": result})
        assert status == 202

    def _headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        if self.session is not None:
            return self.session.headers
        named = params.get(NAMED_BY.get(method, ""))
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        return headers if named is None else {**headers, "Mcp-Name": named}


EVERYTHING: dict[str, Any] = {"sampling": {}, "elicitation": {}, "roots": {}}


async def caller(client: Client, revision: str, capabilities: Any = EVERYTHING) -> Caller:
    if revision == MODERN:
        return Caller(client, None, capabilities)
    session = await client.session(revision, capabilities)
    return Caller(client, session, capabilities)
