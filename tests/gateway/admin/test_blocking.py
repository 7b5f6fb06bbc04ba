"""What takes long to read or to show is read and shaped in a thread: all tenants share the event
loop."""

import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio import to_thread

from gateway.admin.resources import manual_tools, skills
from gateway.admin.resources import tools as tool_operations
from gateway.app.admin import AdminParts
from gateway.context import Principal
from gateway.operations.operation import OperationInput
from registry.catalog.catalog import Catalog
from registry.database.postgres import Database
from registry.sources.import_plan import SourceDraft
from registry.sources.tool_store import ToolStore
from registry.tools import tool_edits as tools
from schemas.binding import OpenAPIBinding
from schemas.tool import Tool, ToolDraft
from tests.fixtures_database import HOST
from tests.gateway.admin.client import Admin

pytestmark = pytest.mark.anyio

OTHER = "00000000-0000-0000-0000-000000000002"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {
    "name": "weather",
    "description": "The weather.",
    "rest": "GET https://api.example.com/weather?city={city}",
    "input_schema": SCHEMA,
}
SKILL = {"document": "---\nname: care\ndescription: Cares.\n---\nCare.\n"}


def watch_threads(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> list[threading.Thread]:
    """The threads that call the function of this name in `module`."""
    seen: list[threading.Thread] = []
    function: Callable[..., Any] = getattr(module, name)

    def note_thread(*given: Any) -> Any:
        seen.append(threading.current_thread())
        return function(*given)

    monkeypatch.setattr(module, name, note_thread)
    return seen


async def test_a_tool_is_made_and_its_schema_checked_off_the_event_loop(
    api: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = watch_threads(monkeypatch, manual_tools, "make_tool")
    checked = watch_threads(monkeypatch, tools, "check_schema")
    assert (await api("POST", "/tools", WEATHER)).status == 201
    assert made
    assert checked
    assert threading.current_thread() not in {*made, *checked}


async def test_an_edited_schema_is_checked_off_the_event_loop(
    api: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await api("POST", "/tools", WEATHER)).status == 201
    checked = watch_threads(monkeypatch, tools, "own_columns")
    assert (await api("PUT", "/tools/weather", {"input_schema": SCHEMA})).status == 200
    assert checked
    assert threading.current_thread() not in checked


async def test_skills_are_parsed_off_the_event_loop(
    api: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = watch_threads(monkeypatch, skills, "folder_from")
    assert (await api("POST", "/skills", {"skills": [SKILL]})).status == 200
    assert parsed
    assert threading.current_thread() not in parsed


async def test_a_definition_is_shaped_for_each_profile_off_the_event_loop(
    api: Admin, parts: AdminParts, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await api("POST", "/tools", WEATHER)).status == 201
    await parts.catalogs.reload(ToolStore(database.pool), HOST)
    shaped = watch_threads(monkeypatch, tool_operations, "_definition")
    items = (await api("GET", "/tools/weather/definitions")).json["items"]
    assert [one["profile"] for one in items][:1] == ["plain"]
    assert len(shaped) == len(items)
    assert threading.current_thread() not in shaped


async def test_long_definitions_of_a_tenant_leave_room_for_another(
    parts: AdminParts, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant's requests share one turn: another tenant is answered while they run."""
    goes_on, begun = threading.Event(), threading.Event()

    def shape(tool: Tool, _catalog: Catalog) -> tuple[()]:
        if tool.name == "huge":
            begun.set()
            goes_on.wait(20)
        return ()

    monkeypatch.setattr(tool_operations, "_definitions", shape)
    store = ToolStore(database.pool)
    for tenant, name in ((HOST, "huge"), (OTHER, "small")):
        draft = ToolDraft(name, name, "d.", {"type": "object"}, OpenAPIBinding("GET", "/"))
        await store.save(tenant, SourceDraft(name, "openapi", f"{name}.json"), [draft])
        await parts.catalogs.reload(store, tenant)
    code = parts.settings.code
    operations = tool_operations.ToolOperations(
        parts.dependencies, (), parts.load_catalogs, dict, code=code
    )

    async def ask(tenant: str, caller: str, name: str) -> None:
        principal = Principal(caller, tenant)
        await operations.definitions(
            OperationInput(principal, {"tool": name}, query=None, body=None)
        )

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            try:
                for number in range(3):
                    group.start_soon(ask, HOST, f"caller {number}", "huge")
                await to_thread.run_sync(begun.wait)
                await ask(OTHER, "ada", "small")
            finally:
                goes_on.set()
