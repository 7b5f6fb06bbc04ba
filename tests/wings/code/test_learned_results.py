"""Signatures with results that programs have seen."""

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import Raw

from config.settings import Settings
from gateway.wings.code.learned_results import LearnedResults
from gateway.wings.code.wing import OF_PERSON
from registry.database.person_rows import ErasedPerson, HeldRows
from schemas.tool import ToolResult
from tests.fixtures_gateway import running
from tests.wings.code.shop import CodeShop, code_shop

pytestmark = pytest.mark.anyio

STUB = "tools.describe('get-item')[0]['stub']"
LEARNED = 'def get_item(*, id: int) -> {"id": int, "count": int}: """Get an item."""'
PLAIN = 'def get_item(*, id: int) -> Any: """Get an item."""'


async def test_results_are_learned_from_answers(settings: Settings, tmp_path: Path) -> None:
    """At all gateways; failures teach nothing."""
    async with code_shop(settings, tmp_path, code={"learned_results": 5}) as shop:
        await shop.run("try: tools.get_item(id=99)\nexcept ToolError: pass")
        assert (await shop.run(STUB))["result"] == PLAIN
        assert (await shop.run(f"tools.get_item(id=1)\n{STUB}"))["result"] == LEARNED
        async with running(shop.client.gateway.settings) as client:
            await client.gateway.wait_for_wings()
            assert (await CodeShop(shop.shop, client).run(STUB))["result"] == LEARNED


async def test_lists_of_signatures_have_learned_results(settings: Settings, tmp_path: Path) -> None:
    async with code_shop(settings, tmp_path, code={"learned_results": 5}) as shop:
        await shop.run("tools.get_item(id=1)")
        for method, params in (
            ("describe_tools", {"names": ["get-item"], "as": "python"}),
            ("search_tools", {"query": "get item", "as": "python", "limit": 10}),
        ):
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            answer = await shop.client.rpc(body)
            stubs = {entry["name"]: entry["stub"] for entry in answer["result"]["tools"]}
            assert stubs["get-item"] == LEARNED, method


async def test_nothing_is_learned_by_default(settings: Settings, tmp_path: Path) -> None:
    async with code_shop(settings, tmp_path) as shop:
        assert (await shop.run(f"tools.get_item(id=1)\n{STUB}"))["result"] == PLAIN
        rows = await read_rows(shop)
        assert rows == []


async def test_learned_results_are_private(settings: Settings, tmp_path: Path) -> None:
    async with code_shop(settings, tmp_path, code={"learned_results": 5}) as shop:
        await shop.run("tools.get_item(id=1)")
        gateway = shop.client.gateway
        shapes = HeldRows(
            place="schemas",
            table="code_shape_t",
            pool=lambda: gateway.feed.pool,
            condition=OF_PERSON,
        )
        [(tenant, shape)] = await read_rows(shop)
        assert "10" not in shape
        await shapes.erase_person(ErasedPerson(tenant, "carol", "erased"))
        assert (await shop.run(STUB))["result"] == LEARNED
        async with gateway.feed.pool.connection() as connection:
            await connection.execute("UPDATE code_shape_t SET principal = 'carol'")
        assert (await shop.run(STUB))["result"] == PLAIN
        await shapes.erase_person(ErasedPerson(tenant, "carol", "erased"))
        assert await read_rows(shop) == []


async def test_a_changed_tool_is_learned_anew(settings: Settings, tmp_path: Path) -> None:
    async with code_shop(settings, tmp_path, code={"learned_results": 5}) as shop:
        await shop.run("tools.get_item(id=1)")
        async with shop.client.gateway.feed.pool.connection() as connection:
            await connection.execute("UPDATE code_shape_t SET digest = 'x'")
        assert (await shop.run(STUB))["result"] == PLAIN


async def test_the_oldest_results_are_forgotten(settings: Settings, tmp_path: Path) -> None:
    async with code_shop(settings, tmp_path, code={"learned_results": 1}) as shop:
        async with shop.client.gateway.feed.pool.connection() as connection:
            principal = shop.client.gateway.principal
            await connection.execute(
                "INSERT INTO code_shape_t VALUES (%s, %s, 'old', '', '{}', now() - interval '1 h')",
                [principal.tenant, principal.id],
            )
        await shop.run("tools.get_item(id=1)")
        [(_, shape)] = await read_rows(shop)
        assert "count" in shape
        await check_forgotten_results_are_learned_again(shop)


async def check_forgotten_results_are_learned_again(shop: CodeShop) -> None:
    """Those that a further tool has displaced, at this gateway and at another one."""
    gateway = shop.client.gateway
    caller, pool, answer = gateway.principal, gateway.feed.pool, ToolResult((), Raw(b'{"a": 1}'))
    tool = gateway.catalogs.of(caller.tenant).get("get-item")
    assert tool is not None
    further = replace(tool, id="further")
    here, there = LearnedResults(pool, 1), LearnedResults(pool, 1)
    for learned in (here, there):
        await here.learn(caller, tool, answer)
        await learned.learn(caller, further, answer)
        [described] = await here.complete(caller, [tool])
        assert described.output_schema is None
        await here.learn(caller, tool, answer)
        [described] = await here.complete(caller, [tool])
        assert described.output_schema is not None


async def read_rows(shop: CodeShop) -> list[tuple[str, str]]:
    """Tenants and shapes."""
    async with shop.client.gateway.feed.pool.connection() as connection:
        rows = await connection.execute("SELECT host_id, shape FROM code_shape_t")
        return [(str(host), bytes(shape).decode()) for host, shape in await rows.fetchall()]
