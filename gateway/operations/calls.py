"""Operations called as tools: arguments to an operation's input, its response to a result."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from gateway.context import Context
from gateway.operations.operation import (
    Operation,
    OperationInput,
    ProblemDetails,
    ProblemDocument,
    allows,
)
from gateway.operations.requests import converted, converted_query, read_names, refuse_nul
from gateway.operations.serving import OperationResponse, OperationServer, problem_response
from gateway.operations.tools import BODY, IF_MATCH, IF_NONE_MATCH, members_of
from schemas.binding import OperationBinding
from schemas.errors import MethodNotFound
from schemas.jsonrpc import encode
from schemas.source import Source
from schemas.tool import TextContent, Tool, ToolResult

META_ETAG = "toolgate/etag"  # in `_meta` of a result: its ETag
DONE = ToolResult((TextContent("Done."),))

Json = Mapping[str, Any]


class OperationUpstream:
    """Implements `Upstream`."""

    def __init__(self, server: OperationServer) -> None:
        self._server = server
        self._tells_tag = {
            server.read_by(one).id for one in server.by_id.values() if one.match and not one.no_tool
        }

    async def call(
        self, tool: Tool, _source: Source | None, arguments: Any, context: Context
    ) -> ToolResult:
        operation = self._operation(tool, context)
        try:
            asked = input_of(operation, arguments, context)
            body = encode(arguments)
            headers = _conditions(arguments, context)
            response = await self._server.answer(
                operation, asked, headers, body, context.request_id
            )
        except ProblemDetails as problem:
            response = problem_response(problem, context.request_id)
        return result_of(response, tells_tag=operation.id in self._tells_tag)

    def _operation(self, tool: Tool, context: Context) -> Operation:
        """Raises MethodNotFound if unknown, and if the caller lacks its scope."""
        binding = cast("OperationBinding", tool.binding)  # app: each upstream has its own kind
        operation = self._server.by_id.get(binding.operation)
        if operation is None or operation.no_tool or not allows(context.principal, operation.scope):
            raise MethodNotFound(f"{tool.name} cannot be called here")
        return operation


def input_of(operation: Operation, arguments: Json, context: Context) -> OperationInput:
    """Raises ProblemDetails."""
    names = {name: arguments[name] for name in operation.names}
    read_names(operation, names)
    given = {field.encode_name for field in msgspec.structs.fields(operation.query)}
    query = {name: value for name, value in arguments.items() if name in given}
    body = _body(operation, arguments)
    return OperationInput(
        context.principal, names, converted_query(operation, query), body, context
    )


def result_of(response: OperationResponse, *, tells_tag: bool) -> ToolResult:
    """`tells_tag`: the ETag in the text too, for a model that edits the resource."""
    if response.status >= 400:
        said = TextContent(_told(response.body))
        return ToolResult((said,), structured_content=Raw(response.body), is_error=True)
    if not response.body:
        return DONE
    content = [TextContent(response.body.decode())]
    tag = response.headers.get("ETag")
    if tag is not None and tells_tag:
        content.append(TextContent(f"ETag: {tag}"))
    result = ToolResult(tuple(content), structured_content=Raw(response.body))
    return result if tag is None else replace(result, meta={META_ETAG: tag})


def _body(operation: Operation, arguments: Json) -> Any:
    """Raises ProblemDetails."""
    if operation.body is None:
        return None
    members = members_of(operation)
    value = {name: arguments[name] for name in members if name in arguments}
    said = value if members else arguments.get(BODY)
    if operation.optional_body and not said:
        return None
    refuse_nul(said)
    return converted(said, operation.body)


def _conditions(arguments: Json, context: Context) -> dict[str, str]:
    """The conditional headers of HTTP."""
    said = {
        "if-match": arguments.get(IF_MATCH),
        "if-none-match": arguments.get(IF_NONE_MATCH),
        "idempotency-key": context.letter.idempotency_key,
    }
    return {name: value for name, value in said.items() if value is not None}


def _told(problem: bytes) -> str:
    """A problem as text, with its errors and their places."""
    document = msgspec.json.decode(problem, type=ProblemDocument)
    errors = (
        f"{one.pointer or one.parameter or one.header}: {one.detail}" for one in document.errors
    )
    return "\n".join([document.detail, *errors])
