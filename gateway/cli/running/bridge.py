"""Bridge between an MCP client on standard input and output, and a server of streamable HTTP.

A line is a message, or a batch (2025-03-26). Lines are passed on as they are; what the bridge reads
of them decides on headers: those of the session, or the routing headers of 2026-07-28. There, over
HTTP a request is cancelled by closing its connection, over stdio by a notification.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import aiohttp
import anyio
from anyio.abc import TaskGroup
from msgspec import UNSET

from gateway.http_client.http1 import TooLarge
from gateway.http_client.sse_parser import SseParser
from gateway.protocol.admission import meta_version
from schemas.binding import MirroredArgument
from schemas.errors import Fault, HeaderMismatch, Unreachable
from schemas.jsonrpc import (
    Invalid,
    Message,
    Request,
    RequestId,
    decode,
    decode_json,
    encode,
    error_reply,
    is_id,
)
from schemas.mcp.headers import NAMED_BY, encode_header, mirrored_in, param_headers
from schemas.mcp.messages import CANCELLED, META_VERSION

MESSAGE_BYTES = 64 * 2**20  # longest message in either direction: it is held whole
CONNECT_S = 30.0
PAGES = 100  # of a list of tools that is read for the headers of a call
SSE = "text/event-stream"
HEADERS = {"Content-Type": "application/json", "Accept": f"application/json, {SSE}"}
VERSION, SESSION = "MCP-Protocol-Version", "Mcp-Session-Id"
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
OWN_ID = f"toolgate-{uuid4()}"  # of requests that no client made
NO_LIMIT = 2**31  # of batches: the server has the limit that counts

Body = Message | list[Message]
Write = Callable[[bytes], Awaitable[None]]


class SessionGone(Exception):
    """The server does not know the session, as after a restart."""


AWAY = (aiohttp.ClientError, TimeoutError, TooLarge, SessionGone, Unreachable)


class Bridge:
    """Carries the messages of one client to one endpoint, and back."""

    def __init__(self, http: aiohttp.ClientSession, url: str, write: Write) -> None:
        """`http` adds the credentials; `write` gets one message at a time."""
        self._http = http
        self._url = url
        self._write = write
        self._session: dict[str, str] = {}  # the headers of the session
        self._opening = b""  # the client's `initialize`
        self._renewing = anyio.Lock()
        self._listening = anyio.CancelScope()
        self._stateless: dict[RequestId, anyio.CancelScope] = {}  # by the id of the request
        self._mirrored: dict[str, tuple[MirroredArgument, ...]] = {}  # by the name of the tool
        self._pending = 0
        self._settled = anyio.Event()

    async def run(self, lines: AsyncIterator[bytes]) -> None:
        """Carry messages until `lines` end and their requests are answered; then end the
        session."""
        async with anyio.create_task_group() as tasks:
            async for line in lines:
                if line := line.strip():
                    await self._take(tasks, line)
            while self._pending:
                self._settled = anyio.Event()
                await self._settled.wait()
            tasks.cancel_scope.cancel()
        await self._end_session()

    async def _take(self, tasks: TaskGroup, line: bytes) -> None:
        """Serve requests in tasks of their own; messages without an answer go out in order."""
        message = _decode_line(line)
        match message:
            case Request(method="initialize"):
                self._opening, self._session = line, {}
                self._listening.cancel()
                await self._exchange(line, message)
            case Request(method="notifications/initialized"):
                await self._exchange(line, message)
                self._listening = anyio.CancelScope()
                tasks.start_soon(self._listen, self._listening)
            case Request(method=method) if method == CANCELLED:
                await self._cancel(line, message)
            case Request() if message.id is UNSET:
                await self._exchange(line, message)
            case Request() | list():
                tasks.start_soon(self._serve, line, message)
            case _:
                await self._exchange(line, message)

    async def _serve(self, line: bytes, message: Request | list[Message]) -> None:
        endless = isinstance(message, Request) and message.method == "subscriptions/listen"
        self._pending += not endless
        try:
            with anyio.CancelScope() as scope:
                if _is_stateless(message):
                    self._stateless[_id_of(message)] = scope
                await self._exchange(line, message)
        finally:
            self._stateless.pop(_id_of(message), None)
            self._pending -= not endless
            self._settled.set()

    async def _cancel(self, line: bytes, message: Request) -> None:
        params = message.params if isinstance(message.params, dict) else {}
        id_ = params.get("requestId")
        scope = self._stateless.get(id_) if is_id(id_) else None
        if scope is not None:
            scope.cancel()
        else:
            await self._exchange(line, message)

    async def _exchange(self, line: bytes, message: Body) -> None:
        """Send `line`, and write the answer, or why there is none."""
        id_ = _id_of(message)
        try:
            answer = await self._answer(line, message)
            if _is_header_mismatch(answer) and isinstance(message, Request):
                await self._learn_headers(message)
                answer = await self._answer(line, message)
        except (aiohttp.ClientError, TimeoutError) as error:
            answer = _failure(id_, f"The server could not be reached ({type(error).__name__})")
        except TooLarge:
            answer = _failure(id_, f"The server sent a message of more than {MESSAGE_BYTES} bytes")
        except SessionGone:
            answer = _failure(id_, "The server does not know the session that it opened")
        except Unreachable as fault:
            answer = encode(error_reply(id_, fault))
        if answer and (id_ is not None or isinstance(message, Invalid | list)):
            await self._write(answer)

    async def _answer(self, line: bytes, message: Body) -> bytes:
        """The answer as one message; empty if a stream had it, or none is due."""
        session = {} if _is_stateless(message) else self._session
        try:
            return await self._post(line, message, session, self._write)
        except SessionGone:
            await self._renew(session)
            return await self._post(line, message, self._session, self._write)

    async def _ask(self, line: bytes, message: Body, session: dict[str, str]) -> bytes:
        """The answer to a message of the bridge's own: the client sees nothing of it. Raises
        SessionGone."""
        replies, id_ = list[bytes](), _id_of(message)

        async def keep(event: bytes) -> None:
            if _answers(event, id_):
                replies.append(event)

        answer = await self._post(line, message, session, keep)
        return replies[0] if replies else answer

    async def _post(
        self, line: bytes, message: Body, session: dict[str, str], write: Write
    ) -> bytes:
        """The answer as one message, unless `write` gets it, as an event of a stream. Raises
        SessionGone."""
        headers = {**HEADERS, **session, **self._routing_headers(message)}
        async with self._http.post(self._url, data=line, headers=headers) as response:
            if response.status == 404 and SESSION in session:
                raise SessionGone
            if response.content_type == SSE:
                await self._stream(response, message, write)
                return b""
            body = await _read(response)
            if body:
                self._observe(message, body, response)
            if not body and _id_of(message) is not None:
                raise Unreachable(f"The server answered with status {response.status} alone")
            return body and _with_request_id(body, _id_of(message), response.status)

    def _observe(self, request: Body, body: bytes, response: aiohttp.ClientResponse) -> None:
        """Remember of an answer the session, and the headers that tools want."""
        if not isinstance(request, Request):
            return
        if request.method == "initialize":
            session = response.headers.get(SESSION)
            version = _result(body).get("protocolVersion")
            self._session = {SESSION: session} if session else {}
            self._session |= {VERSION: version} if isinstance(version, str) else {}
        elif request.method == "tools/list":
            self._mirrored |= _mirrored_arguments(_result(body))

    def _routing_headers(self, message: Body) -> dict[str, str]:
        """The headers that repeat the body of a 2026-07-28 request."""
        if not (isinstance(message, Request) and isinstance(message.params, dict)):
            return {}
        version, params = meta_version(message.params.get("_meta")), message.params
        if not isinstance(version, str):
            return {}
        headers = {VERSION: version, "Mcp-Method": message.method}
        name, arguments = params.get(NAMED_BY.get(message.method, "")), params.get("arguments")
        if isinstance(name, str):
            headers["Mcp-Name"] = encode_header(name)
            if isinstance(arguments, dict):
                headers |= param_headers(self._mirrored.get(name, ()), arguments)
        return headers

    async def _learn_headers(self, call: Request) -> None:
        """Read the list of tools, for the headers that a refused call lacked."""
        params: dict[str, Any] = {"_meta": dict(call.params).get("_meta")}  # type: ignore[arg-type]
        for _ in range(PAGES):
            request = Request("2.0", "tools/list", params, OWN_ID)
            cursor = _result(await self._ask(encode(request), request, {})).get("nextCursor")
            if cursor is None:
                return
            params = {**params, "cursor": cursor}

    async def _stream(self, response: aiohttp.ClientResponse, message: Body, write: Write) -> None:
        """Write the messages of a stream. One that ends before the answer to `message` is resumed
        where its events have ids; raises Unreachable otherwise."""
        events, rounds = SseParser(MESSAGE_BYTES), 0
        answered = await self._write_messages(response, events, message, write)
        while not answered and _id_of(message) is not None:
            if not events.last_id:
                raise Unreachable("The server closed the stream before it answered")
            await anyio.sleep(events.pause_s(rounds))
            async with self._http.get(self._url, headers=self._resuming(events)) as resumed:
                if resumed.content_type != SSE:
                    raise Unreachable(f"The server does not resume the stream ({resumed.status})")
                last = events.last_id
                answered = await self._write_messages(resumed, events, message, write)
                rounds = 0 if events.last_id != last else rounds + 1

    async def _write_messages(
        self,
        response: aiohttp.ClientResponse,
        events: SseParser,
        message: Body | None,
        write: Write,
    ) -> bool:
        """Write messages until the stream ends; whether the answer to `message` was among them."""
        id_ = None if message is None else _id_of(message)
        answered = False
        with suppress(aiohttp.ClientPayloadError):  # cut off
            async for chunk in response.content.iter_any():
                for event in events.feed(chunk):
                    if message is not None and id_ is not None and _answers(event.data, id_):
                        answered = True
                        self._observe(message, event.data, response)
                    await write(event.data)
        events.end()
        return answered

    def _resuming(self, events: SseParser) -> dict[str, str]:
        last = {"Last-Event-ID": events.last_id} if events.last_id else {}
        return {"Accept": SSE, **self._session, **last}

    async def _listen(self, scope: anyio.CancelScope) -> None:
        """Write what the server sends outside of requests, if it has a stream for that."""
        events, rounds = SseParser(MESSAGE_BYTES), 0
        with scope:
            while SESSION in self._session:
                session = self._session
                try:
                    async with self._http.get(self._url, headers=self._resuming(events)) as stream:
                        if stream.content_type == SSE:
                            rounds = 0
                            await self._write_messages(stream, events, None, self._write)
                        elif stream.status == 404:
                            events = SseParser(MESSAGE_BYTES)
                            await self._renew(session)
                        elif stream.status < 500:  # 405: the server has none
                            return
                except AWAY:
                    events.end()
                await anyio.sleep(events.pause_s(rounds))
                rounds += 1

    async def _renew(self, session: dict[str, str]) -> None:
        """Open a session in place of `session`, unless that was done meanwhile. Raises
        SessionGone."""
        async with self._renewing:
            if self._session is session:
                await self._ask(self._opening, _decode_line(self._opening), {})
                await self._ask(INITIALIZED, _decode_line(INITIALIZED), self._session)

    async def _end_session(self) -> None:
        if SESSION in self._session:
            try:
                async with self._http.delete(self._url, headers=self._session):
                    return
            except (aiohttp.ClientError, TimeoutError):
                return  # the server ends it later


def _decode_line(line: bytes) -> Body:
    """Message in `line`; the server judges an invalid one."""
    try:
        return decode(line, NO_LIMIT)
    except Fault as fault:
        return Invalid(None, fault)


def _id_of(message: Body) -> RequestId:
    """The id that the answer has; None: none is due."""
    is_request = isinstance(message, Request) and message.id is not UNSET
    return message.id if is_request else None  # type: ignore[union-attr, return-value]


def _is_stateless(message: Body) -> bool:
    params = message.params if isinstance(message, Request) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and META_VERSION in meta


async def _read(response: aiohttp.ClientResponse) -> bytes:
    pieces, size = list[bytes](), 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > MESSAGE_BYTES:
            raise TooLarge(MESSAGE_BYTES)
    return b"".join(pieces)


def _with_request_id(body: bytes, id_: RequestId, status: int) -> bytes:
    """`body`, if it is a message; one that refuses the whole HTTP request gets the id of what was
    sent. Raises Unreachable."""
    value = _value(body)
    if isinstance(value, list):
        return body
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        raise Unreachable(f"The server answered {status} without a message of JSON-RPC")
    if "error" in value and value.get("id") is None:
        return encode({**value, "id": id_})
    return body


def _value(body: bytes) -> Any:
    try:
        return decode_json(body)
    except Fault:
        return None


def _result(body: bytes) -> dict[str, Any]:
    value = _value(body)
    result = value.get("result") if isinstance(value, dict) else None
    return result if isinstance(result, dict) else {}


def _answers(message: bytes, id_: RequestId | None) -> bool:
    value = _value(message)
    return isinstance(value, dict) and "method" not in value and value.get("id") == id_


def _is_header_mismatch(answer: bytes) -> bool:
    value = _value(answer) if b"%d" % HeaderMismatch.code in answer[:200] else None
    error = value.get("error") if isinstance(value, dict) else None
    return isinstance(error, dict) and error.get("code") == HeaderMismatch.code


def _mirrored_arguments(result: dict[str, Any]) -> dict[str, tuple[MirroredArgument, ...]]:
    """The arguments that tools of a list want repeated in headers. Tools with invalid annotations
    have none: the server refuses their calls."""
    by_tool: dict[str, tuple[MirroredArgument, ...]] = {}
    for tool in result.get("tools") or ():
        try:
            mirrored = mirrored_in(tool["inputSchema"])
        except (ValueError, KeyError, TypeError):
            continue
        if mirrored:
            by_tool[str(tool["name"])] = mirrored
    return by_tool


def _failure(id_: RequestId, text: str) -> bytes:
    return encode(error_reply(id_, Unreachable(text)))
