"""Tools made by hand, in a gateway that runs: served as soon as they are written."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from config.settings import Settings
from registry.tools.editable_columns import Address, NewTool
from registry.tools.tool_edits import ToolEdits
from schemas.binding import FunctionBinding, OpenAPIBinding, Parameter, ScriptBinding
from schemas.tool import ToolDraft
from tests.fixtures_gateway import Client, SessionClient, running
from tests.polling import until

pytestmark = pytest.mark.anyio

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
FUNCTIONS = "def greet(name: str) -> str:\n    return f'Hello {name}'\n"
PLACE = Parameter("name", "name", "path", "simple", explode=False)


def new(name: str, binding: Any, address: Address | None = None) -> NewTool:
    return NewTool(ToolDraft("", name, f"Does {name}", SCHEMA, binding), address)


async def call_tool(session: SessionClient, which: str, **arguments: Any) -> Any:
    """The answer of a tool, once the catalog has it."""

    async def answer() -> Any:
        call = {"name": which, "arguments": arguments}
        return (await session.call("tools/call", call)).get("result")

    return await until(answer)


def by_hand(client: Client) -> ToolEdits:
    gateway = client.gateway
    pool = gateway.feed.pool
    assert pool is not None
    return ToolEdits(pool, gateway.principal.tenant)


async def test_manual_tools_are_served_and_disabled_tools_are_not(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "front_functions.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))
    async with running(settings) as client:
        tools, session = by_hand(client), await client.session()
        request = OpenAPIBinding("GET", "/made/{name}", (PLACE,))
        await tools.add([
            new("made", request, Address("pets")),
            new("greet", FunctionBinding("greet")),
            new("script", ScriptBinding("python", "def main(a): return 1")),
        ])  # fmt: skip
        made = await call_tool(session, "made", name="a b")
        assert made["structuredContent"]["heard"]["path"] == "/made/a%20b"
        refused = await session.call("tools/call", {"name": "made", "arguments": {}})
        assert "name" in refused["error"]["message"]

        missing = await call_tool(session, "greet", name="Rex")
        assert (missing["isError"], "no function greet" in missing["content"][0]["text"]) == (
            True,
            True,
        )
        functions = {"greet": "front_functions:greet"}
        await client.gateway.reconfigure(replace(settings, functions=functions))
        assert (await call_tool(session, "greet", name="Rex"))["content"][0]["text"] == "Hello Rex"

        off = await call_tool(session, "script", name="x")
        assert "scripts are switched off" in off["content"][0]["text"]

        await tools.disable(["made", "listPets"])

        async def are_disabled() -> bool:
            return not {"made", "listPets"} & await list_names(session)

        await until(are_disabled)
        assert {"greet", "getPet"} <= await list_names(session)


async def test_scripts_are_listed_only_while_enabled(settings: Settings) -> None:
    on = replace(settings, scripts=replace(settings.scripts, enabled=True))
    async with running(settings) as client:
        tools, session = by_hand(client), await client.session()
        await tools.add([
            new("greet", FunctionBinding("greet")),
            new("script", ScriptBinding("python", "def main(a): return 1")),
        ])  # fmt: skip
        await call_tool(session, "script", name="x")
        assert {"greet", "script"} & await list_names(session) == {"greet"}
        assert await search_names(session) == {"greet"}
        asked = {"name": "describe_tools", "arguments": {"names": ["script"]}}
        refused = await session.call("tools/call", asked)
        assert "there is no tool 'script'" in refused["error"]["message"]

        await client.gateway.reconfigure(on)
        assert "script" in await list_names(session)
        assert await search_names(session) == {"greet", "script"}
        await client.gateway.reconfigure(settings)
        assert "script" not in await list_names(session)


async def search_names(session: SessionClient) -> set[str]:
    told = await call_tool(session, "search_tools", query="greet script does", limit=2)
    return {tool["name"] for tool in told["structuredContent"]["tools"]}


async def list_names(session: SessionClient) -> set[str]:
    answer = await session.call("tools/list")
    return {tool["name"] for tool in answer["result"]["tools"]}
