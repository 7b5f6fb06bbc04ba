"""Sources and tools in a real database: saved, read, imported again, taken away."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import msgspec
import psycopg
import pytest

from config.settings import DatabaseSettings as Settings
from registry.database.postgres import Database
from registry.database.tenants import lock_tenant
from registry.sources.import_writer import BYTES_PER_STATEMENT, ROWS_PER_STATEMENT
from registry.sources.tool_store import SavedTools, SourceDraft, ToolStore
from schemas.binding import (
    Body,
    HybridBinding,
    McpBinding,
    OpenAPIBinding,
    Parameter,
    PythonBinding,
)
from schemas.source import HybridOptions
from schemas.tool import Annotations, ToolDraft
from tests import polling
from tests.fixtures_database import HOST

pytestmark = pytest.mark.anyio

OTHER_HOST = "00000000-0000-0000-0000-000000000002"
SHOP = SourceDraft(
    "shop", "openapi", "shop.yaml", "http://localhost:9000", True, "Pet shop", "1.2", ("pets",)
)
DOCUMENT = b'{"openapi": "3.1.0"}' * 100


def draft(name: str, key: str | None = None, **fields: Any) -> ToolDraft:
    given = ToolDraft(
        key=key or f"/{name}@get",
        name=name,
        description=f"Does {name}.",
        input_schema={"type": "object", "properties": {}},
        binding=OpenAPIBinding("GET", f"/{name}"),
    )
    return replace(given, **fields)


FULL = draft(
    "create_pet",
    "/pets@post",
    title="Create a pet",
    input_schema={
        "type": "object",
        "properties": {
            "zebra": {"type": "string", "description": "Stripes"},
            "apple": {"$ref": "#/$defs/Fruit", "default": 3},
            "maybe": {"type": ["null", "boolean"]},
        },
        "required": ["zebra"],
        "$defs": {"Fruit": {"type": "integer"}},
    },
    output_schema={"type": "object", "properties": {"z": {}, "a": {}}},
    annotations=Annotations(read_only_hint=False, destructive_hint=True),
    tags=("pets", "x y"),
    binding=OpenAPIBinding(
        "POST",
        "/pets/{zebra}",
        parameters=(Parameter("zebra", "zebra", "path", "simple", False),),
        body=Body("application/json", True, properties=(("apple", "apple"),)),
        server="https://other.example",
    ),
)


async def names(store: ToolStore, host_id: str = HOST) -> list[str]:
    return [tool.name for tool in await store.tools(host_id)]


async def ids(store: ToolStore) -> dict[str, str]:
    return {tool.name: tool.id for tool in await store.tools(HOST)}


async def save(store: ToolStore, *drafts: ToolDraft, source: str = "shop") -> SavedTools:
    return await store.save(HOST, replace(SHOP, name=source), drafts, DOCUMENT)


async def rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    async with database.pool.connection() as connection:
        return await (await connection.execute(query.encode())).fetchall()


@asynccontextmanager
async def notices(database: Database) -> AsyncIterator[list[str]]:
    """Collects what the registry notifies during the block."""
    heard: list[str] = []
    async with database.connect() as connection:
        await connection.execute("LISTEN toolgate_registry")
        yield heard
        await connection.execute("NOTIFY toolgate_registry, 'end'")
        with anyio.fail_after(30):
            async for notice in connection.notifies():
                if notice.payload == "end":
                    break
                heard.append(notice.payload)


async def test_a_tool_is_read_as_saved(store: ToolStore) -> None:
    await save(store, FULL)
    (tool,) = await store.tools(HOST)
    assert (tool.name, tool.title, tool.description) == (FULL.name, FULL.title, FULL.description)
    assert (tool.annotations, tool.binding, tool.source) == (FULL.annotations, FULL.binding, "shop")
    assert bytes(tool.input_schema) == msgspec.json.encode(FULL.input_schema)  # order and all
    assert tool.output_schema is not None
    assert bytes(tool.output_schema) == msgspec.json.encode(FULL.output_schema)
    assert tool.definition is None


async def test_the_original_definition_is_read_as_saved(store: ToolStore) -> None:
    definition = {"zebra": 1, "apple": [1.5], "_meta": {"b": 1, "a": None}}
    await save(store, draft("a", definition=definition, binding=McpBinding("a.b", "stateless")))
    (tool,) = await store.tools(HOST)
    assert bytes(tool.definition or b"") == msgspec.json.encode(definition)  # order and all
    assert tool.binding == McpBinding("a.b", "stateless")


async def test_a_source_is_read_as_saved(store: ToolStore) -> None:
    await save(store, FULL, draft("a"))
    (source,) = await store.sources(HOST)
    assert source == await store.source(HOST, "shop")
    assert (source.kind, source.location, source.base_url) == (
        "openapi",
        "shop.yaml",
        "http://localhost:9000",
    )
    assert (source.base_url_trusted, source.title, source.version) == (True, "Pet shop", "1.2")
    assert (source.include, source.exclude, source.tool_count) == (("pets",), (), 2)
    assert source.updated.endswith("+00:00")
    assert await store.source(HOST, "nobody") is None


@pytest.mark.parametrize(
    "options", [HybridOptions(), HybridOptions("query", "legacy", 20), HybridOptions("command")]
)
async def test_the_options_of_a_source_come_back_and_count_as_a_change(
    store: ToolStore, options: HybridOptions
) -> None:
    before = replace(SHOP, kind="hybrid", options=HybridOptions(batch=2))
    await store.save(HOST, before, [FULL], DOCUMENT)
    await store.save(HOST, replace(before, options=options), [FULL], DOCUMENT)
    (source,) = await store.sources(HOST)
    assert source.options == options


async def test_a_change_of_options_alone_is_notified(store: ToolStore, database: Database) -> None:
    await save(store, FULL)
    async with notices(database) as heard:
        await save(store, FULL)
        changed = replace(SHOP, options=HybridOptions("query"))
        await store.save(HOST, changed, [FULL], DOCUMENT)
    assert heard == [HOST]


async def test_options_of_a_later_release_hide_no_source(
    store: ToolStore, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await store.save(HOST, replace(SHOP, kind="hybrid"), [FULL], DOCUMENT)
    await rows(database, """UPDATE api_t SET options = '{"batch": 3, "later": 1}' RETURNING 1""")
    (source,) = await store.sources(HOST)
    assert source.options == HybridOptions(batch=3)
    await rows(database, """UPDATE api_t SET options = '{"dialect": "later"}' RETURNING 1""")
    (source,) = await store.sources(HOST)
    assert source.options == HybridOptions()
    assert [record.message for record in caplog.records] == ["options_not_readable"]


@pytest.mark.parametrize(
    "binding",
    [
        HybridBinding("h/s/a/1", "a.r a.w", True, "query", False, "data"),
        PythonBinding("subtract", positional=("minuend", "subtrahend"), rest="more"),
        PythonBinding("h/s/a/1"),
    ],
)
async def test_a_tool_of_a_hybrid_service_is_read_as_saved(
    store: ToolStore, binding: HybridBinding | PythonBinding
) -> None:
    await save(store, draft("a", binding=binding))
    (tool,) = await store.tools(HOST)
    assert tool.binding == binding


async def test_tools_are_in_the_order_of_their_names(store: ToolStore) -> None:
    await save(store, draft("b"), draft("a-c"), draft("C"), draft("a_b"), draft("ab"))
    assert await names(store) == sorted(["b", "a-c", "C", "a_b", "ab"])


async def test_the_document_is_kept(store: ToolStore) -> None:
    await save(store, draft("a"))
    kept = await store.document(HOST, "shop")
    source = await store.source(HOST, "shop")
    assert source is not None
    assert kept == (DOCUMENT, source.digest)
    await store.save(HOST, replace(SHOP, digest="named otherwise"), [draft("a")], b"newer")
    assert await store.document(HOST, "shop") == (b"newer", "named otherwise")
    assert await store.document(HOST, "nobody") is None


async def test_a_source_without_a_document_has_none(store: ToolStore) -> None:
    await store.save(HOST, SHOP, [draft("a")])
    assert await store.document(HOST, "shop") is None


async def test_an_import_waits_for_another_one_beyond_the_bound_of_locks(
    database_settings: Settings,
) -> None:
    bounded = msgspec.structs.replace(database_settings, lock_timeout_s=0.1)
    async with (
        Database.open(bounded, wait=False) as database,
        anyio.create_task_group() as tasks,
        database.connect() as holder,
        holder.transaction(),
    ):
        await lock_tenant(holder, HOST)
        tasks.start_soon(save, ToolStore(database.pool), draft("a"))
        blocked = (
            "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND datname = current_database() AND clock_timestamp() - query_start > '0.3 s'"
        )
        await polling.until(lambda: rows(database, blocked))
    async with Database.open(bounded, wait=False) as database:
        assert await names(ToolStore(database.pool)) == ["a"]


async def test_importing_the_same_again_writes_nothing(
    store: ToolStore, database: Database
) -> None:
    await save(store, FULL, draft("a"))
    state = "SELECT ctid, xmin, update_ts FROM {} ORDER BY 1"
    tables = ["api_t", "api_version_t", "api_endpoint_t", "tool_t", "tool_param_t"]
    before = [await rows(database, state.format(table)) for table in tables]
    async with notices(database) as heard:
        saved = await save(store, FULL, draft("a"))
    assert saved.unchanged == ("create_pet", "a")
    assert [await rows(database, state.format(table)) for table in tables] == before
    assert heard == []


async def test_importing_again_updates_adds_and_removes_and_keeps_identities(
    store: ToolStore,
) -> None:
    await save(store, draft("same"), draft("old"), draft("changing"))
    before = await ids(store)
    saved = await save(store, draft("same"), draft("changing", description="Other."), draft("new"))
    assert (saved.added, saved.updated) == (("new",), ("changing",))
    assert (saved.unchanged, saved.removed) == (("same",), ("old",))
    after = await ids(store)
    assert after.keys() == {"same", "changing", "new"}
    assert (after["same"], after["changing"]) == (before["same"], before["changing"])


async def test_a_returning_tool_has_its_old_identity(store: ToolStore) -> None:
    await save(store, draft("a"), draft("b"))
    before = await ids(store)
    await save(store, draft("a"))
    assert await names(store) == ["a"]
    assert (await save(store, draft("a"), draft("b"))).added == ("b",)
    assert await ids(store) == before


async def test_a_version_counts_the_writes_of_its_row(store: ToolStore, database: Database) -> None:
    await save(store, draft("a"))
    await save(store, draft("a", title="A"))
    await save(store, draft("a", title="A"))
    assert await rows(database, "SELECT aggregate_version FROM tool_t") == [(2,)]


async def test_tools_can_swap_their_names(store: ToolStore) -> None:
    await save(store, draft("one", "/1@get"), draft("two", "/2@get"))
    before = await ids(store)
    saved = await save(store, draft("two", "/1@get"), draft("one", "/2@get"))
    assert saved.updated == ("two", "one")
    assert await ids(store) == {"one": before["two"], "two": before["one"]}


async def test_the_first_owner_of_a_name_keeps_the_name(store: ToolStore) -> None:
    await save(store, draft("list"), source="first")
    saved = await save(store, draft("LIST", "/list@get"), source="second")
    assert saved.names == {"/list@get": "second_LIST"}
    await save(store, draft("list", title="Changed"), source="first")
    again = await save(store, draft("LIST", "/list@get"), source="second")
    assert again.unchanged == ("second_LIST",)
    assert await names(store) == ["list", "second_LIST"]


async def test_a_name_that_another_took_meanwhile_is_not_taken_back(store: ToolStore) -> None:
    await save(store, draft("list"), source="first")
    identity = (await ids(store))["list"]
    await save(store, source="first")
    await save(store, draft("list"), source="second")
    saved = await save(store, draft("list"), source="first")
    assert saved.added == ("first_list",)
    assert (await ids(store))["first_list"] == identity


async def test_imports_of_one_tenant_at_the_same_time_agree_about_names(store: ToolStore) -> None:
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(
                    store.save, HOST, replace(SHOP, name=f"s{number}"), [draft("list")], None
                )
    assert len(set(await names(store))) == 6


async def test_tenants_do_not_see_each_other(store: ToolStore) -> None:
    await save(store, draft("list"))
    await store.save(OTHER_HOST, SHOP, [draft("list"), draft("other")])
    assert await names(store) == ["list"]
    assert await names(store, OTHER_HOST) == ["list", "other"]
    assert await store.tenants() == [HOST, OTHER_HOST]
    assert await store.remove(OTHER_HOST, "shop") == 2
    assert await names(store) == ["list"]


async def test_removing_leaves_nothing_behind(store: ToolStore, database: Database) -> None:
    await save(store, FULL, draft("a"), draft("gone"))
    await save(store, FULL, draft("a"))
    await save(store, draft("b"), source="other")
    assert await store.remove(HOST, "shop") == 2
    assert await names(store) == ["b"]
    for table in ("api_t", "api_version_t", "api_endpoint_t", "tool_t"):
        assert await rows(database, f"SELECT count(*) FROM {table}") == [(1,)]
    assert await store.remove(HOST, "shop") is None


async def test_a_save_that_fails_writes_nothing(store: ToolStore) -> None:
    await save(store, draft("a"))
    with pytest.raises(psycopg.Error):
        await save(store, draft("b"), draft("c", binding="no binding"))
    assert await names(store) == ["a"]


async def test_progress_is_told(store: ToolStore) -> None:
    drafts = [draft(f"t{number}") for number in range(ROWS_PER_STATEMENT + 10)]
    heard: list[tuple[int, int]] = []
    await store.save(HOST, SHOP, drafts, progress=lambda *done: heard.append(done))
    total = len(drafts)
    assert heard == [(ROWS_PER_STATEMENT, total), (total, total)]


async def test_large_tools_are_written_in_statements_of_few(store: ToolStore) -> None:
    """A statement of all of them would be encoded and sent in one step of the event loop."""
    schema = {"type": "object", "description": "x" * (BYTES_PER_STATEMENT // 2)}
    drafts = [draft(f"t{number}", input_schema=schema) for number in range(5)]
    heard: list[tuple[int, int]] = []
    await store.save(HOST, SHOP, drafts, progress=lambda *done: heard.append(done))
    assert heard == [(2, 5), (4, 5), (5, 5)]
    assert await names(store) == [f"t{number}" for number in range(5)]


async def test_the_planner_has_statistics_of_written_rows_at_once(
    store: ToolStore, database: Database, database_settings: Settings
) -> None:
    known = "SELECT min(reltuples) FROM pg_class WHERE relname IN ('tool_t', 'api_endpoint_t')"
    async with database.connect() as connection:
        await connection.execute("VACUUM ANALYZE tool_t, api_endpoint_t")  # they are empty
    assert await rows(database, known) == [(0.0,)]
    drafts = [draft(f"t{number}") for number in range(4 * ROWS_PER_STATEMENT)]
    with psycopg.connect(database_settings.url) as other:  # an autovacuum, say
        other.execute("LOCK tool_t, api_endpoint_t IN SHARE UPDATE EXCLUSIVE MODE")
        await store.save(HOST, SHOP, drafts, progress=lambda *_: other.rollback())
    assert (await rows(database, known))[0][0] >= 2 * ROWS_PER_STATEMENT


async def test_characters_that_postgresql_cannot_hold_sink_no_import(store: ToolStore) -> None:
    schema = {"type": "object", "properties": {"\0": {"description": "\0", "default": "\ud800"}}}
    await save(store, draft("x", description="a\0b", tags=("\0",), input_schema=schema))
    (tool,) = await store.tools(HOST)
    assert tool.description == "a\ufffdb"


async def test_a_very_long_description_is_kept(store: ToolStore) -> None:
    text = "".join(f"word{number} " for number in range(200_000))
    await save(store, draft("x", description=text))
    assert (await store.tools(HOST))[0].description == text


async def test_parameters_are_derived_from_the_schema(store: ToolStore, database: Database) -> None:
    await save(store, FULL)
    query = (
        "SELECT name, param_type, required, default_value, description, validation_schema->'type'"
        " FROM tool_param_t ORDER BY order_index"
    )
    assert await rows(database, query) == [
        ("zebra", "string", True, None, "Stripes", "string"),
        ("apple", "integer", False, 3, None, None),
        ("maybe", "boolean", False, None, None, ["null", "boolean"]),
    ]
    await save(store, replace(FULL, input_schema={"type": "object", "properties": {"n": True}}))
    assert await rows(database, "SELECT name, param_type FROM tool_param_t") == [("n", "any")]


async def test_parameters_of_a_large_schema_are_derived_in_one_pass(
    store: ToolStore, database: Database
) -> None:
    """A pass over the whole schema for each property took minutes, for which imports waited."""
    definitions = {f"D{number}": {"type": "array", "title": "x" * 1000} for number in range(2000)}
    schema = {
        "type": "object",
        "properties": {
            f"p{number}": {"$ref": f"#/$defs/D{number}"} for number in range(len(definitions))
        },
        "$defs": definitions,
    }
    with anyio.fail_after(30):
        await save(store, draft("a", input_schema=schema))
    types = "SELECT param_type, count(*) FROM tool_param_t GROUP BY param_type"
    assert await rows(database, types) == [("array", len(definitions))]


async def test_columns_derived_from_the_binding_follow_its_changes(
    store: ToolStore, database: Database
) -> None:
    await save(store, FULL)
    query = "SELECT implementation_type, source_protocol, api_method, api_endpoint FROM tool_t"
    assert await rows(database, query) == [
        ("rest", "openapi", "POST", "https://other.example/pets/{zebra}")
    ]
    assert await rows(database, "SELECT endpoint_path, http_method FROM api_endpoint_t") == [
        ("/pets", "post")
    ]


async def test_a_description_written_by_hand_survives_imports(
    store: ToolStore, database: Database
) -> None:
    await save(store, draft("a"))
    await execute(
        database, "UPDATE tool_t SET description = 'Mine.', description_manual_override = true"
    )
    await save(store, draft("a", description="Theirs.", title="New title"))
    (tool,) = await store.tools(HOST)
    assert (tool.description, tool.title) == ("Mine.", "New title")
    assert await rows(database, "SELECT endpoint_desc FROM api_endpoint_t") == [("Theirs.",)]


async def test_a_tool_taken_out_of_service_by_hand_stays_out(
    store: ToolStore, database: Database
) -> None:
    await save(store, draft("a"), draft("b"))
    await execute(database, "UPDATE tool_t SET active = false WHERE name = 'a'")
    await save(store, draft("a", title="Changed"), draft("b"))
    assert await names(store) == ["b"]


async def execute(database: Database, statement: str) -> None:
    async with database.pool.connection() as connection:
        await connection.execute(statement.encode())


async def test_a_save_of_many_tools_notifies_once(store: ToolStore, database: Database) -> None:
    drafts = [draft(f"t{number}") for number in range(ROWS_PER_STATEMENT + 10)]
    async with notices(database) as heard:
        await save(store, *drafts)
    assert heard == [HOST]


EDITS = [
    "UPDATE tool_t SET description = 'By hand.'",
    "UPDATE tool_t SET active = false",
    "UPDATE tool_t SET held = '{}'",
    'UPDATE tool_t SET binding = binding || \'{"path": "/other"}\'',
    "DELETE FROM tool_t",
    "UPDATE api_t SET base_url = 'http://elsewhere'",
    "DELETE FROM api_t",
    "DELETE FROM host_t",
]


@pytest.mark.parametrize("edit", EDITS)
async def test_edits_by_hand_are_notified_once(
    store: ToolStore, database: Database, edit: str
) -> None:
    await save(store, draft("a"), draft("b"))
    async with notices(database) as heard:
        await execute(database, edit)
    assert heard == [HOST]


async def test_tools_inserted_by_hand_are_tools(store: ToolStore, database: Database) -> None:
    await save(store)
    async with notices(database) as heard:
        await execute(
            database,
            "INSERT INTO tool_t (host_id, name, description, input_schema, binding) SELECT host_id,"
            " 'by_hand', '', '{\"type\": \"object\"}',"
            ' \'{"type": "openapi", "method": "GET", "path": "/"}\' FROM host_t',
        )
    assert heard == [HOST]
    (tool,) = await store.tools(HOST)
    assert (tool.name, tool.source) == ("by_hand", "")


QUIET = [
    "UPDATE entity_embedding_t SET status = 'failed', error = 'no answer'",
    "UPDATE tool_t SET semantic_weight = 2",
    "UPDATE tool_t SET pin = '{}'",
    "UPDATE tool_t SET name = name",
    "DELETE FROM tool_t WHERE name = 'nobody'",
]


@pytest.mark.parametrize("edit", QUIET)
async def test_changes_invisible_in_catalogs_are_not_notified(
    store: ToolStore, database: Database, edit: str
) -> None:
    await save(store, draft("a"))
    async with notices(database) as heard:
        await execute(database, edit)
    assert heard == []


async def test_the_digest_covers_all_members_shown_to_clients(
    store: ToolStore, database: Database
) -> None:
    async def digest() -> str:
        (tool,) = await store.tools(HOST)
        return tool.digest

    await save(store, draft("a"))
    seen = [await digest()]
    for change in (
        "name = 'b'",
        "title = 't'",
        "description = 'd'",
        'input_schema = \'{"type":  "object"}\'',
        "output_schema = '{}'",
        "annotations = '{\"readOnlyHint\": true}'",
        "definition = '{\"icons\": []}'",
    ):
        await execute(database, f"UPDATE tool_t SET {change}")
        seen.append(await digest())
    assert len(set(seen)) == 8
    assert all(len(one) == 64 for one in seen)
    await execute(database, "UPDATE tool_t SET tags = '{x}', lifecycle_status = 'deprecated'")
    assert await digest() == seen[-1]


BAD: Sequence[str] = [
    "UPDATE tool_t SET input_schema = '[]'",
    "UPDATE tool_t SET lifecycle_status = 'unknown'",
    "UPDATE tool_t SET binding = '{}'",
    "UPDATE tool_t SET definition = '[]'",
    "UPDATE tool_t SET name = 'same'",
]


@pytest.mark.parametrize("edit", BAD)
async def test_edits_that_make_no_sense_are_refused(
    store: ToolStore, database: Database, edit: str
) -> None:
    await save(store, draft("a"), draft("b"))
    with pytest.raises(psycopg.errors.IntegrityError):
        await execute(database, edit)
