"""The MCP server behind the gateway: both eras, one raw ASGI object, precomputed answers.

Its sessions are only ids and requests are not validated: it has to be fast, not fully correct.

    POST /mcp      initialize, server/discover, ping, tools/list, tools/call, subscriptions/listen
    GET /mcp       the stream of a session
    POST /tools    adds a tool, and notifies every stream
    GET /streams   number of open streams
"""

import itertools
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from benchmarks.stub import ITEM, lifespan

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

TOOL = "get_item"
TOOLS = 10  # at the start
STATELESS = (b"mcp-protocol-version", b"2026-07-28")
CHANGED = "notifications/tools/list_changed"

_JSON = (b"content-type", b"application/json")
_EVENTS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
_INFO = {"name": "benchmark", "version": "1"}
_CAPABILITIES = {"tools": {"listChanged": True}}
_SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer", "minimum": 1, "description": "Number of the item"},
        "fields": {"type": "string", "description": "Names of the fields, separated by commas"},
    },
}
_CALLED = {
    "content": [{"type": "text", "text": ITEM.decode()}],
    "structuredContent": msgspec.json.decode(ITEM),
    "isError": False,
}
_COMPLETE = {"resultType": "complete", "_meta": {"io.modelcontextprotocol/serverInfo": _INFO}}
_CACHED = {**_COMPLETE, "ttlMs": 60_000, "cacheScope": "public"}
_OLD_CALLED = msgspec.json.encode(_CALLED)
_NEW_CALLED = msgspec.json.encode({**_CALLED, **_COMPLETE})
_DISCOVERED = msgspec.json.encode(
    {"supportedVersions": ["2026-07-28"], "capabilities": _CAPABILITIES, **_CACHED}
)


class _Params(Struct, frozen=True):
    name: str = ""
    protocol_version: str = msgspec.field(default="", name="protocolVersion")


class _Request(Struct, frozen=True):
    method: str = ""
    id: Raw = Raw(b"")
    params: _Params = _Params()


_decode = msgspec.json.Decoder(_Request).decode


class McpServer:
    def __init__(self) -> None:
        self._names = [TOOL, *(f"get_item_{number}" for number in range(2, TOOLS + 1))]
        self._numbers = itertools.count(1)
        self._streams: dict[Send, bytes] = {}  # with what each is sent when the tools change

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        match scope["method"], scope["path"]:
            case "POST", "/mcp":
                await self._post(scope, receive, send)
            case "GET", "/mcp":
                await self._stream(receive, send, b": open\n\n", _event(CHANGED, {}))
            case "POST", "/tools":
                await self._add(send)
            case "GET", "/streams":
                await _answer(send, b"%d" % len(self._streams))
            case "DELETE", "/mcp":
                await _answer(send, b"{}")
            case _:
                await _answer(send, b"{}", 405)

    async def _post(self, scope: Message, receive: Receive, send: Send) -> None:
        request = _decode(await _body(receive))
        stateless = STATELESS in scope["headers"]
        match request.method:
            case "tools/call" if request.params.name in self._names:
                await _result(send, request, _NEW_CALLED if stateless else _OLD_CALLED)
            case "tools/list":
                await _result(send, request, self._list(stateless))
            case "subscriptions/listen":
                await self._listen(request, receive, send)
            case "server/discover":
                await _result(send, request, _DISCOVERED)
            case "initialize":
                session = (b"mcp-session-id", b"session-%d" % next(self._numbers))
                await _result(send, request, _initialized(request), session)
            case "ping":
                await _result(send, request, b"{}")
            case _ if not request.id:
                await _answer(send, b"", 202)
            case _:
                await _refuse(send, request, 404 if stateless else 200)

    def _list(self, stateless: bool) -> bytes:
        tools = [
            {"name": name, "description": "Read one item by its number.", "inputSchema": _SCHEMA}
            for name in self._names
        ]
        return msgspec.json.encode({"tools": tools, **(_CACHED if stateless else {})})

    async def _listen(self, request: _Request, receive: Receive, send: Send) -> None:
        meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": request.id}}
        honoured = {"notifications": {"toolsListChanged": True}, **meta}
        opening = _event("notifications/subscriptions/acknowledged", honoured)
        await self._stream(receive, send, opening, _event(CHANGED, meta))

    async def _stream(self, receive: Receive, send: Send, opening: bytes, changed: bytes) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
        await _more(send, opening)
        self._streams[send] = changed
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            del self._streams[send]

    async def _add(self, send: Send) -> None:
        self._names.append(f"added_{next(self._numbers)}")
        for stream, changed in list(self._streams.items()):
            await _more(stream, changed)
        await _answer(send, msgspec.json.encode({"name": self._names[-1]}))


def _initialized(request: _Request) -> bytes:
    version = request.params.protocol_version
    return msgspec.json.encode(
        {"protocolVersion": version, "capabilities": _CAPABILITIES, "serverInfo": _INFO}
    )


def _event(method: str, params: dict[str, Any]) -> bytes:
    notification = {"jsonrpc": "2.0", "method": method, "params": params}
    return b"event: message\ndata: %b\n\n" % msgspec.json.encode(notification)


async def _result(send: Send, request: _Request, result: bytes, *headers: Any) -> None:
    reply = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (bytes(request.id), result)
    await _answer(send, reply, 200, *headers)


async def _refuse(send: Send, request: _Request, status: int) -> None:
    error = b'{"code":-32601,"message":"Method or tool not found"}'
    reply = b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (bytes(request.id), error)
    await _answer(send, reply, status)


async def _answer(send: Send, body: bytes, status: int = 200, *headers: Any) -> None:
    length = (b"content-length", b"%d" % len(body))
    lines = [_JSON, length, *headers]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})


async def _more(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _body(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    while message.get("more_body"):
        message = await receive()
        body += message.get("body", b"")
    return body


app = McpServer()
