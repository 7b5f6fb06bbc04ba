"""Fallback upstream service without nginx: one raw ASGI function, always the same item."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]

ITEM = (
    b'{"id":1,"name":"Aluminium desk lamp","description":"Adjustable arm, warm white, 9 W",'
    b'"price":49.9,"currency":"EUR","in_stock":true,"warehouse":"north-2",'
    b'"updated":"2026-05-04T10:11:12Z"}'
)

_HEAD = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(ITEM)).encode()),
    ],
}
_BODY = {"type": "http.response.body", "body": ITEM}


async def app(
    scope: Message,
    receive: Callable[[], Awaitable[Message]],
    send: Callable[[Message], Awaitable[None]],
) -> None:
    if scope["type"] == "http":
        await send(_HEAD)
        await send(_BODY)
    elif scope["type"] == "lifespan":
        await lifespan(receive, send)


async def lifespan(
    receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})
