"""What tests of search mode have in common: a gateway with many pets, and clients of it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from config.settings import Settings, Toolset
from tests.fixtures_gateway import META, MODERN, Client, pets

OWN = ["call_tool", "describe_tools", "search_tools"]
SEARCH = "/mcp?mode=search"


def searching(settings: Settings, folder: Path, count: int = 60) -> Settings:
    """`settings` with so many further tools, and a toolset of two."""
    document = pets(count)
    (folder / "pets.json").write_text(json.dumps(document))
    few = {"two": Toolset(include=("getPet", "deletePet"), mode="search")}
    return replace(settings, toolsets=few)


def disclosing(settings: Settings, **changes: Any) -> Settings:
    return replace(settings, disclosure=replace(settings.disclosure, **changes))


def finding(settings: Settings, **changes: Any) -> Settings:
    return replace(settings, search=replace(settings.search, **changes))


async def ask_gateway(
    client: Client,
    method: str,
    params: Mapping[str, Any] | None = None,
    path: str = SEARCH,
    **headers: str,
) -> Any:
    """What a 2026-07-28 client is answered: the result, or the error."""
    params = {**(params or {}), "_meta": META}
    sent = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    if "name" in params:
        sent["Mcp-Name"] = params["name"]
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    _, answer, _ = await client.post(path, request, sent | headers)
    return answer.get("result") or answer["error"]


async def names(client: Client, path: str = SEARCH, **params: Any) -> list[str]:
    return [one["name"] for one in (await ask_gateway(client, "tools/list", params, path))["tools"]]


async def call_tool(client: Client, tool: str, at: str = SEARCH, /, **arguments: Any) -> Any:
    return await ask_gateway(client, "tools/call", {"name": tool, "arguments": arguments}, at)


async def call_for_structure(
    client: Client, tool: str, at: str = SEARCH, /, **arguments: Any
) -> Any:
    """The structured answer of a tool."""
    result = await call_tool(client, tool, at, **arguments)
    assert not result.get("isError"), result
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    return result["structuredContent"]
