"""A tool that was renamed, called by the name that it had: over MCP, in a toolset, and on /rpc; and
a gateway that starts while its source is rolled back."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from config.settings import Settings, Toolset
from registry.sources.source_versions import History, Versions
from registry.sources.tool_store import ToolStore
from tests.fixtures_database import HOST
from tests.fixtures_gateway import pets, running

pytestmark = pytest.mark.anyio

RENAMED = "toolgate/renamedTo"


def renamed_pets(**marks: Any) -> str:
    document = pets()
    document["paths"]["/pets"]["get"]["operationId"] = "findPets"
    document["paths"]["/pets"]["get"] |= {"x-toolgate": marks} if marks else {}
    return json.dumps(document)


@pytest.fixture
async def after_renaming(settings: Settings, tmp_path: Path) -> Settings:
    """Settings of a gateway whose `listPets` is `findPets` since it was last running, and is put
    into the toolset `readers` by its description."""
    async with running(settings):
        pass
    (tmp_path / "pets.json").write_text(renamed_pets(toolsets=["readers"]))
    toolset = Toolset(include=("none",))
    async with running(settings) as client:  # what is known already is imported behind its back
        await client.gateway.feed.refresh("pets")
    return replace(settings, toolsets={"readers": toolset})


async def test_an_alias_calls_the_tool_and_the_result_names_the_new_name(
    after_renaming: Settings,
) -> None:
    async with running(after_renaming) as client:
        called = {"name": "listPets", "arguments": {"limit": 2}}
        _, answer = await client.modern("tools/call", called)
        assert answer["result"]["structuredContent"]["heard"]["query"] == "limit=2"
        assert answer["result"]["_meta"][RENAMED] == "findPets"
        _, answer = await client.modern("tools/call", {"name": "findPets"})
        assert RENAMED not in answer["result"]["_meta"]
        _, answer = await client.modern("tools/list")
        names = {tool["name"] for tool in answer["result"]["tools"]}
        assert "findPets" in names
        assert "listPets" not in names
        session = await client.session("2025-06-18")
        answer = await session.call("tools/call", {"name": "listPets"})
        assert answer["result"]["_meta"] == {RENAMED: "findPets"}
        answer = await client.rpc({"jsonrpc": "2.0", "id": 1, "method": "listPets"})
        assert answer["result"]["heard"]["path"] == "/pets"


async def test_a_description_puts_a_tool_into_a_toolset(after_renaming: Settings) -> None:
    async with running(after_renaming) as client:
        tenant = client.gateway.principal.tenant
        part = client.gateway.catalogs.of(tenant, "readers")
        assert [tool.name for tool in part.tools] == ["findPets"]
        assert part.get("listPets") is part.get("findPets")
        assert "pets" in part.sources  # or it could not be called


async def test_a_gateway_that_starts_leaves_a_rollback_alone(after_renaming: Settings) -> None:
    async with running(after_renaming) as client:
        database = client.gateway.feed.database
        assert database is not None
        store, versions = ToolStore(database.pool), Versions(database.pool)
        await History(store, versions, HOST, after_renaming.imports).roll_back("pets")
    async with running(after_renaming) as client:
        await client.gateway.feed.refresh("pets")  # as it does behind its back
        database = client.gateway.feed.database
        assert database is not None
        names = {tool.name for tool in await ToolStore(database.pool).tools(HOST)}
        assert "listPets" in names
        assert "findPets" not in names
