"""Operations that are renamed or moved: the same tool, and the old name still calls it."""

from dataclasses import replace
from typing import Any

import pytest

from registry.catalog.catalog import Catalog
from registry.database.postgres import Database
from registry.sources.tool_store import SavedTools, ToolStore
from schemas.tool import Tool, ToolDraft
from tests.fixtures_database import HOST
from tests.registry.sources.test_tool_store import SHOP, draft

pytestmark = pytest.mark.anyio


def operation(name: str, path: str = "/pets", **fields: Any) -> ToolDraft:
    """With an id, as descriptions mostly have them."""
    return draft(name, f"{path}@get", operation=name, **fields)


async def save(store: ToolStore, *drafts: ToolDraft, source: str = "shop") -> SavedTools:
    return await store.save(HOST, replace(SHOP, name=source), drafts, b"{}")


async def tools(store: ToolStore) -> dict[str, Tool]:
    return {tool.name: tool for tool in await store.tools(HOST)}


async def aliases(store: ToolStore) -> dict[str, str]:
    return {alias: t.name for t in (await tools(store)).values() for alias in t.aliases}


async def test_an_operation_with_another_id_is_the_same_tool_and_keeps_its_old_name(
    store: ToolStore,
) -> None:
    await save(store, operation("listPets"))
    before = await tools(store)
    saved = await save(store, operation("getPets"))
    assert (saved.added, saved.updated, saved.removed) == ((), ("getPets",), ())
    after = await tools(store)
    assert after["getPets"].id == before["listPets"].id
    catalog = Catalog(after.values())
    assert catalog.get("listPets") is catalog.get("getPets")
    assert [tool.name for tool in catalog.tools] == ["getPets"]


async def test_an_operation_at_another_path_is_the_same_tool(store: ToolStore) -> None:
    await save(store, operation("listPets"), operation("slow", "/slow"))
    before = await tools(store)
    saved = await save(store, operation("listPets", "/v2/pets"), operation("slow", "/slow"))
    assert (saved.added, saved.updated, saved.removed) == ((), ("listPets",), ())
    after = await tools(store)
    assert {name: tool.id for name, tool in after.items()} == {
        name: tool.id for name, tool in before.items()
    }
    assert await aliases(store) == {}
    again = await save(store, operation("listPets", "/v2/pets"), operation("slow", "/slow"))
    assert again.unchanged == ("listPets", "slow")


async def test_operations_can_move_in_a_row_and_swap(store: ToolStore) -> None:
    first = [operation("a", "/1"), operation("b", "/2"), operation("c", "/3")]
    await save(store, *first)
    before = {name: tool.id for name, tool in (await tools(store)).items()}
    for paths in (("/2", "/3", "/4"), ("/3", "/2", "/1"), ("/1", "/2", "/3")):
        await save(store, *(operation(n, path) for n, path in zip("abc", paths, strict=True)))
        assert {name: tool.id for name, tool in (await tools(store)).items()} == before


async def test_a_tool_moved_to_a_freed_path_can_be_restored(
    store: ToolStore,
) -> None:
    await save(store, operation("a", "/1"), operation("b", "/2"))
    before = {name: tool.id for name, tool in (await tools(store)).items()}
    saved = await save(store, operation("a", "/2"))
    assert saved.removed == ("b",)
    assert {name: tool.id for name, tool in (await tools(store)).items()} == {"a": before["a"]}
    await save(store, operation("a", "/1"), operation("b", "/2"))
    assert {name: tool.id for name, tool in (await tools(store)).items()} == before


async def test_ids_that_are_not_unique_tell_nothing(store: ToolStore) -> None:
    twins = [draft("a", "/1@get", operation="x"), draft("b", "/2@get", operation="x")]
    await save(store, *twins)
    saved = await save(store, draft("a", "/3@get", operation="x"), twins[1])
    assert (saved.added, saved.removed) == (("a",), ("a",))


async def test_every_former_name_calls_the_tool_until_reused(
    store: ToolStore,
) -> None:
    for name in ("one", "two", "three"):
        await save(store, operation(name))
    assert await aliases(store) == {"one": "three", "two": "three"}
    await save(store, operation("one"))
    assert await aliases(store) == {"two": "one", "three": "one"}


@pytest.mark.parametrize("source", ["shop", "other"])
async def test_a_name_that_another_tool_gets_is_an_alias_no_longer(
    store: ToolStore, source: str
) -> None:
    await save(store, operation("old"))
    await save(store, operation("new"))
    assert await aliases(store) == {"old": "new"}
    newcomer = operation("old", "/other")
    drafts = [operation("new"), newcomer] if source == "shop" else [newcomer]
    await save(store, *drafts, source=source)
    assert await aliases(store) == {}
    assert set(await tools(store)) == {"new", "old"}


@pytest.mark.parametrize("source", ["shop", "other"])
async def test_an_alias_stays_beside_a_name_in_another_case(store: ToolStore, source: str) -> None:
    """A former name calls its tool, whatever looks like it (mending 22)."""
    await save(store, operation("old"))
    await save(store, operation("new"))
    newcomer = operation("OLD", "/other")
    drafts = [operation("new"), newcomer] if source == "shop" else [newcomer]
    await save(store, *drafts, source=source)
    assert await aliases(store) == {"old": "new"}
    assert set(await tools(store)) == {"new", "OLD"}


async def test_both_tools_of_a_pair_keep_their_former_names(store: ToolStore) -> None:
    """Aliases may differ only in case, as names may (mending 22)."""
    await save(store, operation("getUser", "/1"), operation("getuser", "/2"))
    before = {name: tool.id for name, tool in (await tools(store)).items()}
    await save(store, draft("fetchUser", "/1@get"), draft("fetch_user", "/2@get"))
    assert await aliases(store) == {"getUser": "fetchUser", "getuser": "fetch_user"}
    catalog = Catalog((await tools(store)).values())
    assert {name: tool.id for name in before if (tool := catalog.find(name))} == before
    assert catalog.find("GETUSER") is None


async def test_the_tools_of_a_pair_may_swap_their_names(store: ToolStore) -> None:
    """Each name belongs to one tool at a time (mending 22)."""
    await save(store, draft("getUser", "/1@get"), draft("getuser", "/2@get"))
    before = {name: tool.id for name, tool in (await tools(store)).items()}
    await save(store, draft("getuser", "/1@get"), draft("getUser", "/2@get"))
    after = {name: tool.id for name, tool in (await tools(store)).items()}
    assert after == {"getUser": before["getuser"], "getuser": before["getUser"]}
    assert await aliases(store) == {}


async def test_an_old_name_that_another_tool_takes_at_once_is_no_alias(store: ToolStore) -> None:
    await save(store, operation("old"))
    await save(store, operation("new"), operation("old", "/other"))
    # by its id: the tool `old` moved, and `new` is another one
    assert await aliases(store) == {}
    await save(store, draft("a", "/1@get"), draft("b", "/2@get"), source="plain")
    await save(store, draft("b", "/1@get"), draft("a", "/2@get"), source="plain")
    assert await aliases(store) == {}


async def test_a_name_in_another_case_calls_the_tool_too(store: ToolStore) -> None:
    await save(store, operation("listpets"))
    await save(store, operation("listPets"))
    assert await aliases(store) == {"listpets": "listPets"}


async def test_aliases_of_a_tool_that_is_gone_call_nothing(store: ToolStore) -> None:
    await save(store, operation("old"))
    await save(store, operation("new"))
    await save(store, operation("else", "/else"))
    assert await aliases(store) == {}
    await save(store, operation("new"))
    assert await aliases(store) == {"old": "new"}


async def test_a_tool_and_its_aliases_go_together(store: ToolStore, database: Database) -> None:
    await save(store, operation("old"))
    await save(store, operation("new"))
    await store.remove(HOST, "shop")
    async with database.pool.connection() as connection:
        found = await connection.execute("SELECT count(*) FROM tool_alias_t")
        assert await found.fetchone() == (0,)


async def test_toolsets_of_a_description_come_back_and_make_a_change(store: ToolStore) -> None:
    await save(store, operation("a"))
    saved = await save(store, operation("a", toolsets=("x", "y")))
    assert saved.updated == ("a",)
    assert (await tools(store))["a"].toolsets == ("x", "y")
