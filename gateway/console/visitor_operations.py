"""Facade between pages and operations: those of the admin API and of wings, and
calls of tools, with what the visitor may do.

Knows no page. Operations are called in process; rights, conditions, idempotency and jobs hold as
over HTTP. Changes are recorded in the audit log; what pages read is not.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from config.settings import Settings
from gateway.admin.http_api import AdminAction, AdminApi
from gateway.admin.resources.status import Examine
from gateway.console.figures import Figures
from gateway.console.live_views import LiveViews
from gateway.context import CallHeaders, Context, Identify, Identity, new_request_id
from gateway.operations.operation import Operation, OperationInput, allows
from gateway.operations.operation_server import OperationResponse, problem_response
from gateway.operations.problems import ProblemDetails, lacks_scope, not_found
from gateway.operations.request_parsing import convert_body, converted_query, read_names, refuse_nul
from gateway.upstreams.call_recording import CallRecording
from gateway.wings.interface import CallTool, WingContributions, WingEvent
from registry.catalog.catalogs import Catalogs
from registry.database.postgres import Pool
from schemas.errors import Fault
from schemas.jsonrpc import Request, encode, error_reply
from schemas.mcp.revisions import V2025_11_25
from schemas.source import Source
from schemas.tool import Tool, ToolResult

Names = Mapping[str, str]
NOTHING: Mapping[str, Any] = {}
NO_ERRORS: Mapping[str, str] = {}


Preview = Callable[[CallRecording, Tool, Source | None, Context], Awaitable[str]]
"""Records the request that a call would send; why there is none, if that is so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleParts:
    """Parts of a gateway that the console uses."""

    settings: Callable[[], Settings]
    api: AdminApi
    pool: Callable[[], Pool | None]
    identify: Identify  # the caller of an HTTP request
    call: CallTool
    outcome: Callable[[Context, Request], Awaitable[Any]]  # of the dispatcher of MCP
    recorded: Callable[[CallRecording], CallTool]  # calls whose requests to services are recorded
    preview: Preview
    inspects: Callable[[Tool, Source | None], bool]  # whether guardrails are about a tool
    catalogs: Catalogs
    offers: Mapping[str, WingContributions]  # of open wings, by name
    figures: Figures
    live_views: LiveViews
    metrics: CollectorRegistry
    examine: Examine | None  # the checks of `toolgate doctor`
    states: Callable[[], Mapping[str, Any]]  # what the status of the gateway is derived from


@dataclass(frozen=True, slots=True)
class OperationAnswer:
    """The answer of an operation, with its body read."""

    status: int
    value: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.status < 400

    @property
    def problem(self) -> str:
        """Text of the problem, with the parameters that it is about; "" without one."""
        if self.ok:
            return ""
        mistakes = [
            f"{error['parameter']}: {error['detail']}"
            for error in self.value.get("errors", ())
            if "parameter" in error
        ]
        return " ".join((str(self.value.get("detail", "")), *mistakes))

    @property
    def errors(self) -> Mapping[str, str]:
        """Errors by the member of the body that they are about."""
        if self.ok:
            return NO_ERRORS
        return {
            error["pointer"]: error["detail"]
            for error in self.value.get("errors", ())
            if "pointer" in error
        }

    @property
    def etag(self) -> str:
        return self.headers.get("ETag", "")


NO_CONTENT = OperationAnswer(200)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A tool that was tried: a call, or the preview of one."""

    request: Any  # of JSON-RPC
    request_id: str
    result: ToolResult | None = None  # None: a preview, or the fault
    fault: Fault | None = None
    note: str = ""  # why a preview has no request
    took_ms: float = 0.0
    recording: CallRecording | None = None  # of requests to services


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcAnswer:
    """A request of MCP, and its answer."""

    request: Any
    request_id: str
    result: Any = None
    fault: Fault | None = None
    took_ms: float = 0.0

    @property
    def reply(self) -> Any:
        """The answer as JSON-RPC."""
        if self.fault is None:
            return {"jsonrpc": "2.0", "id": self.request["id"], "result": self.result}
        return msgspec.to_builtins(error_reply(self.request["id"], self.fault, self.request_id))


class ConsoleOperations:
    def __init__(
        self, parts: ConsoleParts, identity: Identity, *, caller: Identity, client: str
    ) -> None:
        """Operations for a visitor with the rights of `identity` and calls of tools as
        `caller`, from an address."""
        self._parts = parts
        self._identity = identity
        self._caller = caller
        self._client = client

    @property
    def tenant(self) -> str:
        return self._identity.principal.tenant

    @property
    def is_operator(self) -> bool:
        """Whether the visitor may see the settings."""
        settings, principal = self._parts.settings(), self._identity.principal
        is_own = principal.tenant == settings.tenant.host_id
        return is_own and settings.admin.operator_role in principal.roles

    def operation(self, id_: str) -> Operation | None:
        """An operation of the admin API or of an open wing."""
        admin_operation = self._parts.api.operations.by_id.get(id_)
        return admin_operation or self._of_wings().get(id_)

    def reader(self, operation: Operation) -> Operation | None:
        """The operation that reads what `operation` changes, of the same API or wing."""
        admin_operations = self._parts.api.operations
        if operation.id in admin_operations.by_id:
            return admin_operations.by_id.get(operation.of) or admin_operations.routes.get(
                operation.parts, {}
            ).get("GET")
        if operation.method != "PUT":  # the others need no resource as it is
            return None
        offer = self._parts.offers.get(operation.id.partition("_")[0])
        siblings = offer.operations if offer is not None else ()
        return next(
            (
                sibling
                for sibling in siblings
                if (sibling.method, sibling.path) == ("GET", operation.path)
            ),
            None,
        )

    def may(self, id_: str) -> bool:
        """Whether there is such an operation, and the visitor has its scope."""
        operation = self.operation(id_)
        return operation is not None and self._is_allowed(operation)

    async def run(
        self,
        id_: str,
        names: Names = NOTHING,
        *,
        query: Mapping[str, Any] = NOTHING,
        body: Any = None,
        headers: Mapping[str, str] = NOTHING,
    ) -> OperationAnswer:
        """The answer of an operation; problems are answers, too. `headers` by lower-case name."""
        operation = self.operation(id_)
        request_id = new_request_id()
        if operation is None:
            return _read(problem_response(not_found("operation", id_), request_id))
        query = {name: value for name, value in query.items() if value not in (None, "")}
        if id_ not in self._parts.api.operations.by_id:
            if not isinstance(body, Mapping | None):
                problem = ProblemDetails(422, "invalid-body", "Expected an object.")
                return _read(problem_response(problem, request_id))
            if operation.effect == "read" and not self._is_allowed(operation):
                # no call, or the audit log would have a denial for each page that is opened
                return _read(problem_response(lacks_scope(operation.scope), request_id))
            try:
                query = _parse_query(operation, query)
            except ProblemDetails as problem:
                return _read(problem_response(problem, request_id))
            return await self._of_wing(operation, {**query, **(body or {}), **names})
        data = b"" if body is None else encode(body)
        try:
            response = await self._answer_operation(
                operation, names, query=query, body=body, data=data, headers=headers,
                request_id=request_id,
            )  # fmt: skip
        except ProblemDetails as problem:
            response = problem_response(problem, request_id)
        if operation.effect != "read":
            self._record(operation, names, response.status, data, request_id=request_id)
        return _read(response)

    async def items(self, id_: str, **query: Any) -> Sequence[Any]:
        """The first page of a list; nothing where the visitor may not see it."""
        if not self.may(id_):
            return ()
        answer = await self.run(id_, query=query)
        return answer.value.get("items", ()) if answer.ok else ()

    async def try_tool(self, name: str, arguments: Mapping[str, Any], *, sends: bool) -> Trial:
        """Call a tool as a client of the visitor would, with its requests to services; or only tell
        what such a call sends. Without `sends` nothing is checked, counted or recorded as a
        call."""
        catalog = self._parts.catalogs.of(self.tenant)
        tool = catalog.find(name)
        recording, source = None, None
        if tool is not None:
            source = catalog.sources.get(tool.source)
            inspected = self._parts.inspects(tool, source)
            recording = CallRecording(tool, dict(arguments), sends=sends, inspected=inspected)
        if sends:
            return await self.call(name, arguments, recording)
        context, note = self._context(), "It is not served."
        if tool is not None and recording is not None:
            note = await self._parts.preview(recording, tool, source, context)
        request, id_ = _tool_request(name, arguments), context.request_id
        return Trial(request=request, request_id=id_, note=note, recording=recording)

    async def call(
        self, name: str, arguments: Mapping[str, Any], recording: CallRecording | None = None
    ) -> Trial:
        """Call a tool as a client of the visitor would."""
        context = self._context()
        call = self._parts.call if recording is None else self._parts.recorded(recording)
        began, result, fault = time.perf_counter(), None, None
        try:
            result = await call(context, name, arguments)
        except Fault as error:
            fault = error
        return Trial(
            request=_tool_request(name, arguments),
            request_id=context.request_id,
            result=result,
            fault=fault,
            took_ms=(time.perf_counter() - began) * 1000,
            recording=recording,
        )

    async def send(self, method: str, params: Mapping[str, Any]) -> RpcAnswer:
        """Send a request of MCP as a client of the visitor would."""
        context, began = self._context(), time.perf_counter()
        message = Request("2.0", method, dict(params), context.request_id)
        outcome = await self._parts.outcome(context, message)
        fault = outcome if isinstance(outcome, Fault) else None
        return RpcAnswer(
            request=_request(method, params),
            request_id=context.request_id,
            result=None if fault is not None else msgspec.json.decode(outcome),
            fault=fault,
            took_ms=(time.perf_counter() - began) * 1000,
        )

    def follow(self, wing: str, run: str, after: int) -> AsyncIterator[WingEvent]:
        """The events of a run of the visitor, which was asked for before. Raises ProblemDetails."""
        offer = self._parts.offers.get(wing)
        if offer is None or offer.follow is None:
            raise not_found("run", run)
        return offer.follow(self._context(), run, after)

    def _context(self) -> Context:
        headers = CallHeaders(client=self._client)
        return Context(self._caller, V2025_11_25, new_request_id(), headers=headers)

    async def _of_wing(self, operation: Operation, arguments: Mapping[str, Any]) -> OperationAnswer:
        """The answer of a wing's operation, which is a tool: policy, limits and audit hold."""
        trial = await self.call(operation.tool_name, arguments)
        if trial.fault is not None:
            text = trial.fault.message
            refusal = {"detail": text, "errors": _argument_errors(text)}
            return OperationAnswer(trial.fault.failed_status(), refusal)
        result = trial.result
        if result is None:
            return NO_CONTENT
        raw, failed = result.structured_content, result.is_error
        if not isinstance(raw, msgspec.Raw):  # such as arguments that its schema refuses
            text = " ".join(result.texts)
            refusal = {"detail": text, "errors": _argument_errors(text)}
            return OperationAnswer(422, refusal) if failed else NO_CONTENT
        value = msgspec.json.decode(raw)
        return OperationAnswer(int(value.get("status", 400)) if failed else 200, value)

    async def _answer_operation(
        self,
        operation: Operation,
        names: Names,
        *,
        query: Mapping[str, Any],
        body: Any,
        data: bytes,
        headers: Mapping[str, str],
        request_id: str,
    ) -> OperationResponse:
        """Raises ProblemDetails."""
        if not self._is_allowed(operation):
            raise lacks_scope(operation.scope)
        read_names(operation, names)
        if body is not None:
            refuse_nul(body)
        request = OperationInput(
            self._identity.principal,
            names,
            query=converted_query(operation, query),
            body=(
                None
                if body is None
                else convert_body(body, operation.body, secret=operation.secret)
            ),
        )
        return await self._parts.api.operations.answer(
            operation, request, headers=headers, body=data, request_id=request_id
        )

    def _is_allowed(self, operation: Operation) -> bool:
        is_admin = operation.id in self._parts.api.operations.by_id
        principal = (self._identity if is_admin else self._caller).principal
        if self._caller.refusal is not None:
            return False
        if not is_admin and not self._caller.verified:
            return True  # as of every caller there, no scope is asked for
        return allows(principal, operation.scope)

    def _of_wings(self) -> dict[str, Operation]:
        return {
            operation.id: operation
            for offer in self._parts.offers.values()
            for operation in offer.operations
        }

    def _record(
        self, operation: Operation, names: Names, status: int, data: bytes, *, request_id: str
    ) -> None:
        self._parts.api.remember(
            AdminAction(
                principal=self._identity.principal,
                operation=operation.id,
                names=names,
                status=status,
                request_id=request_id,
                client=self._client,
                body=b"" if operation.secret else data,
            )
        )


def _argument_errors(text: str) -> Sequence[Mapping[str, str]]:
    """Errors by the member that they are about, of the text that refuses arguments of a tool:
    "Invalid arguments for memory_add: scope: is required; kind: ..."."""
    start, _, listed = text.partition(": ")
    if not start.startswith("Invalid arguments for "):
        return ()
    pairs = (part.partition(": ") for part in listed.split("; "))
    return [
        {"pointer": "/" + name.replace(".", "/"), "detail": detail} for name, _, detail in pairs
    ]


def _request(method: str, params: Mapping[str, Any]) -> Any:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": dict(params)}


def _tool_request(name: str, arguments: Mapping[str, Any]) -> Any:
    return _request("tools/call", {"name": name, "arguments": dict(arguments)})


def _parse_query(operation: Operation, query: Mapping[str, Any]) -> Mapping[str, Any]:
    """Parameters of a URL, which are texts, as members of a tool's arguments. Raises
    ProblemDetails."""
    if not query:
        return query
    full_query = msgspec.to_builtins(converted_query(operation, query))
    return {name: value for name, value in full_query.items() if name in query}


def _read(response: OperationResponse) -> OperationAnswer:
    value = msgspec.json.decode(response.body) if response.body else None
    return OperationAnswer(response.status, value, response.headers)
