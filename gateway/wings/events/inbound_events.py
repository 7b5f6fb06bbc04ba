"""Events from outside: webhooks of others at /events/hooks/NAME, and CloudEvents at
/events/cloudevents. Each becomes a call of `events_invoke`, so that policy, limits and audit hold.
"""

import hashlib
import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from config.events import EventInbound, EventKafka, EventsSettings
from gateway.context import CallHeaders, Context, Identity, Principal, new_request_id
from gateway.http_client.webhooks import ID, SignatureRefused, check_headers, key_of, verify
from gateway.operations.rest_api import refusal_problem
from gateway.wings.events.cloudevents import arguments_of
from gateway.wings.interface import WingParts
from schemas.cel_expressions import (
    Expression,
    ExpressionFailed,
    InvalidExpression,
    compile_expression,
)
from schemas.cloudevents import BATCH, CLOUD_EVENT, CloudEvent, media_type, read_events
from schemas.errors import Fault, InvalidParams, ToolgateError
from schemas.jsonrpc import decode_json, encode
from schemas.mcp.revisions import JSON_RPC
from schemas.tool import ToolResult

log = logging.getLogger("toolgate.events")

HOOKS, CLOUDEVENTS = "/events/hooks", "/events/cloudevents"
CORRELATION = "x-correlation-id"
ORIGIN = "webhook-request-origin"
_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?|\*")
OPERATION = "events_invoke"
STEPS = 500_000  # of an expression
VARIABLES = ("body", "headers")


@dataclass(frozen=True, slots=True)
class Hook:
    """A kind of webhook that is received, with its compiled expressions."""

    name: str
    settings: EventInbound
    arguments: Expression
    when: Expression | None
    order_key: Expression | None

    @classmethod
    def of(cls, name: str, settings: EventInbound) -> "Hook":
        """Raises ToolgateError for a secret or an expression that cannot be used."""
        place = f"events.inbound.{name}"
        try:
            for secret in settings.secrets:
                key_of(secret)
        except ToolgateError as error:
            raise ToolgateError(f"{place}: {error}") from error
        arguments = _compile(f"{place}.arguments", settings.arguments)
        when, order_key = (
            _compile(f"{place}.{key}", text) if text else None
            for key, text in (("when", settings.when), ("order_key", settings.order_key))
        )
        return cls(name, settings, arguments, when, order_key)

    def invocation(self, id_: str, headers: Mapping[str, str], body: bytes) -> Any:
        """The arguments of `events_invoke`; None: this one becomes no invocation. Raises
        InvalidParams. The id of the webhook makes that of the invocation: it counts once."""
        values = {"body": decode_json(body), "headers": dict(headers)}
        try:
            if self.when is not None and not self.when.holds(values):
                return None
            arguments = self.arguments.value(values)
            key = None if self.order_key is None else self.order_key.value(values)
        except ExpressionFailed as error:
            raise InvalidParams(f"The body is not as expected: {error}") from error
        if not isinstance(arguments, dict):
            raise InvalidParams("The expression of the arguments gives no object")
        digest = hashlib.sha256(id_.encode()).hexdigest()[:40]
        members = {
            "skillName": self.settings.skill,
            "arguments": arguments,
            "correlationId": f"{self.name}:{digest}",
        }
        return members if key is None else {**members, "orderKey": str(key)}


def _compile(place: str, text: str) -> Expression:
    """Raises ToolgateError."""
    if not text:
        raise ToolgateError(f"{place}: expected an expression")
    try:
        return compile_expression(text, VARIABLES, STEPS)
    except InvalidExpression as error:
        raise ToolgateError(f"{place}: {error}") from error


def made_hooks(settings: EventsSettings) -> Mapping[str, Hook]:
    """Raises ToolgateError for entries that cannot be used."""
    return {name: Hook.of(name, hook_settings) for name, hook_settings in settings.inbound.items()}


class Inbound:
    def __init__(self, parts: WingParts, settings: EventsSettings) -> None:
        """Raises ToolgateError for entries that cannot be used."""
        self._parts = parts
        self.by_name = made_hooks(settings)

    async def hooks(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI application of webhooks."""
        request = Request(scope, receive)
        hook = self.by_name.get(request.url.path.removeprefix(f"{HOOKS}/"))
        if hook is None:
            response = _problem_response(404, "There is no such webhook.")
        elif request.method != "POST":
            response = _problem_response(405, "Expected POST.")
        else:
            response = await self._accept_hook(hook, request)
        await response(scope, receive, send)

    async def _accept_hook(self, hook: Hook, request: Request) -> Response:
        headers = dict(request.headers)
        try:
            check_headers(headers, time.time())  # strangers need not send a body
            body = await request.body()
            id_ = verify(headers, body, hook.settings.secrets, time.time())
        except SignatureRefused as refused:
            log.warning("webhook_refused", extra={"webhook": hook.name, "reason": str(refused)})
            return _problem_response(401, "The signature, or its time, is not valid.")
        try:
            arguments = hook.invocation(id_, headers, body)
        except Fault as fault:
            return _problem_response(422, fault.message)
        if arguments is None:
            return Response(status_code=200)
        settings = hook.settings
        status, answer = await self._call(
            self._as(settings.principal, settings.roles, settings.scopes),
            arguments,
            headers.get(CORRELATION),
            headers.get("traceparent"),
        )
        if status == 409:  # the same webhook-id with another body: it counted already
            log.warning("webhook_repeated", extra={"webhook": hook.name, "id": headers[ID][:200]})
            return Response(status_code=200)
        return Response(answer, status, media_type="application/json")

    async def cloudevents(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI application of CloudEvents: structured, binary and in batches."""
        request = Request(scope, receive)
        if request.method == "POST":
            response = await self._events(request)
        elif request.method == "OPTIONS":
            response = await self._handshake(request)
        else:
            response = _problem_response(405, "Expected POST or OPTIONS.")
        await response(scope, receive, send)

    async def _events(self, request: Request) -> Response:
        identity = await self._parts.identify(request.scope)
        if identity.refusal is not None:
            return _refusal_response(identity.refusal)
        kind = request.headers.get("content-type", "")
        try:
            events = read_events(kind, dict(request.headers), await request.body())
        except InvalidParams as fault:
            return _problem_response(422, fault.message)
        if media_type(kind) != BATCH:
            [event] = events
            return await self._event(identity, event, request.headers)
        answers = [
            await self._event(identity, event, request.headers, f"The event at index {index}: ")
            for index, event in enumerate(events)
        ]
        items = [
            {"status": answer.status_code, "body": Raw(bytes(answer.body))} for answer in answers
        ]
        # a producer sends a batch again of which nothing was taken
        is_accepted = not answers or any(answer.status_code < 400 for answer in answers)
        status = 202 if is_accepted else answers[0].status_code
        return Response(encode({"items": items}), status, media_type="application/json")

    async def _event(
        self,
        identity: Identity,
        event: CloudEvent | InvalidParams,
        headers: Mapping[str, str],
        where: str = "",
    ) -> Response:
        """The answer to one event; `where` it stands in a batch begins texts of errors."""
        if isinstance(event, InvalidParams):
            return _problem_response(422, event.message)
        try:
            arguments = arguments_of(event)
        except InvalidParams as fault:
            return _problem_response(422, f"{where}{fault.message}")
        traced = event.traceparent or headers.get("traceparent")
        status, answer = await self._call(identity, arguments, headers.get(CORRELATION), traced)
        return Response(answer, status, media_type="application/json")

    async def _handshake(self, request: Request) -> Response:
        """Consent to deliveries (CloudEvents, HTTP 1.1 Web Hooks, 4), for whoever may deliver: the
        sender of events asks for it before the first one."""
        identity = await self._parts.identify(request.scope)
        if identity.refusal is not None:
            return _refusal_response(identity.refusal)
        headers = {"Allow": "POST, OPTIONS"}
        origin = request.headers.get(ORIGIN)
        if origin is not None:
            if _HOST.fullmatch(origin) is None:
                return _problem_response(422, f"Expected the name of a host in {ORIGIN}.")
            # limits of calls hold for each event, and say when to go on
            headers |= {"WebHook-Allowed-Origin": origin, "WebHook-Allowed-Rate": "*"}
        return Response(headers=headers)

    async def command(
        self, kafka: EventKafka, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, str]:
        """Accept an event of Kafka: the status, and the reason of a refusal."""
        try:
            kind = headers.get("content-type", CLOUD_EVENT)
            [event] = read_events(kind, headers, body, percent_encoded=False)
            if isinstance(event, InvalidParams):
                raise event
            arguments = arguments_of(event)
        except (InvalidParams, ValueError) as error:
            return 422, str(error)
        identity = self._as(kafka.principal, kafka.roles, kafka.scopes)
        status, answer = await self._call(identity, arguments, None, event.traceparent)
        return status, answer.decode()

    def _as(self, principal: str, roles: Sequence[str], scopes: Sequence[str]) -> Identity:
        """The identity that the settings name for events that come without a caller."""
        granted = frozenset({"events:invoke", *scopes})
        named = Principal(principal, self._parts.tenant, granted, roles=frozenset(roles))
        return Identity(named, verified=True)

    async def _call(
        self, identity: Identity, arguments: Any, cause: str | None, traceparent: str | None
    ) -> tuple[int, bytes]:
        """Status and body of the answer of the operation. `cause`: the invocation that led to this
        one."""
        headers = CallHeaders(correlation_id=cause, traceparent=traceparent)
        context = Context(identity, JSON_RPC, new_request_id(), headers=headers)
        try:
            result = await self._parts.call(context, OPERATION, arguments)
        except Fault as fault:
            status = fault.failed_status(422)
            return status, encode({"status": status, "detail": fault.message})
        return _answer(result)


def _answer(result: ToolResult) -> tuple[int, bytes]:
    structure = result.structured_content
    document = (
        bytes(structure) if isinstance(structure, Raw) else encode({"content": result.content})
    )
    if not result.is_error:
        return 202, document
    if not isinstance(structure, Raw):  # what its schema or a guard refuses
        return 422, document
    answer = msgspec.json.decode(document)
    status = answer.get("status") if isinstance(answer, dict) else None
    return (status if isinstance(status, int) else 500), document


def _refusal_response(fault: Fault) -> Response:
    problem = refusal_problem(fault)
    return _problem_response(problem.status, problem.detail, problem.headers)


def _problem_response(
    status: int, detail: str, headers: Mapping[str, str] | None = None
) -> Response:
    body = encode({"status": status, "detail": detail})
    return Response(body, status, headers, media_type="application/problem+json")
