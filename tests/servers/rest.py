"""Small services, each with one habit: what a gateway meets behind it."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.json import encode
from starlette.types import Receive, Scope, Send

JSON = "application/json"


async def body_of(receive: Receive) -> bytes:
    chunks = []
    while True:
        message = await receive()
        chunks.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(chunks)


async def respond(
    send: Send, status: int, body: bytes, headers: Iterable[tuple[str, str]] = ()
) -> None:
    lines = [(b"content-length", b"%d" % len(body))]
    lines += [(name.encode(), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})


@dataclass(frozen=True)
class Seen:
    """A request as it arrived; `target` is the path and query of the request line."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]]
    body: bytes

    def all(self, header: str) -> list[str]:
        return [value for name, value in self.headers if name == header]


async def read_seen(scope: Scope, receive: Receive) -> Seen:
    query = scope["query_string"]
    target = scope["raw_path"] + (b"?" + query if query else b"")
    headers = [(name.decode(), _header_text(value)) for name, value in scope["headers"]]
    return Seen(scope["method"], target.decode(), headers, await body_of(receive))


def _header_text(value: bytes) -> str:
    """Latin-1, as ASGI servers read headers; UTF-8 for texts that do not fit."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


@dataclass
class Recorder:
    """Answers every request alike and remembers it."""

    status: int = 200
    body: bytes = b"{}"
    media_type: str = JSON
    headers: Sequence[tuple[str, str]] = ()
    seen: list[Seen] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append(await read_seen(scope, receive))
        headers = [("content-type", self.media_type), *self.headers]
        await respond(send, self.status, self.body, headers)


@dataclass
class Flaky:
    """Answers with one status after the other, and stays with the last."""

    statuses: Sequence[int]
    bodies: list[bytes] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = self.statuses[min(len(self.bodies), len(self.statuses) - 1)]
        self.bodies.append(await body_of(receive))
        await respond(send, status, encode({"attempt": len(self.bodies)}), [("content-type", JSON)])


@dataclass
class Silent:
    """Never answers; says when a request is there and when its client has gone."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, _scope: Scope, receive: Receive, _send: Send) -> None:
        await body_of(receive)
        self.asked.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()


@dataclass
class Held:
    """Answers each request when the test lets it: `release` once for every request."""

    asked: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    release: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    served: int = 0

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await body_of(receive)
        self.asked.release()
        await self.release.acquire()
        self.served += 1
        await respond(send, 200, encode(self.served), [("content-type", JSON)])


@dataclass
class Endless:
    """Sends chunks without a declared length for as long as somebody reads them."""

    chunk: bytes = b"x" * 1024
    sent: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)  # and answered in part
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await body_of(receive)
        gone = asyncio.create_task(receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not gone.done():
            await send({"type": "http.response.body", "body": self.chunk, "more_body": True})
            self.sent += 1
            self.asked.set()
            await asyncio.sleep(0)  # lets the disconnect arrive
        self.left.set()
