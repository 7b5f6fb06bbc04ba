"""Answers of clients that come to another node than the one that asked.

Each question has a stream of the log, "a/<its id>", which says who may answer it; the answer
follows there. So none is lost between the messages of others, and nothing is kept that nobody
asked for.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from gateway.abc import Log
from gateway.state.tasks import BackgroundTasks
from schemas.errors import Fault, Unavailable
from schemas.jsonrpc import encode

LOOK_EVERY_S = 15.0  # whatever became of a wake-up

Said = Mapping[str, Any]
Hear = Callable[[Said], None]


class ClientAnswers:
    def __init__(self, kept: Log, shared: bool, later: BackgroundTasks, keep_s: float) -> None:
        """Does nothing unless the log is `shared` with other nodes. It forgets a stream on which
        nothing is said for `keep_s`."""
        self._log = kept
        self._shared = shared
        self._later = later
        self._keep_s = keep_s

    async def give(self, session_id: str, ask_id: str, said: Said) -> None:
        """A client of the session answered here; dropped unless it was asked, and has not answered
        yet. Raises Unavailable."""
        if not self._shared:
            return
        stream = _stream_of(ask_id)
        kept = [event.data for event in await self._log.read(stream, "")]
        if kept and all(data == _question(session_id) for data in kept):
            await self._log.append(stream, b"." + encode(said))

    @asynccontextmanager
    async def awaited(self, session_id: str, ask_id: str, hear: Hear) -> AsyncIterator[None]:
        """Inside, `hear` is called with an answer that came to another node. While the log is away
        the client can answer here alone."""
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
            return None  # later, perhaps
        answers = (event.data[1:] for event in events if event.data[:1] == b".")
        return next(map(msgspec.json.decode, answers), None)


def _stream_of(ask_id: str) -> str:
    return f"a/{ask_id}"


def _question(session_id: str) -> bytes:
    return b"?" + session_id.encode()
