"""HTTP error responses outside the fronts; always with a request id."""

import logging

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.context import new_request_id
from schemas.errors import (
    Fault,
    InternalError,
    InvalidRequest,
    TooManyRequests,
    Unavailable,
    UnsupportedContentCoding,
)
from schemas.jsonrpc import encode, error_reply

log = logging.getLogger("toolgate.app")


async def not_found(request: Request, _error: Exception) -> Response:
    """404 for an unknown path; `/` lists the known ones."""
    return refusal(InvalidRequest(f"Nothing is served at {request.url.path[:100]}; see /"), 404)


async def on_crash(request: Request, error: Exception) -> Response:
    """500 for a bug: the log has the traceback under the request id that the client gets."""
    response = refusal(InternalError("Internal error"), 500)
    extra = {"request_id": response.headers["x-request-id"], "path": request.url.path[:100]}
    log.error("unexpected_error", exc_info=error, extra=extra)
    return response


async def refuse(scope: Scope, receive: Receive, send: Send, fault: Fault) -> None:
    """Answer the HTTP request with `fault` and its status."""
    await refusal(fault)(scope, receive, send)


def refusal(fault: Fault, status: int | None = None) -> Response:
    """The response for `fault`, with its status or another one."""
    status = fault.status if status is None else status
    request_id = new_request_id()
    headers = {"X-Request-Id": request_id}
    if isinstance(fault, TooManyRequests | Unavailable):
        headers["Retry-After"] = str(fault.retry_after)
    if isinstance(fault, UnsupportedContentCoding):
        headers["Accept-Encoding"] = "identity"  # the codings that are read (RFC 9110, 15.5.16)
    body = encode(error_reply(None, fault, request_id))
    return Response(body, status, headers, media_type="application/json")
