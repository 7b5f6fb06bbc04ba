"""A kind of tool that no module of the product names, walked from its import to its audit."""

import asyncio
import dataclasses
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession
from mcp.client.sse import sse_client
from msgspec.structs import replace

from config.access import Rule
from config.load import load
from config.settings import DatabaseSettings, Settings
from gateway.audit.queries import AuditQuery, search
from registry.database.postgres import Database
from registry.sources.import_specs import ImportSpec
from registry.sources.imports import Sources
from registry.sources.source_versions import History, Versions
from registry.sources.tool_store import ToolStore
from registry.tools.tool_edits import ToolEdits
from schemas.mcp.revisions import STREAMABLE
from tests.fixtures_database import HOST
from tests.fixtures_gateway import Client, running
from tests.gateway.cli.conftest import Toolgate
from tests.gateway.disclosing import call_for_structure
from tests.kinds.parrot import KIND, Aviary, ParrotBinding, ParrotOptions, register_kind

pytestmark = pytest.mark.anyio

REVISIONS = [*STREAMABLE, "2026-07-28"]
POLLY = {"name": "polly", "arguments": {"times": 2}}
SERVICE = "example.com/aviary/polly/0.1.0"


@pytest.fixture
def aviary() -> Iterator[Aviary]:
    with register_kind() as aviary:
        yield aviary


@pytest.fixture
def spec(aviary: Aviary, tmp_path: Path) -> ImportSpec:
    assert not aviary.heard
    path = tmp_path / "aviary.txt"
    path.write_text("polly hello\nrosa ahoy\n")
    return ImportSpec("aviary", str(path), kind=KIND, options=ParrotOptions())


@pytest.fixture
async def parrot_settings(spec: ImportSpec, store: ToolStore, settings: Settings) -> Settings:
    """Settings of a gateway that has parrots, and pets besides."""
    await Sources(store, HOST, settings.imports).import_(spec)
    return settings


@pytest.fixture
async def client(parrot_settings: Settings) -> AsyncIterator[Client]:
    async with running(parrot_settings) as client:
        yield client


async def ask_gateway(client: Client, revision: str, method: str, params: Any = None) -> Any:
    """The result of one request."""
    if revision == "2026-07-28":
        _, reply = await client.modern(method, params)
        return reply["result"]
    session = await client.session(revision)
    return (await session.call(method, params))["result"]


def rpc(method: str, params: Any, id_: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


async def test_its_bindings_are_stored_and_read(
    parrot_settings: Settings, store: ToolStore
) -> None:
    assert parrot_settings
    tools = {tool.name: tool.binding for tool in await store.tools(HOST)}
    assert tools["polly"] == ParrotBinding(service=SERVICE, word="hello")
    source = await store.source(HOST, "aviary")
    assert source is not None
    assert (source.kind, source.base_url, source.title, source.tool_count) == (
        KIND,
        "https://aviary.example",
        "Aviary",
        2,
    )


@pytest.mark.parametrize("revision", REVISIONS)
async def test_every_revision_lists_and_calls_the_kind(client: Client, revision: str) -> None:
    listed = await ask_gateway(client, revision, "tools/list")
    assert {"polly", "rosa"} <= {tool["name"] for tool in listed["tools"]}
    called = await ask_gateway(client, revision, "tools/call", POLLY)
    assert called["content"] == [{"type": "text", "text": "hello hello"}]
    refused = await asked_or_error(client, revision, {"name": "polly", "arguments": {}})
    assert "times" in json.dumps(refused)


async def asked_or_error(client: Client, revision: str, params: Any) -> Any:
    if revision == "2026-07-28":
        return (await client.modern("tools/call", params))[1]
    return await (await client.session(revision)).call("tools/call", params)


async def test_the_2024_transport_serves_the_kind(client: Client) -> None:
    async with sse_client(client.url + "/mcp/sse") as streams, ClientSession(*streams) as session:
        await session.initialize()
        assert "polly" in {tool.name for tool in (await session.list_tools()).tools}
        called = await session.call_tool("polly", {"times": 1})
        assert called.content[0].text == "hello"  # type: ignore[union-attr]


async def test_json_rpc_serves_the_kind_by_name_and_in_batches(client: Client) -> None:
    answer = await client.rpc(rpc("polly", {"times": 1}))
    assert answer["result"] == "hello"
    answer = await client.rpc(rpc("tools/call", POLLY))
    assert answer["result"]["content"][0]["text"] == "hello hello"
    batch = [rpc("polly", {"times": 1}, 1), rpc("rosa", {"times": 1}, 2), rpc(SERVICE, {}, 3)]
    first, second, third = await client.rpc(batch)
    assert (first["result"], second["result"]) == ("hello", "ahoy")
    assert "times" in json.dumps(third["error"])


async def test_a_portal_reaches_the_kind_by_its_action_id(client: Client) -> None:
    listed = (await client.post("/portal/query", rpc("tools/list", {})))[1]
    assert SERVICE in {tool["name"] for tool in listed["result"]["tools"]}
    for name in (SERVICE, "tools/call"):
        params = {"times": 1} if name == SERVICE else {"name": SERVICE, "arguments": {"times": 1}}
        answer = (await client.post("/portal/command", rpc(name, params)))[1]
        assert "hello" in json.dumps(answer["result"])


async def test_a_search_finds_the_kind(client: Client) -> None:
    found = await call_for_structure(client, "search_tools", query="parrot that says ahoy")
    assert "rosa" in json.dumps(found)


async def test_long_answers_of_the_kind_are_stored(
    parrot_settings: Settings, aviary: Aviary
) -> None:
    answers = replace(parrot_settings.answers, tokens=100)
    async with running(replace(parrot_settings, answers=answers)) as client:
        long = {"name": "polly", "arguments": {"times": 200}}
        result = await ask_gateway(client, "2025-06-18", "tools/call", long)
        first, cut = result["content"][0]["text"], json.dumps(result["content"])
        handle = re.findall(r"_continue\W+([\w.:-]+)", cut)[-1]
        more = {"name": "polly", "arguments": {"_continue": handle}}
        result = await ask_gateway(client, "2025-06-18", "tools/call", more)
    assert first.startswith("hello hello")
    assert result["content"][0]["text"].lstrip().startswith("hello")
    assert len(aviary.heard) == 1


async def test_the_breaker_protects_a_sleeping_service(
    parrot_settings: Settings, aviary: Aviary
) -> None:
    breaker = replace(parrot_settings.breaker, calls=2, open_s=600, longest_s=600)
    aviary.asleep = True
    async with running(replace(parrot_settings, breaker=breaker)) as client:
        for _ in range(4):
            result = await ask_gateway(client, "2026-07-28", "tools/call", POLLY)
            assert result["isError"]
        assert "does not answer at the moment" in result["content"][0]["text"]
        answer = (await client.post("/portal/query", rpc(SERVICE, {"times": 1})))[1]
        assert "error" in answer
    assert len(aviary.heard) == 2


async def test_policy_and_audit_cover_the_kind(
    parrot_settings: Settings, tmp_path: Path, aviary: Aviary
) -> None:
    rules = {"quiet": Rule("deny", tools=("rosa",))}
    policy = replace(parrot_settings.policy, rules=rules)
    audit = replace(parrot_settings.audit, mode="always", spool_dir=str(tmp_path / "spool"))
    async with running(replace(parrot_settings, policy=policy, audit=audit)) as client:
        batch = [rpc("polly", {"times": 1}, 1), rpc("rosa", {"times": 1}, 2)]
        said, denied = await client.rpc(batch)
        assert said["result"] == "hello"
        assert denied["error"]["code"] == -32601
        await client.gateway.access.settle()
        assert client.gateway.feed.pool is not None
        page = await search(client.gateway.feed.pool, HOST, AuditQuery())
    found = {(one.entry.subject, one.entry.source, one.entry.outcome) for one in page.records}
    assert ("polly", "aviary", "ok") in found
    assert "quiet" in {one.entry.rule for one in page.records}
    assert aviary.heard == [("hello", 1)]


async def test_tools_of_the_kind_are_disabled_and_enabled(
    parrot_settings: Settings, database: Database
) -> None:
    tools = ToolEdits(database.pool, HOST)
    assert await tools.disable(["polly"]) == ["polly"]
    async with running(parrot_settings) as client:
        listed = await ask_gateway(client, "2026-07-28", "tools/list")
        names = {tool["name"] for tool in listed["tools"]}
        assert "rosa" in names
        assert "polly" not in names
    assert await tools.enable(["polly"]) == ["polly"]


async def test_changes_of_the_kind_are_compared_and_rolled_back(
    parrot_settings: Settings, spec: ImportSpec, store: ToolStore, database: Database
) -> None:
    history = History(store, Versions(database.pool), HOST, parrot_settings.imports)
    Path(spec.location).write_text("polly goodbye\nrosa ahoy\nrio hola\n")
    difference = await history.difference(spec)
    texts = {one.name: [change.text for change in one.changes] for one in difference.tools}
    assert texts["polly"][0] == "says goodbye, said hello"
    assert set(texts) == {"polly", "rio"}
    await Sources(store, HOST, parrot_settings.imports).import_(spec)
    await history.roll_back("aviary")
    words = {tool.name: tool.binding for tool in await store.tools(HOST)}
    assert words["polly"] == ParrotBinding(service=SERVICE, word="hello")
    assert "rio" not in words


async def test_a_search_knows_its_scopes(
    spec: ImportSpec, store: ToolStore, database: Database
) -> None:
    Path(spec.location).write_text("polly hello parrots.ask\nrosa ahoy\n")
    await Sources(store, HOST, load(None, {}).imports).import_(spec)
    async with database.pool.connection() as connection:
        found = await connection.execute("SELECT name, scopes FROM tool_search_v ORDER BY name")
        assert await found.fetchall() == [("polly", ["parrots.ask"]), ("rosa", [])]


async def test_its_options_are_kept(spec: ImportSpec, store: ToolStore) -> None:
    sources = Sources(store, HOST, load(None, {}).imports)
    await sources.import_(dataclasses.replace(spec, options=ParrotOptions(shout=True)))
    Path(spec.location).write_text("polly bye\n")
    await sources.refresh("aviary")
    [polly] = await store.tools(HOST)
    assert polly.binding == ParrotBinding(service=SERVICE, word="BYE")


def test_the_command_line_describes_the_kind(
    spec: ImportSpec, database_settings: DatabaseSettings, toolgate: Toolgate
) -> None:
    asyncio.run(import_into(database_settings, spec))
    shown = toolgate("tools", "show", "polly").out
    assert "a parrot that says hello, at https://aviary.example" in shown
    assert f"{KIND}, 2 tools" in toolgate("sources", "show", "aviary").out
    assert "aviary" in toolgate("doctor").out


async def import_into(settings: DatabaseSettings, spec: ImportSpec) -> None:
    async with Database.open(settings, wait=False) as database:
        await Sources(ToolStore(database.pool), HOST, load(None, {}).imports).import_(spec)
