"""Calls of a wing's operations for HTTP requests of other shapes: policy, limits and audit hold
for them."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.context import CallHeaders, Context, Upload, new_request_id
from gateway.operations.problems import MEDIA_TYPE, ProblemDetails
from gateway.operations.rest_api import check_known, run_while_connected
from gateway.wings.interface import WingParts
from schemas.errors import Fault
from schemas.mcp.revisions import V2025_11_25
from schemas.tool import ToolResult


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
        """The context of the caller's calls. Raises ProblemDetails, and the Fault of an invalid
        X-Scope-Token."""
        identity = await self._parts.identify(request.scope)
        check_known(identity)
        _ = identity.scopes
        client = request.client.host if request.client else ""
        headers = CallHeaders(authorization=request.headers.get("authorization"), client=client)
        return Context(identity, V2025_11_25, new_request_id(), headers=headers)

    def upload_app(self, path: str, operation: str, query: Sequence[str] = ()) -> Starlette:
        """App that takes bytes by PUT and calls an operation with them: they are the upload of its
        context, the parameters of the path and those of `query` are its arguments."""

        async def put(request: Request) -> Response:
            context = await self.context(request)
            if unknown := [name for name in request.query_params if name not in query]:
                expected = " and ".join(query) or "none"
                text = f"Unknown query parameter {unknown[0][:60]!r}; expected {expected}."
                raise ProblemDetails(422, "invalid", text)
            context.upload = Upload(await request.body())
            arguments = {**request.query_params, **request.path_params}
            call = partial(self.call_tool, context, operation, arguments)
            result = check_result(await run_while_connected(request.receive, call))
            return Response(structured_body(result), media_type="application/json")

        handlers: Any = {ProblemDetails: respond_problem, Fault: respond_problem}
        return Starlette(routes=[Route(path, put, methods=["PUT"])], exception_handlers=handlers)


def check_result(result: ToolResult) -> ToolResult:
    """The result, unless it is an error. Raises ProblemDetails."""
    if not result.is_error:
        return result
    if result.structured_content is UNSET:  # what its schema or a guard refuses
        raise ProblemDetails(422, "invalid", result.text)
    problem = msgspec.json.decode(structured_body(result))
    raise ProblemDetails(problem["status"], "refused", problem["detail"])


def structured_body(result: ToolResult) -> bytes:
    structure = result.structured_content
    return b"{}" if structure is UNSET else bytes(structure)


def problem_of(error: Exception) -> ProblemDetails:
    """The problem that a client is told. Raises `error` if it is none."""
    if isinstance(error, Fault):
        return ProblemDetails(error.failed_status(422), "refused", error.message)
    if not isinstance(error, ProblemDetails):
        raise error
    return error


async def respond_problem(_request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    return Response(problem.encode(new_request_id()), problem.status, problem.headers, MEDIA_TYPE)
