"""MCP servers that do what a test says, down to the bytes of a stream."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Receive, Scope, Send

from tests.servers.rest import JSON, Seen, read_seen, respond

SSE = "text/event-stream"
MODERN = "2026-07-28"


@dataclass
class Turn:
    """One HTTP request, and the ways to answer it."""

    seen: Seen
    message: Any  # of its body, decoded; None without one
    _receive: Receive
    _send: Send

    @property
    def id(self) -> Any:
        return self.message["id"]

    @property
    def params(self) -> dict[str, Any]:
        return self.message["params"]

    def header(self, name: str) -> str | None:
        return next(iter(self.seen.all(name)), None)

    async def say(self, status: int, body: bytes = b"", kind: str = JSON, **headers: str) -> None:
        named = [(name.replace("_", "-"), value) for name, value in headers.items()]
        await respond(self._send, status, body, [("content-type", kind), *named])

    async def result(self, **members: Any) -> None:
        await self.say(200, reply(self.id, **members))

    async def error(self, code: int, message: str = "no", status: int = 200) -> None:
        await self.say(status, failure(self.id, code, message))

    async def begin(self, kind: str = SSE, status: int = 200) -> None:
        """An answer that comes in pieces."""
        headers = [(b"content-type", kind.encode())]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def piece(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def event(self, message: Any, id_: str | None = None) -> None:
        await self.piece(event(message, id_))

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})

    async def wait_until_left(self) -> None:
        """Returns when the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


Play = Callable[[Turn], Awaitable[None]]


def reply(id_: Any, **members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "result": members}).encode()


def failure(id_: Any, code: int, message: str = "no", data: Any = None) -> bytes:
    error = {"code": code, "message": message, "data": data}
    return json.dumps({"jsonrpc": "2.0", "id": id_, "error": error}).encode()


def note(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def question(id_: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def event(message: Any, id_: str | None = None) -> bytes:
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    line = b"" if id_ is None else b"id: %b\n" % id_.encode()
    return line + b"event: message\ndata: " + data + b"\n\n"


@dataclass
class Scripted:
    """Serves what `plays` says, by JSON-RPC method, or "answer" for an answer to a question, or by
    HTTP method where there is no body. What is not in there is answered as a server does that has
    sessions and nothing else."""

    plays: Mapping[str, Play] = field(default_factory=dict)
    session: str | None = "s-1"
    revision: str = "2025-11-25"
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    _came: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        seen = await read_seen(scope, receive)
        turn = Turn(seen, json.loads(seen.body) if seen.body else None, receive, send)
        self.turns.append(turn)
        async with self._came:
            self._came.notify_all()
        play = self.plays.get(self._what(turn))
        await (play(turn) if play is not None else self._otherwise(turn))

    async def wait_for_request(self, kind: str, count: int = 1) -> Turn:
        """The `count`th request of this kind, when it has come."""

        def matching_turns() -> list[Turn]:
            return [turn for turn in self.turns if self._what(turn) == kind]

        async with self._came:
            await self._came.wait_for(lambda: len(matching_turns()) >= count)
        return matching_turns()[count - 1]

    def all(self, kind: str) -> list[Turn]:
        return [turn for turn in self.turns if self._what(turn) == kind]

    def _what(self, turn: Turn) -> str:
        if turn.message is None:
            return turn.seen.method
        return turn.message.get("method", "answer")

    async def _otherwise(self, turn: Turn) -> None:
        if self._what(turn) == "initialize":
            await self.initialize(turn)
        elif turn.message is None:
            await turn.say(405 if turn.seen.method == "GET" else 200)
        elif "id" in turn.message and "method" in turn.message:
            await turn.error(-32601, "Method not found")
        else:
            await turn.say(202)

    async def initialize(self, turn: Turn) -> None:
        result = {
            "protocolVersion": self.revision,
            "capabilities": dict(self.capabilities),
            "serverInfo": {"name": "scripted", "version": "1"},
            "instructions": "Do as you are told.",
        }
        headers = {} if self.session is None else {"mcp_session_id": self.session}
        await turn.say(200, reply(turn.id, **result), **headers)


def discovery_result(*versions: str, **members: Any) -> dict[str, Any]:
    """The result of `server/discover`."""
    return {
        "resultType": "complete",
        "supportedVersions": list(versions or (MODERN,)),
        "capabilities": {"tools": {}},
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "scripted", "version": "1"}},
        **members,
    }


@dataclass
class TwoEndpoints:
    """HTTP+SSE: GET opens the stream, `names` says where to POST; `play` answers what is POSTed, on
    the stream."""

    play: Callable[["TwoEndpoints", Any], Awaitable[None]]
    names: str = "/messages?session_id=1"
    revision: str = "2024-11-05"
    heard: list[Any] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)  # the POSTs of `heard`
    _stream: Turn | None = None
    _over: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        seen = await read_seen(scope, receive)
        turn = Turn(seen, json.loads(seen.body) if seen.body else None, receive, send)
        if seen.method == "GET":
            await self._open(turn)
        elif self._stream is None or turn.message is None or seen.target != self.names:
            await turn.say(404)
        else:
            self.heard.append(turn.message)
            self.seen.append(seen)
            await turn.say(202, b"Accepted", "text/plain")
            await self._answer(turn.message)

    async def tell(self, message: Any) -> None:
        assert self._stream is not None
        await self._stream.event(message)

    def hang_up(self) -> None:
        self._over.set()

    async def _open(self, turn: Turn) -> None:
        self._stream = turn
        await turn.begin()
        await turn.piece(b"event: endpoint\ndata: %b\n\n" % self.names.encode())
        left = asyncio.ensure_future(turn.wait_until_left())
        over = asyncio.ensure_future(self._over.wait())
        await asyncio.wait({left, over}, return_when=asyncio.FIRST_COMPLETED)
        left.cancel()
        over.cancel()
        await turn.end()

    async def _answer(self, message: Any) -> None:
        if message.get("method") == "initialize":
            result = {
                "protocolVersion": self.revision,
                "capabilities": {},
                "serverInfo": {"name": "old", "version": "1"},
            }
            await self.tell(reply(message["id"], **result))
        else:
            await self.play(self, message)
