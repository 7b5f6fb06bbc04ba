"""A2A over HTTP: JSON-RPC at /a2a/NAME, HTTP+JSON below it, and cards.

Both bindings speak both versions, by A2A-Version. Each request is a call of an operation. gRPC is
not offered.
"""

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from config.a2a import A2ASettings
from gateway.context import Context, Upload
from gateway.operations.problems import ProblemDetails
from gateway.protocol import sse_writer
from gateway.wings.a2a.cards import CARD, ROOT
from gateway.wings.a2a.operations import A2AOperations, TaskView
from gateway.wings.a2a.task_runner import TaskRunner
from gateway.wings.a2a.task_store import StoredTask, status_event
from gateway.wings.event_stream_responses import stream_events
from gateway.wings.http_tool_calls import ToolCalls, respond_problem, structured_body
from gateway.wings.interface import WingParts, is_open
from registry.database.leases import LeaseLost
from schemas.a2a import errors
from schemas.a2a.errors import (
    A2AFault,
    ContentTypeNotSupported,
    InvalidParameters,
    TaskNotFound,
    UnknownMethod,
    UnsupportedOperation,
)
from schemas.a2a.model import (
    INTERRUPTED,
    A2AObject,
    AgentCard,
    ListRequest,
    PushConfig,
    PushConfigs,
    SendRequest,
    StreamResponse,
    Task,
    TaskList,
)
from schemas.a2a.versions import HEADER, METHODS, Version, decode, encode, encode_card, read_version
from schemas.errors import Fault, InvalidRequest, ParseError
from schemas.jsonrpc import DEPTH, decode_json, nests_within

JSON, A2A_JSON = "application/json", "application/a2a+json"
FAULTS: Mapping[str, type[A2AFault]] = {
    fault.reason.lower().replace("_", "-"): fault
    for fault in vars(errors).values()
    if isinstance(fault, type) and issubclass(fault, A2AFault)
}
"""Errors by the kinds of the problems of operations."""

ROUTES: Mapping[tuple[str, str], str] = {
    ("POST", "message:send"): "send",
    ("POST", "message:stream"): "stream",
    ("GET", "tasks"): "list",
    ("GET", "tasks/*"): "get",
    ("POST", "tasks/*:cancel"): "cancel",
    ("POST", "tasks/*:subscribe"): "subscribe",
    ("GET", "tasks/*:subscribe"): "subscribe",
    ("POST", "tasks/*/pushNotificationConfigs"): "create_push",
    ("GET", "tasks/*/pushNotificationConfigs"): "list_push",
    ("GET", "tasks/*/pushNotificationConfigs/*"): "get_push",
    ("DELETE", "tasks/*/pushNotificationConfigs/*"): "delete_push",
    ("GET", "extendedAgentCard"): "card",
    ("GET", "card"): "card",  # 0.3
}
BY_METHOD: Mapping[Version, Mapping[str, str]] = {
    Version.V1_0: {names[0]: operation for operation, names in METHODS.items()},
    Version.V0_3: {names[1]: operation for operation, names in METHODS.items() if names[1]},
}
STREAMS = ("stream", "subscribe")


@dataclass(frozen=True, slots=True)
class AgentCall:
    """A decoded request of a client."""

    agent: str
    operation: str
    version: Version
    params: Any
    context: Context


Answer = A2AObject | AsyncIterator[A2AObject] | None


class A2AApi:
    """ASGI application of all agents."""

    def __init__(self, parts: WingParts, runner: TaskRunner, operations: A2AOperations) -> None:
        self._parts = parts
        self._settings: A2ASettings = parts.settings
        self._runner = runner
        self._operations = operations
        self._calls = ToolCalls(parts)
        self._streams: Counter[tuple[str, str]] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        name, _, rest = request.url.path.removeprefix(f"{ROOT}/").strip("/").partition("/")
        with ExitStack() as request.state.places:  # up to the end of the answer
            try:
                response = await self._respond(request, name, rest)
            except (ProblemDetails, Fault) as error:
                response = await respond_problem(request, error)
            await response(scope, receive, send)

    async def default_card(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI application of the card at the root of the host."""
        request = Request(scope, receive)
        try:
            response = await self._card(request, self._settings.default)
        except (ProblemDetails, Fault) as error:
            response = await respond_problem(request, error)
        await response(scope, receive, send)

    async def _respond(self, request: Request, name: str, rest: str) -> Response:
        if rest == CARD:
            return await self._card(request, name)
        if name not in self._settings.agents:
            raise ProblemDetails(404, "not-found", "There is no such agent.")
        if not rest:
            if request.method != "POST":
                raise ProblemDetails(405, "method-not-allowed", "Expected POST.")
            return await self._json_rpc(request, name)
        return await self._http_json(request, name, rest)

    # Cards

    async def _card(self, request: Request, name: str) -> Response:
        if name not in self._settings.agents:
            raise ProblemDetails(404, "not-found", "There is no such agent.")
        if request.method not in ("GET", "HEAD"):
            raise ProblemDetails(405, "method-not-allowed", "Expected GET.")
        if self._settings.card == "authenticated":
            await self._calls.context(request)
        free = is_open(await self._parts.identify({**request.scope, "headers": []}))
        card = await self._operations.card(name, None, url=self._url(request), is_open=free)
        body = msgspec.json.encode(encode_card(card))
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        scope = "public" if self._settings.card == "public" else "private"
        headers = {
            "ETag": tag,
            "Cache-Control": f"{scope}, max-age={self._settings.card_age_s}",
            "Vary": "Host",
        }
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=JSON)

    def _url(self, request: Request) -> str:
        return self._settings.url or f"{request.url.scheme}://{request.url.netloc}"

    def _version(self, request: Request) -> Version:
        """Raises VersionNotSupported."""
        header = request.headers.get(HEADER) or request.query_params.get(HEADER) or ""
        return read_version(header, self._settings.versions)

    # Bindings

    async def _json_rpc(self, request: Request, name: str) -> Response:
        context = await self._calls.context(request)
        id_: Any = None
        operation: str | None = None
        version = Version.V1_0
        try:
            _check_content_type(request, JSON)
            message = _decode_body(await request.body())
            id_ = _id_of(message)
            version = self._version(request)
            _check_message(message)
            operation = BY_METHOD[version].get(message["method"])
            if operation is None:
                method_name = message["method"][:60]
                raise UnknownMethod(f"There is no method {method_name!r} in A2A {version}")
            params = decode(version, METHODS[operation][2], message.get("params") or {})
            call = AgentCall(name, operation, version, params, context)
            answer = await self._answer(request, call)
        except Fault as fault:
            response = _rpc_response({"error": _rpc_error(fault)}, id_)
            if operation in STREAMS and version is Version.V0_3:  # which has errors as events
                event = sse_writer.event(bytes(response.body), b"")
                return Response(event, media_type="text/event-stream")
            return response
        if isinstance(answer, A2AObject) or answer is None:
            return _rpc_response({"result": _json_of(version, answer)}, id_)

        def envelope(value: Any) -> Any:
            return {"jsonrpc": "2.0", "id": id_, "result": value}

        return self._stream(call, answer, envelope)

    async def _http_json(self, request: Request, name: str, rest: str) -> Response:
        context = await self._calls.context(request)
        try:
            version = self._version(request)
            operation, names = self._route(request.method, name, rest)
            value = await _read_values(request, operation, version, names)
            kind = METHODS[operation][2]
            call = AgentCall(name, operation, version, decode(version, kind, value), context)
            answer = await self._answer(request, call)
        except Fault as fault:
            return _status_response(fault)
        media_type = A2A_JSON if A2A_JSON in request.headers.get("accept", "") else JSON
        if answer is None:
            return Response(b"{}", media_type=media_type)
        if isinstance(answer, A2AObject):
            body = msgspec.json.encode(_json_of(version, answer))
            return Response(body, media_type=media_type)
        return self._stream(call, answer, lambda value: value)

    def _route(self, method: str, name: str, rest: str) -> tuple[str, list[str]]:
        """The operation of a path, and the ids in it. Raises UnknownMethod."""
        parts = rest.split("/")
        if parts[0] in {"v1", self._settings.agents[name].tenant} - {""}:
            parts = parts[1:]
        names: list[str] = []
        for place in range(1, len(parts), 2):  # tasks/ID, tasks/ID/pushNotificationConfigs/ID
            id_, colon, verb = parts[place].partition(":")
            names.append(id_)
            parts[place] = f"*{colon}{verb}"
        operation = ROUTES.get((method, "/".join(parts)))
        if operation is None:
            raise UnknownMethod(f"There is no {method} at this path")
        return operation, names

    def _stream(self, call: AgentCall, events: AsyncIterator[A2AObject], envelope: Any) -> Response:
        async def write_events() -> AsyncIterator[bytes]:
            async for event in events:
                value = envelope(_json_of(call.version, event))
                yield sse_writer.event(msgspec.json.encode(value), b"")

        return stream_events(write_events(), self._settings.keep_alive_s)

    @contextmanager
    def _count_stream(self, context: Context) -> Iterator[None]:
        """A stream of the caller within. Raises UnsupportedOperation for one too many."""
        most = self._settings.streams
        if self._streams[context.principal.key] >= most:
            raise UnsupportedOperation(f"You have {most} streams open (a2a.streams)")
        self._streams[context.principal.key] += 1
        try:
            yield
        finally:
            self._streams[context.principal.key] -= 1
            if not self._streams[context.principal.key]:
                del self._streams[context.principal.key]

    # Operations

    async def _answer(self, request: Request, call: AgentCall) -> Answer:
        """The answer to a request; for streams their events. Raises Fault."""
        tenant = self._settings.agents[call.agent].tenant
        if tenant and call.params.tenant not in (tenant, ""):
            raise InvalidParameters("tenant: expected the one of the interface on the card")
        if call.operation in STREAMS:
            request.state.places.enter_context(self._count_stream(call.context))
        try:
            match call.operation:
                case "send" | "stream":
                    return await self._send(call)
                case "subscribe":
                    row = await self._row(call, call.params.id)
                    await self._call(call, "a2a_get_task", task=row.id)
                    if row.has_ended:
                        raise UnsupportedOperation("The task has ended: get it instead")
                    return self._follow(row, call.version)
                case "list":
                    return await self._list(call)
                case "get" | "cancel":
                    return await self._one(call)
                case "card":
                    return await self._extended_card(request, call)
            return await self._push(call)
        except LeaseLost as error:
            raise TaskNotFound("The task was deleted") from error

    async def _send(self, call: AgentCall) -> Answer:
        params: SendRequest = call.params
        config = params.configuration.task_push_notification_config
        if config is not None:
            self._operations.task_webhooks.check(config)
        view = await self._call(
            call,
            "a2a_send_message",
            agent=call.agent,
            message=encode(Version.V1_0, params.message),
            wait=False,
        )
        row = await self._find_row(call, view.task)
        if config is not None:
            await self._add_webhook(call, row.id, config)
        if call.operation == "stream":
            return self._follow(row, call.version)
        if not params.configuration.return_immediately:
            row = await self._runner.wait_until_idle(row)
        if row.answer is not None:
            return StreamResponse(message=row.answer)
        return StreamResponse(task=_with_history(row.task, params.configuration.history_length))

    async def _find_row(self, call: AgentCall, id_: str) -> StoredTask:
        """Also one that was answered with a message. Raises TaskNotFound."""
        principal = call.context.principal
        row = await self._runner.tasks.get(principal.tenant, principal.id, call.agent, id_)
        if row is None:
            raise TaskNotFound("The task was deleted")
        return row

    async def _row(self, call: AgentCall, id_: str) -> StoredTask:
        """Raises TaskNotFound."""
        return await self._operations.find_task(call.context, call.agent, id_)

    async def _follow(self, row: StoredTask, version: Version) -> AsyncIterator[StreamResponse]:
        """The task, then its changes, up to its end; of 0.3 also up to where it waits for somebody.
        An answer that is a message comes alone, if it came at once."""
        if row.answer is not None:
            yield StreamResponse(message=row.answer)
            return
        yield StreamResponse(task=row.task)
        stops = INTERRUPTED if version is Version.V0_3 else frozenset()
        if row.task.status.state in stops:  # an update ends a stream of 0.3, not a task
            yield status_event(row.task, row.task.status)
            return
        async for events in self._runner.follow(row, row.number):
            for _, event in events:
                yield event
                update = event.status_update
                if update is not None and update.status.state in stops:
                    return

    async def _list(self, call: AgentCall) -> TaskList:
        params: ListRequest = call.params
        since = params.status_timestamp_after
        state = params.status.name.lower()
        body = await self._call_raw(
            call,
            "a2a_list_tasks",
            agent=call.agent,
            context=params.context_id,
            state="" if state == "unspecified" else state,
            since=since.isoformat() if since else "",
            limit=params.page_size,
            after=params.page_token,
            artifacts=params.include_artifacts,
        )
        tasks = [
            _with_history(decode(Version.V1_0, Task, view["object"]), params.history_length)
            for view in body["tasks"]
        ]
        return TaskList(tuple(tasks), body["after"], len(tasks), body["total"])

    async def _one(self, call: AgentCall) -> Task:
        name = "a2a_get_task" if call.operation == "get" else "a2a_cancel_task"
        row = await self._row(call, call.params.id)
        view = await self._call(call, name, task=row.id)
        return _with_history(decode(Version.V1_0, Task, view.object), call.params.history_length)

    async def _extended_card(self, request: Request, call: AgentCall) -> AgentCard:
        if is_open(call.context.identity):
            raise UnsupportedOperation("There is no extended card: callers are not authenticated")
        await self._call_raw(call, "a2a_get_card", agent=call.agent)
        return await self._operations.card(
            call.agent, call.context, url=self._url(request), is_open=False
        )

    async def _push(self, call: AgentCall) -> Answer:
        if not self._settings.push:
            raise errors.PushNotSupported("Push notifications are switched off")
        params = call.params
        row = await self._row(call, params.task_id)
        if call.operation == "create_push":
            return await self._add_webhook(call, row.id, params)
        if call.operation == "delete_push":
            await self._call_raw(call, "a2a_delete_webhook", task=row.id, webhook=params.id)
            return None
        await self._call_raw(call, "a2a_list_webhooks", task=row.id)
        configs = tuple(await self._operations.task_webhooks.all(row))
        if call.operation == "list_push":
            return PushConfigs(configs)
        for config in configs:
            if params.id in (config.id, ""):
                return config
        raise TaskNotFound("The task has no such webhook")

    async def _add_webhook(self, call: AgentCall, task: str, config: PushConfig) -> PushConfig:
        data = f"{call.version} ".encode() + msgspec.json.encode(config)
        call.context.upload = Upload(data)
        try:
            body = await self._call_raw(call, "a2a_add_webhook", task=task)
        finally:
            call.context.upload = None
        stored = decode(Version.V1_0, PushConfig, body)
        return replace(stored, token=config.token, authentication=config.authentication)

    async def _call(self, call: AgentCall, operation: str, **arguments: Any) -> TaskView:
        body = await self._call_raw(call, operation, **arguments)
        return msgspec.convert(body, TaskView)

    async def _call_raw(self, call: AgentCall, operation: str, **arguments: Any) -> Any:
        """The result of an operation. Raises Fault."""
        result = await self._parts.call(call.context, operation, arguments)
        body = structured_body(result)
        if not result.is_error:
            return msgspec.json.decode(body)
        problem = msgspec.json.decode(body)
        kind = FAULTS.get(str(problem.get("type", "")).rpartition("/")[2])
        raise (kind or InvalidParameters)(str(problem.get("detail") or result.text))


def _check_content_type(request: Request, *media_types: str) -> None:
    """Raises ContentTypeNotSupported."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in media_types:
        fault = ContentTypeNotSupported(
            f"Content-Type {kind[:60]!r} is not supported: expected {' or '.join(media_types)}"
        )
        fault.status = 415
        raise fault


def _decode_body(body: bytes) -> Any:
    """Raises ParseError, also for JSON that is nested too deeply."""
    if not nests_within(body, DEPTH):
        raise ParseError(f"The body has more than {DEPTH} nested levels")
    return decode_json(body)


def _id_of(message: Any) -> str | int | None:
    id_ = message.get("id") if isinstance(message, dict) else None
    return id_ if isinstance(id_, str | int) else None


def _check_message(message: Any) -> None:
    """Raises InvalidRequest."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise InvalidRequest("Expected one request of JSON-RPC 2.0")
    if not isinstance(message.get("method"), str):
        raise InvalidRequest("method: expected a name")
    if not isinstance(message.get("id"), str | int | None):
        raise InvalidRequest("id: expected a text or a number")


async def _read_values(
    request: Request, operation: str, version: Version, names: list[str]
) -> dict[str, Any]:
    """The members of the body, or of the query, with those of the path. Raises Fault."""
    value: Any = {}
    if request.method == "POST":
        body = await request.body()
        if body:
            _check_content_type(request, JSON, A2A_JSON)
            value = _decode_body(body)
            if not isinstance(value, dict):
                raise InvalidParameters("Expected a JSON object")
    else:
        value = {key: _read_parameter(key, text) for key, text in request.query_params.items()}
    old = version is Version.V0_3
    if operation == "create_push":
        config = value.get("pushNotificationConfig", value) if old else value
        named = {"pushNotificationConfig": config} if old else config
        return {**named, "taskId": names[0]}
    if operation in ("get_push", "list_push", "delete_push"):
        keys = ("id", "pushNotificationConfigId") if old else ("taskId", "id")
        return {**value, **dict(zip(keys, names, strict=False))}
    return {**value, **({"id": names[0]} if names else {})}


def _read_parameter(key: str, text: str) -> Any:
    """A parameter of a query, as JSON would have it."""
    if key in ("historyLength", "pageSize") and text.lstrip("-").isdecimal():
        return int(text)
    return {"true": True, "false": False}.get(text, text) if key == "includeArtifacts" else text


def _with_history(task: Task, length: int | None) -> Task:
    """The task with its newest messages; None: all."""
    if length is None:
        return task
    return replace(task, history=task.history[-length:] if length else ())


def _json_of(version: Version, answer: A2AObject | None) -> Any:
    if answer is None:
        return {} if version is Version.V1_0 else None
    if isinstance(answer, AgentCard):
        return encode_card(answer)
    return encode(version, answer)


def _rpc_error(fault: Fault) -> dict[str, Any]:
    data = fault.details if isinstance(fault, A2AFault) else None
    return {"code": fault.code, "message": fault.message, **({"data": data} if data else {})}


def _rpc_response(outcome: Mapping[str, Any], id_: Any) -> Response:
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": id_, **outcome})
    return Response(body, media_type=JSON)


def _status_response(fault: Fault) -> Response:
    """google.rpc.Status, as AIP-193 has it in JSON."""
    a2a_fault = fault if isinstance(fault, A2AFault) else None
    status = fault.failed_status()
    error = {
        "code": status,
        "status": a2a_fault.rpc_status if a2a_fault else "INVALID_ARGUMENT",
        "message": fault.message,
        "details": a2a_fault.details if a2a_fault else [],
    }
    return Response(msgspec.json.encode({"error": error}), status, media_type=JSON)
