"""GraphQL services as sources: found, imported, imported again."""

import json
from pathlib import Path
from typing import Any

import pytest
from graphql import build_schema

from config.load import load
from config.settings import Imports
from config.sources import SourceSettings
from registry.sources.graphql_documents import introspect
from registry.sources.import_specs import ImportSpec, configured_import
from registry.sources.imports import Sources, preview
from registry.sources.tool_store import ToolStore
from schemas.binding import GraphQLBinding
from schemas.errors import ImportRejected
from schemas.source import GraphQLOptions
from tests.fixtures_database import HOST
from tests.servers.graphql import SDL, PetShop

pytestmark = pytest.mark.anyio

LIMITS: Imports = load(None, {}).imports


async def ask(spec: ImportSpec) -> bytes:
    return await introspect(spec.location, {}, limit_bytes=2**24, timeout_s=60)


@pytest.fixture
def sources(store: ToolStore) -> Sources:
    return Sources(store, HOST, LIMITS, lister=ask)


@pytest.fixture
def sdl_file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.graphql"
    path.write_text(SDL)
    return path


def spec(location: object, **changes: Any) -> ImportSpec:
    usual = {"name": "shop", "location": str(location), "kind": "graphql"}
    return ImportSpec(**{**usual, "options": GraphQLOptions(), **changes})


async def test_an_endpoint_is_where_calls_go_and_may_be_trusted(sources, store, serve):
    url = f"{await serve(PetShop())}/graphql/"
    with pytest.raises(ImportRejected, match="did not answer as a GraphQL endpoint"):
        await sources.import_(spec(url))  # the slash at its end counts
    url = url.removesuffix("/")
    report = await sources.import_(spec(url))
    assert (report.source.base_url, report.source.base_url_trusted) == (url, True)
    source = await store.source(HOST, "shop")
    assert source is not None
    assert (source.kind, source.location, source.options) == ("graphql", url, GraphQLOptions())


async def test_a_schema_in_a_file_does_not_say_where_calls_go(sources, sdl_file):
    report = await sources.import_(spec(sdl_file))
    assert report.source.base_url is None
    said = await sources.import_(spec(sdl_file, base_url="http://127.0.0.1:9/graphql/"))
    assert said.source.base_url == "http://127.0.0.1:9/graphql/"


async def test_stored_bindings_equal_the_drafted_bindings(sources, store, sdl_file):
    await sources.import_(spec(sdl_file))
    tools = {tool.name: tool for tool in await store.tools(HOST)}
    binding = tools["pets"].binding
    assert isinstance(binding, GraphQLBinding)
    assert (binding.field, binding.page_size) == ("pets", 20)
    assert binding.pagination is not None
    [report] = [await preview(spec(sdl_file), LIMITS)]
    drafted = {draft.name: draft.binding for draft in report.drafts}
    assert {name: tool.binding for name, tool in tools.items()} == drafted


async def test_a_refresh_asks_the_endpoint_again_and_keeps_the_tools(sources, store, serve):
    shop = PetShop()
    wanted = spec(f"{await serve(shop)}/graphql", options=GraphQLOptions(depth=1))
    assert await sources.import_changed(wanted) is not None
    assert await sources.import_changed(wanted) is None
    before = {tool.name: tool.id for tool in await store.tools(HOST)}
    shop.schema = build_schema(SDL.replace("echo(text", "said(text"))
    saved = (await sources.refresh("shop")).saved
    assert saved is not None
    assert (saved.added, saved.updated, saved.removed) == (("said",), (), ("echo",))
    after = {tool.name: tool for tool in await store.tools(HOST)}
    assert after["pet"].id == before["pet"]
    assert after["pet"].binding.selection == "{ id name kind born }"


async def test_an_overlay_is_kept_with_the_schema(sources, store, sdl_file, tmp_path):
    overlay = tmp_path / "tools.yaml"
    overlay.write_text('operations: {Query.pet: {selection: "{ name }", name: onePet}}')
    wanted = spec(sdl_file, options=GraphQLOptions(str(overlay)))
    await sources.import_(wanted)
    tools = {tool.name: tool for tool in await store.tools(HOST)}
    assert tools["onePet"].binding.selection == "{ name }"
    overlay.write_text('operations: {Query.pet: {selection: "{ id }", name: onePet}}')
    assert await sources.import_changed(wanted) is not None
    tools = {tool.name: tool for tool in await store.tools(HOST)}
    assert tools["onePet"].binding.selection == "{ id }"


async def test_an_overlay_that_is_wrong_is_told(sources, sdl_file, tmp_path):
    overlay = tmp_path / "tools.yaml"
    overlay.write_text('operations: {pet: {select: "{ name }"}}')
    with pytest.raises(ImportRejected, match=r"tools\.yaml: .*unknown field `select`.*selection"):
        await sources.import_(spec(sdl_file, options=GraphQLOptions(str(overlay))))


async def test_an_endpoint_is_refused_without_a_client(store):
    with pytest.raises(ImportRejected, match="is a GraphQL endpoint"):
        await Sources(store, HOST, LIMITS).import_(spec("http://127.0.0.1:9/graphql"))


async def test_settings_describe_a_source():
    wanted = SourceSettings(
        graphql="https://example.com/graphql", include=("pet*",), depth=2, cost=30, only_marked=True
    )
    assert configured_import("shop", wanted) == spec(
        "https://example.com/graphql",
        include=("pet*",),
        options=GraphQLOptions(None, True, 2, 30),
        origin="settings",
    )


async def test_an_introspection_in_a_file_is_read(sources, tmp_path):
    shop = PetShop()
    saved = tmp_path / "shop.json"
    query = "{ __schema { types { kind name fields { name type { kind name } } } } }"
    asked = {"query": query, "variables": {}, "operationName": None}
    saved.write_text(json.dumps(shop.answer(asked)))
    report = await sources.import_(spec(saved))
    statuses = {outcome.operation: outcome.status for outcome in report.outcomes}
    assert statuses["Query.pet"] == "imported"
