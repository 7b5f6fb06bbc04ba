"""Answers of clients that arrive at another node than the one that sent the request.

Each request has its own stream of the log, "a/<its id>". Its first event names the session that may
answer; the answer follows there. So answers are not lost among other messages, and unrequested ones
are not kept.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from gateway.abc import Log
from gateway.state.background_tasks import BackgroundTasks
from schemas.errors import Fault, Unavailable
from schemas.jsonrpc import encode

LOOK_EVERY_S = 15.0  # polling interval, in case a wake-up is lost

Said = Mapping[str, Any]
Hear = Callable[[Said], None]


class ClientAnswers:
    def __init__(self, kept: Log, shared: bool, later: BackgroundTasks, keep_s: float) -> None:
        """Inactive unless the log is `shared` with other nodes. The log drops a stream after
        `keep_s` without an event."""
        self._log = kept
        self._shared = shared
        self._later = later
        self._keep_s = keep_s

    async def give(self, session_id: str, ask_id: str, said: Said) -> None:
        """Forward an answer that the client of the session sent here; dropped unless it was
        requested and is the first. Raises Unavailable."""
        if not self._shared:
            return
        stream = _stream_of(ask_id)
        kept = [event.data for event in await self._log.read(stream, "")]
        if kept and all(data == _question(session_id) for data in kept):
            await self._log.append(stream, b"." + encode(said))

    @asynccontextmanager
    async def awaited(self, session_id: str, ask_id: str, hear: Hear) -> AsyncIterator[None]:
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

    async def _listen(self, stream: str, session_id: str, wake: asyncio.Event, hear: Hear) -> None:
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

    async def _said(self, stream: str) -> Said | None:
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
