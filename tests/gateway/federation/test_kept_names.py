"""Long names of another server, and two that differ only in case, through every front."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from mcp.client.client import Client as McpClient
from msgspec.structs import replace

from config.settings import Profile, Settings
from registry.skills.folders import SkillFolder
from registry.skills.skill_md import compose, read_document
from registry.skills.store import SkillStore
from tests.fixtures_database import HOST
from tests.fixtures_gateway import META, MODERN, Client
from tests.gateway.federation.servers import fleet
from tests.polling import until
from tests.servers.mcp_wire import Scripted, Turn

pytestmark = pytest.mark.anyio

WORDS = "reconcile_the_open_invoices_of_every_branch_with_their_bank_statements_" * 2
PAIR = ("findOrder", "findorder")
LONG = tuple(WORDS[:length] for length in (64, 65, 128))
NAMES = (*PAIR, *LONG)


def ledger() -> Scripted:
    """A server that says which of its tools was called."""

    async def tools(turn: Turn) -> None:
        schema = {"type": "object"}
        await turn.result(
            tools=[
                {"name": name, "description": f"Ledger {len(name)}.", "inputSchema": schema}
                for name in NAMES
            ]
        )

    async def call(turn: Turn) -> None:
        await turn.result(content=[{"type": "text", "text": turn.params["name"]}])

    return Scripted({"tools/list": tools, "tools/call": call}, capabilities={"tools": {}})


@pytest.fixture
async def client(bare: Settings) -> AsyncIterator[Client]:
    own = {"folding": Profile(name_limit=128, names_fold=True)}
    settings = replace(
        bare,
        profiles=replace(bare.profiles, custom=own),
        disclosure=replace(bare.disclosure, mode="all"),
    )
    with anyio.fail_after(60):
        async with fleet(settings, {"ledger": (ledger(), AsyncExitStack())}) as behind:
            yield behind.client


async def call(client: Client, name: str, query: str = "", /, **arguments: Any) -> str:
    """The name under which the server was called."""
    params = {"name": name, "arguments": arguments}
    return str((await ask(client, "tools/call", params, query))["content"][0]["text"])


async def ask(client: Client, method: str, params: Mapping[str, Any], query: str = "") -> Any:
    sent = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    if "name" in params:
        sent["Mcp-Name"] = params["name"]
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    _, answer, _ = await client.post("/mcp" + query, request, sent)
    return answer["result"]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_of_no_known_limit_has_the_names_of_the_server(
    client: Client, mode: Any
) -> None:
    """128 characters and both of a pair, each calling its own tool (mending 22)."""
    async with McpClient(client.url + "/mcp", mode=mode) as mcp:
        assert {tool.name for tool in (await mcp.list_tools()).tools} == set(NAMES)
        for name in NAMES:
            assert (await mcp.call_tool(name, {})).content[0].text == name
        with pytest.raises(Exception, match="FINDORDER"):
            await mcp.call_tool("FINDORDER", {})


@pytest.mark.parametrize(
    ("profile", "prefix", "limit"),
    [
        ("claude", "mcp__toolgate__", 64),
        ("openai", "mcp_toolgate_", 64),
        ("gemini", "mcp_toolgate_", 63),
        ("cursor", "toolgate:", 60),
        ("bedrock", "", 64),
    ],
)
async def test_a_client_of_a_narrow_profile_has_names_that_fit(
    client: Client, profile: str, prefix: str, limit: int
) -> None:
    """These, and the whole ones, call the tools that they name (mending 22)."""
    query = f"?profile={profile}"
    listed = [tool["name"] for tool in (await ask(client, "tools/list", {}, query))["tools"]]
    assert set(PAIR) < set(listed)
    assert len(set(listed)) == len(NAMES)
    assert max(len(prefix + name) for name in listed) <= limit
    assert {await call(client, name, query) for name in listed} == set(NAMES)
    assert [await call(client, name, query) for name in NAMES] == list(NAMES)
    assert {await call(client, name) for name in listed} == set(NAMES)


async def test_a_client_that_folds_case_can_tell_a_pair_apart(client: Client) -> None:
    """An operator's own profile says so (mending 22)."""
    listed = (await ask(client, "tools/list", {}, "?profile=folding"))["tools"]
    names = [tool["name"] for tool in listed]
    assert set(LONG) < set(names)
    assert len({name.casefold() for name in names}) == len(NAMES)
    assert {await call(client, name, "?profile=folding") for name in names} == set(NAMES)


@pytest.mark.parametrize("query", ["", "?profile=claude"])
async def test_a_search_tells_the_names_that_its_client_calls(client: Client, query: str) -> None:
    """By `call_tool`, too (mending 22)."""
    listed = {tool["name"] for tool in (await ask(client, "tools/list", {}, query))["tools"]}
    params = {"name": "search_tools", "arguments": {"query": "ledger", "detail": "names"}}
    result = await ask(client, "tools/call", params, query)
    found = [tool["name"] for tool in result["structuredContent"]["tools"]]
    assert set(found) == listed
    inside = [await call(client, "call_tool", query, name=name, arguments={}) for name in found]
    assert set(inside) == set(NAMES)
    described = {"name": "describe_tools", "arguments": {"names": list(found)}}
    told = (await ask(client, "tools/call", described, query))["structuredContent"]
    assert {tool["name"] for tool in told["tools"]} == listed


async def test_json_rpc_calls_each_by_its_own_name(client: Client) -> None:
    """Methods are names of tools, compared exactly (mending 22)."""
    calls = [{"jsonrpc": "2.0", "id": n, "method": name} for n, name in enumerate(NAMES)]
    answers = await client.rpc(calls)
    assert [json.dumps(answer["result"]).count(name) > 0 for answer, name in
            zip(answers, NAMES, strict=True)] == [True] * len(NAMES)  # fmt: skip
    wrong = await client.rpc({"jsonrpc": "2.0", "id": 1, "method": "FindOrder"})
    assert wrong["error"]["code"] == -32601


async def test_a_skill_names_tools_of_any_length_and_case(client: Client) -> None:
    """It brings exactly those (mending 22)."""
    named = (PAIR[1], LONG[2])
    front = {"name": "close-books", "description": "Closing.", "allowed-tools": " ".join(named)}
    text = compose(front, "How to close.\n")
    pool = client.gateway.feed.pool
    assert pool is not None
    folder = SkillFolder("close-books", read_document(text.encode(), "close-books"), ())
    [saved] = await SkillStore(pool, client.gateway.settings.skills).save(HOST, [folder])
    assert saved.missing == ()
    await until(lambda: "close-books" in client.gateway.catalogs.of(HOST).skills.names)
    params = {"name": "use_skill", "arguments": {"name": "close-books"}}
    for query in ("", "?profile=claude"):
        result = await ask(client, "tools/call", params, query)
        tools = [tool["name"] for tool in result["structuredContent"]["tools"]]
        assert [await call(client, name, query) for name in tools] == sorted(named)
