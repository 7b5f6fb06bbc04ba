"""MCP servers that want to know who calls: sessions and tokens are of one caller alone."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
from msgspec.structs import replace as changed

from config.sources import SourceSettings
from gateway.context import Context, Session
from gateway.interfaces import RelayRequest
from gateway.upstreams.http.client import Client
from gateway.upstreams.mcp.list_reader import Lister
from gateway.upstreams.mcp.relay import McpRelay
from gateway.upstreams.mcp.server_set import Servers
from gateway.upstreams.mcp.transport_choice import Transports
from registry.sources.import_specs import ImportSpec
from schemas.errors import ImportRejected, Unreachable
from schemas.mcp.revisions import V2025_11_25
from schemas.source import McpOptions, Source
from tests.gateway.upstreams.callers import caller, exchange
from tests.gateway.upstreams.conftest import limits
from tests.gateway.upstreams.mcp.audience import Audience
from tests.servers.exchange import ExchangeServer
from tests.servers.mcp_wire import Scripted, Turn, discovery_result, reply

pytestmark = pytest.mark.anyio


class Server(Scripted):
    """Each session has an id of its own; `refused` tokens get a 401, as whoever has none does where
    `open_` is False."""

    def __init__(self, *, stateless: bool = False, open_: bool = True) -> None:
        self.ids = itertools.count(1)
        self.refused: set[str] = set()
        self.open = open_
        plays: dict[str, Any] = {
            "initialize": self._begin,
            "tools/call": self._answer_call,
            "tools/list": self._list,
            "GET": self._nothing,
            "resources/subscribe": self._answer_call,
        }
        if stateless:
            plays["server/discover"] = self._discover
        super().__init__(plays, capabilities={"tools": {}, "resources": {"subscribe": True}})

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        sent = dict(scope["headers"]).get(b"authorization", b"").decode()
        if sent.removeprefix("Bearer ") in self.refused or not (sent or self.open):
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body"})
            return
        await super().__call__(scope, receive, send)

    def who(self, what: str) -> list[str | None]:
        return [turn.header("authorization") for turn in self.all(what)]

    def sessions(self, what: str = "tools/call") -> list[str | None]:
        return [turn.header("mcp-session-id") for turn in self.all(what)]

    async def _begin(self, turn: Turn) -> None:
        self.session = f"s-{next(self.ids)}"
        await self.initialize(turn)

    async def _answer_call(self, turn: Turn) -> None:
        await turn.result(content=[{"type": "text", "text": str(turn.header("authorization"))}])

    async def _list(self, turn: Turn) -> None:
        await turn.result(tools=[{"name": "t", "inputSchema": {"type": "object"}}])

    async def _nothing(self, turn: Turn) -> None:
        await turn.say(405)

    async def _discover(self, turn: Turn) -> None:
        await turn.say(200, reply(turn.id, **discovery_result()))


@dataclass
class Behind:
    """A relay in front of one server."""

    relay: McpRelay
    servers: Servers
    source: Source
    client: Client

    async def call(self, context: Context, **params: Any) -> str:
        asked = RelayRequest(self.source, "tools/call", {"name": "t", "arguments": {}, **params})
        members = await self.relay.request(asked, context)
        return bytes(members["content"]).decode()

    async def lists(self) -> bytes:
        spec = ImportSpec("things", self.source.location, kind="mcp", options=self.source.options)
        return await Lister(self.servers, limits())(spec)


def context_of(token: str) -> Context:
    """A call of Ann's with this token."""
    context = caller(token)
    principal = replace(context.principal, id="ann")
    context.identity = replace(context.identity, principal=principal)
    return context


@pytest.fixture
async def behind(serve: Any) -> AsyncIterator[Any]:
    made: list[Behind] = []

    async def of(server: Server, settings: SourceSettings, **options: Any) -> Behind:
        url = f"{await serve(server)}/mcp"
        sources = {"things": changed(settings, mcp=url)}
        values = limits()
        client = Client(values, sources)
        ways = Transports(client.connections, values, sources, {"name": "toolgate", "version": "1"})
        servers = Servers(ways, Audience(), values)
        relay = McpRelay(servers, cast("Any", None), 3)
        of = Source("id", "things", "mcp", url, None, True, options=McpOptions(**options))
        made.append(Behind(relay, servers, of, client))
        return made[-1]

    yield of
    for one in made:
        await one.servers.close()
        await one.client.close()


def ways_to_prove(url: str) -> dict[str, SourceSettings]:
    return {
        "exchange": SourceSettings(exchange=exchange(url)),
        "forward_token": SourceSettings(forward_token=True),
    }


@pytest.mark.parametrize("transport", ["exchange", "forward_token"])
async def test_each_caller_has_a_session_of_their_own(serve, behind, transport):
    server, tokens = Server(), ExchangeServer()
    settings = ways_to_prove(await serve(tokens))[transport]
    there = await behind(server, settings)
    said = [await there.call(caller(who)) for who in ("ann", "bob", "ann", "bob")]
    ann, bob = ("ann>1", "bob>2") if transport == "exchange" else ("ann", "bob")
    assert [text.split("Bearer ")[1].split('"')[0] for text in said] == [ann, bob, ann, bob]
    first, second = server.sessions()[:2]
    assert first != second
    assert server.sessions() == [first, second] * 2
    whose = {turn.header("mcp-session-id"): set() for turn in server.turns}
    for turn in server.turns:
        whose[turn.header("mcp-session-id")].add(turn.header("authorization"))
    assert whose[first] == {f"Bearer {ann}"}  # with all that was said beside the calls
    assert whose[second] == {f"Bearer {bob}"}


async def test_a_new_token_of_the_same_caller_is_another_credential(serve, behind):
    server = Server()
    there = await behind(server, SourceSettings(forward_token=True))
    for token in ("old", "new"):
        await there.call(context_of(token))
    first, second = server.sessions()
    assert first != second


async def test_a_clients_own_session_outlives_its_token(serve, behind):
    server = Server()
    there = await behind(server, SourceSettings(forward_token=True), own_sessions=True)
    session = None
    for token in ("old", "new"):
        context = context_of(token)
        session = session or Session("c-1", V2025_11_25, context.principal, {}, {})
        context.session, context.revision = session, V2025_11_25
        await there.call(context)
    assert len(set(server.sessions())) == 1
    assert server.who("tools/call") == ["Bearer old", "Bearer new"]
    await there.servers.close()
    assert server.who("DELETE")[-1] == "Bearer new"


async def test_callers_indistinguishable_to_the_server_share_sessions(serve, behind):
    server = Server()
    there = await behind(server, SourceSettings(headers={"Authorization": "Bearer ours"}))
    await there.call(caller("ann"))
    await there.call(caller("bob"))
    assert len(set(server.sessions())) == 1
    assert set(server.who("tools/call")) == {"Bearer ours"}


async def test_stateless_requests_carry_the_token_of_their_caller(serve, behind):
    server, tokens = Server(stateless=True), ExchangeServer()
    there = await behind(server, SourceSettings(exchange=exchange(await serve(tokens))))
    calls = [there.call(caller(who)) for who in ("ann", "bob") * 3]
    said = await asyncio.gather(*calls)
    assert [text.split("Bearer ")[1][:4] for text in said] == ["ann>", "bob>"] * 3
    assert len(tokens.asked) == 2


@pytest.mark.parametrize("stateless", [False, True])
async def test_a_token_that_the_server_refuses_is_exchanged_once_more(serve, behind, stateless):
    server, tokens = Server(stateless=stateless), ExchangeServer()
    there = await behind(server, SourceSettings(exchange=exchange(await serve(tokens))))
    await there.call(caller())
    server.refused = {"ann>1"}
    assert "ann>2" in await there.call(caller())
    server.refused = {"ann>1", "ann>2"}
    with pytest.raises(Unreachable, match="refused the token that it got"):
        await there.call(caller())
    assert len(tokens.asked) == 2


async def test_callers_without_a_token_are_refused_despite_headers(serve, behind):
    server = Server()
    settings = SourceSettings(forward_token=True, headers={"Authorization": "Bearer ours"})
    there = await behind(server, settings)
    with pytest.raises(Unreachable, match="the caller has an API key"):
        await there.call(caller(key=True))
    assert server.all("tools/call") == []
    await there.call(caller("ann"))
    assert server.who("tools/call") == ["Bearer ann"]


@pytest.mark.parametrize("stateless", [False, True])
async def test_lists_are_read_with_a_token_of_the_gateways_own(serve, behind, stateless):
    server, tokens = Server(stateless=stateless, open_=False), ExchangeServer()
    own = exchange(await serve(tokens), actor="client")
    there = await behind(server, SourceSettings(exchange=own))
    assert b'"t"' in await there.lists()
    assert set(server.who("tools/list")) == {"Bearer own>1"}
    server.refused = {"own>1"}
    with pytest.raises(ImportRejected, match="refused the token that it got"):
        await there.lists()
    assert b'"t"' in await there.lists()  # with another one
    assert server.who("tools/list")[-1] == "Bearer own>2"


@pytest.mark.parametrize("transport", ["exchange", "forward_token"])
async def test_lists_are_read_with_the_headers_where_there_is_no_caller(serve, behind, transport):
    server, tokens = Server(open_=False), ExchangeServer()
    settings = ways_to_prove(await serve(tokens))[transport]
    there = await behind(server, settings)
    with pytest.raises(ImportRejected) as caught:
        await there.lists()
    assert str(caught.value) == (
        "The MCP server cannot be read: "
        "things requires a token where there is no caller (HTTP 401): "
        "set sources.things.exchange.actor: client, or sources.things.headers"
    )
    listed = changed(settings, headers={"Authorization": "Bearer lists"})
    there = await behind(server, listed)
    assert b'"t"' in await there.lists()
    assert set(server.who("tools/list")) == {"Bearer lists"}
    await there.call(caller("ann"))
    assert "lists" not in str(server.who("tools/call"))
