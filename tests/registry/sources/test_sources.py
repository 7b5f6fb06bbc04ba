"""Imports from end to end: a file, its tools in the database."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from config.load import load
from config.settings import Imports
from config.sources import SchemeSettings, SourceSettings, TokenExchange
from registry.access.secrets import Keys, Secrets
from registry.database.postgres import Database
from registry.sources.import_specs import ImportSpec, configured_import
from registry.sources.imports import Sources, preview
from registry.sources.source_reader import declared_base
from registry.sources.tool_store import ToolStore
from schemas.binding import HybridBinding, PythonBinding
from schemas.errors import ImportRejected
from schemas.hybrid import Action
from schemas.source import HybridOptions
from tests.fixtures_database import HOST
from tests.fixtures_gateway import pets
from tests.fixtures_hybrid import RULE, SPEC, describe_actions, wanting

pytestmark = pytest.mark.anyio

LIMITS: Imports = load(None, {}).imports


@pytest.fixture
def description(tmp_path: Path) -> Path:
    path = tmp_path / "pets.json"
    path.write_text(json.dumps(pets()))
    return path


@pytest.fixture
def sources(store: ToolStore) -> Sources:
    return Sources(store, HOST, LIMITS)


def spec(path: Path, **changes: Any) -> ImportSpec:
    return ImportSpec(**{"name": "pets", "location": str(path), **changes})


async def test_a_preview_needs_no_database(description: Path) -> None:
    report = await preview(spec(description), LIMITS)
    assert [o.status for o in report.outcomes] == ["imported"] * 5
    assert report.saved is None


async def test_importing_again_updates_and_keeps_identities(
    sources: Sources, store: ToolStore, description: Path
) -> None:
    await sources.import_(spec(description))
    before = {tool.name: tool.id for tool in await store.tools(HOST)}
    changed = pets(1)
    changed["paths"]["/pets"]["get"]["summary"] = "All pets"
    del changed["paths"]["/slow"]
    description.write_text(json.dumps(changed))
    saved = (await sources.refresh("pets")).saved
    assert saved is not None
    assert (saved.added, saved.updated, saved.removed) == (("more_0000",), ("listPets",), ("slow",))
    after = {tool.name: tool.id for tool in await store.tools(HOST)}
    assert after.keys() - before.keys() == {"more_0000"}
    assert all(after[name] == before[name] for name in after.keys() & before.keys())


async def test_an_unchanged_description_is_not_imported_again(
    sources: Sources, description: Path
) -> None:
    wanted = spec(description, base_url="http://127.0.0.1:1")
    assert await sources.import_changed(wanted) is not None
    assert await sources.import_changed(wanted) is None
    assert await sources.import_changed(spec(description, base_url="http://127.0.0.1:2"))
    assert await sources.import_changed(spec(description, include=("listPets",)))
    description.write_text(json.dumps(pets(1)))
    assert await sources.import_changed(spec(description, include=("listPets",)))


async def test_an_import_that_would_leave_nothing_is_rejected(
    sources: Sources, store: ToolStore, description: Path
) -> None:
    await sources.import_(spec(description))
    with pytest.raises(ImportRejected, match="all 5 operations are left out"):
        await sources.import_(spec(description, include=("nothing*",)))
    description.write_text(json.dumps({**pets(), "paths": {}}))
    with pytest.raises(ImportRejected, match="no operations"):
        await sources.import_(spec(description))
    assert len(await store.tools(HOST)) == 5


async def test_an_unknown_source_cannot_be_refreshed(sources: Sources) -> None:
    with pytest.raises(LookupError):
        await sources.refresh("nobody")


@pytest.mark.parametrize(
    ("servers", "base_url", "expected"),
    [
        ([{"url": "https://api.example.com/v1/"}], None, ("https://api.example.com/v1", False)),
        ([{"url": "https://api.example.com"}], "http://10.0.0.1", ("http://10.0.0.1", True)),
        ([{"url": "/v1"}], None, (None, False)),  # relative to a file: no address
        ([{"url": "http://[x"}, {"url": "http://y.example"}], None, ("http://y.example", False)),
        ([{"url": "ftp://x"}, {"url": "http://y.example"}], None, ("http://y.example", False)),
    ],
)
async def test_calls_go_where_the_operator_says_or_the_description(
    sources: Sources,
    description: Path,
    servers: Any,
    base_url: str | None,
    expected: tuple[str | None, bool],
) -> None:
    description.write_text(json.dumps({**pets(), "servers": servers}))
    report = await preview(spec(description, base_url=base_url), LIMITS)
    assert (report.source.base_url, report.source.base_url_trusted) == expected


@pytest.mark.parametrize(
    ("servers", "base"),
    [
        (("{scheme}://api.example.com",), None),
        (
            ("https://{region}.example.com", "https://eu.example.com/v1"),
            "https://eu.example.com/v1",
        ),
        (("/v1",), "http://docs.example.com/v1"),
    ],
)
def test_unresolved_server_variables_do_not_lead_to_the_documents_host(
    servers: tuple[str, ...], base: str | None
) -> None:
    """A server with a variable left is no relative URL (mending 28)."""
    assert declared_base("http://docs.example.com/openapi.json", servers) == base


async def test_duplicate_keys_are_notes_of_the_import(sources: Sources, description: Path) -> None:
    """Operations of a path that stands twice are all imported, with a note (mending 28)."""
    first, second = ('{"get": {"operationId": "a"}}', '{"post": {"operationId": "b"}}')
    description.write_text(
        '{"openapi": "3.0.3", "info": {"title": "t", "version": "1"}, '
        '"servers": [{"url": "http://{city}.example"}, {"url": "http://y.example"}], '
        f'"paths": {{"/x": {first}, "/x": {second}}}}}'
    )
    report = await preview(spec(description), LIMITS)
    assert sorted(outcome.name or "" for outcome in report.outcomes) == ["a", "b"]
    assert "the key '/x' stands twice in one object; both are read" in report.notes
    assert any("http://{city}.example" in note for note in report.notes)


AT = "http://localhost:8439"


@pytest.fixture
def rule_spec(tmp_path: Path) -> ImportSpec:
    """The import of `SPEC`, which lies in a file."""
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    return ImportSpec(
        "rules", str(path), base_url=AT, kind="hybrid", options=HybridOptions("command")
    )


async def test_a_hybrid_service_is_imported_with_all_that_its_calls_need(
    sources: Sources, store: ToolStore, rule_spec: ImportSpec
) -> None:
    report = await sources.import_(rule_spec)
    assert [one.name for one in report.outcomes] == [
        "rule_createRule",
        "rule_updateRule",
        "rule_deleteRule",
    ]
    create, delete, update = await store.tools(HOST)
    assert create.name == "rule_createRule"
    assert delete.binding == HybridBinding(
        service=f"{RULE}/deleteRule/0.1.0", scope="portal.w", side="command"
    )
    assert update.description == "Service to update a rule"
    source = await store.source(HOST, "rules")
    assert source is not None
    assert (source.kind, source.title, source.base_url) == ("hybrid", RULE, AT)
    assert (source.base_url_trusted, source.options) == (True, HybridOptions("command"))


async def test_a_hybrid_service_is_refreshed_with_its_options(
    sources: Sources, store: ToolStore, rule_spec: ImportSpec
) -> None:
    options = HybridOptions("query", "legacy", 8)
    await sources.import_(replace(rule_spec, options=options, exclude=("*/createRule/*",)))
    ids = {tool.name: tool.id for tool in await store.tools(HOST)}
    changed = SPEC.replace("scope: portal.w", "scope: portal.x")
    Path(rule_spec.location).write_text(changed)
    saved = (await sources.refresh("rules")).saved
    assert saved is not None
    assert (saved.updated, saved.added) == (("rule_updateRule", "rule_deleteRule"), ())
    tools = await store.tools(HOST)
    assert {tool.name: tool.id for tool in tools} == ids
    assert {tool.binding.scope for tool in tools if isinstance(tool.binding, HybridBinding)} == {
        "portal.x"
    }
    source = await store.source(HOST, "rules")
    assert source is not None
    assert (source.options, source.base_url) == (options, AT)


@pytest.mark.parametrize(
    "change",
    [
        {"options": HybridOptions("query")},
        {"options": HybridOptions("command", "legacy")},
        {"options": HybridOptions("command", batch=2)},
        {"base_url": "http://localhost:8440"},
        {"include": ("*Rule",)},
    ],
)
async def test_a_hybrid_service_is_imported_again_when_anything_changed(
    sources: Sources, store: ToolStore, rule_spec: ImportSpec, change: dict[str, Any]
) -> None:
    assert await sources.import_changed(rule_spec) is not None
    assert await sources.import_changed(rule_spec) is None
    changed = replace(rule_spec, **change)
    assert await sources.import_changed(changed) is not None
    assert await sources.import_changed(changed) is None
    source = await store.source(HOST, "rules")
    assert source is not None
    assert source.options == changed.options


async def test_a_hybrid_service_of_500_actions_is_one_import(
    sources: Sources, store: ToolStore, rule_spec: ImportSpec
) -> None:
    nodes = [wanting("S", name=f"do{number:03}") for number in range(500)]
    Path(rule_spec.location).write_text(json.dumps(describe_actions(*nodes, S={"type": "object"})))
    report = await sources.import_(rule_spec)
    assert report.saved is not None
    assert len(report.saved.added) == len(await store.tools(HOST)) == 500
    assert await sources.import_changed(rule_spec) is None


async def test_an_action_that_is_skipped_gets_no_name(
    sources: Sources, rule_spec: ImportSpec
) -> None:
    Path(rule_spec.location).write_text(
        json.dumps(describe_actions(wanting("S"), wanting("S"), S={}))
    )
    report = await sources.import_(rule_spec)
    assert [(one.status, one.name) for one in report.outcomes] == [
        ("imported", "s_do"),
        ("skipped", None),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty; expected the spec.yaml or schema.json of a hybrid service"),
        ("openapi: 3.1.0", "this is an OpenAPI description"),
        ("- host: a", "holds a list; expected the spec.yaml"),
        ("host: a\n service: b", "line 2"),
        ("{host: a, service: b, action: [{name: c}]}", "every operation was skipped"),
        (SPEC, "all 3 operations are left out"),
    ],
)
async def test_invalid_hybrid_files_are_rejected_and_nothing_is_written(
    sources: Sources, store: ToolStore, rule_spec: ImportSpec, text: str, expected: str
) -> None:
    Path(rule_spec.location).write_text(text)
    with pytest.raises(ImportRejected, match=expected):
        await sources.import_(replace(rule_spec, exclude=("*",)))
    assert await store.sources(HOST) == []


async def test_a_hybrid_service_without_an_address_is_rejected(
    sources: Sources, rule_spec: ImportSpec
) -> None:
    with pytest.raises(ImportRejected, match="rules has no base_url"):
        await sources.import_(replace(rule_spec, base_url=None))


WRITTEN = ImportSpec("own", "company.rules", kind="python")


def serving(store: ToolStore, *actions: Action) -> Sources:
    """Imports of a process that serves these actions as the source `own`."""
    return Sources(store, HOST, LIMITS, services={"own": actions})


async def test_a_service_of_this_process_is_imported_from_its_actions(store: ToolStore) -> None:
    add = Action("h/s/add/1", "Adds.", {"properties": {"a": {}}}, positional=("a",))
    assert await serving(store, add).import_changed(WRITTEN) is not None
    (tool,) = await store.tools(HOST)
    assert (tool.name, tool.binding) == ("s_add", PythonBinding("h/s/add/1", positional=("a",)))
    source = await store.source(HOST, "own")
    assert source is not None
    assert (source.kind, source.location, source.base_url) == ("python", "company.rules", None)


async def test_a_service_of_this_process_is_imported_again_when_its_actions_changed(
    store: ToolStore,
) -> None:
    before, after = Action("h/s/add/1"), Action("h/s/add/1", scope="a.w")
    assert await serving(store, before).import_changed(WRITTEN) is not None
    assert await serving(store, before).import_changed(WRITTEN) is None
    assert await serving(store, after).import_changed(WRITTEN) is not None
    query = replace(WRITTEN, options=HybridOptions("query"))
    assert await serving(store, after).import_changed(query) is not None
    assert await serving(store, after).import_changed(query) is None
    (tool,) = await store.tools(HOST)
    assert tool.binding == PythonBinding("h/s/add/1", scope="a.w", side="query", validated=False)


async def test_a_service_of_another_process_cannot_be_imported_here(store: ToolStore) -> None:
    await serving(store, Action("a")).import_(WRITTEN)
    with pytest.raises(ImportRejected, match=r"own is written in Python.*`toolgate serve`"):
        await Sources(store, HOST, LIMITS).refresh("own")
    assert len(await store.tools(HOST)) == 1


async def test_actions_that_cannot_be_tools_are_rejected_with_their_module(
    store: ToolStore,
) -> None:
    broken = Action("h/s/add/1", request_schema={"type": "nonsense"})
    with pytest.raises(ImportRejected, match=r"company\.rules: the schema of h/s/add/1"):
        await serving(store, broken).import_(WRITTEN)
    with pytest.raises(ImportRejected, match="all 1 operations are left out"):
        await serving(store, Action("a")).import_(replace(WRITTEN, exclude=("a",)))


async def test_a_source_of_a_later_release_is_left_alone(
    sources: Sources, store: ToolStore, rule_spec: ImportSpec
) -> None:
    await sources.import_(rule_spec)
    async with store._pool.connection() as connection:
        await connection.execute("UPDATE api_t SET kind = 'telepathy'")
    with pytest.raises(ImportRejected, match="not known here: telepathy"):
        await sources.refresh("rules")


def test_settings_select_the_services_to_import_and_their_options() -> None:
    patterns = {"include": ("a",), "exclude": ("b",)}
    hybrid = SourceSettings(
        hybrid="/s.yaml", base_url=AT, side="query", dialect="legacy", batch=5, **patterns
    )
    assert configured_import("x", hybrid) == ImportSpec(
        "x",
        "/s.yaml",
        base_url=AT,
        include=("a",),
        exclude=("b",),
        kind="hybrid",
        options=HybridOptions("query", "legacy", 5),
        origin="settings",
    )
    python = SourceSettings(python="company.rules", side="command")
    assert configured_import("x", python) == ImportSpec(
        "x", "company.rules", kind="python", options=HybridOptions("command"), origin="settings"
    )
    assert configured_import("x", SourceSettings(openapi="/a.json", **patterns)) == ImportSpec(
        "x", "/a.json", include=("a",), exclude=("b",), origin="settings"
    )
    assert configured_import("x", SourceSettings(base_url=AT)) is None


def rooms(*parameters: dict[str, Any]) -> str:
    operation = {"parameters": list(parameters), "responses": {}}
    paths = {"/rooms": {"get": {"operationId": "rooms", **operation}}}
    return json.dumps({"openapi": "3.1.0", "info": {}, "paths": paths})


def query(name: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {"type": "string"}}


async def rooms_arguments(store: ToolStore) -> set[str]:
    [tool] = await store.tools(HOST)
    return set(json.loads(bytes(tool.input_schema))["properties"])


async def test_a_stored_secret_fills_a_parameter_until_removed(
    sources: Sources, store: ToolStore, database: Database, tmp_path: Path
) -> None:
    """A secret of the registry fills from the next import on, as one of the settings does, and no
    other tenant's or source's (mending 25)."""
    path = tmp_path / "rooms.json"
    path.write_text(rooms(query("access_token"), query("q")))
    keys = Keys(bytes(32))
    elsewhere = Secrets(database.pool, str(uuid4()), keys)
    await elsewhere.put("pets", "access_token", SchemeSettings(token="t-0"))
    secrets = Secrets(database.pool, HOST, keys)
    await secrets.put("others", "access_token", SchemeSettings(token="t-0"))

    wanted = spec(path, kind="openapi", base_url="https://rooms.example")
    await sources.import_(wanted)
    assert await rooms_arguments(store) == {"access_token", "q"}
    await secrets.put("pets", "main", SchemeSettings(token="t-1"))
    assert await sources.import_changed(wanted) is not None
    assert await rooms_arguments(store) == {"q"}
    await sources.refresh("pets")
    assert await rooms_arguments(store) == {"q"}
    await secrets.delete("pets", "main")
    await sources.refresh("pets")
    assert await rooms_arguments(store) == {"access_token", "q"}


async def test_a_stored_value_fills_the_parameter_of_its_name_alone(
    sources: Sources, store: ToolStore, database: Database, tmp_path: Path
) -> None:
    """A stored value may be a whole header, so it is no guess for another key; and where callers
    have tokens of their own none fills (mending 25)."""
    path = tmp_path / "rooms.json"
    path.write_text(rooms(query("api_key"), query("appKey"), query("q")))
    secrets = Secrets(database.pool, HOST, Keys(bytes(32)))
    await secrets.put("pets", "apiKey", SchemeSettings(value="k-1"))
    await sources.import_(spec(path, kind="openapi"))
    assert await rooms_arguments(store) == {"appKey", "q"}
    settings = SourceSettings(openapi=str(path), forward_token=True)
    forwarding = configured_import("pets", settings)
    assert forwarding is not None
    await sources.import_(forwarding)
    assert await rooms_arguments(store) == {"api_key", "appKey", "q"}


@pytest.mark.parametrize("own", [False, True])
async def test_present_settings_decide_whether_stored_secrets_fill_arguments(
    store: ToolStore, database: Database, tmp_path: Path, own: bool
) -> None:
    """Settings may be written after a source was imported by command: where they have callers
    authenticate themselves, nothing of the operator's fills (mending 35)."""
    path = tmp_path / "rooms.json"
    path.write_text(rooms(query("access_token"), query("q")))
    secrets = Secrets(database.pool, HOST, Keys(bytes(32)))
    await secrets.put("pets", "access_token", SchemeSettings(token="t-1"))
    await Sources(store, HOST, LIMITS, configured={}).import_(spec(path, kind="openapi"))
    assert await rooms_arguments(store) == {"q"}
    exchange = TokenExchange("https://login.example/token", "toolgate")
    by_caller = SourceSettings(exchange=exchange) if own else SourceSettings(forward_token=True)
    await Sources(store, HOST, LIMITS, configured={"pets": by_caller}).refresh("pets")
    assert await rooms_arguments(store) == {"access_token", "q"}
    await Sources(store, HOST, LIMITS, configured={"pets": SourceSettings()}).refresh("pets")
    assert await rooms_arguments(store) == {"q"}
