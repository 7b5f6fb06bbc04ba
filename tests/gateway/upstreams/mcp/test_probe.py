"""What a server speaks: every kind of server, and every way to say no."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from config.sources import SourceSettings
from gateway.upstreams.http.client import Client
from gateway.upstreams.http.source_pools import SourcePools, UpstreamFailed
from gateway.upstreams.mcp import stdio
from gateway.upstreams.mcp.handshake import UNKNOWN
from gateway.upstreams.mcp.link_and_handlers import Link, NullHandler
from gateway.upstreams.mcp.transport_choice import Transports
from schemas.errors import Unavailable
from schemas.source import McpOptions, Source
from tests.gateway.upstreams.conftest import limits
from tests.gateway.upstreams.mcp.conftest import PATIENT, mcp_source
from tests.servers import mcp_stdio
from tests.servers.mcp_wire import Scripted, Turn, TwoEndpoints, discovery_result, failure, reply

pytestmark = pytest.mark.anyio

SERVER = (sys.executable, "-I", "-S", str(Path(mcp_stdio.__file__)))
CLIENT = {"name": "toolgate", "version": "1"}


@pytest.fixture
async def ways(anyio_backend: str) -> AsyncIterator[Any]:
    """`ways(**limits)(source)`, closed when the test ends."""
    clients: list[Client] = []
    opened: list[Any] = []

    def of(sources: Any = None, **changes: Any) -> Any:
        values = limits(**changes)
        clients.append(Client(values, sources or {}))
        made = Transports(clients[-1].connections, values, sources or {}, CLIENT)

        def way(source: Source) -> Any:
            opened.append(made(source))
            return opened[-1]

        return way

    yield of
    for transport in opened:
        await transport.close()
    for client in clients:
        await client.close()


def server(**plays: Any) -> Scripted:
    return Scripted({name.replace("_", "/"): play for name, play in plays.items()})


async def discover(turn: Turn) -> None:
    await turn.result(**discovery_result(instructions="Ask."))


def says(status: int, body: bytes = b"", kind: str = "application/json") -> Any:
    async def play(turn: Turn) -> None:
        await turn.say(status, body, kind)

    return play


def errs(status: int, code: int, data: Any = None) -> Any:
    async def play(turn: Turn) -> None:
        await turn.say(status, failure(turn.id, code, data=data))

    return play


async def test_a_server_of_both_eras_is_known_in_both(serve, ways):
    asked = server(server_discover=discover)
    supported = await ways()(mcp_source(await serve(asked))).probe()
    assert supported.eras == {"stateless": True, "handshake": True}
    assert supported.stateless.capabilities == {"tools": {}}
    assert supported.stateless.server_info == {"name": "scripted", "version": "1"}
    assert supported.stateless.instructions == "Ask."
    assert supported.handshake.revision.name == "2025-11-25"
    assert supported.transport == "streamable"
    first = asked.turns[0]
    assert first.header("mcp-method") == "server/discover"
    assert first.header("mcp-protocol-version") == "2026-07-28"
    assert "io.modelcontextprotocol/clientCapabilities" in first.params["_meta"]
    assert len(asked.all("DELETE")) == 1  # nothing stays open


LEGACY = [
    says(400),
    says(404, b"<html>", "text/html"),
    says(405),
    says(406),
    says(200, b"<html>", "text/html"),
    errs(200, -32601),
    errs(400, -32600),
    errs(400, -32000),
    errs(200, -32603),
    errs(400, -32022, {"supported": ["2025-11-25"]}),
    errs(400, -32022),
    says(200, reply(1, supportedVersions=["2025-11-25"])),
    says(200, reply(1)),
]


@pytest.mark.parametrize("answer", LEGACY)
async def test_a_server_that_does_not_know_discover_has_sessions_only(serve, ways, answer):
    supported = await ways()(mcp_source(await serve(server(server_discover=answer)))).probe()
    assert supported.eras == {"stateless": False, "handshake": True}


@pytest.mark.parametrize(
    "answer",
    [
        errs(400, -32020),
        errs(400, -32021, {"requiredCapabilities": {}}),
        errs(404, -32601),
        errs(400, -32022, {"supported": ["2026-07-28"]}),
    ],
)
async def test_errors_peculiar_to_2026_07_28_reveal_a_stateless_server(serve, ways, answer):
    asked = server(server_discover=answer, initialize=errs(404, -32601))
    supported = await ways()(mcp_source(await serve(asked))).probe()
    assert supported.stateless == UNKNOWN
    assert supported.handshake is None


@pytest.mark.parametrize("status", [307, 401, 403, 429, 500, 503])
async def test_an_undecided_server_is_not_taken_for_a_handshake_server(serve, ways, status):
    asked = server(server_discover=says(status))
    with pytest.raises(UpstreamFailed, match=f"HTTP {status}"):
        await ways()(mcp_source(await serve(asked))).probe()
    assert asked.all("initialize") == []


async def test_silence_says_nothing_either(serve, ways):
    async def silent(turn: Turn) -> None:
        await turn.wait_until_left()

    asked = server(server_discover=silent)
    with pytest.raises(UpstreamFailed, match="did not answer"):
        await ways(timeout_s=0.1)(mcp_source(await serve(asked))).probe()
    assert asked.all("initialize") == []


async def test_a_server_that_cannot_be_reached_fails_as_that(ways):
    with pytest.raises(UpstreamFailed, match="could not be reached"):
        await ways()(mcp_source("http://127.0.0.1:9")).probe()


@pytest.mark.parametrize("answer", [says(400), says(404), says(500), says(403), errs(400, -32022)])
async def test_a_stateless_server_may_refuse_sessions_in_any_way(serve, ways, answer):
    asked = server(server_discover=discover, initialize=answer)
    supported = await ways()(mcp_source(await serve(asked))).probe()
    assert supported.eras == {"stateless": True, "handshake": False}


async def test_a_server_with_two_endpoints_is_found_last(serve, ways):
    async def nothing(server: TwoEndpoints, message: Any) -> None:
        pass

    transport = ways()(mcp_source(await serve(TwoEndpoints(nothing))))
    assert not transport.one_stream
    supported = await transport.probe()
    assert supported.eras == {"stateless": False, "handshake": True}
    assert supported.transport == "sse"
    assert transport.one_stream
    link = await transport.open(supported, {}, NullHandler())
    assert link.revision.name == "2024-11-05"
    await link.close()


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (says(404), "answered HTTP 404"),
        (says(200, b"<html>", "text/html"), "answered with text/html"),
    ],
)
async def test_servers_without_mcp_are_refused(serve, ways, page, text):
    asked = server(server_discover=page, initialize=page, GET=page)
    with pytest.raises(UpstreamFailed, match="does not answer as an MCP server") as caught:
        await ways()(mcp_source(await serve(asked))).probe()
    assert text in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)


async def test_only_the_era_that_is_set_is_asked_for(serve, ways):
    asked = server(server_discover=discover)
    url = await serve(asked)
    stateless = await ways()(mcp_source(url, era="stateless")).probe()
    assert stateless.eras == {"stateless": True, "handshake": False}
    assert asked.all("initialize") == []
    handshake = await ways()(mcp_source(url, era="handshake")).probe()
    assert handshake.eras == {"stateless": False, "handshake": True}
    assert len(asked.all("server/discover")) == 1


async def test_an_era_that_is_set_and_not_there_is_a_failure(serve, ways):
    url = await serve(server())
    with pytest.raises(UpstreamFailed, match="does not support 2026-07-28"):
        await ways()(mcp_source(url, era="stateless")).probe()


async def test_a_probed_server_is_callable(serve, ways):
    async def answer_call(turn: Turn) -> None:
        await turn.result(content=[])

    asked = server(server_discover=discover, tools_call=answer_call)
    transport = ways()(mcp_source(await serve(asked)))
    supported = await transport.probe()
    session = await transport.open(supported, {"sampling": {}}, NullHandler())
    link = await transport.stateless(supported)
    for one in (session, link):
        assert one.alive
        await one.request("tools/call", {"name": "x"}, None, transport.timeout)
        await one.close()
        assert not one.alive
    assert asked.all("initialize")[-1].params["capabilities"] == {"sampling": {}}


async def test_new_settings_retire_links_and_leave_their_calls_alone(serve, clock):
    connections = SourcePools(limits(), {})
    held = anyio.Event()

    async def later(turn: Turn) -> None:
        await held.wait()
        await turn.result()

    asked = server(tools_call=later)
    transport = Transports(connections, limits(), {}, CLIENT)(mcp_source(await serve(asked)))
    link = await transport.stateless(await transport.probe())
    async with anyio.create_task_group() as calls:

        async def call() -> None:
            assert await link.request("tools/call", {}, None, PATIENT) == {}

        calls.start_soon(call)
        await asked.wait_for_request("tools/call")
        connections.configure(limits(), {})
        assert not link.alive
        held.set()
    [(pool, closing)] = connections._closing.items()
    clock.advance(pool.timeout_s)
    await anyio.sleep(0.01)
    assert not closing.done()  # the link holds its connections
    await link.close()
    with anyio.fail_after(30):
        await closing
    await connections.close()


def of_command(habit: str, **options: Any) -> Source:
    words = (*SERVER, habit)
    return Source("id", "things", "mcp", "", None, True, options=McpOptions(words, **options))


@pytest.mark.parametrize(
    ("habit", "eras"),
    [
        ("handshake", (False, True)),
        ("modern", (True, False)),
        ("both", (True, True)),
        ("dies-at-discover", (False, True)),
    ],
)
async def test_processes_are_asked_too(ways, habit, eras):
    transport = ways(timeout_s=20)(of_command(habit))
    assert transport.one_stream
    supported = await transport.probe()
    assert (supported.eras["stateless"], supported.eras["handshake"]) == eras
    assert supported.transport == "stdio"


async def test_a_process_silent_at_discover_is_a_handshake_server(ways, monkeypatch):
    monkeypatch.setattr("gateway.upstreams.mcp.transport_choice.DISCOVER_S", 0.5)
    supported = await ways(timeout_s=20)(of_command("silent-at-discover")).probe()
    assert supported.eras == {"stateless": False, "handshake": True}


async def test_a_command_that_ends_at_once_fails_and_waits_before_the_next_time(ways):
    transport = ways(timeout_s=20)(of_command("exits"))
    with pytest.raises(UpstreamFailed, match="does not answer as an MCP server"):
        await transport.probe()
    with pytest.raises(UpstreamFailed, match="not started again for another"):
        await transport.probe()


async def test_no_more_processes_than_allowed(ways, monkeypatch):
    monkeypatch.setattr(stdio, "GRACE_S", 0.2)
    transport = ways(timeout_s=20, stdio_processes=2)(of_command("handshake"))
    supported = await transport.probe()
    links: list[Link] = [await transport.open(supported, {}, NullHandler()) for _ in range(2)]
    with pytest.raises(Unavailable, match="has 2 processes already"):
        await transport.open(supported, {}, NullHandler())
    await links[0].close()
    await transport.open(supported, {}, NullHandler())


async def test_the_environment_that_is_configured_is_given(ways):
    sources = {"things": SourceSettings(env={"TOKEN": "t"})}
    transport = ways(sources, timeout_s=20)(of_command("handshake"))
    link = await transport.open(await transport.probe(), {}, NullHandler())
    members = await link.request("tools/call", {"name": "environment"}, None, transport.timeout)
    assert b'"TOKEN": "t"' in bytes(members["environment"])


async def test_commands_can_be_switched_off(ways):
    transport = ways(stdio=False)(of_command("handshake"))
    with pytest.raises(UpstreamFailed, match=r"commands are off \(upstream\.stdio\)"):
        await transport.probe()
