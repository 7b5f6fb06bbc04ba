"""The page "Connect": configurations of MCP clients, as `toolgate clients setup` prints them."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from config.mcp_clients import McpClient, client_values, fill, read_clients
from gateway.console.page_request import PageRequest
from gateway.console.routes import PageRoute


async def connect(visit: PageRequest) -> Response:
    """The form of each client for one endpoint, with a login or with a key."""
    settings = visit.parts.settings()
    toolset = visit.query.get("toolset", "")
    toolsets = [row["name"] for row in await visit.operations.items("listToolsets", limit=500)]
    if toolset and toolset not in toolsets:
        return visit.problem(404)
    with_key = visit.query.get("access", "key" if settings.auth.mode == "keys" else "") == "key"
    values = client_values(settings, toolset or "toolgate", toolset or None)
    return visit.page(
        "connect.html",
        toolsets=toolsets,
        toolset=toolset,
        with_key=with_key,
        values=values,
        clients=[_view(row, values, with_key) for row in read_clients().values()],
        may_make_keys=visit.operations.may("createKey"),
    )


def _view(client: McpClient, values: Mapping[str, str], with_key: bool) -> Mapping[str, Any]:
    return {
        "title": client.title,
        "place": fill(client.file, values) or client.where,
        "text": client.text(values, with_key).rstrip(),
        "link": client.deep_link(values, with_key),
        "literal": with_key and client.literal,
    }


ROUTES = (PageRoute("/connect", connect),)
