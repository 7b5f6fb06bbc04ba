"""The ledger of costs: what clients are sent and models use is added up by caller and toolset."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from config.settings import DatabaseSettings, Settings
from gateway.middleware.cost_ledger import CostLedger
from registry.costs.daily_costs import OTHERS, CostQuery, DailyCosts, SummedCosts
from registry.database.postgres import Database
from registry.display.token_budgets import tokens
from schemas.jsonrpc import encode
from tests.fixtures_database import HOST
from tests.fixtures_gateway import META, MODERN, Client, Recorder, running, wordless
from tests.servers.provider import chat_whole, providing
from tests.wings.agent.rig import agent_settings
from tests.wings.agent.test_loop import call

pytestmark = pytest.mark.anyio

MODEL = "scripted/m"


@asynccontextmanager
async def costing(settings: Settings, **changed: Any) -> AsyncIterator[Client]:
    costs = replace(settings.costs, enabled=True, **{"flush_s": 3600.0, **changed})
    async with running(replace(settings, costs=costs)) as client:
        yield client


async def sums(client: Client, *by: str) -> list[SummedCosts]:
    ledger, pool = client.gateway.costs, client.gateway._handle.pool()
    assert ledger is not None
    assert pool is not None
    await ledger.flush()
    today = datetime.now(UTC).date()
    query = CostQuery(first=today, last=today, by=by, limit=100)  # type: ignore[arg-type]
    return list(await DailyCosts(pool).sums(HOST, query))


async def test_lists_and_results_of_clients_are_counted(settings: Settings) -> None:
    async with costing(settings) as client:
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}
        async with client.http.post(
            f"{client.url}/mcp", json=request, headers={**headers, "Accept": "application/json"}
        ) as response:
            list_bytes = len(await response.read())
        await client.modern("tools/call", {"name": "getPet", "arguments": {"id": 1}})
        await client.rpc({"jsonrpc": "2.0", "id": 1, "method": "getPet", "params": {"id": 1}})
        await client.rpc({"jsonrpc": "2.0", "method": "getPet", "params": {"id": 1}})
        await client.rpc({"jsonrpc": "2.0", "id": 1, "method": "unknown"})
        [row] = await sums(client, "caller")
        assert row.caller == "anonymous"
        assert list_bytes - 60 < 4 * row.definitions < list_bytes + 4
        assert row.answers > 100
        before = row.answers
        session = await client.session()
        await session.call("tools/call", {"name": "getPet", "arguments": {"id": 1}})
        [row] = await sums(client, "caller")
        assert before < row.answers < 2 * before
        assert (row.requests, row.money) == (0, {})
        await session.call("tools/call", {"name": "getPet", "arguments": {"id": 1}})
        await client.gateway.events.person_erased.publish(HOST, "anonymous")
        assert [row.caller for row in await sums(client, "caller")] == [OTHERS]


async def test_models_are_counted_for_the_caller_and_the_toolset_of_a_run(
    database_settings: DatabaseSettings, service: Recorder, tmp_path: Path
) -> None:
    asks, ends = chat_whole("", [call("a1", "getPet", id=1)]), chat_whole("Done.")
    params = {"name": "agent_ask", "arguments": {"message": "Hello"}, "_meta": META}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "agent_ask"}
    async with providing(asks, ends, asks, ends) as provider:
        description = tmp_path / "pets.json"
        settings = agent_settings(database_settings, description, service, provider.url)
        async with costing(settings) as client:
            await client.post("/mcp/some", request, headers)
            _, answer, _ = await client.post("/mcp", request, headers)
            rows = await sums(client, "caller", "toolset", "model")
    by_key = {(row.toolset, row.model): row for row in rows}
    assert {row.caller for row in rows} == {"anonymous"}
    assert by_key.keys() == {(toolset, model) for toolset in ("", "some") for model in ("", MODEL)}
    for toolset in ("", "some"):
        row = by_key[toolset, MODEL]
        assert (row.requests, row.tokens_in, row.tokens_out) == (2, 22, 14)
        assert (row.money, row.unpriced) == ({"USD": 36}, 0)
    # the agent has called a tool, whose result no client got
    assert len(service.requests) == 1
    assert by_key["", ""].answers == tokens(encode(answer["result"]))


async def test_sums_wait_for_the_database_and_share_a_row_beyond_the_limit(
    database: Database,
) -> None:
    settings = replace(wordless().costs, enabled=True, rows=2)
    opened: list[Any] = [None]
    ledger = CostLedger(settings, HOST, lambda: opened[0])
    for name in ("ada", "bob", "cyd", "dan"):
        ledger.count_model(("", name, ""), "a/m", read=3, written=1, cost=(0.5, "USD"))
    await ledger.flush()
    opened[0] = database.pool
    await ledger.flush()
    await ledger.flush()
    today = datetime.now(UTC).date()
    query = CostQuery(first=today, last=today, by=("caller",), limit=10)
    rows = await DailyCosts(database.pool).sums(HOST, query)
    assert [(row.caller, row.tokens_in, row.money) for row in rows] == [
        (OTHERS, 6, {"USD": 1_000_000}), ("ada", 3, {"USD": 500_000}), ("bob", 3, {"USD": 500_000}),
    ]  # fmt: skip


async def test_nothing_is_loaded_without_the_setting(client: Client) -> None:
    assert client.gateway.costs is None
