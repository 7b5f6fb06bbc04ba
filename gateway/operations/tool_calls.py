"""Operations called as tools: arguments to an operation's input, its response to a result."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace as replaced

from gateway.context import Context
from gateway.operations.job_declarations import RESPOND_ASYNC, Job, prefers_async
from gateway.operations.operation import (
    BODY,
    IF_MATCH,
    IF_NONE_MATCH,
    Operation,
    OperationInput,
    allows,
)
from gateway.operations.operation_server import OperationResponse, OperationServer, problem_response
from gateway.operations.problems import ProblemDetails, ProblemDocument
from gateway.operations.progress_notifications import report_progress
from gateway.operations.request_parsing import convert_body, converted_query, read_names, refuse_nul
from schemas.binding import OperationBinding
from schemas.errors import MethodNotFound
from schemas.jsonrpc import decode_json, encode
from schemas.source import Source
from schemas.tool import TextContent, Tool, ToolResult

AS_JOB = "as_job"  # argument: answer with a job at once
META_ETAG = "toolgate/etag"  # in `_meta` of a result: its ETag
DONE_RESULT = ToolResult((TextContent("Done."),))

Json = Mapping[str, Any]


class OperationResult(ToolResult, frozen=True):
    """A result with what HTTP has besides; the distinction is internal to the gateway."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class OperationUpstream:
    """Implements `Upstream`."""

    def __init__(self, server: OperationServer) -> None:
        self._server = server
        self._tells_tag = {
            server.read_by(operation).id
            for operation in server.by_id.values()
            if operation.match and not operation.no_tool
        }

    async def call(
        self, tool: Tool, _source: Source | None, arguments: Any, context: Context
    ) -> ToolResult:
        operation = self.operation_of(tool, context)
        try:
            response = await answer_call(self._server, operation, arguments, context)
        except ProblemDetails as problem:
            response = problem_response(problem, context.request_id)
        result = result_of(response, tells_tag=operation.id in self._tells_tag)
        return OperationResult(
            result.content,
            result.structured_content,
            result.is_error,
            result.meta,
            response.status,
            response.headers,
        )

    def operation_of(self, tool: Tool, context: Context) -> Operation:
        """Raises MethodNotFound if unknown, and if the caller lacks its scope."""
        binding = cast("OperationBinding", tool.binding)  # app: each upstream has its own kind
        operation = self._server.by_id.get(binding.operation)
        if operation is None or operation.no_tool or not allows(context.principal, operation.scope):
            raise MethodNotFound(f"{tool.name} cannot be called here")
        return operation


async def answer_call(
    server: OperationServer,
    operation: Operation,
    arguments: Json,
    context: Context,
    *,
    job: Job | None = None,
) -> OperationResponse:
    """The response to a call with these arguments. `job` takes the progress; None: the client of
    the call does, if it asks for it. Raises ProblemDetails."""
    request, headers = input_of(operation, arguments, context), _conditions(arguments, context)
    answer = partial(
        server.answer,
        operation,
        headers=headers,
        body=encode(arguments),
        request_id=context.request_id,
    )
    if job is not None or not operation.reports:
        return await answer(request if job is None else replace(request, job=job))
    async with report_progress(context) as job:
        return await answer(replace(request, job=job))


def job_location(result: OperationResult) -> str:
    """The address of the job that a call has become; "": it was answered."""
    return result.headers.get("Location", "") if result.status == HTTPStatus.ACCEPTED else ""


def input_of(operation: Operation, arguments: Json, context: Context) -> OperationInput:
    """Raises ProblemDetails."""
    names = {name: arguments[name] for name in operation.names}
    read_names(operation, names)
    query_names = operation.query.__struct_encode_fields__
    query = {name: value for name, value in arguments.items() if name in query_names}
    body = _body(operation, arguments)
    return OperationInput(
        context.principal,
        names,
        query=converted_query(operation, query),
        body=body,
        context=context,
    )


def arguments_of(
    operation: Operation, request: OperationInput, body: bytes, headers: Json
) -> dict[str, Any]:
    """The inverse of `input_of`, for a request that came over HTTP. `headers`: by
    lower-case names."""
    query = msgspec.to_builtins(request.query)
    query_values = {name: value for name, value in query.items() if value is not None}
    conditions = {
        key: headers[name]
        for key, name in ((IF_MATCH, "if-match"), (IF_NONE_MATCH, "if-none-match"))
        if name in headers
    }
    arguments = {**query_values, **request.names, **conditions}
    if operation.job is not None and not operation.job.always and prefers_async(headers):
        arguments[AS_JOB] = True
    if operation.body is None or not body:
        return arguments
    body_value = decode_json(body)
    return arguments | (body_value if members_of(operation) else {BODY: body_value})


def result_of(response: OperationResponse, *, tells_tag: bool) -> ToolResult:
    """`tells_tag`: the ETag in the text too, for a model that edits the resource."""
    if response.status >= 400:
        problem_text = TextContent(_problem_text(response.body))
        return ToolResult((problem_text,), structured_content=Raw(response.body), is_error=True)
    if not response.body:
        return ToolResult((TextContent(response.text),)) if response.text else DONE_RESULT
    content = [TextContent(response.text or response.body.decode())]
    tag = response.headers.get("ETag")
    if tag is not None and tells_tag:
        content.append(TextContent(f"ETag: {tag}"))
    result = ToolResult(tuple(content), structured_content=Raw(response.body))
    return result if tag is None else replaced(result, meta={META_ETAG: tag})


def members_of(operation: Operation) -> tuple[str, ...]:
    """The members of the body that are separate arguments; none: the body is one argument."""
    if not (isinstance(operation.body, type) and issubclass(operation.body, Struct)):
        return ()
    members: tuple[str, ...] = operation.body.__struct_encode_fields__
    others = operation.query.__struct_encode_fields__
    reserved = {*operation.names, *others, IF_MATCH, IF_NONE_MATCH, AS_JOB}
    return () if reserved & set(members) else members


def body_in(operation: Operation, arguments: Json) -> Any:
    """The body among the arguments, as it would be sent over HTTP: unknown members are in it."""
    query_names = operation.query.__struct_encode_fields__
    apart = {*operation.names, *query_names, IF_MATCH, IF_NONE_MATCH, AS_JOB}
    body = {name: value for name, value in arguments.items() if name not in apart}
    is_bare_body = body.keys() == {BODY} or not members_of(operation)
    return body.get(BODY) if is_bare_body else body


def _body(operation: Operation, arguments: Json) -> Any:
    """Raises ProblemDetails."""
    if operation.body is None:
        return None
    body = body_in(operation, arguments)
    if operation.optional_body and not body:
        return None
    refuse_nul(body)
    return convert_body(body, operation.body, secret=operation.secret)


def _conditions(arguments: Json, context: Context) -> dict[str, str]:
    """The conditional headers of HTTP."""
    conditions = {
        "if-match": arguments.get(IF_MATCH),
        "if-none-match": arguments.get(IF_NONE_MATCH),
        "prefer": RESPOND_ASYNC if arguments.get(AS_JOB) else None,
        "idempotency-key": context.headers.idempotency_key,
    }
    return {name: value for name, value in conditions.items() if value is not None}


def _problem_text(problem: bytes) -> str:
    """A problem as text, with its errors and their places."""
    document = msgspec.json.decode(problem, type=ProblemDocument)
    errors = (
        f"{error.pointer or error.parameter or error.header}: {error.detail}"
        for error in document.errors
    )
    return "\n".join([document.detail, *errors])
