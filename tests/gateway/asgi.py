"""ASGI by hand: requests to an application, and what it sent."""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Message, Scope


def http(
    method: str = "POST", path: str = "/", headers: Iterable[tuple[str, str]] = (), query: str = ""
) -> Scope:
    """The scope of an HTTP request; header names in lower case, as a server gives them."""
    return {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
    }


def part(body: bytes, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


DISCONNECT: Message = {"type": "http.disconnect"}


@dataclass
class Wire:
    """Both directions of one request. `receive` waits when all that arrived was read."""

    arriving: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)
    sent: list[Message] = field(default_factory=list)
    reading: int = 0  # calls of `receive` that wait now

    def arrive(self, *messages: Message) -> "Wire":
        for message in messages:
            self.arriving.put_nowait(message)
        return self

    async def receive(self) -> Message:
        self.reading += 1
        try:
            return await self.arriving.get()
        finally:
            self.reading -= 1

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        """What was sent; every header once."""
        pairs = [(name.decode(), value.decode()) for name, value in self.sent[0]["headers"]]
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    @property
    def json(self) -> Any:
        return json.loads(self.body)
