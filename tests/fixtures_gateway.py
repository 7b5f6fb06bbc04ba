"""Fixtures: a gateway on a loopback port, with its own database and a service behind it."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from config.load import load
from config.settings import DatabaseSettings, Settings
from config.sources import SourceSettings
from gateway.app.gateway import Gateway
from tests.fixtures_database import Cluster, lend_database
from tests.fixtures_servers import serving
from tests.recycling import Recycling

DEADLINE_S = 60  # a loaded machine is slow, not wrong
MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def pets(count: int = 0) -> dict[str, Any]:
    """An OpenAPI description of a small service; `count` adds as many further operations."""
    more = {
        f"/more/{number:04}": {"get": {"operationId": f"more_{number:04}", "summary": "One more"}}
        for number in range(count)
    }
    pet = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    }
    pet_id = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
    body = {"required": True, "content": {"application/json": {"schema": pet}}}
    limit = {"name": "limit", "in": "query", "schema": {"type": "integer", "maximum": 100}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Pets", "version": "1"},
        "paths": {
            "/pets": {
                "get": {"operationId": "listPets", "summary": "List pets", "parameters": [limit]},
                "post": {"operationId": "createPet", "summary": "Add a pet", "requestBody": body},
            },
            "/pets/{id}": {
                "parameters": [pet_id],
                "get": {"operationId": "getPet", "summary": "One pet"},
                "delete": {"operationId": "deletePet", "summary": "Remove a pet"},
            },
            "/slow": {"get": {"operationId": "slow", "summary": "Answers when told to"}},
            **more,
        },
    }


@dataclass
class Recorder:
    """The service behind the gateway: remembers what it was asked, says what it heard.

    `/pets/404` is not there, and `/slow` answers only when `release` is set.
    """

    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)  # a client left /slow early

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = b""
        message = {"more_body": True}
        while message.get("more_body"):
            message = await receive()
            body += message.get("body", b"")
        heard = {
            "method": scope["method"],
            "path": scope["raw_path"].decode(),
            "query": scope["query_string"].decode(),
            "headers": {name.decode(): value.decode() for name, value in scope["headers"]},
            "body": body.decode(),
        }
        self.requests.append(heard)
        if scope["path"] == "/slow" and not await self._wait_for_release(receive):
            return
        status = 404 if scope["path"] == "/pets/404" else 200
        await _answer(send, status, {"heard": heard})

    async def _wait_for_release(self, receive: Receive) -> bool:
        self.arrived.set()
        left = asyncio.ensure_future(receive())
        released = asyncio.ensure_future(self.release.wait())
        await asyncio.wait({left, released}, return_when=asyncio.FIRST_COMPLETED)
        if left.done():
            self.gone.set()
        left.cancel()
        released.cancel()
        return not self.gone.is_set()


async def _answer(send: Send, status: int, value: Any) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})


@dataclass(frozen=True)
class Client:
    """An HTTP client of one gateway."""

    gateway: Gateway
    url: str
    http: aiohttp.ClientSession

    async def post(
        self, path: str, body: Any, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, decoded body (None when empty) and headers of a POST of JSON."""
        data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
        sent = {"Content-Type": "application/json", **(headers or {})}
        async with self.http.post(self.url + path, data=data, headers=sent) as response:
            text = await response.read()
            return (
                response.status,
                json.loads(text) if text else None,
                {k.lower(): v for k, v in response.headers.items()},
            )

    async def rpc(self, body: Any) -> Any:
        _, answer, _ = await self.post("/rpc", body)
        return answer

    async def modern(
        self, method: str, params: dict[str, Any] | None = None, **headers: str
    ) -> tuple[int, Any]:
        """A 2026-07-28 request with everything that it must carry."""
        params = {**(params or {}), "_meta": META}
        sent = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        if (name := params.get("name", params.get("uri"))) is not None:
            sent["Mcp-Name"] = name
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        status, answer, _ = await self.post("/mcp", request, sent | headers)
        return status, answer

    async def session(
        self, revision: str = "2025-06-18", capabilities: dict[str, Any] | None = None
    ) -> "SessionClient":
        """Open a session of a handshake revision."""
        params = {
            "protocolVersion": revision,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        status, answer, headers = await self.post("/mcp", request)
        assert status == 200, answer
        session = SessionClient(self, headers["mcp-session-id"], revision, answer["result"])
        await session.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return session


@dataclass(frozen=True)
class SessionClient:
    client: Client
    id: str
    revision: str
    initialized: dict[str, Any]

    @property
    def headers(self) -> dict[str, str]:
        return {"Mcp-Session-Id": self.id, "MCP-Protocol-Version": self.revision}

    async def post(self, body: Any) -> tuple[int, Any]:
        status, answer, _ = await self.client.post("/mcp", body, self.headers)
        return status, answer

    async def call(self, method: str, params: dict[str, Any] | None = None, id_: Any = 1) -> Any:
        request = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params or {}}
        status, answer = await self.post(request)
        assert status == 200, answer
        return answer


@pytest.fixture
async def service() -> AsyncIterator[Recorder]:
    recorder = Recorder()
    async with serving(recorder) as url:
        recorder.url = url
        yield recorder
        recorder.release.set()


@pytest.fixture
def settings(database_settings: DatabaseSettings, service: Recorder, tmp_path: Path) -> Settings:
    return settings_of_pets(database_settings, service, tmp_path)


def settings_of_pets(database: DatabaseSettings, service: Recorder, folder: Path) -> Settings:
    """Settings with one source, `pets`, whose service is `service`."""
    description = folder / "pets.json"
    description.write_text(json.dumps(pets()))
    source = SourceSettings(openapi=str(description), base_url=service.url)
    return replace(wordless(), database=database, sources={"pets": source})


@cache
def wordless() -> Settings:
    """The default settings without embeddings: most tests need none, and they take time.

    Ended jobs are removed on a leap day alone: with the default, a test that counts jobs fails
    when it runs at night.
    """
    defaults = load(None, {})
    return replace(
        defaults,
        embedding=replace(defaults.embedding, provider="disabled"),
        jobs=replace(defaults.jobs, removal_schedule="0 0 29 2 *"),
    )


@asynccontextmanager
async def running(settings: Settings, port: int = 0) -> AsyncIterator[Client]:
    """A gateway with these settings, ready; at any port, or at this one."""
    gateway = Gateway(settings)
    app = gateway.app()
    async with (
        serving(app, port=port) as url,
        gateway.lifespan(app),
        aiohttp.ClientSession() as http,
    ):
        async with asyncio.timeout(DEADLINE_S):
            await gateway.feed.settled.wait()
        assert gateway.feed.state.failure is None
        yield Client(gateway, url, http)


@dataclass(frozen=True)
class SharedGateway:
    """A gateway for the tests of a module that leave it as it was: a new one costs 0.05 s."""

    client: Client
    service: Recorder

    def renew_service(self) -> Recorder:
        """Its service, which remembers nothing of the test before."""
        self.service.requests.clear()
        self.service.release, self.service.arrived = asyncio.Event(), asyncio.Event()
        self.service.gone = asyncio.Event()
        return self.service


@pytest.fixture(scope="module")
async def shared_service(anyio_backend: str) -> AsyncIterator[Recorder]:
    recorder = Recorder()
    async with serving(recorder) as recorder.url:
        yield recorder


@pytest.fixture(scope="module")
def shared_database(cluster: Cluster, recycling: Recycling) -> Iterator[DatabaseSettings]:
    yield from lend_database(cluster, recycling)


@pytest.fixture(scope="module")
def shared_settings(
    shared_database: DatabaseSettings,
    shared_service: Recorder,
    tmp_path_factory: pytest.TempPathFactory,
) -> Settings:
    """As `settings`; a module may have a fixture of this name that changes them."""
    return settings_of_pets(shared_database, shared_service, tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="module")
async def shared_gateway(
    shared_settings: Settings, shared_service: Recorder
) -> AsyncIterator[SharedGateway]:
    async with running(shared_settings) as client:
        yield SharedGateway(client, shared_service)


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[Client]:
    async with running(settings) as client:
        yield client


def with_mcp(settings: Settings, **changes: Any) -> Settings:
    return replace(settings, mcp=msgspec.structs.replace(settings.mcp, **changes))
