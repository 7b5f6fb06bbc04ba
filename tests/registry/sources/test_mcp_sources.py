"""Other MCP servers, imported: from a snapshot of their lists to the catalog."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from config.load import load
from config.settings import Imports
from config.sources import SourceSettings
from registry.catalog.catalog import Catalog
from registry.catalog.catalogs import Catalogs
from registry.database.postgres import Database
from registry.sources.import_specs import ImportSpec, configured_import
from registry.sources.imports import ImportReport, Sources, preview
from registry.sources.tool_store import SourceDraft, ToolStore
from schemas.binding import McpBinding
from schemas.errors import ImportRejected
from schemas.mcp.revisions import V2026_07_28
from schemas.mcp.snapshot import ServerFacts, Snapshot
from schemas.source import McpOptions
from tests.fixtures_database import HOST
from tests.registry.servers import (
    URL,
    Listed,
    entry,
    prompt,
    resource,
    snapshot,
    spec,
    template,
    tool,
)
from tests.registry.sources.test_tool_store import notices, rows

pytestmark = pytest.mark.anyio

LIMITS: Imports = load(None, {}).imports
FULL = snapshot(
    tool(description="Echo.", icons=[{"src": "x"}], _meta={"z": 1, "a": 2}),
    entry(tool("old"), "handshake"),
    prompts=(prompt("ask"),),
    resources=(resource("file:///x", title="X"),),
    templates=(entry(template("file:///{+p}"), "stateless"),),
    facts=ServerFacts(
        handshake="2025-11-25", stateless="2026-07-28", info={"name": "s", "version": "1"}
    ),
)


def sources(store: ToolStore, snapshots: Mapping[str, Snapshot]) -> Sources:
    # a fake, because asking real servers is tested where that is done: here it is what they say
    return Sources(store, HOST, LIMITS, lister=Listed(snapshots))


async def import_snapshot(
    store: ToolStore, what: Snapshot, how: ImportSpec | None = None
) -> ImportReport:
    how = how or spec()
    return await sources(store, {how.name: what}).import_(how)


async def catalog(store: ToolStore) -> Catalog:
    catalogs = Catalogs()
    await catalogs.reload(store, HOST)
    return catalogs.of(HOST)


async def test_all_that_a_server_has_is_in_the_catalog(store: ToolStore) -> None:
    report = await import_snapshot(store, FULL)
    assert [(one.status, one.name) for one in report.outcomes] == [
        ("imported", "echo"),
        ("imported", "old"),
        ("imported", "ask"),
        ("imported", "file:///x"),
        ("imported", "file:///{+p}"),
    ]
    found = await catalog(store)
    echo, old = found.tools
    assert (echo.binding, old.binding) == (McpBinding("echo"), McpBinding("old", "handshake"))
    assert bytes(echo.definition or b"") == b'{"icons":[{"src":"x"}],"_meta":{"z":1,"a":2}}'
    assert old.definition is None
    [ask], [file], [files] = found.prompts, found.resources, found.templates
    assert (ask.key, ask.name, ask.source, ask.eras) == ("ask", "ask", "up", "both")
    assert bytes(file.definition) == b'{"uri":"file:///x","name":"it","title":"X"}'
    assert files.eras == "stateless"
    assert found.prompt("ask") is ask
    assert found.servers == {"up": FULL.facts}


async def test_a_source_knows_how_its_server_is_reached(store: ToolStore) -> None:
    how = spec(era="handshake", prefix="always", own_sessions=True, pin=True)
    await import_snapshot(store, FULL, how)
    source = await store.source(HOST, "up")
    assert source is not None
    assert (source.kind, source.location, source.base_url) == ("mcp", URL, URL)
    assert source.base_url_trusted
    assert (source.title, source.version, source.tool_count) == ("s", "1", 2)
    assert (source.options, source.server) == (how.options, FULL.facts)


async def test_a_command_has_no_address(store: ToolStore) -> None:
    how = ImportSpec(
        "fs", "stdio:server '/my files'", kind="mcp", options=McpOptions(("server", "/my files"))
    )
    await import_snapshot(store, FULL, how)
    source = await store.source(HOST, "fs")
    assert source is not None
    assert (source.location, source.base_url, source.base_url_trusted) == (
        how.location,
        None,
        False,
    )


@pytest.mark.parametrize(
    "change",
    [
        {"options": McpOptions(prefix="always")},
        {"options": McpOptions(era="stateless")},
        {"options": McpOptions(own_sessions=True)},
        {"options": McpOptions(pin=True)},
        {"location": "http://127.0.0.1:9/other"},
        {"include": ("echo",)},
    ],
)
async def test_a_source_is_imported_again_after_any_change(
    store: ToolStore, change: dict[str, Any]
) -> None:
    asked = sources(store, {"up": FULL})
    changed = replace(spec(), **change)
    assert await asked.import_changed(spec()) is not None
    assert await asked.import_changed(spec()) is None
    assert await asked.import_changed(changed) is not None
    assert await asked.import_changed(changed) is None
    assert (await asked.refresh("up")).source.location == changed.location


async def test_changed_server_information_counts_as_a_change(store: ToolStore) -> None:
    await import_snapshot(store, FULL)
    facts = ServerFacts(handshake="2025-06-18", instructions="Be kind.\0")
    other = snapshot(tool(), facts=facts)
    assert await sources(store, {"up": other}).import_changed(spec()) is not None
    source = await store.source(HOST, "up")
    assert source is not None
    assert source.server == ServerFacts(handshake="2025-06-18", instructions="Be kind.\ufffd")


async def test_importing_the_same_again_writes_nothing(
    store: ToolStore, database: Database
) -> None:
    await import_snapshot(store, FULL)
    state = "SELECT ctid, xmin FROM {} ORDER BY 1"
    tables = ["api_t", "api_version_t", "tool_t", "mcp_item_t"]
    before = [await rows(database, state.format(table)) for table in tables]
    async with notices(database) as heard:
        report = await import_snapshot(store, FULL)
    assert report.saved is not None
    assert (report.saved.items.unchanged, report.saved.items.added) == (3, 0)
    assert [await rows(database, state.format(table)) for table in tables] == before
    assert heard == []


async def test_importing_again_adds_updates_and_removes_items(
    store: ToolStore, database: Database
) -> None:
    await import_snapshot(store, FULL)
    changed = snapshot(
        tool(), prompts=(prompt("new"),), resources=(resource("file:///x", title="Y"),)
    )
    async with notices(database) as heard:
        report = await import_snapshot(store, changed)
    assert heard == [HOST]
    assert report.saved is not None
    items = report.saved.items
    assert (items.added, items.updated, items.unchanged, items.removed) == (1, 1, 0, 2)
    found = await catalog(store)
    assert [one.name for one in (*found.prompts, *found.resources)] == ["new", "file:///x"]
    assert found.templates == ()


async def test_a_change_of_items_alone_is_notified_and_told_apart(
    store: ToolStore, database: Database
) -> None:
    await import_snapshot(store, FULL)
    before = await catalog(store)
    async with notices(database) as heard:
        await import_snapshot(
            store, snapshot(*FULL.tools, resources=FULL.resources, facts=FULL.facts)
        )
    assert heard == [HOST]
    assert (await catalog(store)).changed_lists(before) == {"prompts", "resources"}


async def test_a_server_without_tools_is_fine(store: ToolStore) -> None:
    report = await import_snapshot(store, snapshot(prompts=(prompt("ask"),)))
    assert [outcome.name for outcome in report.outcomes] == ["ask"]


async def test_an_emptied_server_loses_its_tools(store: ToolStore) -> None:
    await import_snapshot(store, FULL)
    await import_snapshot(store, snapshot())
    found = await catalog(store)
    assert (found.tools, found.prompts, found.resources) == ((), (), ())


@pytest.mark.parametrize(
    ("what", "how", "expected"),
    [
        (
            snapshot(tool()),
            spec(exclude=("*",)),
            r"all 1 operations are left out \(excluded by '\*'\)",
        ),
        (snapshot({}), spec(), "every operation was skipped, as tool 1 of the list: its name"),
    ],
)
async def test_a_fully_excluded_source_is_rejected_and_keeps_its_tools(
    store: ToolStore, what: Snapshot, how: ImportSpec, expected: str
) -> None:
    await import_snapshot(store, FULL)
    with pytest.raises(ImportRejected, match=expected):
        await import_snapshot(store, what, how)
    assert len((await catalog(store)).tools) == 2


async def test_an_unanswering_server_keeps_its_tools(store: ToolStore) -> None:
    await import_snapshot(store, FULL)
    with pytest.raises(ImportRejected, match="up does not answer"):
        await sources(store, {}).refresh("up")
    assert len((await catalog(store)).prompts) == 1


async def test_where_nobody_asks_servers_none_is_imported(store: ToolStore) -> None:
    with pytest.raises(
        ImportRejected, match="up is an MCP server: expected a caller of the gateway's own tenant"
    ):
        await Sources(store, HOST, LIMITS).import_(spec())


async def test_a_preview_needs_no_database() -> None:
    report = await preview(spec(), LIMITS, Listed({"up": FULL}))
    assert len(report.outcomes) == 5
    assert report.saved is None
    assert report.source.server == FULL.facts


SAME = snapshot(
    tool(), prompts=(prompt("ask"),), resources=(resource("x:y"),), templates=(template("x:{y}"),)
)


async def names(store: ToolStore, source: str) -> list[str]:
    found = await catalog(store)
    things = (*found.tools, *found.prompts, *found.resources, *found.templates)
    return [one.name for one in things if one.source == source]


async def test_names_shared_by_two_servers_are_prefixed_for_the_second(
    store: ToolStore,
) -> None:
    await import_snapshot(store, SAME, spec("one"))
    await import_snapshot(store, SAME, spec("two"))
    assert await names(store, "one") == ["echo", "ask", "x:y", "x:{y}"]
    assert await names(store, "two") == [
        "two_echo",
        "two_ask",
        "toolgate://two/x:y",
        "toolgate://two/x:{y}",
    ]
    found = await catalog(store)
    listed = bytes(found.lists.item_page("resource", V2026_07_28, after=None, limit=9).entries)
    assert b'"uri":"toolgate://two/x:y"' in listed
    for uri, source in (("x:y", "one"), ("toolgate://two/x:y", "two"), ("x:z", "one")):
        located = found.locate(uri)
        assert located is not None
        assert located.source.name == source
    assert found.expose("two", "x:z") == "toolgate://two/x:z"


async def test_with_always_all_of_a_server_has_its_name_in_front(store: ToolStore) -> None:
    await import_snapshot(store, SAME, spec("crm", prefix="always"))
    wrapped = ["toolgate://crm/x:y", "toolgate://crm/x:{y}"]
    assert await names(store, "crm") == ["crm_echo", "crm_ask", *wrapped]


async def test_the_never_prefix_leaves_out_and_reports_taken_names(store: ToolStore) -> None:
    await import_snapshot(store, SAME, spec("one"))
    more = snapshot(tool(), tool("other"), prompts=(prompt("ask"),))
    report = await import_snapshot(store, more, spec("two", prefix="never"))
    assert await names(store, "two") == ["other"]
    assert [(one.status, one.name) for one in report.outcomes] == [
        ("skipped", None),
        ("imported", "other"),
        ("skipped", None),
    ]
    assert report.outcomes[0].reason == (
        "another source has the name echo, and this one's prefix is never"
    )


async def test_another_prefix_gives_other_names_and_keeps_identities(store: ToolStore) -> None:
    await import_snapshot(store, SAME, spec("crm", prefix="always"))
    [before] = await store.tools(HOST)
    await import_snapshot(store, SAME, spec("crm"))
    [after] = await store.tools(HOST)
    assert (before.name, after.name, before.id) == ("crm_echo", "echo", after.id)
    assert await names(store, "crm") == ["echo", "ask", "x:y", "x:{y}"]


async def test_names_stay_when_the_first_owner_is_removed(store: ToolStore) -> None:
    await import_snapshot(store, SAME, spec("one"))
    await import_snapshot(store, SAME, spec("two"))
    before = await names(store, "two")
    await store.remove(HOST, "one")
    await import_snapshot(store, SAME, spec("two"))
    assert await names(store, "two") == before


async def test_a_more_specific_template_takes_no_resources_of_another_server(
    store: ToolStore,
) -> None:
    def names(*templates: str) -> Snapshot:
        return snapshot(facts=FULL.facts, templates=tuple(template(one) for one in templates))

    await import_snapshot(store, names("db://{table}"), spec("good"))
    for listed in (["db://users{+x}"], ["db://{+all}", "db://users{+x}"]):
        await import_snapshot(store, names(*listed), spec("evil"))
        await import_snapshot(store, names("db://{table}", f"db://{len(listed)}"), spec("good"))
        located = (await catalog(store)).locate("db://users")
        assert located is not None
        assert located.source.name == "good"
    assert located.uri == "db://users"


async def test_removing_a_server_takes_its_items_too(store: ToolStore, database: Database) -> None:
    await import_snapshot(store, SAME, spec("one"))
    await store.remove(HOST, "one")
    assert await rows(database, "SELECT count(*) FROM mcp_item_t") == [(0,)]


async def test_a_name_that_becomes_an_openapi_source_loses_its_items(
    store: ToolStore, database: Database
) -> None:
    await import_snapshot(store, SAME, spec("one"))
    source = await store.source(HOST, "one")
    assert source is not None
    await store.save(HOST, SourceDraft("one", "openapi", "x.json"), [])
    assert await rows(database, "SELECT count(*) FROM mcp_item_t") == [(0,)]


async def test_an_item_taken_out_of_service_by_hand_stays_out(
    store: ToolStore, database: Database
) -> None:
    await import_snapshot(store, SAME, spec("one"))
    await rows(database, "UPDATE mcp_item_t SET active = false WHERE kind = 'prompt' RETURNING 1")
    await import_snapshot(store, replace_prompt(SAME, title="Other"), spec("one"))
    assert (await catalog(store)).prompts == ()


def replace_prompt(what: Snapshot, **members: Any) -> Snapshot:
    return snapshot(
        *what.tools,
        prompts=(prompt("ask", **members),),
        resources=what.resources,
        templates=what.templates,
    )


async def test_characters_that_postgresql_cannot_hold_sink_no_import(store: ToolStore) -> None:
    hostile = snapshot(
        tool(description="\0", _meta={"\0": "\0"}),
        prompts=(prompt("p", title="a\0b"),),
        facts=ServerFacts(info={"name": "a\0", "version": "\0"}, instructions="\0"),
    )
    await import_snapshot(store, hostile)
    [found] = (await catalog(store)).prompts
    assert "a\ufffdb".encode() in bytes(found.definition)


async def test_thousands_of_each_are_one_import(store: ToolStore) -> None:
    count = 3_000  # several batches of rows
    many = snapshot(
        *(tool(f"tool_{n}") for n in range(count)),
        resources=tuple(resource(f"x:{n}") for n in range(count)),
    )
    await import_snapshot(store, many)
    report = await import_snapshot(store, many)
    assert report.saved is not None
    assert (len(report.saved.unchanged), report.saved.items.unchanged) == (count, count)


def test_settings_select_the_servers_to_import_and_their_options() -> None:
    patterns = {"include": ("a",), "exclude": ("b",)}
    there = SourceSettings(
        mcp=URL, era="stateless", prefix="never", own_sessions=True, pin=True, **patterns
    )
    assert configured_import("x", there) == ImportSpec(
        "x",
        URL,
        base_url=None,
        include=("a",),
        exclude=("b",),
        kind="mcp",
        options=McpOptions((), "stateless", "never", True, True),
        origin="settings",
    )
    command = SourceSettings(command=("npx", "-y", "a b"))
    assert configured_import("x", command) == ImportSpec(
        "x",
        "stdio:npx -y 'a b'",
        kind="mcp",
        options=McpOptions(("npx", "-y", "a b")),
        origin="settings",
    )
