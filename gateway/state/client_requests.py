"""Requests of the server to clients of sessions, whose answers may arrive at any node.

Each request has its own stream of the log, "a/<its id>". Its first event names the session that may
answer; the answer follows there. So answers are not lost among other messages, and unrequested ones
are not kept.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET

from gateway.context import Session, reason_of
from gateway.interfaces import Log
from gateway.state.background_tasks import BackgroundTasks
from schemas.errors import ClientRequestFailed, Fault, Unavailable
from schemas.jsonrpc import Notification, Response, encode
from schemas.mcp.messages import CANCELLED

LOOK_EVERY_S = 15.0  # polling interval, in case a wake-up is lost

ClientAnswer = Mapping[str, Any]
OnAnswer = Callable[[ClientAnswer], None]

ID_LIMIT = 64  # characters; ours have fewer


class RemoteAnswers:
    def __init__(
        self, event_log: Log, shared: bool, background: BackgroundTasks, retention_s: float
    ) -> None:
        """Inactive unless the log is `shared` with other nodes. The log drops a stream after
        `retention_s` without an event."""
        self._log = event_log
        self._shared = shared
        self._background = background
        self._keep_s = retention_s

    async def forward(self, session_id: str, request_id: str, answer: ClientAnswer) -> None:
        """Forward an answer of the session's client to the node that requested it; unrequested and
        repeated answers are dropped. Raises Unavailable."""
        if not self._shared:
            return
        stream = _stream_of(request_id)
        questions = [event.data for event in await self._log.read(stream, "")]
        if questions and all(data == _question(session_id) for data in questions):
            await self._log.append(stream, b"." + encode(answer))

    @asynccontextmanager
    async def await_answer(
        self, session_id: str, request_id: str, on_answer: OnAnswer
    ) -> AsyncIterator[None]:
        """Context in which `on_answer` is called with an answer that arrived at another node. While
        the log is unavailable, only answers sent to this node count."""
        if not self._shared:
            yield
            return
        stream, wake = _stream_of(request_id), asyncio.Event()
        with self._log.watch(stream, wake.set):
            try:
                await self._ask(stream, session_id)
                listening = asyncio.create_task(self._listen(stream, session_id, wake, on_answer))
                try:
                    yield
                finally:
                    listening.cancel()
            finally:
                self._background.start(self._log.drop(stream))

    async def _ask(self, stream: str, session_id: str) -> None:
        try:
            await self._log.append(stream, _question(session_id))
        except Unavailable:
            return

    async def _listen(
        self, stream: str, session_id: str, wake: asyncio.Event, on_answer: OnAnswer
    ) -> None:
        registered_at = time.monotonic()
        while True:
            wake.clear()
            answer = await self._read_answer(stream)
            if answer is not None:
                on_answer(answer)
                return
            if time.monotonic() - registered_at > self._keep_s / 2:
                await self._ask(stream, session_id)
                registered_at = time.monotonic()
            try:
                async with asyncio.timeout(min(LOOK_EVERY_S, self._keep_s / 4)):
                    await wake.wait()
            except TimeoutError:
                continue

    async def _read_answer(self, stream: str) -> ClientAnswer | None:
        try:
            events = await self._log.read(stream, "")
        except Fault:
            return None  # retried by the caller's loop
        answers = (event.data[1:] for event in events if event.data[:1] == b".")
        return next(map(msgspec.json.decode, answers), None)


def _stream_of(request_id: str) -> str:
    return f"a/{request_id}"


def _question(session_id: str) -> bytes:
    return b"?" + session_id.encode()


Send = Callable[[bytes], Awaitable[None]]
"""Put an encoded message on the stream that a request of ours belongs to."""


@dataclass(frozen=True, slots=True)
class _Open:
    session_id: str
    answered: "asyncio.Future[ClientAnswer]"


class ClientRequests:
    def __init__(self, node: str, remote: RemoteAnswers, timeout_s: float, limit: int) -> None:
        """A session has at most `limit` pending requests, each with the timeout `timeout_s`.
        `remote` relays answers that arrive at other nodes than this one, `node`."""
        self._node = node
        self._remote = remote
        self._timeout_s = timeout_s
        self._limit = limit
        self._numbers = itertools.count(1)
        self._open: dict[str, _Open] = {}

    async def ask(self, session: Session, send: Send, method: str, params: Any) -> Any:
        """Send a request and return the client's result. Raises ClientRequestFailed with the
        client's error, or without an answer."""
        if (pending := session.pending_requests) >= self._limit:
            raise ClientRequestFailed(f"The client has {pending} requests to answer already")
        id_ = f"{self._node}:{next(self._numbers)}"  # so that any node can route the answer
        answered: asyncio.Future[ClientAnswer] = asyncio.get_running_loop().create_future()
        self._open[id_] = _Open(session.id, answered)
        session.pending_requests += 1
        try:
            async with self._remote.await_answer(session.id, id_, partial(_settle, answered)):
                request = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
                await send(encode(request))
                async with asyncio.timeout(self._timeout_s):
                    return _result(await answered)
        except TimeoutError as error:
            await send(_cancellation(id_, "No answer in time"))
            text = f"The client did not answer {method} within {self._timeout_s:g} s"
            raise ClientRequestFailed(text) from error
        except asyncio.CancelledError as error:
            await send(_cancellation(id_, reason_of(error) or "No longer needed"))
            raise
        finally:
            session.pending_requests -= 1
            del self._open[id_]

    async def answer(self, session: Session, response: Response) -> None:
        """Deliver the answer of a client of `session`; unknown and late answers are dropped. Raises
        Unavailable when the requesting node cannot be reached."""
        if not isinstance(response.id, str):
            return
        answer = {
            name: value
            for name, value in (("result", response.result), ("error", response.error))
            if value is not UNSET
        }
        node, _, number = response.id.partition(":")
        if node != self._node:
            if number.isdecimal() and len(response.id) < ID_LIMIT:
                await self._remote.forward(session.id, response.id, answer)
            return
        request = self._open.get(response.id)
        if request is not None and request.session_id == session.id:
            _settle(request.answered, answer)


def _settle(waiter: "asyncio.Future[ClientAnswer]", answer: ClientAnswer) -> None:
    if not waiter.done():
        waiter.set_result(answer)


def _result(answer: ClientAnswer) -> Any:
    if "error" not in answer:
        return answer.get("result")
    error = answer["error"]
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        raise ClientRequestFailed("The client answered with an error that is none of JSON-RPC")
    failed = ClientRequestFailed(error["message"], error.get("data"))
    code = error.get("code")
    if isinstance(code, int) and not isinstance(code, bool):
        failed.code = code
    raise failed


def _cancellation(id_: str, reason: str) -> bytes:
    return encode(Notification(CANCELLED, {"requestId": id_, "reason": reason}))
