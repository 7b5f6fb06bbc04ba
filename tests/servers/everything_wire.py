"""What the "everything" server adds to the SDK's transport: kept events, and only one era."""

import json
from typing import Any, Literal

from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.servers.rest import JSON, body_of, respond

Era = Literal["both", "handshake", "stateless"]
ERAS = ("both", "handshake", "stateless")


class Events(EventStore):
    """Every event of every stream, for clients that come back."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, Any]] = []  # stream, message; an event's id is its place

    async def store_event(self, stream_id: str, message: Any) -> str:
        self.kept.append((stream_id, message))
        return str(len(self.kept))

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        place = int(last_event_id) if last_event_id.isdigit() else 0
        if not 1 <= place <= len(self.kept):
            return None
        wanted = self.kept[place - 1][0]
        for number, (stream, message) in enumerate(self.kept[place:], place + 1):
            if stream == wanted and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return wanted


class OneEra:
    """Refuses requests of the other era, as a server refuses them that has never heard of it."""

    def __init__(self, app: ASGIApp, era: Era) -> None:
        self.app, self.era = app, era

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        version = headers.get(b"mcp-protocol-version", b"").decode("latin-1")
        stateless = version in MODERN_PROTOCOL_VERSIONS
        if scope["type"] != "http" or stateless == (self.era == "stateless"):
            await self.app(scope, receive, send)
        elif self.era == "handshake":
            # -32000 and these words are what SDKs of 2025 say to a version that they do not know
            await _refuse(
                send, 400, -32000, f"Bad Request: Unsupported protocol version: {version}"
            )
        elif scope["method"] != "POST":
            await respond(send, 405, b"", [("allow", "POST")])
        else:
            requested = _requested_revision(await body_of(receive)) or version
            data = {"supported": [LATEST_MODERN_VERSION], "requested": requested}
            await _refuse(send, 400, -32022, "Unsupported protocol version", data)


def _requested_revision(body: bytes) -> str:
    """The revision that an `initialize` asks for."""
    try:
        return str(json.loads(body)["params"]["protocolVersion"])
    except (ValueError, KeyError, TypeError):
        return ""


async def _refuse(send: Send, status: int, code: int, message: str, data: Any = None) -> None:
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    await respond(send, status, body, [("content-type", JSON)])
