"""The seams: what the layers hand to each other."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from gateway.context import Context
from schemas.jsonrpc import Request
from schemas.source import Source
from schemas.tool import Tool, ToolResult

Handler = Callable[[Context, Request], Awaitable[Any]]
"""Serve one request: returns what becomes the `result` (any JSON-encodable value), or raises a
`Fault`."""

Middleware = Callable[[Handler], Handler]
"""Wrap a handler; runs once per message, so many times in a batch."""


class Upstream(Protocol):
    """Makes the call that a binding of its kind describes."""

    async def call(
        self, tool: Tool, source: Source | None, arguments: dict[str, Any], context: Context
    ) -> ToolResult: ...
