"""MCP tool calls over a rate limit are answered with a tool result, not an error.

A model can react to a result, and wait; a JSON-RPC error or status 429 reaches only its client
program. Other methods, and other fronts, get the error and `Retry-After`.
"""

from msgspec import UNSET, Raw

from gateway.context import Context
from gateway.methods.results import call_result
from schemas.errors import Fault, TooManyRequests
from schemas.jsonrpc import Request, encode
from schemas.mcp.messages import CallToolResult
from schemas.tool import TextContent, ToolResult


def rate_limit_result(context: Context, request: Request, fault: Fault) -> CallToolResult | None:
    """The result of an MCP tool call over a rate limit; None for any other request or fault."""
    if not isinstance(fault, TooManyRequests) or request.method != "tools/call":
        return None
    if not context.revision.mcp or request.id is UNSET:
        return None
    text, data = (TextContent(fault.message),), Raw(encode(fault.data))
    return call_result(ToolResult(text, data, is_error=True), context)
