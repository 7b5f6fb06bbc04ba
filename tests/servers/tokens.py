"""An authorisation server with one kind of grant: client credentials (RFC 6749, section 4.4)."""

import asyncio
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from msgspec.json import encode
from starlette.types import Receive, Scope, Send

from tests.servers.rest import JSON, Seen, read_seen, respond


@dataclass
class TokenServer:
    """Answers `token-1`, `token-2` ... with `also` beside them."""

    also: dict[str, Any] = field(default_factory=lambda: {"token_type": "bearer"})
    status: int = 200
    body: bytes | None = None  # instead of a token
    location: str = ""
    released: asyncio.Event = field(default_factory=asyncio.Event)
    seen: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.released.set()

    @property
    def request_forms(self) -> list[dict[str, str]]:
        """The form of each request."""
        return [{k: v[0] for k, v in parse_qs(one.body.decode()).items()} for one in self.seen]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append(await read_seen(scope, receive))
        await self.released.wait()
        body = encode({"access_token": f"token-{len(self.seen)}", **self.also})
        headers = [("content-type", JSON)]
        if self.location:
            headers.append(("location", self.location))
        await respond(send, self.status, body if self.body is None else self.body, headers)


@dataclass
class Guarded:
    """A service that accepts one token, whichever it is told."""

    token: str
    seen: list[Seen] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        seen = await read_seen(scope, receive)
        self.seen.append(seen)
        right = seen.all("authorization") == [f"Bearer {self.token}"]
        await respond(send, 200 if right else 401, b"{}", [("content-type", JSON)])
