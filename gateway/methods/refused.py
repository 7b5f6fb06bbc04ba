"""MCP tool calls over a rate limit are answered with a tool result, not an error.

A model can react to a result, and wait; a JSON-RPC error or status 429 reaches only its client
program. Other methods, and other fronts, get the error and `Retry-After`.
"""

from typing import Any

from msgspec import UNSET, Raw

from gateway.abc import Handler
from gateway.context import Context
from gateway.methods.results import call_result
from schemas.errors import TooManyRequests
from schemas.jsonrpc import Request, encode
from schemas.tool import TextContent, ToolResult


def telling(handler: Handler) -> Handler:
    """Middleware that turns refusals into results; outermost, so metrics and audit see errors."""

    async def told(context: Context, request: Request) -> Any:
        if not context.revision.mcp or request.method != "tools/call":
            return await handler(context, request)
        try:
            return await handler(context, request)
        except TooManyRequests as fault:
            if request.id is UNSET:
                raise
            said, data = (TextContent(fault.message),), Raw(encode(fault.data))
            return call_result(ToolResult(said, data, is_error=True), context)

    return told
