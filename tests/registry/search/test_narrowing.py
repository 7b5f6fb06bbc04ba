"""What an answer is narrowed to, beside what catalogs show."""

import random
from typing import Any

import pytest

from config.settings import Toolset
from registry.catalog.catalog import Catalog
from registry.database.postgres import Database
from registry.search import Filters, ToolsetFilter
from registry.sources.tool_store import SourceDraft, ToolStore
from schemas.binding import Binding, HybridBinding, OpenAPIBinding, PythonBinding
from schemas.tool import ToolDraft
from tests.fixtures_database import HOST
from tests.registry.search.finding import find

pytestmark = pytest.mark.anyio

SCOPES = [None, "", " ", "read", "write", "read write", " read\twrite ", "admin"]
PATTERNS = [
    "*",
    "a*",
    "*_b",
    "[!a]*",
    "?_*",
    "a_[a-c]*",
    "zzz",
    "[ab]_?*",
    "A*",
    "tag:X*",
    "domain:sales",
]
SOURCES = ["one", "two", "three"]


def binding(rng: random.Random, name: str) -> Binding:
    service, scope, skips = f"h/s/{name}/1", rng.choice(SCOPES), rng.random() < 0.2
    some: list[Binding] = [
        OpenAPIBinding("GET", f"/{name}"),
        HybridBinding(service, scope=scope, skip_auth=skips),
        PythonBinding(service, scope=scope, skip_auth=skips),
    ]
    return rng.choice(some)


async def fill(store: ToolStore, rng: random.Random, count: int = 60) -> None:
    """Random tools with the word "item"; some of them gone."""
    for source in SOURCES:
        names = {f"{rng.choice('abc')}_{rng.choice('abcd')}{n}{source[0]}" for n in range(count)}
        drafts = [
            ToolDraft(
                f"/{name}@get",
                name,
                "An item.",
                {"type": "object"},
                binding(rng, name),
                tags=tuple(rng.sample(["x1", "Y"], rng.randrange(3))),
                toolsets=tuple(rng.sample(["mine", "yours"], rng.randrange(3))),
            )
            for name in sorted(names)
        ]
        draft = SourceDraft(source, "openapi", f"{source}.json")
        await store.save(HOST, draft, drafts)
        await store.save(HOST, draft, [one for one in drafts if rng.random() < 0.8])


async def put_into_domains(database: Database) -> None:
    async with database.pool.connection() as connection:
        await connection.execute(
            "UPDATE tool_t SET routing_domain = CASE WHEN name LIKE '%1%' THEN 'Sales' END"
        )


async def names(database: Database, filters: Filters) -> list[str]:
    found = await find(database, "item", filters, limit=10_000)
    return sorted(hit.name for hit in found.hits)


@pytest.mark.parametrize("seed", range(4))
async def test_a_search_finds_exactly_the_visible_catalog(
    store: ToolStore, database: Database, seed: int
) -> None:
    rng = random.Random(seed)
    await fill(store, rng)
    await put_into_domains(database)
    tools = await store.tools(HOST)
    sources = await store.sources(HOST)
    assert await names(database, Filters(HOST)) == [tool.name for tool in tools]
    for _ in range(25):
        toolset = Toolset(
            sources=tuple(rng.sample(SOURCES, rng.randrange(3))),
            include=tuple(rng.sample(PATTERNS, rng.randrange(3))),
            exclude=tuple(rng.sample(PATTERNS[1:], rng.randrange(3))),
        )
        scopes = frozenset(rng.sample(["read", "write", "admin", "other"], rng.randrange(4)))
        name = rng.choice(["mine", "yours", "theirs"])
        # one of its own each time: a catalog keeps its toolsets by their names
        shown = Catalog(tools, sources).toolset(name, toolset).visible_to(scopes)
        filters = Filters(HOST, ToolsetFilter.of(name, toolset), scopes)
        assert await names(database, filters) == [tool.name for tool in shown.tools], filters


async def test_held_and_retired_tools_are_not_found(store: ToolStore, database: Database) -> None:
    await fill(store, random.Random(1), 3)
    all_ = await names(database, Filters(HOST))
    for change in ("held = '{}'", "lifecycle_status = 'retired'", "active = false"):
        await change_one(database, all_[0], change)
        assert await names(database, Filters(HOST)) == all_[1:], change
        await change_one(
            database, all_[0], "held = NULL, lifecycle_status = 'active', active = true"
        )
        assert await names(database, Filters(HOST)) == all_, change


async def test_a_deprecated_tool_ranks_behind_an_equal_tool(
    store: ToolStore, database: Database
) -> None:
    drafts = [
        ToolDraft(f"/{n}", f"item_{n}", "An item.", {"type": "object"}, OpenAPIBinding("GET", "/x"))
        for n in "xy"
    ]
    await store.save(HOST, SourceDraft("one", "openapi", "one.json"), drafts)
    assert [hit.name for hit in (await find(database, "item")).hits] == ["item_x", "item_y"]
    await change_one(database, "item_x", "lifecycle_status = 'deprecated'")
    hits = (await find(database, "item")).hits
    assert [(hit.name, hit.score) for hit in hits] == [("item_y", 1.0), ("item_x", 0.8)]


@pytest.mark.parametrize(
    ("column", "value", "narrowing"),
    [
        ("routing_domain", "sales", {"domains": ("sales", "x")}),
        ("semantic_namespace", "crm", {"namespaces": ("crm",)}),
        ("sensitivity_tier", "public", {"tiers": ("public", "internal")}),
    ],
)
async def test_columns_narrow(
    store: ToolStore, database: Database, column: str, value: str, narrowing: dict[str, Any]
) -> None:
    await fill(store, random.Random(2), 4)
    first = (await names(database, Filters(HOST)))[0]
    assert await names(database, Filters(HOST, **narrowing)) == []
    await change_one(database, first, f"{column} = '{value}'")
    assert await names(database, Filters(HOST, **narrowing)) == [first]


async def test_ids_narrow_and_no_ids_leave_nothing(store: ToolStore, database: Database) -> None:
    await fill(store, random.Random(3), 4)
    tools = {tool.id: tool.name for tool in await store.tools(HOST)}
    wanted = sorted(tools)[:2]
    assert await names(database, Filters(HOST, ids=wanted)) == sorted(tools[one] for one in wanted)
    assert await names(database, Filters(HOST, ids=())) == []
    left = [tools[one] for one in tools if one not in wanted]
    assert await names(database, Filters(HOST, without=wanted)) == sorted(left)
    assert Filters(HOST, without=wanted).key != Filters(HOST, ids=wanted).key


async def test_protocols_narrow(store: ToolStore, database: Database) -> None:
    await fill(store, random.Random(3), 4)
    first = (await names(database, Filters(HOST)))[0]
    assert await names(database, Filters(HOST, protocols=["graphql"])) == []
    await change_one(database, first, """binding = '{"type": "graphql"}'""")
    assert await names(database, Filters(HOST, protocols=["graphql"])) == [first]


async def change_one(database: Database, name: str, change: str) -> None:
    async with database.connect() as connection:
        await connection.execute(
            f"UPDATE tool_t SET {change} WHERE name = %s".encode(),
            [name],
        )
