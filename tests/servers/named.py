"""Servers that are all alike, but for the name that each says in whatever it answers."""

from contextlib import AbstractAsyncContextManager
from typing import Any

import mcp_types as types
from mcp.server.mcpserver import MCPServer
from starlette.types import ASGIApp

SHARED = "note://shared"
TEMPLATE = "note://{number}/text"


def named_app(name: str) -> tuple[ASGIApp, AbstractAsyncContextManager[Any]]:
    """The app of both eras, at /mcp, and what has to be entered while it serves."""
    server = MCPServer(name)

    @server.tool()
    def whoami() -> str:
        return name

    @server.tool(name=f"only_{name}")
    def only() -> str:
        return name

    @server.tool()
    def link() -> list[types.ContentBlock]:
        contents = types.TextResourceContents(uri=SHARED, text=name)
        return [
            types.ResourceLink(uri=SHARED, name="shared"),
            types.EmbeddedResource(resource=contents),
        ]

    @server.prompt()
    def hello(who: str) -> str:
        return f"{name} greets {who}"

    @server.prompt(name=f"only_{name}")
    def only_prompt() -> str:
        return name

    @server.resource(SHARED)
    def shared() -> str:
        return name

    @server.resource(f"note://of-{name}")
    def own() -> str:
        return name

    @server.resource(TEMPLATE)
    def text(number: str) -> str:
        return f"{name} {number}"

    @server.completion()
    async def complete_argument(
        ref: types.PromptReference | types.ResourceTemplateReference, *_: Any
    ) -> types.Completion:
        about = ref.name if isinstance(ref, types.PromptReference) else ref.uri
        return types.Completion(values=[f"{name} {about}"])

    app = server.streamable_http_app()
    return app, app.router.lifespan_context(app)
