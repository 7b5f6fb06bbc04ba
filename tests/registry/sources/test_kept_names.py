"""Names that the registry keeps as they were given, and those that an earlier rule gave."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from registry.catalog.catalog import Catalog
from registry.database.postgres import Database
from registry.importers.graphql import GraphQLChoice
from registry.importers.graphql import read as read_graphql
from registry.importers.hybrid.actions_to_tools import drafts as hybrid_drafts
from registry.importers.openapi import read as read_openapi
from registry.names.tool_names import add_suffix
from registry.sources.tool_store import SavedTools, ToolStore
from schemas.hybrid import Action
from schemas.tool import ToolDraft
from tests.fixtures_database import HOST
from tests.registry.importers.describe import document
from tests.registry.servers import prompt, snapshot, tool
from tests.registry.sources.test_mcp_sources import catalog, import_snapshot
from tests.registry.sources.test_tool_store import SHOP

pytestmark = pytest.mark.anyio

PAIR = ("findOrder", "findorder")
WORDS = "export_every_ledger_of_the_northern_branches_as_a_table_with_taxes" * 2
GIVEN = tuple(WORDS[:length] for length in (64, 65, 128, 129))


def openapi() -> list[ToolDraft]:
    paths = {f"/{n}": {"get": {"operationId": name}} for n, name in enumerate(PAIR)}
    return list(read_openapi(document(paths)).drafts)


def graphql() -> list[ToolDraft]:
    sdl = f"type Query {{ {PAIR[0]}: String {PAIR[1]}: String }}"
    return list(read_graphql(sdl.encode(), "x.graphql", GraphQLChoice()).drafts)


def hybrid() -> list[ToolDraft]:
    return hybrid_drafts([Action(f"example.org/shop/{name}/1") for name in PAIR], "hybrid")


async def save(store: ToolStore, drafts: Sequence[ToolDraft]) -> SavedTools:
    return await store.save(HOST, SHOP, drafts, b"{}")


async def ids(store: ToolStore) -> dict[str, str]:
    return {one.id: one.name for one in await store.tools(HOST)}


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (openapi, PAIR),
        (graphql, PAIR),
        (hybrid, tuple(f"example_org_shop_{name}_1" for name in PAIR)),
    ],
)
async def test_a_pair_in_one_description_is_two_tools(
    store: ToolStore, read: Callable[[], list[ToolDraft]], expected: tuple[str, ...]
) -> None:
    """Each has its own name, found by it alone (mending 22)."""
    assert (await save(store, read())).added == expected
    assert (await save(store, read())).unchanged == expected
    found = await catalog(store)
    assert [found.find(name).name for name in expected if found.find(name)] == list(expected)
    assert found.find(expected[0].upper()) is None


async def test_names_of_another_server_are_kept_whole(store: ToolStore) -> None:
    """128 characters, and pairs of tools and of prompts (mending 22)."""
    listed = snapshot(*map(tool, (*PAIR, *GIVEN)), prompts=tuple(map(prompt, PAIR)))
    await import_snapshot(store, listed)
    found = await catalog(store)
    *kept, longest = (*PAIR, *GIVEN)
    names = names_by_key(found)
    cut = names.pop(longest)
    assert names == {name: name for name in kept}
    assert len(cut) == 128
    assert cut.startswith(longest[:119])
    assert [item.name for item in found.prompts] == sorted(PAIR)


@pytest.mark.parametrize("read", [openapi, graphql, hybrid])
async def test_a_pair_that_was_told_apart_by_hashes_keeps_its_names(
    store: ToolStore, database: Database, read: Callable[[], list[ToolDraft]]
) -> None:
    """A registry of the earlier rule: no import renames its tools (mending 22)."""
    drafts = read()
    await save(store, drafts)
    before = await ids(store)
    earlier = {name: add_suffix(name, f"any of {name}") for name in before.values()}
    await rename(database, earlier)
    newcomer = ToolDraft("/n@get", "n", "", {"type": "object"}, drafts[0].binding)
    saved = await save(store, [*drafts, newcomer])
    assert saved.added == ("n",)
    after = await ids(store)
    assert {id_: after[id_] for id_ in before} == {
        id_: earlier[name] for id_, name in before.items()
    }
    found = await catalog(store)
    assert [alias for one in found.tools for alias in one.aliases] == []


async def test_long_names_that_were_shortened_stay(store: ToolStore, database: Database) -> None:
    """What clients call after the upgrade is what they called before (mending 22)."""
    await import_snapshot(store, snapshot(*map(tool, GIVEN)))
    names = names_by_key(await catalog(store))
    earlier = {given: add_suffix(given, given) for given in GIVEN[1:]}
    await rename(database, {names[given]: name for given, name in earlier.items()})
    await import_snapshot(store, snapshot(*(tool(name, description="Changed.") for name in GIVEN)))
    found = await catalog(store)
    assert names_by_key(found) == names | earlier
    assert {one.description for one in found.tools} == {"Changed."}
    assert [alias for one in found.tools for alias in one.aliases] == []


def names_by_key(found: Catalog) -> dict[str, str]:
    """Names of tools by their names at their server."""
    return {str(one.binding.name): one.name for one in found.tools}


async def rename(database: Database, names: Mapping[str, str]) -> None:
    """Store tools under names that an earlier release gave them."""
    async with database.pool.connection() as connection:
        for name, earlier in names.items():
            for table, column in (("tool_t", "name"), ("api_endpoint_t", "endpoint_name")):
                await connection.execute(
                    f"UPDATE {table} SET {column} = %s WHERE {column} = %s".encode(),
                    [earlier, name],
                )
