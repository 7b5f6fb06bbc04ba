"""Dispatcher: a request in, its reply out; the one place where exceptions become errors."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, Raw

from gateway.abc import Handler, Middleware
from gateway.context import REQUEST_ID_BYTES, Context
from schemas.errors import (
    Fault,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
)
from schemas.jsonrpc import ErrorReply, Reply, Request, RequestId, encode, error_reply
from schemas.mcp.revisions import Revision

log = logging.getLogger("toolgate.dispatcher")

NOTIFICATIONS = "notifications/"


@dataclass(frozen=True, slots=True)
class Method:
    """The handler of a method, and the revisions that have it."""

    handler: Handler
    known_to: Callable[[Revision], bool]
    open_to_all: bool = False  # callable without authentication


class UnknownMethod(ErrorReply, frozen=True, tag_field="jsonrpc", tag="2.0"):
    """The gateway has no such method; distinct from the same error of an upstream server."""


class Dispatcher:
    """Routes requests to methods; shared by all fronts."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        otherwise: Handler,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        """`otherwise` serves methods that are tools or services; it checks the caller's identity
        itself. `middleware` is listed outermost first."""
        self._methods = methods
        self._otherwise = otherwise
        handle: Handler = self._route
        for wrap in reversed(middleware):
            handle = wrap(handle)
        self._handle = handle

    async def dispatch(self, context: Context, request: Request) -> Reply | ErrorReply | None:
        """Answer `request`; None for a notification, even if it failed."""
        outcome = await self.outcome(context, request)
        if request.id is UNSET:
            return None
        if isinstance(outcome, Fault):
            context.failed = outcome
            reply = error_reply(request.id, outcome, context.request_id)
            unknown = isinstance(outcome, MethodNotFound)
            return UnknownMethod(reply.id, reply.error) if unknown else reply
        return success(request.id, outcome)

    async def outcome(self, context: Context, request: Request) -> Any:
        """The result of `request`, encoded if it goes into an envelope, or the Fault that it failed
        with, for the front to format."""
        try:
            result = await self._handle(context, request)
            return result if context.revision.text_results else encoded(result)
        except Fault as fault:
            return self._failed(context, request, fault)
        except RecursionError:
            return self._failed(context, request, InvalidParams("The request is nested too deeply"))
        except Exception:
            log.exception(
                "unexpected_error",
                extra={"request_id": context.request_id, "method": request.method[:100]},
            )
            return self._failed(context, request, InternalError("Internal error"))

    async def _route(self, context: Context, request: Request) -> object:
        revision = context.revision
        if request.id is UNSET and revision.mcp and not request.method.startswith(NOTIFICATIONS):
            return None  # no request of MCP lacks an id, and admission lets these in unchecked
        if revision.mcp:
            usable_token(request)
        method = self._methods.get(request.method)
        if method is not None and method.known_to(revision):
            if not method.open_to_all:
                context.require_identity()
            return await method.handler(context, request)
        if revision.tools_are_methods or revision.services_are_methods:
            return await self._otherwise(context, request)
        if request.id is UNSET:
            return None  # unknown notifications are ignored
        raise MethodNotFound(f"Method not found: {request.method[:100]}")

    def _failed(self, context: Context, request: Request, fault: Fault) -> Fault:
        log.info(
            "request_failed",
            extra={
                "request_id": context.request_id,
                "method": request.method[:100],
                "code": fault.code,
                "reason": fault.message[:300],
            },
        )
        return fault


def success(id_: RequestId, result: Any) -> Reply:
    return Reply(id_, encoded(result))


def encoded(result: Any) -> Raw:
    return result if isinstance(result, Raw) else Raw(encode(result))


def usable_id(request: Request, revision: Revision) -> None:
    """Check an id: MCP allows strings and integers only, and we short ones. Raises
    InvalidRequest."""
    id_ = request.id
    if not revision.mcp or id_ is UNSET:
        return
    if not isinstance(id_, str | int):
        raise InvalidRequest('"id" must be a string or an integer, and not null')
    if not _is_short(id_):
        raise InvalidRequest(f'"id" must have at most {REQUEST_ID_BYTES} bytes')


def usable_token(request: Request) -> None:
    """Raises InvalidParams for a progress token that is too long."""
    params = request.params
    meta = params.get("_meta") if isinstance(params, dict) else None
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    if isinstance(token, str | int) and not _is_short(token):
        text = f"params._meta.progressToken must have at most {REQUEST_ID_BYTES} bytes"
        raise InvalidParams(text)


def _is_short(id_: str | int) -> bool:
    if isinstance(id_, int):
        return id_.bit_length() <= 64 or len(encode(id_)) <= REQUEST_ID_BYTES
    # a character takes at most four bytes: short ids need no encoding
    return len(id_) <= REQUEST_ID_BYTES // 4 or len(id_.encode()) <= REQUEST_ID_BYTES
