"""MCP Apps of several servers: each tool leads to the page of its own server."""

from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from mcp.client.client import Client as McpClient

from config.settings import Settings
from tests.gateway.federation.servers import fleet
from tests.servers.mcp_wire import Scripted, Turn

pytestmark = pytest.mark.anyio

PAGE = "ui://chart/page.html"
HTML = "text/html;profile=mcp-app"


def charting(name: str) -> Scripted:
    """A server whose tool `draw_NAME` has a page, as every such server calls it."""

    async def tools(turn: Turn) -> None:
        meta = {"ui": {"resourceUri": PAGE}, "openai/outputTemplate": PAGE, "own": ["keep:me"]}
        tool = {"name": f"draw_{name}", "inputSchema": {"type": "object"}, "_meta": meta}
        await turn.result(tools=[tool])

    async def resources(turn: Turn) -> None:
        await turn.result(resources=[{"uri": PAGE, "name": "page", "mimeType": HTML}])

    async def templates(turn: Turn) -> None:
        await turn.result(resourceTemplates=[])

    async def read(turn: Turn) -> None:
        await turn.result(contents=[{"uri": turn.params["uri"], "mimeType": HTML, "text": name}])

    async def call(turn: Turn) -> None:
        page = {"uri": PAGE, "mimeType": HTML, "text": name}
        await turn.result(
            content=[{"type": "resource", "resource": page}],
            _meta={"ui": {"resourceUri": PAGE}},
        )

    plays = {
        "tools/list": tools,
        "resources/list": resources,
        "resources/templates/list": templates,
        "resources/read": read,
        "tools/call": call,
    }
    return Scripted(plays, capabilities={"tools": {}, "resources": {}})


@pytest.mark.parametrize("prefix", ["conditional", "always"])
async def test_each_tool_shows_the_page_of_its_own_server(bare: Settings, prefix: Any) -> None:
    """Tools, results and embedded pages name a `ui://` resource that is read there (mending 13)."""
    servers = {name: (charting(name), AsyncExitStack()) for name in ("one", "two")}
    async with fleet(bare, servers, prefix=prefix) as behind:
        with anyio.fail_after(30):
            async with McpClient(behind.client.url + "/mcp", mode="legacy") as mcp:
                tools = (await mcp.list_tools()).tools
                assert len(tools) == 2
                for tool in tools:
                    owner = tool.name.rpartition("_")[2]
                    uri = tool.meta["ui"]["resourceUri"]
                    assert tool.meta == {
                        "ui": {"resourceUri": uri},
                        "openai/outputTemplate": uri,
                        "own": ["keep:me"],
                    }
                    result = await mcp.call_tool(tool.name, {})
                    assert result.meta["ui"]["resourceUri"] == uri
                    embedded = str(result.content[0].resource.uri)
                    assert uri.startswith("ui://")
                    assert embedded.startswith("ui://")
                    for named in (uri, embedded):
                        [page] = (await mcp.read_resource(named)).contents
                        assert page.text == owner
                        assert str(page.uri) == uri
