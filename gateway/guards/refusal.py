"""How a guard says no."""

from starlette.types import Send

from gateway.context import new_request_id
from schemas.errors import Fault
from schemas.jsonrpc import encode, error_reply


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
