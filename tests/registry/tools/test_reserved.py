"""The names of the gateway's own tools, which no source, hand or earlier import takes away."""

from dataclasses import replace
from typing import get_args

import pytest

from registry.catalog.catalog import Catalog
from registry.database.postgres import Database
from registry.display.discovery_tools import ACCOUNTS, DESCRIBER, own_tools
from registry.names.tool_names import (
    CODE_TOOLS,
    DISCLOSURE_TOOLS,
    RESERVED_NAMES,
    SKILL_TOOLS,
    add_suffix,
    is_reserved,
)
from registry.sources.tool_store import ToolStore
from registry.tools.tool_edits import ToolEdits
from registry.tools.tool_errors import ToolRefused
from schemas.binding import Does, GatewayBinding
from tests.fixtures_database import HOST
from tests.registry.catalog.test_aliases import operation, save, tools
from tests.registry.servers import snapshot, spec, tool
from tests.registry.sources.test_mcp_sources import catalog, import_snapshot
from tests.registry.sources.test_tool_store import SHOP, draft
from tests.registry.tools.test_tool_edits import new

pytestmark = pytest.mark.anyio

ALIKE = [
    *RESERVED_NAMES,
    *("CALL_TOOL", "Call_Tool", "callTool", "call-tool", "calltool", "call__tool", "_call_tool_"),
    *("caII_tool", "ca11_tool", "call_t00l", "1ist_skills", "use-skill"),
]


def test_every_tool_of_the_gateway_has_a_name_that_is_reserved() -> None:
    own = [*own_tools([], skills=True).values(), DESCRIBER, ACCOUNTS]
    assert {*(one.name for one in own), *CODE_TOOLS} == set(RESERVED_NAMES)
    does = {one.binding.does for one in own if isinstance(one.binding, GatewayBinding)}
    assert does == set(get_args(Does))


@pytest.mark.parametrize("name", ALIKE)
def test_lookalikes_of_reserved_names_are_reserved(name: str) -> None:
    assert is_reserved(name)


@pytest.mark.parametrize(
    "name", ["call", "tool", "call_tools", "shop_call_tool", "search", "describe", "call_tool_2"]
)
def test_other_names_are_free(name: str) -> None:
    assert not is_reserved(name)


@pytest.mark.parametrize("name", ALIKE)
async def test_a_tool_that_a_server_lists_later_has_its_source_s_name_in_front(
    store: ToolStore, name: str
) -> None:
    await import_snapshot(store, snapshot(tool("a")), spec("bank"))
    report = await import_snapshot(store, snapshot(tool("a"), tool(name)), spec("bank"))
    found = await catalog(store)
    assert [one.name for one in found.tools] == ["a", f"bank_{name}"]
    assert report.outcomes[1].name == f"bank_{name}"
    for own in (*DISCLOSURE_TOOLS, "describe_tool"):
        assert isinstance(getattr(found.get(own), "binding", None), GatewayBinding)


async def test_letters_of_other_scripts_cannot_imitate_reserved_names(store: ToolStore) -> None:
    wide, cyrillic, invisible = "\uff43all_tool", "c\u0430ll_tool", "call_\u200btool"
    await import_snapshot(store, snapshot(*map(tool, (wide, cyrillic, invisible))), spec("bank"))
    assert not [one.name for one in (await catalog(store)).tools if is_reserved(one.name)]


async def test_the_never_prefix_leaves_out_and_reports_reserved_names(store: ToolStore) -> None:
    report = await import_snapshot(
        store, snapshot(tool("a"), tool("call_tool")), spec(prefix="never")
    )
    assert [one.name for one in (await catalog(store)).tools] == ["a"]
    assert report.outcomes[1].status == "skipped"
    assert report.outcomes[1].reason == (
        "the gateway has the name call_tool, and this one's prefix is never"
    )


async def test_a_prefixed_name_equal_to_a_reserved_name_is_replaced(store: ToolStore) -> None:
    """Source `call`, tool `tool`: with its prefix that is call_tool."""
    await import_snapshot(store, snapshot(tool("tool")), spec("call", prefix="always"))
    [name] = [one.name for one in (await catalog(store)).tools]
    assert name.startswith("call_tool_")


async def test_operations_of_a_description_get_the_prefix_too(store: ToolStore) -> None:
    await store.save(HOST, SHOP, [draft("search_tools"), draft("ping", "/ping@get")])
    assert [one.name for one in await store.tools(HOST)] == ["ping", "shop_search_tools"]


async def test_a_stored_reserved_name_calls_nothing_until_the_next_import(
    store: ToolStore, database: Database
) -> None:
    await save(store, operation("old"))
    async with database.pool.connection() as connection:
        await connection.execute("UPDATE tool_t SET name = 'call_tool'")
    found = Catalog(await store.tools(HOST))
    assert found.tools == ()
    assert found.get("call_tool") == found.own["call_tool"]
    await save(store, operation("call_tool"))
    assert list(await tools(store)) == ["shop_call_tool"]
    assert (await tools(store))["shop_call_tool"].aliases == ()


async def test_no_alias_leads_there(store: ToolStore, database: Database) -> None:
    await save(store, operation("listPets"))
    await save(store, operation("getPets"))
    async with database.pool.connection() as connection:
        await connection.execute("UPDATE tool_alias_t SET name = 'use_skill'")
    assert (await tools(store))["getPets"].aliases == ()


@pytest.mark.parametrize("name", ["call_tool", "Search-Tools", "describe_tool", *SKILL_TOOLS])
async def test_manual_tools_cannot_have_reserved_names(
    database: Database, store: ToolStore, name: str
) -> None:
    by_hand = ToolEdits(database.pool, HOST)
    await store.save(HOST, replace(SHOP, name="other"), [draft("x")])
    refused = f"{name}: the name is kept for the gateway's own tools; take another"
    with pytest.raises(ToolRefused, match=refused):
        await by_hand.add([new(name)])


LONG = "list_every_open_invoice_of_a_customer_with_its_lines_and_taxes_by_currency"


@pytest.mark.parametrize("limit", [16, 24])
def test_a_shortened_name_of_an_operation_is_reserved(limit: int) -> None:
    """A client with a long prefix leaves no more to names (mending 35)."""
    assert is_reserved(add_suffix("knowledge_collections", "knowledge_collections", limit))
    assert not is_reserved(add_suffix("knowledge_collections", "my_collections", limit))


@pytest.mark.parametrize("profile", ["claude", "cursor", "gemini"])
async def test_a_server_does_not_get_the_shortened_name_of_a_foreign_tool(
    store: ToolStore, profile: str
) -> None:
    """Anybody can compute the name of a tool in a profile (mending 35)."""
    await import_snapshot(store, snapshot(tool(LONG)), spec("bank"))
    before = await catalog(store)
    chosen = before.shaper.profiles.profile(profile)
    assert chosen is not None
    known = before.display_name(before.tools[0], chosen)
    assert known != LONG
    await import_snapshot(store, snapshot(tool(known), tool(known.upper())), spec("thief"))
    after = await catalog(store)
    assert len(after.tools) == 3
    called = after.find(known)
    assert called is not None
    assert (called.source, after.display_name(called, chosen)) == ("bank", known)
    assert {name for name in after.sources if after.find_called(f"{name}.{known}")} == {
        "bank",
        "thief",
    }


async def test_manual_tools_cannot_have_the_shortened_name_of_another_tool(
    database: Database, store: ToolStore
) -> None:
    by_hand = ToolEdits(database.pool, HOST)
    await store.save(HOST, SHOP, [draft(LONG), draft("2fa", "/2fa@get")])
    for name, shown in ((add_suffix(LONG, LONG, 49), LONG), ("_2FA", "2fa")):
        refused = f"{name}: clients may see the tool {shown} by this name, shortened; take another"
        with pytest.raises(ToolRefused, match=refused):
            await by_hand.add([new(name)])
    await by_hand.add([new(add_suffix(LONG, "another", 49)), new("_3fa")])
