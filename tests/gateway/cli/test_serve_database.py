"""`toolgate serve` while the database is away: at its start, and later."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import psycopg
import pytest

from config.settings import DatabaseSettings
from registry.database.postgres import Database
from registry.sources.tool_store import ToolStore
from tests.fixtures_database import HOST
from tests.fixtures_gateway import Recorder, pets
from tests.gateway.cli.processes import DEADLINE_S, Served, command, serving

pytestmark = pytest.mark.anyio

CALL = {"jsonrpc": "2.0", "id": 1, "method": "listPets"}


class Wire:
    """A TCP port that leads to the database, and can be cut."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = Path(parse_qs(parts.query)["host"][0]) / ".s.PGSQL.5432"
        self._name = parts.path
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"postgresql://toolgate@127.0.0.1:{self.port}{self._name}"

    async def mend(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        await asyncio.gather(*self._serving)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        server = self._server
        their_reader, their_writer = await asyncio.open_unix_connection(self._socket)
        self._open |= {writer, their_writer}
        if server is None or not server.is_serving():  # it was cut meanwhile
            writer.transport.abort()
            their_writer.transport.abort()
        await asyncio.gather(_pump(reader, their_writer), _pump(their_reader, writer))
        self._open -= {writer, their_writer}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()


@pytest.fixture
async def wire(database_settings: DatabaseSettings) -> AsyncIterator[Wire]:
    wire = Wire(database_settings.url)
    await wire.mend()
    yield wire
    await wire.cut()


@pytest.fixture
def settings_file(folder: Path, service: Recorder) -> Path:
    (folder / "pets.json").write_text(json.dumps(pets()))
    file = folder / "toolgate.yaml"
    file.write_text(
        f"sources: {{pets: {{openapi: pets.json, base_url: '{service.url}'}}}}\n"
        "database: {retry_max_s: 0.3, connect_timeout_s: 2}\n"
        "logging: {level: debug}\n"
    )
    return file


@asynccontextmanager
async def probing() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(DEADLINE_S)) as http:
        yield http


async def get(http: aiohttp.ClientSession, url: str) -> tuple[int, Any]:
    async with http.get(url) as response:
        return response.status, await response.json()


async def post(http: aiohttp.ClientSession, url: str, body: Any) -> tuple[int, Any]:
    async with http.post(url, json=body) as response:
        return response.status, await response.json()


async def ready(http: aiohttp.ClientSession, gateway: Served, status: str) -> dict[str, Any]:
    """What /ready says, as soon as it says `status`."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            _, body = await get(http, gateway.url + "/ready")
            if body["status"] == status:
                return dict(body)


async def test_serve_waits_for_its_database_and_logs_the_wait(
    settings_file: Path, wire: Wire
) -> None:
    await wire.cut()
    async with serving(TOOLGATE_DATABASE__URL=wire.url) as gateway, probing() as http:
        gateway.url = (await gateway.event("listening"))["url"]
        for _ in range(2):
            event = await gateway.event("database_unreachable", retry_s=0.3)
            assert "refused" in event["reason"]
        assert await get(http, gateway.url + "/health") == (200, {"status": "ok"})
        status, body = await get(http, gateway.url + "/ready")
        assert (status, body["status"], body["database"]) == (503, "starting", "connecting")
        status, body = await post(http, gateway.url + "/mcp", CALL)
        assert status == 503
        assert body["jsonrpc"] == "2.0"
        assert "starting" in body["error"]["message"]
        await wire.mend()
        await gateway.ready()
        status, body = await post(http, gateway.url + "/rpc", CALL)
        assert body["result"]["heard"]["path"] == "/pets"
        assert (await gateway.stop())[0] == 0


async def test_calls_continue_without_the_database_and_changes_arrive_afterwards(
    settings_file: Path, wire: Wire, database_settings: DatabaseSettings
) -> None:
    async with serving(TOOLGATE_DATABASE__URL=wire.url) as gateway, probing() as http:
        await gateway.ready()
        await wire.cut()
        body = await ready(http, gateway, "degraded")
        assert (body["database"], body["catalog"]) == ("unreachable", "ok")
        status, answer = await post(http, gateway.url + "/rpc", CALL)
        assert (status, answer["result"]["heard"]["path"]) == (200, "/pets")
        (settings_file.with_name("more.json")).write_text(json.dumps(pets(count=1)))
        code, _, err = await command(
            *("import", "openapi", "more.json", "--name", "more", "--include", "more_*"),
            TOOLGATE_DATABASE__URL=database_settings.url,
        )
        assert code == 0, err
        await wire.mend()
        await ready(http, gateway, "ok")
        _, listed = await post(http, gateway.url + "/rpc", CALL | {"method": "tools/list"})
        assert "more_0000" in [tool["name"] for tool in listed["result"]["tools"]]
        assert (await gateway.stop())[0] == 0


async def test_a_terminated_listener_comes_back_and_hears_of_changes(
    settings_file: Path, database_settings: DatabaseSettings
) -> None:
    url = database_settings.url
    async with serving(TOOLGATE_DATABASE__URL=url) as gateway, probing() as http:
        await gateway.ready()
        stream = await listen(http, gateway)
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute(
                "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        await gateway.event("database_connection_lost")
        async with Database.open(database_settings) as database:
            await ToolStore(database.pool).remove(HOST, "pets")
        async with asyncio.timeout(DEADLINE_S):
            await stream.content.readuntil(b"notifications/tools/list_changed")
        _, listed = await post(http, gateway.url + "/rpc", CALL | {"method": "tools/list"})
        assert listed["result"]["tools"] == []
        stream.close()


async def listen(http: aiohttp.ClientSession, gateway: Served) -> aiohttp.ClientResponse:
    """The stream of a session of 2025-06-18, on which changes are told."""
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}
    request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    async with http.post(gateway.url + "/mcp", json=request) as response:
        assert response.status == 200, await response.text()
        headers = {
            "Mcp-Session-Id": response.headers["Mcp-Session-Id"],
            "MCP-Protocol-Version": "2025-06-18",
            "Accept": "text/event-stream",
        }
    stream = await http.get(gateway.url + "/mcp", headers=headers)
    assert stream.status == 200
    return stream
