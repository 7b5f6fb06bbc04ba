"""`toolgate connect` and `toolgate serve --stdio`: clients that speak stdio."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from mcp.client.client import Client as McpClient
from mcp.client.stdio import StdioServerParameters
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from config.settings import DatabaseSettings
from gateway.cli.running.bridge import Bridge
from gateway.cli.running.connect import _lines
from registry.database.own_state import count_own_states
from registry.database.postgres import Database
from tests.fixtures_gateway import DEADLINE_S, META, Client, Recorder
from tests.fixtures_servers import serving
from tests.gateway.cli.conftest import Toolgate
from tests.gateway.cli.test_serve import write_settings
from tests.polling import until

pytestmark = pytest.mark.anyio

ERAS = [("legacy", "2025-11-25"), ("auto", "2026-07-28")]
HELLO = {
    "jsonrpc": "2.0",
    "id": "hello",
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def request(id_: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def server_parameters(*args: str, **env: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable, args=["-m", "gateway", *args], env=env or None
    )


async def lists_and_calls(server: StdioServerParameters, mode: Any, revision: str) -> None:
    with anyio.fail_after(DEADLINE_S):
        async with McpClient(server, mode=mode) as mcp:
            assert mcp.protocol_version == revision
            assert len((await mcp.list_tools()).tools) == 5
            result = await mcp.call_tool("createPet", {"name": "Rex", "age": 3})
            assert result.structured_content["heard"]["body"] == '{"name":"Rex","age":3}'
            assert (await mcp.call_tool("getPet", {"id": 404})).is_error


@pytest.mark.parametrize(("mode", "revision"), ERAS)
async def test_the_official_client_reaches_a_gateway_by_connect(
    client: Client, mode: Any, revision: str
) -> None:
    await lists_and_calls(server_parameters("connect", f"{client.url}/mcp"), mode, revision)


@pytest.mark.parametrize(("mode", "revision"), ERAS)
async def test_the_official_client_is_served_over_stdio(
    tmp_path: Path,
    service: Recorder,
    database_settings: DatabaseSettings,
    mode: Any,
    revision: str,
) -> None:
    file = write_settings(tmp_path, service)
    server = server_parameters(
        *("serve", "--stdio", "--config", str(file)),
        TOOLGATE_DATABASE__URL=database_settings.url,
        TOOLGATE_EMBEDDING__PROVIDER="disabled",
    )
    await lists_and_calls(server, mode, revision)


async def test_gateway_over_stdio_is_not_counted(
    tmp_path: Path,
    service: Recorder,
    database: Database,
    database_settings: DatabaseSettings,
) -> None:
    file = write_settings(tmp_path, service)
    server = server_parameters(
        *("serve", "--stdio", "--config", str(file)),
        TOOLGATE_DATABASE__URL=database_settings.url,
        TOOLGATE_EMBEDDING__PROVIDER="disabled",
    )
    with anyio.fail_after(DEADLINE_S):
        async with McpClient(server, mode="legacy") as mcp, database.connect() as connection:
            assert len((await mcp.list_tools()).tools) == 5
            assert await count_own_states(connection) == 0


async def test_the_process_ends_when_its_client_cannot_be_answered(
    tmp_path: Path, database_settings: DatabaseSettings
) -> None:
    env = {
        **os.environ,
        "TOOLGATE_DATABASE__URL": database_settings.url,
        "TOOLGATE_EMBEDDING__PROVIDER": "disabled",
    }
    log = tmp_path / "log"
    full = os.open("/dev/full", os.O_WRONLY)
    with os.fdopen(full, "wb") as output, log.open("wb") as told, anyio.fail_after(DEADLINE_S):
        command = [sys.executable, "-m", "gateway", "serve", "--stdio"]
        async with await anyio.open_process(
            command, stdout=output, stderr=told, cwd=tmp_path, env=env
        ) as process:
            assert process.stdin is not None
            await process.stdin.send(json.dumps(HELLO).encode() + b"\n")
            await process.wait()
    assert "client_failed" in log.read_text()


@dataclass
class Terminal:
    """The client's side of a bridge."""

    sent: "asyncio.Queue[bytes | None]" = field(default_factory=asyncio.Queue)
    received: "asyncio.Queue[Any]" = field(default_factory=asyncio.Queue)

    async def lines(self) -> AsyncIterator[bytes]:
        while (line := await self.sent.get()) is not None:
            yield line

    async def write(self, message: bytes) -> None:
        self.received.put_nowait(json.loads(message))

    def send(self, *messages: Any) -> None:
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode()
            self.sent.put_nowait(line)

    async def next(self) -> Any:
        with anyio.fail_after(DEADLINE_S):
            return await self.received.get()


@asynccontextmanager
async def bridge_to(url: str) -> AsyncIterator[Terminal]:
    """A bridge to `url`, which has ended when the context is left."""
    terminal = Terminal()
    async with aiohttp.ClientSession() as http, anyio.create_task_group() as tasks:
        tasks.start_soon(Bridge(http, url, terminal.write).run, terminal.lines())
        yield terminal
        terminal.sent.put_nowait(None)


@asynccontextmanager
async def in_session(client: Client) -> AsyncIterator[Terminal]:
    async with bridge_to(f"{client.url}/mcp") as terminal:
        terminal.send(HELLO)
        assert (await terminal.next())["result"]["protocolVersion"] == "2025-06-18"
        terminal.send(INITIALIZED)
        yield terminal


async def test_a_session_that_the_server_forgot_is_opened_anew(client: Client) -> None:
    async with in_session(client) as terminal:
        await client.gateway.shared.sessions.close_all()
        terminal.send(request(1, "tools/list"), request(2, "ping"))
        answers = [await terminal.next(), await terminal.next()]
        assert {answer["id"] for answer in answers} == {1, 2}
        assert all("result" in answer for answer in answers)


async def test_the_session_ends_with_the_client(client: Client) -> None:
    async with in_session(client):
        assert len(client.gateway.shared.sessions) == 1
    assert len(client.gateway.shared.sessions) == 0


async def test_changes_are_told_outside_of_requests(client: Client) -> None:
    async with in_session(client) as terminal:
        shared = client.gateway.shared
        [record] = await shared.sessions.all(client.gateway.principal.tenant)
        session = shared.sessions.find(record.id, client.gateway.principal, None)
        assert session is not None
        await until(lambda: session.has_stream)
        changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        await shared.sessions.notify(session, json.dumps(changed).encode())
        assert await terminal.next() == changed


async def test_a_cancelled_request_of_2026_07_28_leaves_the_service(
    client: Client, service: Recorder
) -> None:
    async with bridge_to(f"{client.url}/mcp") as terminal:
        terminal.send(request(7, "tools/call", name="slow", arguments={}, _meta=META))
        with anyio.fail_after(DEADLINE_S):
            await service.arrived.wait()
            cancelled = {"method": "notifications/cancelled", "params": {"requestId": 7}}
            terminal.send({"jsonrpc": "2.0", **cancelled})
            await service.gone.wait()
        terminal.send(request(8, "tools/list", _meta=META))
        assert (await terminal.next())["id"] == 8


async def test_errors_of_the_server_are_answered_with_the_id(client: Client) -> None:
    async with bridge_to(f"{client.url}/mcp") as terminal:
        terminal.send(request(1, "tools/list"))
        refused = await terminal.next()
        assert (refused["id"], refused["error"]["code"]) == (1, -32600)
        terminal.send(b"{", {"jsonrpc": "2.0", "method": "notifications/unknown"})
        assert (await terminal.next())["error"]["code"] == -32700


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (PlainTextResponse("<html>", 502), "The server answered 502 without a message of JSON-RPC"),
        (
            Response(b": hi\n\n", media_type="text/event-stream"),
            "The server closed the stream before it answered",
        ),
        (
            JSONResponse({"jsonrpc": "2.0", "id": None, "error": {"code": -1, "message": "no"}}),
            "no",
        ),
    ],
)
async def test_a_server_that_does_not_answer_is_reported(answer: Response, said: str) -> None:
    async def endpoint(_request: Request) -> Response:
        return answer

    app = Starlette(routes=[Route("/mcp", endpoint, methods=["POST"])])
    async with serving(app) as url, bridge_to(f"{url}/mcp") as terminal:
        terminal.send(request(1, "ping"))
        reported = await terminal.next()
        assert (reported["id"], reported["error"]["message"]) == (1, said)


async def test_an_unreachable_server_is_reported_for_each_request() -> None:
    async with bridge_to("http://127.0.0.1:9/mcp") as terminal:
        terminal.send(request(1, "ping"), INITIALIZED, request(2, "ping"))
        answers = [await terminal.next(), await terminal.next()]
        assert {answer["id"] for answer in answers} == {1, 2}
        assert {answer["error"]["code"] for answer in answers} == {1502}


@pytest.mark.parametrize("streams", [False, True])
async def test_arguments_are_repeated_in_the_headers_that_a_tool_wants(streams: bool) -> None:
    tool = {
        "name": "weather",
        "inputSchema": {
            "type": "object",
            "properties": {"city": {"type": "string", "x-mcp-header": "City"}},
        },
    }
    seen: list[str | None] = []

    async def endpoint(asked: Request) -> Response:
        body = await asked.json()
        if body["method"] == "tools/list":
            on_second = "cursor" in body["params"]
            result: Any = {"tools": [tool]} if on_second else {"tools": [], "nextCursor": "2"}
        elif asked.headers.get("mcp-param-city") is None:
            error = {"code": -32020, "message": "Mcp-Param-City is missing"}
            return JSONResponse({"jsonrpc": "2.0", "id": body["id"], "error": error}, 400)
        else:
            seen.append(asked.headers["mcp-param-city"])
            result = {"content": []}
        answer = {"jsonrpc": "2.0", "id": body["id"], "result": result}
        if streams:
            return Response(f"data: {json.dumps(answer)}\n\n", media_type="text/event-stream")
        return JSONResponse(answer)

    app = Starlette(routes=[Route("/mcp", endpoint, methods=["POST"])])
    async with serving(app) as url, bridge_to(f"{url}/mcp") as terminal:
        call = {"name": "weather", "arguments": {"city": "Zürich"}, "_meta": META}
        terminal.send(request(1, "tools/call", **call))
        assert (await terminal.next())["result"] == {"content": []}
        assert seen == ["=?base64?WsO8cmljaA==?="]


async def test_a_server_may_answer_by_streams_alone() -> None:
    """As the official SDK's server does by default; also `initialize`, and in several events."""
    heard: list[tuple[str, str | None, str | None]] = []

    async def endpoint(asked: Request) -> Response:
        if asked.method != "POST":
            return Response(status_code=405)
        body = await asked.json()
        headers = asked.headers
        heard.append(
            (body["method"], headers.get("mcp-session-id"), headers.get("mcp-protocol-version"))
        )
        if "id" not in body:
            return Response(status_code=202)
        news = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": 1}}
        answer = {"jsonrpc": "2.0", "id": body["id"], "result": {"protocolVersion": "2025-06-18"}}
        events = "".join(f"data: {json.dumps(one)}\n\n" for one in (news, answer))
        return Response(events, media_type="text/event-stream", headers={"Mcp-Session-Id": "s-1"})

    app = Starlette(routes=[Route("/mcp", endpoint, methods=["POST", "GET", "DELETE"])])
    async with serving(app) as url, bridge_to(f"{url}/mcp") as terminal:
        terminal.send(HELLO)
        assert (await terminal.next())["method"] == "notifications/message"
        assert (await terminal.next())["id"] == "hello"
        terminal.send(INITIALIZED, request(1, "ping"))
        assert (await terminal.next())["method"] == "notifications/message"
        assert (await terminal.next())["id"] == 1
    assert heard == [
        ("initialize", None, None),
        ("notifications/initialized", "s-1", "2025-06-18"),
        ("ping", "s-1", "2025-06-18"),
    ]


class Forgetful:
    """A server that answers by streams alone, and forgets a session after `remembers` messages."""

    def __init__(self, remembers: int) -> None:
        self.remembers = remembers
        self.heard: list[str] = []
        self.listeners = 0

    async def endpoint(self, asked: Request) -> Response:
        if asked.method != "POST":
            self.listeners += 1
            return Response(status_code=404)
        body = await asked.json()
        self.heard.append(body["method"])
        if body["method"] == "initialize":
            self.left = self.remembers
        elif self.left == 0:
            return Response(status_code=404)
        else:
            self.left -= 1
        if "id" not in body:
            return Response(status_code=202)
        answer = {"jsonrpc": "2.0", "id": body["id"], "result": {"protocolVersion": "2025-06-18"}}
        event = f"data: {json.dumps(answer)}\n\n"
        return Response(event, media_type="text/event-stream", headers={"Mcp-Session-Id": "s"})

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/mcp", self.endpoint, methods=["POST", "GET", "DELETE"])])


async def test_the_client_sees_nothing_of_a_session_that_is_opened_anew() -> None:
    server = Forgetful(remembers=2)
    async with serving(server.app()) as url, bridge_to(f"{url}/mcp") as terminal:
        terminal.send(HELLO)
        assert (await terminal.next())["id"] == "hello"
        for number in range(5):
            terminal.send(request(number, "ping"))
            assert (await terminal.next())["id"] == number
    assert server.heard.count("initialize") > 1


async def test_a_server_that_forgets_each_session_at_once_ends_nothing() -> None:
    server = Forgetful(remembers=0)
    async with serving(server.app()) as url, bridge_to(f"{url}/mcp") as terminal:
        terminal.send(HELLO)
        assert (await terminal.next())["id"] == "hello"
        terminal.send(INITIALIZED)
        await until(lambda: server.listeners > 1)
        for number in range(2):
            terminal.send(request(number, "ping"))
            failed = await terminal.next()
            assert (failed["id"], failed["error"]["code"]) == (number, 1502)


async def test_a_request_of_a_session_that_was_replaced_meanwhile_is_sent_again() -> None:
    """The listener opens another session while the request is on its way."""
    opened = 0
    asked, replaced = anyio.Event(), anyio.Event()

    async def endpoint(request_: Request) -> Response:
        nonlocal opened
        if request_.method != "POST":
            if request_.headers["Mcp-Session-Id"] != "s-1":
                return Response(status_code=405)
            await asked.wait()
            return Response(status_code=404)
        body = await request_.json()
        if "id" not in body:
            if opened > 1:
                replaced.set()
            return Response(status_code=202)
        if body["method"] == "initialize":
            opened += 1
        elif request_.headers["Mcp-Session-Id"] == "s-1":
            asked.set()
            await replaced.wait()
            return Response(status_code=404)
        result = {"protocolVersion": "2025-06-18"}
        answer = {"jsonrpc": "2.0", "id": body["id"], "result": result}
        return JSONResponse(answer, headers={"Mcp-Session-Id": f"s-{opened}"})

    app = Starlette(routes=[Route("/mcp", endpoint, methods=["POST", "GET", "DELETE"])])
    async with serving(app) as url, bridge_to(f"{url}/mcp") as terminal:
        terminal.send(HELLO)
        assert (await terminal.next())["id"] == "hello"
        terminal.send(INITIALIZED)
        terminal.send(request(7, "ping"))
        answer = await terminal.next()
        assert (answer["id"], "result" in answer) == (7, True)


async def test_a_status_without_a_body_is_an_answer() -> None:
    async def endpoint(_: Request) -> Response:
        return Response(status_code=404)

    app = Starlette(routes=[Route("/mcp", endpoint, methods=["POST", "DELETE"])])
    async with serving(app) as url, bridge_to(f"{url}/mcp") as terminal:
        terminal.send(request(1, "ping"))
        answer = await terminal.next()
        assert answer["id"] == 1
        assert "status 404 alone" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("connect", "localhost:8765"), "expected a URL such as http://localhost:8765/mcp"),
        (("connect", "http://["), "expected a URL such as http://localhost:8765/mcp"),
        (("connect", "http://a/mcp", "--key-file", "-"), "standard input is for the client"),
        (("serve", "--stdio", "--port", "1"), "--stdio serves one client"),
        (("serve", "--key-file", "-"), "--key-file is for --stdio"),
    ],
)
def test_mistakes_are_explained(bare: Toolgate, args: tuple[str, ...], said: str) -> None:
    ran = bare(*args, stdin="key")
    assert ran.code == 2
    assert said in ran.err


def test_stdio_needs_a_key_where_callers_are_authenticated(bare: Toolgate) -> None:
    ran = bare("serve", "--stdio", TOOLGATE_AUTH__MODE="keys")
    assert ran.code == 2
    assert "--key-file" in ran.err


async def test_input_that_cannot_be_read_is_at_its_end(tmp_path: Path) -> None:
    """A gateway whose terminal was closed lived on: the thread that read it had failed."""
    descriptor = os.open(tmp_path, os.O_RDONLY)  # fails at each read, as such a terminal
    try:
        with anyio.fail_after(5):
            assert [line async for line in _lines(descriptor)] == [b""]
    finally:
        os.close(descriptor)
