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

from gateway.abc import Log
from gateway.context import Session
from gateway.state.background_tasks import BackgroundTasks
from schemas.errors import ClientRequestFailed, Fault, Unavailable
from schemas.jsonrpc import Notification, Response, encode
from schemas.mcp.messages import CANCELLED

LOOK_EVERY_S = 15.0  # polling interval, in case a wake-up is lost

ClientAnswer = Mapping[str, Any]
OnAnswer = Callable[[ClientAnswer], None]


class RemoteAnswers:
    def __init__(self, kept: Log, shared: bool, later: BackgroundTasks, keep_s: float) -> None:
        """Inactive unless the log is `shared` with other nodes. The log drops a stream after
        `keep_s` without an event."""
        self._log = kept
        self._shared = shared
        self._later = later
        self._keep_s = keep_s

    async def give(self, session_id: str, ask_id: str, said: ClientAnswer) -> None:
        """Forward an answer that the client of the session sent here; dropped unless it was
        requested and is the first. Raises Unavailable."""
        if not self._shared:
            return
        stream = _stream_of(ask_id)
        kept = [event.data for event in await self._log.read(stream, "")]
        if kept and all(data == _question(session_id) for data in kept):
            await self._log.append(stream, b"." + encode(said))

    @asynccontextmanager
    async def awaited(self, session_id: str, ask_id: str, hear: OnAnswer) -> AsyncIterator[None]:
        """Inside, `hear` is called with an answer that arrived at another node. While the log is
        unavailable, only answers sent to this node count."""
        if not self._shared:
            yield
            return
        stream, wake = _stream_of(ask_id), asyncio.Event()
        with self._log.watch(stream, wake.set):
            try:
                await self._ask(stream, session_id)
                listening = asyncio.create_task(self._listen(stream, session_id, wake, hear))
                try:
                    yield
                finally:
                    listening.cancel()
            finally:
                self._later.do(self._log.drop(stream))

    async def _ask(self, stream: str, session_id: str) -> None:
        try:
            await self._log.append(stream, _question(session_id))
        except Unavailable:
            return

    async def _listen(
        self, stream: str, session_id: str, wake: asyncio.Event, hear: OnAnswer
    ) -> None:
        asked = time.monotonic()
        while True:
            wake.clear()
            said = await self._said(stream)
            if said is not None:
                hear(said)
                return
            if time.monotonic() - asked > self._keep_s / 2:
                await self._ask(stream, session_id)
                asked = time.monotonic()
            try:
                async with asyncio.timeout(min(LOOK_EVERY_S, self._keep_s / 4)):
                    await wake.wait()
            except TimeoutError:
                continue

    async def _said(self, stream: str) -> ClientAnswer | None:
        try:
            events = await self._log.read(stream, "")
        except Fault:
            return None  # retried by the caller's loop
        answers = (event.data[1:] for event in events if event.data[:1] == b".")
        return next(map(msgspec.json.decode, answers), None)


def _stream_of(ask_id: str) -> str:
    return f"a/{ask_id}"


def _question(session_id: str) -> bytes:
    return b"?" + session_id.encode()


ID_LIMIT = 64  # characters; ours have fewer

Send = Callable[[bytes], Awaitable[None]]
"""Put an encoded message on the stream that a request of ours belongs to."""


@dataclass(frozen=True, slots=True)
class _Open:
    session_id: str
    answered: "asyncio.Future[ClientAnswer]"


class ClientRequests:
    def __init__(self, node: str, elsewhere: RemoteAnswers, timeout_s: float, limit: int) -> None:
        """A session has at most `limit` pending requests, each with the timeout `timeout_s`.
        `elsewhere` relays answers that arrive at other nodes than this one, `node`."""
        self._node = node
        self._elsewhere = elsewhere
        self._timeout_s = timeout_s
        self._limit = limit
        self._numbers = itertools.count(1)
        self._open: dict[str, _Open] = {}

    async def ask(self, session: Session, tell: Send, method: str, params: Any) -> Any:
        """Send a request and return the client's result. Raises AskFailed with its error, or
        without an answer."""
        if session.asked >= self._limit:
            raise ClientRequestFailed(f"The client has {session.asked} requests to answer already")
        id_ = f"{self._node}:{next(self._numbers)}"  # so that any node can route the answer
        answered: asyncio.Future[ClientAnswer] = asyncio.get_running_loop().create_future()
        self._open[id_] = _Open(session.id, answered)
        session.asked += 1
        try:
            async with self._elsewhere.awaited(session.id, id_, partial(_settle, answered)):
                asked = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
                await tell(encode(asked))
                async with asyncio.timeout(self._timeout_s):
                    return _result(await answered)
        except TimeoutError as error:
            await tell(_cancelled(id_, "No answer in time"))
            text = f"The client did not answer {method} within {self._timeout_s:g} s"
            raise ClientRequestFailed(text) from error
        except asyncio.CancelledError:
            await tell(_cancelled(id_, "No longer needed"))
            raise
        finally:
            session.asked -= 1
            del self._open[id_]

    async def answer(self, session: Session, response: Response) -> None:
        """Deliver the answer of a client of `session`; unknown and late answers are dropped. Raises
        Unavailable when the requesting node cannot be reached."""
        if not isinstance(response.id, str):
            return
        said = {
            name: value
            for name, value in (("result", response.result), ("error", response.error))
            if value is not UNSET
        }
        node, _, number = response.id.partition(":")
        if node != self._node:
            if number.isdecimal() and len(response.id) < ID_LIMIT:
                await self._elsewhere.give(session.id, response.id, said)
            return
        found = self._open.get(response.id)
        if found is not None and found.session_id == session.id:
            _settle(found.answered, said)


def _settle(answered: "asyncio.Future[ClientAnswer]", said: ClientAnswer) -> None:
    if not answered.done():
        answered.set_result(said)


def _result(said: ClientAnswer) -> Any:
    if "error" not in said:
        return said.get("result")
    error = said["error"]
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        raise ClientRequestFailed("The client answered with an error that is none of JSON-RPC")
    failed = ClientRequestFailed(error["message"], error.get("data"))
    code = error.get("code")
    if isinstance(code, int) and not isinstance(code, bool):
        failed.code = code
    raise failed


def _cancelled(id_: str, reason: str) -> bytes:
    return encode(Notification(CANCELLED, {"requestId": id_, "reason": reason}))
