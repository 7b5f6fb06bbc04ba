"""Operations of wings as tools and over HTTP. Either way a call is one of the tool, so that policy,
limits, guardrails and audit hold.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from http import HTTPStatus
from typing import Any, cast

from msgspec import UNSET

from gateway.context import CallHeaders, Context, Identify, Identity
from gateway.interfaces import Execute, ToolCall
from gateway.operations.job_declarations import JobView
from gateway.operations.openapi import describe
from gateway.operations.operation import Operation, OperationInput
from gateway.operations.operation_server import (
    Defer,
    IdempotentRunner,
    OperationResponse,
    OperationServer,
)
from gateway.operations.problems import MEDIA_TYPE, ProblemDetails, unavailable
from gateway.operations.progress_streams import PARAMS
from gateway.operations.request_parsing import Headers
from gateway.operations.rest_api import (
    OperationApi,
    ReceivedRequest,
    Routes,
    again_later,
    check_scope,
)
from gateway.operations.tool_calls import OperationResult, OperationUpstream, arguments_of
from gateway.operations.tool_definitions import draft_of, output_schema
from gateway.protocol.revision_adapter import is_failure
from gateway.wings.interface import Wing, WingContributions
from schemas.binding import WingBinding
from schemas.errors import (
    ApprovalRequired,
    ConnectionRequired,
    Fault,
    Forbidden,
    InvalidParams,
    MethodNotFound,
    ToolgateError,
    TooManyRequests,
    Unavailable,
)
from schemas.jsonrpc import Request, decode_json, encode
from schemas.masking import Masks, masks_of
from schemas.mcp.revisions import JSON_RPC
from schemas.source import Source
from schemas.tool import RelayedResult, Tool, ToolDraft, ToolResult

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
ABOUT = "Each operation names the scope that it requires."
KINDS = {  # of problems, by the fault of a call
    MethodNotFound: (404, "not-found"),
    InvalidParams: (422, "invalid"),
    ApprovalRequired: (403, "approval-required"),
    ConnectionRequired: (403, "connection-required"),
    Forbidden: (403, "forbidden"),
}


def not_open(name: str) -> ProblemDetails:
    return unavailable(f"The wing {name} is unavailable; try again later.")


def drafts(wing: Wing, offer: WingContributions) -> tuple[ToolDraft, ...]:
    """The tools that a wing offers. Raises ToolgateError for an offer that cannot be served."""
    ids = Counter(operation.id for operation in offer.operations)
    names = Counter(operation.tool_name for operation in offer.operations)
    for operation in offer.operations:
        is_own = operation.id.startswith(f"{wing.name}_") and TOOL_NAME.fullmatch(
            operation.tool_name
        )
        if not is_own or ids[operation.id] > 1 or names[operation.tool_name] > 1:
            raise ToolgateError(
                f"the wing {wing.name} offers the operation {operation.id!r}, "
                "expected a name of its own "
                f"that begins with {wing.name}_, of 64 letters, digits, _ and - at most"
            )
    if unknown := sorted(offer.apps.keys() - set(wing.mounts)):
        raise ToolgateError(f"the wing {wing.name} does not mount {', '.join(unknown)}")
    return tuple(
        draft_of(
            operation,
            WingBinding(wing.name, operation.id, operation.scope or None, operation.forwards),
        )
        for operation in offer.operations
        if not operation.no_tool
    )


class ObservedCalls:
    """A guard that tells a wing of calls of others' tools. It is the innermost one: what rules and
    limits refuse is no call."""

    def __init__(self, name: str, offers: Mapping[str, WingContributions]) -> None:
        """`offers` of the wings that are open, by name."""
        self._name = name
        self._offers = offers

    def applies(self, _tool: Tool, source: Source | None) -> bool:
        return source is not None and source.name != self._name

    def guard(self, execute: Execute) -> Execute:
        async def observe_call(call: ToolCall) -> ToolResult | RelayedResult:
            try:
                result = await execute(call)
            except Fault:
                self._tell(call, succeeded=False)
                raise
            failed = (
                is_failure(result.members) if isinstance(result, RelayedResult) else result.is_error
            )
            self._tell(call, succeeded=not failed)
            return result

        return observe_call

    def _tell(self, call: ToolCall, *, succeeded: bool) -> None:
        offer = self._offers.get(self._name)
        if offer is not None and offer.call_ended is not None:
            offer.call_ended(call, succeeded)


class WingServer(OperationServer):
    """Serves the operations of a wing, also as jobs."""

    def __init__(
        self,
        operations: Sequence[Operation],
        repeats: IdempotentRunner,
        root: str,
        defer: Defer | None = None,
        *,
        verify_scope: bool,
        masks: bool,
    ) -> None:
        """`masks`: mask what schemas mark in the results of jobs, which are read without their
        schema."""
        super().__init__(operations, repeats, root, None if defer is None else _as_caller(defer))
        self._verify_scope = verify_scope
        self._masks = {
            operation.id: _masks_of(operation)
            for operation in operations
            if masks and operation.job is not None
        }

    def admits(self, request: OperationInput, operation: Operation) -> bool:
        verified = request.context is not None and request.context.identity.verified
        return not (self._verify_scope and verified) or super().admits(request, operation)

    async def perform(
        self, operation: Operation, request: OperationInput, headers: Headers
    ) -> OperationResponse:
        response = await super().perform(operation, request, headers)
        masks = self._masks.get(operation.id)
        if masks is None or not response.body:
            return response
        return replace(response, body=encode(masks.mask(decode_json(response.body))))


def _masks_of(operation: Operation) -> Masks | None:
    schema = output_schema(replace(operation, job=None))
    return None if schema is None else masks_of(encode(schema))


def _as_caller(defer: Defer) -> Defer:
    """Jobs have the scopes of the caller, which X-Scope-Token may replace."""

    async def defer_job(operation: Operation, request: OperationInput, headers: Headers) -> JobView:
        if request.context is not None:
            principal = replace(request.principal, scopes=request.context.identity.scopes)
            request = replace(request, principal=principal)
        return await defer(operation, request, headers)

    return defer_job


class WingOperations(OperationUpstream):
    """Executes the operations of an open wing."""

    def __init__(self, server: OperationServer, verify_scope: bool) -> None:
        """`verify_scope`: whether callers need the scope of an operation, once they are known."""
        super().__init__(server)
        self._by_id = server.by_id
        self._verify_scope = verify_scope

    def operation_of(self, tool: Tool, context: Context) -> Operation:
        """Raises MethodNotFound, and ScopeMismatch without its scope."""
        binding = cast("WingBinding", tool.binding)  # app: each upstream has its own kind
        operation = self._by_id.get(binding.operation)
        if operation is None or operation.no_tool:
            raise MethodNotFound(f"{tool.name} cannot be called here")
        if self._verify_scope and operation.scope:
            context.identity.require_scope([operation.scope])
        return operation


class WingApi(OperationApi):
    """The REST API of a wing."""

    def __init__(
        self,
        wing: Wing,
        limit_bytes: int,
        version: str,
        *,
        identify: Identify,
        repeats: IdempotentRunner,
        call: Callable[[Context, Request], Awaitable[object]],
        verify_scope: bool,
        masks: bool,
        keep_alive_s: float,
        defer: Defer | None = None,
    ) -> None:
        """`call` runs the tool of an operation, named by its id, with all middleware and guards.
        `defer` stores jobs; without it all operations answer at once. `masks`: as in
        WingServer."""
        super().__init__(
            wing.root,
            limit_bytes,
            "server.body_limit_bytes",
            identify,
            keep_alive_s=keep_alive_s,
        )
        self._wing = wing
        self._version = version
        self._repeats = repeats
        self._call = call
        self._verify_scope = verify_scope
        self._defer = defer
        self._masks = masks
        self._server: OperationServer | None = None

    def serve(self, operations: Sequence[Operation]) -> OperationServer:
        """Serve the operations, and their OpenAPI description."""
        title, root, version = self._wing.title or self._wing.name, self._wing.root, self._version

        @cache  # slow and constant
        def describe_api() -> dict[str, Any]:
            routed = [operation for operation in all_ if operation.path]
            return describe(routed, root, version, title=title, about=ABOUT)

        async def description(_request: OperationInput) -> Any:
            return describe_api()

        why = "it describes the HTTP API; lists describe tools"
        id_, text, kind = f"{self._wing.name}_openapi", "Describe this API.", dict[str, Any]
        document = Operation(id_, "GET", "/openapi.json", text, "", description, kind, no_tool=why)
        all_ = (*operations, document)
        self._server = WingServer(
            all_,
            self._repeats,
            root,
            self._defer,
            verify_scope=self._verify_scope,
            masks=self._masks,
        )
        return self._server

    def withdraw(self) -> None:
        """Serve nothing until the wing is open again."""
        self._server = None

    @property
    def server(self) -> OperationServer:
        """Raises ProblemDetails while the wing is not open."""
        if self._server is None:
            raise not_open(self._wing.name)
        return self._server

    def routes(self) -> Routes:
        return self.server.routes

    def authorize(self, request: ReceivedRequest) -> None:
        if self._verify_scope and request.identity.verified:
            scopes = scopes_of(request.identity)
            check_scope(replace(request.principal, scopes=scopes), request.operation.scope)

    async def answer(self, received: ReceivedRequest) -> OperationResponse:
        operation, operation_input = received.operation, received.parse()
        headers, body = received.headers, received.body
        call_headers = CallHeaders(
            idempotency_key=headers.get("idempotency-key"),
            authorization=headers.get("authorization"),
            correlation_id=headers.get("x-correlation-id"),
            traceparent=headers.get("traceparent"),
            client=received.client,
        )
        context = Context(
            received.identity,
            JSON_RPC,
            received.request_id,
            peer=received.stream,
            headers=call_headers,
            params={} if received.stream is None else PARAMS,
        )
        if operation.no_tool:
            principal = replace(received.principal, scopes=scopes_of(received.identity))
            operation_input = replace(operation_input, principal=principal, context=context)
            return await self.server.answer(
                operation,
                operation_input,
                headers=headers,
                body=body,
                request_id=received.request_id,
            )
        arguments = arguments_of(operation, operation_input, body, headers)
        request = Request("2.0", operation.id, arguments, received.request_id)
        try:
            result = await self._call(context, request)
        except Fault as fault:
            raise problem_of(fault) from fault
        return response_of(cast("ToolResult", result))


def scopes_of(identity: Identity) -> frozenset[str]:
    """The scopes of the caller. Raises ProblemDetails for an invalid X-Scope-Token."""
    try:
        return identity.scopes
    except Fault as fault:
        raise problem_of(fault) from fault


def problem_of(fault: Fault) -> ProblemDetails:
    if isinstance(fault, TooManyRequests | Unavailable):
        return again_later(fault)
    of_kind = (factory for kind, factory in KINDS.items() if isinstance(fault, kind))
    status, kind = next(of_kind, (fault.failed_status(500), "failed"))
    return ProblemDetails(status, kind, fault.message or HTTPStatus(status).phrase)


def response_of(result: ToolResult) -> OperationResponse:
    """The response to a request that was made as a call. Raises ProblemDetails for a call that a
    guard answered."""
    status = result.status if isinstance(result, OperationResult) else 200
    headers = result.headers if isinstance(result, OperationResult) else {}
    if result.is_error and status < 400:
        raise ProblemDetails(403, "refused", result.text)
    structured = result.structured_content
    body = b"" if structured is UNSET else bytes(structured)
    media_type = MEDIA_TYPE if status >= 400 else "application/json"
    return OperationResponse(status, body, headers, media_type)
