"""The client of one POST while it is served: heartbeat, disconnects, notifications and requests.

One timer for all of them: a timer each would cost more than the rest of sending the answer.
"""

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Protocol

from starlette.types import Message, Receive

from gateway.context import Session
from gateway.protocol import sse_writer
from gateway.state.client_requests import ClientRequests
from gateway.state.session_streams import Ids, StreamRecorder, Streams
from gateway.transports.http_messages import Responder
from gateway.transports.mcp_endpoint import McpFront
from schemas.errors import ClientRequestFailed, Unavailable
from schemas.jsonrpc import ErrorReply, Reply, encode

TURNS = 3


class TimedConnection(Protocol):
    def beat(self) -> None:
        """Do what is due, such as sending a keep-alive."""


class KeepAliveTimer:
    def __init__(self, every_s: float) -> None:
        """Keep-alive timer: `beat` of every member runs every `every_s` at the latest, first after
        two thirds of that."""
        self._turn_s = every_s / TURNS
        self._waiting: tuple[set[TimedConnection], ...] = tuple(set() for _ in range(TURNS))
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, connection: TimedConnection) -> None:
        self._waiting[0].add(connection)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._turn_s, self._turn)

    def leave(self, connection: TimedConnection) -> None:
        for waiting in self._waiting:
            waiting.discard(connection)

    def _turn(self) -> None:
        *younger, due = self._waiting
        self._waiting = (due, *younger)
        for timer in tuple(due):
            timer.beat()
        self._timer = None
        if any(self._waiting):
            self._timer = asyncio.get_running_loop().call_later(self._turn_s, self._turn)


WATCH_S = 0.075  # first after 0.05: most calls finish earlier, and need no second task


class DisconnectWatch:
    """Cancels the task that entered it when the client disconnects.

    Inside, no other task may call `receive`: the request body has been read.
    """

    __slots__ = ("_receive", "_task", "_timer", "_watcher", "gone")

    def __init__(self, receive: Receive, timer: KeepAliveTimer | None = None) -> None:
        """A watch that begins with the first beat of `timer`; without one, at once."""
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None
        self._timer = timer
        self._task: asyncio.Task[Any] | None = None
        self.gone = False

    def __enter__(self) -> "DisconnectWatch":
        self._task = asyncio.current_task()
        if self._timer is None:
            self.beat()
        else:
            self._timer.enter(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if self._watcher is not None:
            self._watcher.cancel()
        elif self._timer is not None:
            self._timer.leave(self)
        task, self._task = self._task, None
        if kind is asyncio.CancelledError and self.gone and task is not None:
            return task.uncancel() == 0  # only our cancellation: the request ends here
        return False

    def give_up(self) -> None:
        """Treat the client as disconnected."""
        if self._task is not None and not self.gone:
            self.gone = True
            self._task.cancel("the client went away")

    def beat(self) -> None:
        """Begin to watch."""
        if self._timer is not None:
            self._timer.leave(self)
        self._watcher = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        message: Message = await self._receive()
        while message["type"] != "http.disconnect":
            message = await self._receive()
        self.give_up()


async def send_all(
    responder: Responder, chunks: AsyncIterator[bytes], watch: DisconnectWatch
) -> None:
    """Send the rest of a stream, and its end.

    Also checks for a disconnected client: under Python 3.11 a database client may swallow
    cancellation (`asyncio.wait_for` drops it when an answer comes at that moment).
    """
    async for chunk in chunks:
        if watch.gone:
            return
        await responder.chunk(chunk)
    await responder.chunk(b"", more=False)


class PostPeer:
    """Client of a POST: its answer becomes a stream with the first message before it, or after long
    silence, before intermediaries time out. While it is in the pulse, keep-alives are sent during
    silence."""

    __slots__ = ("_beating", "_done", "_pulse", "_turn", "responder")

    def __init__(self, responder: Responder, pulse: KeepAliveTimer) -> None:
        self.responder = responder
        self._pulse = pulse
        self._turn = asyncio.Lock()  # members of a batch, and the keep-alive, send concurrently
        self._beating: asyncio.Task[None] | None = None
        self._done = False

    def beat(self) -> None:
        if self._beating is None or self._beating.done():  # else the client is not reading
            self._beating = asyncio.create_task(self.keep_alive())

    async def notify(self, message: bytes) -> None:
        async with self._turn:
            if not self._done:
                await self._say(message)

    async def ask(self, method: str, params: Any) -> Any:  # noqa: ARG002
        raise ClientRequestFailed(f"{method} needs a session, in which clients can be asked")

    async def keep_alive(self) -> None:
        async with self._turn:
            if not self._done:
                await self._begin()
                await self.responder.chunk(sse_writer.KEEP_ALIVE)

    def is_silent(self) -> bool:
        """Whether no stream was begun; then none will be: the answer need not be a stream."""
        if self.responder.started or self._turn.locked():
            return False
        self._done = True
        return True

    async def finish(self, answer: Reply | ErrorReply | bytes | None) -> bool:
        """End the stream with the answer, None for none; False when no stream was begun."""
        async with self._turn:
            self._done = True
            if self.responder.started:
                encoded = answer if isinstance(answer, bytes | None) else encode(answer)
                await self.responder.chunk(await self._last(encoded), more=False)
            return self.responder.started

    async def _begin(self) -> None:
        if not self.responder.started:
            await self.responder.stream()

    async def _say(self, message: bytes) -> None:
        await self._begin()
        await self.responder.chunk(sse_writer.event(message))

    async def _last(self, answer: bytes | None) -> bytes:
        return b"" if answer is None else sse_writer.event(answer)


class SessionPeer(PostPeer):
    """Client of a POST in a session: events are recorded, so the client may resume the stream, and
    can be sent requests."""

    __slots__ = ("_front", "_ids", "_recording", "_session")

    def __init__(
        self,
        responder: Responder,
        pulse: KeepAliveTimer,
        *,
        front: McpFront,
        session: Session,
        ids: Ids,
    ) -> None:
        super().__init__(responder, pulse)
        self._front = front
        self._session = session
        self._ids = ids
        self._recording: StreamRecorder | None = None

    async def ask(self, method: str, params: Any) -> Any:
        return await self._front.asks.ask(self._session, self.notify, method, params)

    async def _begin(self) -> None:
        recording = await self._recorder()
        await recording.refresh()

    async def _say(self, message: bytes) -> None:
        recording = await self._recorder()
        id_ = await recording.add(b"+", message)
        await self.responder.chunk(sse_writer.event(message, id_=id_))

    async def _recorder(self) -> StreamRecorder:
        if self._recording is None:
            recording = self._recording = self._front.streams.record(self._session, self._ids)
            id_ = await recording.add(b"!")
            await self.responder.stream()
            if self._session.revision.priming and id_:
                await self.responder.chunk(sse_writer.priming(id_, self._front.retry_ms))
        return self._recording

    async def _last(self, answer: bytes | None) -> bytes:
        recording = self._recording
        if recording is None or (answer is None and self._session.ended):
            return await super()._last(answer)  # another node may have to report it lost
        id_ = await recording.add(b".", answer or b"")
        return b"" if answer is None else sse_writer.event(answer, id_=id_)


class StreamPeer:
    """Client of a session that gets all messages on its one stream (2024-11-05)."""

    __slots__ = ("_asks", "_away", "_session", "_streams")

    def __init__(self, session: Session, streams: Streams, asks: ClientRequests) -> None:
        self._session = session
        self._streams = streams
        self._asks = asks
        self._away = False  # the log was unavailable: later messages must not wait for it

    async def notify(self, message: bytes) -> None:
        """Raises Unavailable when another node has the stream and cannot be reached."""
        if self._away and not self._session.has_stream:
            raise Unavailable("The stream of this session cannot be reached")
        try:
            await self.answer(message)
        except Unavailable:
            self._away = True
            raise

    async def answer(self, message: bytes) -> None:
        """`notify`, but always tries the log."""
        if self._session.has_stream:
            self._session.outbox.put(message)
        else:
            await self._streams.send(self._session, message)

    async def ask(self, method: str, params: Any) -> Any:
        return await self._asks.ask(self._session, self.notify, method, params)

    async def keep_alive(self) -> None:
        """No-op: the stream sends its own keep-alives."""
