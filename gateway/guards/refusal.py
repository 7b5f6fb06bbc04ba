"""How a request is refused before, or in spite of, its front; always with a request id."""

import logging

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send

from gateway.context import new_request_id
from schemas.errors import Fault, InternalError, InvalidRequest
from schemas.jsonrpc import encode, error_reply

log = logging.getLogger("toolgate.app")


async def not_found(request: Request, _error: Exception) -> Response:
    """There is nothing by this path; `/` lists what there is."""
    return _response(InvalidRequest(f"Nothing is served at {request.url.path[:100]}; see /"), 404)


async def crashed(request: Request, error: Exception) -> Response:
    """A bug of ours: the log has the whole story under the id that the client gets."""
    response = _response(InternalError("Internal error"), 500)
    extra = {"request_id": response.headers["x-request-id"], "path": request.url.path[:100]}
    log.error("unexpected_error", exc_info=error, extra=extra)
    return response


def _response(fault: Fault, status: int) -> Response:
    request_id = new_request_id()
    body = encode(error_reply(None, fault, request_id))
    headers = {"X-Request-Id": request_id}
    return Response(body, status, headers, media_type="application/json")


async def refuse(send: Send, fault: Fault) -> None:
    """Answer the HTTP request with `fault` and its status."""
    request_id = new_request_id()
    body = encode(error_reply(None, fault, request_id))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", request_id.encode()),
    ]
    if fault.status == 503:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": fault.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
