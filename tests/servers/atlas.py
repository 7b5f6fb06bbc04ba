"""A server whose completion depends on the other arguments, with resources of each kind."""

import base64
import json
from contextlib import AbstractAsyncContextManager
from typing import Any

import mcp_types as types
from mcp.server.mcpserver import MCPServer
from starlette.types import ASGIApp

from tests.servers.everything_tools import PNG

HTML = "<script>document.title='owned'</script>"
CITIES = {"france": ["paris", "pau"], "": ["paris", "pau", "prague"]}


def atlas() -> tuple[ASGIApp, AbstractAsyncContextManager[Any]]:
    """The app, at /mcp, and what has to be entered while it serves."""
    server = MCPServer("atlas")

    @server.prompt()
    def visit_city(city: str, country: str = "") -> str:
        return f"Plan a visit of {city}, {country}. {HTML}"

    @server.resource("atlas://page", mime_type="text/html")
    def page() -> str:
        return HTML

    @server.resource("atlas://map", mime_type="image/png")
    def map_of_all() -> bytes:
        return base64.b64decode(PNG)

    @server.resource("atlas://drawing", mime_type="image/svg+xml")
    def drawing() -> bytes:
        return b"<svg onload='alert(1)'/>"

    @server.resource("atlas://{city}/facts", mime_type="application/json")
    def facts(city: str) -> str:
        return json.dumps({"city": city})

    @server.completion()
    async def complete(
        ref: types.PromptReference | types.ResourceTemplateReference,
        argument: types.CompletionArgument,
        context: types.CompletionContext | None,
    ) -> types.Completion:
        given = (context and context.arguments) or {}
        named = CITIES.get(given.get("country", ""), [])
        return types.Completion(values=[one for one in named if one.startswith(argument.value)])

    app = server.streamable_http_app()
    return app, app.router.lifespan_context(app)
