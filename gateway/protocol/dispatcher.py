"""Dispatcher: a request in, its reply out; the one place where exceptions become errors. Also
cancellation of single requests.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, Raw
from msgspec.structs import replace

from gateway.context import REQUEST_ID_BYTES, Context
from gateway.interfaces import Handler, Middleware, Route
from gateway.telemetry.traces import TRACEPARENT, parse
from schemas.errors import Fault, InternalError, InvalidParams, InvalidRequest, MethodNotFound
from schemas.jsonrpc import (
    ErrorReply,
    Message,
    Reply,
    Request,
    RequestId,
    encode,
    error_reply,
    json_type,
)
from schemas.mcp.messages import (
    LOG_LEVELS,
    META_CAPABILITIES,
    META_CLIENT,
    META_LOG_LEVEL,
    META_RELATED_TASK,
    META_SUBSCRIPTION,
    META_VERSION,
)
from schemas.mcp.revisions import Revision

log = logging.getLogger("toolgate.dispatcher")

LARGE_ID = 2**64  # integers from here on may have more digits than are kept
NOTIFICATIONS = "notifications/"  # route of those that are no method here
OTHER = ""  # route of methods that are tools or services, or unknown
# Methods with a route of their own in every dispatcher: middleware looks at these names.
METHODS = frozenset(
    {"initialize", "ping", "server/discover", "tools/list", "tools/call", "rpc.discover",
     "prompts/list", "prompts/get", "resources/list", "resources/templates/list",
     "resources/read", "resources/subscribe", "resources/unsubscribe", "completion/complete",
     "logging/setLevel", "tasks/get", "tasks/result", "tasks/cancel", "tasks/update", "tasks/list",
     "subscriptions/listen", "skills/list", "skills/get", "resources/directory/read",
     "notifications/initialized", "notifications/cancelled"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Method:
    """The handler of a method, and the revisions that have it."""

    handler: Handler
    known_to: Callable[[Revision], bool]
    open_to_all: bool = False  # callable without authentication


class UnknownMethod(ErrorReply, frozen=True, tag_field="jsonrpc", tag="2.0"):
    """The gateway has no such method; distinct from the same error of an upstream server."""


AnswerToFault = Callable[[Context, Request, Fault], Any]
"""The result that answers a request in place of a fault; None where the fault does."""


class Dispatcher:
    """Routes requests to methods; shared by all fronts.

    The middleware of a route is composed when its revision is first used, so that a message passes
    only what its method and revision need.
    """

    def __init__(
        self,
        methods: Mapping[str, Method],
        otherwise: Handler,
        middleware: Sequence[Middleware] = (),
        answer_to: AnswerToFault | None = None,
    ) -> None:
        """`otherwise` serves methods that are tools or services; it checks the caller's identity
        itself. `middleware` is listed outermost first."""
        self._methods = methods
        self._otherwise = otherwise
        self._middleware = tuple(reversed(middleware))
        self._answer_to = answer_to
        self._routes: dict[str, dict[str, Handler]] = {}  # by revision and method

    async def dispatch(self, context: Context, request: Request) -> Reply | ErrorReply | None:
        """Answer `request`; None for a notification, even if it failed."""
        outcome = await self.outcome(context, request)
        if request.id is UNSET:
            return None
        if isinstance(outcome, Fault):
            context.fault = outcome
            reply = error_reply(request.id, outcome, context.request_id)
            unknown = isinstance(outcome, MethodNotFound)
            return UnknownMethod(reply.id, reply.error) if unknown else reply
        return Reply(request.id, outcome)

    async def outcome(self, context: Context, request: Request) -> Any:
        """The result of `request`, encoded if it goes into an envelope, or the Fault that it failed
        with, for the front to format."""
        revision, method = context.revision, request.method
        routes = self._routes.get(revision.name) or self._compose(revision)
        handle = routes.get(method)
        if handle is None:
            handle = routes[NOTIFICATIONS if method.startswith(NOTIFICATIONS) else OTHER]
        try:
            result = await handle(context, request)
            if revision.text_results or isinstance(result, Raw):
                return result
            return Raw(encode(result))
        except Fault as fault:
            return self._fail(context, request, fault)
        except RecursionError:
            return self._fail(context, request, InvalidParams("The request is nested too deeply"))
        except Exception:
            log.exception(
                "unexpected_error",
                extra={"request_id": context.request_id, "method": request.method[:100]},
            )
            return self._fail(context, request, InternalError("Internal error"))

    def _compose(self, revision: Revision) -> dict[str, Handler]:
        """The handlers of all routes of a revision, with their middleware."""
        routes = {
            method: self._wrap(Route(revision, method))
            for method in (*METHODS, *self._methods, NOTIFICATIONS, OTHER)
        }
        self._routes[revision.name] = routes
        return routes

    def _wrap(self, route: Route) -> Handler:
        *_, (_, handle) = self._layers(route)
        return handle

    def steps(self, route: Route) -> list[Callable[..., Any]]:
        """The middleware that takes part in a route, outermost first, and the handler of its
        method: for readers of the code (`toolgate doctor --route`)."""
        return [step for step, _ in self._layers(route)][::-1]

    def _layers(self, route: Route) -> Iterator[tuple[Callable[..., Any], Handler]]:
        """The steps of a route from the inside out, each with the handler that it makes of those
        before. The innermost is the method's, if the revision has that."""
        revision = route.revision
        method = self._methods.get(route.method)
        if method is not None and method.known_to(revision):
            needs_identity, handle = not method.open_to_all, method.handler
        elif revision.tools_are_methods or revision.services_are_methods:
            needs_identity, handle = False, self._otherwise
        else:
            needs_identity, handle = False, _unknown
        yield handle, handle
        if revision.mcp:
            handle = _check_envelopes(handle, route, needs_identity)
            yield _check_envelopes, handle
        elif needs_identity:
            handle = _require_identity(handle)
            yield _require_identity, handle
        for wrap in self._middleware:
            wrapped = wrap(handle, route)
            if wrapped is not handle:
                yield wrap, wrapped
            handle = wrapped

    def _fail(self, context: Context, request: Request, fault: Fault) -> Any:
        result = None if self._answer_to is None else self._answer_to(context, request, fault)
        if result is not None:
            return encode_result(result)
        log.info(
            "request_failed",
            extra={
                "request_id": context.request_id,
                "method": request.method[:100],
                "code": fault.code,
                "reason": fault.log_message[:300],
            },
        )
        return fault


def _check_envelopes(handler: Handler, route: Route, needs_identity: bool) -> Handler:
    """A handler of MCP, behind the checks of its envelope."""
    notifies = route.method.startswith(NOTIFICATIONS)

    def check_and_handle(context: Context, request: Request) -> Awaitable[Any]:
        if request.id is UNSET and not notifies:
            return _no_answer()  # no request of MCP lacks an id; admission lets these in unchecked
        params = request.params
        if type(params) is dict and None in params.values():  # as some clients write what is absent
            params = {name: value for name, value in params.items() if value is not None}
            request = replace(request, params=params)
        if type(params) is dict and "_meta" in params:
            meta = params["_meta"]
            check_meta(meta)
            if type(meta) is dict and TRACEPARENT in meta:
                context = _with_trace(context, meta[TRACEPARENT])
        if needs_identity and context.identity.refusal is not None:
            raise context.identity.refusal
        return handler(context, request)

    return check_and_handle


def _with_trace(context: Context, traceparent: Any) -> Context:
    """The context with the trace that a message names, which counts more than that of its HTTP
    request (SEP-414); without it if it is malformed."""
    if parse(traceparent) is None:
        return context
    return replace(context, headers=replace(context.headers, traceparent=traceparent))


async def _no_answer() -> None:
    return None


def _require_identity(handler: Handler) -> Handler:
    """A handler that needs an authenticated caller."""

    def handle_identified(context: Context, request: Request) -> Awaitable[Any]:
        if context.identity.refusal is not None:
            raise context.identity.refusal
        return handler(context, request)

    return handle_identified


async def _unknown(_context: Context, request: Request) -> None:
    if request.id is not UNSET:  # unknown notifications are ignored
        raise MethodNotFound(f"Method not found: {request.method[:100]}")


def encode_result(result: Any) -> Raw:
    return result if isinstance(result, Raw) else Raw(encode(result))


def check_id(id_: RequestId) -> None:
    """Check the id of a request: MCP allows strings and integers only, and we short ones. Raises
    InvalidRequest."""
    if not isinstance(id_, str | int):
        raise InvalidRequest('"id" must be a string or an integer, and not null')
    if type(id_) is int and -LARGE_ID < id_ < LARGE_ID:
        return
    if not _is_short(id_):
        raise InvalidRequest(f'"id" must have at most {REQUEST_ID_BYTES} bytes')


_A_TOKEN = frozenset({str, int}), "a string or an integer"
_A_TEXT, _AN_OBJECT = (frozenset({str}), "a string"), (frozenset({dict}), "an object")
_META_TYPES: Mapping[str, tuple[frozenset[type], str]] = {
    "progressToken": _A_TOKEN,
    META_SUBSCRIPTION: _A_TOKEN,
    META_VERSION: _A_TEXT,
    META_LOG_LEVEL: _A_TEXT,
    META_CAPABILITIES: _AN_OBJECT,
    META_CLIENT: _AN_OBJECT,
    META_RELATED_TASK: _AN_OBJECT,
}


def check_meta(meta: Any) -> None:
    """Check the members of `_meta` that MCP types; null is none. Raises InvalidParams."""
    if type(meta) is not dict:
        if meta is not None:
            raise InvalidParams(f"params._meta is {json_type(meta)}, expected an object")
        return
    for name in _META_TYPES.keys() & meta.keys():
        value, (types, expected) = meta[name], _META_TYPES[name]
        if value is not None and type(value) not in types:
            text = f'params._meta["{name}"] is {json_type(value)}, expected {expected}'
            raise InvalidParams(text)
    token = meta.get("progressToken")
    if token is not None and not _is_short(token):
        text = f"params._meta.progressToken must have at most {REQUEST_ID_BYTES} bytes"
        raise InvalidParams(text)
    if META_LOG_LEVEL in meta and meta[META_LOG_LEVEL] not in (None, *LOG_LEVELS):
        text = f'params._meta["{META_LOG_LEVEL}"] is expected to be one of {", ".join(LOG_LEVELS)}'
        raise InvalidParams(text)
    if (task := meta.get(META_RELATED_TASK)) is not None and type(task.get("taskId")) is not str:
        raise InvalidParams(f'params._meta["{META_RELATED_TASK}"] has no taskId, which is a string')


def _is_short(id_: str | int) -> bool:
    if isinstance(id_, int):
        return -LARGE_ID < id_ < LARGE_ID or len(encode(id_)) <= REQUEST_ID_BYTES
    # a character takes at most four bytes: short ids need no encoding
    return len(id_) <= REQUEST_ID_BYTES // 4 or len(id_.encode()) <= REQUEST_ID_BYTES


Answer = Reply | ErrorReply
Serve = Callable[[Context, Message], Awaitable[Answer | None]]
