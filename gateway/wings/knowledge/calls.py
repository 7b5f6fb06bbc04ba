"""Calls of the wing's operations for HTTP requests of other shapes: policy, limits and audit hold
for them."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET
from starlette.requests import Request

from gateway.context import CallHeaders, Context, new_request_id
from gateway.operations.http import check_known
from gateway.operations.operation import ProblemDetails
from gateway.wings.abc import WingParts
from schemas.mcp.revisions import V2025_11_25
from schemas.tool import TextContent, ToolResult


class ToolCalls:
    def __init__(self, parts: WingParts) -> None:
        self._parts = parts

    async def call(self, request: Request, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Raises ProblemDetails, and Fault."""
        return check_result(await self.call_tool(await self.context(request), name, arguments))

    async def call_tool(
        self, context: Context, name: str, arguments: Mapping[str, Any]
    ) -> ToolResult:
        """Raises Fault."""
        return await self._parts.call(context, name, arguments)

    async def context(self, request: Request) -> Context:
        """The context of the caller's calls. Raises ProblemDetails."""
        identity = await self._parts.identify(request.scope)
        check_known(identity, request.headers)
        client = request.client.host if request.client else ""
        headers = CallHeaders(authorization=request.headers.get("authorization"), client=client)
        return Context(identity, V2025_11_25, new_request_id(), headers=headers)


def check_result(result: ToolResult) -> ToolResult:
    """The result, unless it is an error. Raises ProblemDetails."""
    if not result.is_error:
        return result
    if result.structured_content is UNSET:  # what its schema or a guard refuses
        raise ProblemDetails(422, "invalid", text_of(result))
    problem = msgspec.json.decode(structured_body(result))
    raise ProblemDetails(problem["status"], "refused", problem["detail"])


def structured_body(result: ToolResult) -> bytes:
    structure = result.structured_content
    return b"{}" if structure is UNSET else bytes(structure)


def text_of(result: ToolResult) -> str:
    return "\n".join(content.text for content in result.content if isinstance(content, TextContent))
