"""Streams of sessions in the log, and the ids of their events.

The birth keeps ids growing when a stream is dropped and begins again; the last part identifies the
stream without reading the store, which may have dropped both.

"s/<session>/g" has the messages of the standalone stream, "s/<session>/p<node>-<number>" those of
one POST. A record of the latter begins with its kind and the ids of its requests, because the
reader of an unfinished stream may have to answer them: when the node that ran them is gone.
"""

import itertools
import logging
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from types import TracebackType
from typing import Any, Literal

import msgspec

from gateway.context import Session
from gateway.interfaces import Counter, Event, Log, SessionStore
from gateway.protocol.sse_writer import STANDALONE, Position
from gateway.state.background_tasks import BackgroundTasks
from gateway.state.node_bus import Bus
from schemas.errors import InternalError, InvalidParams, InvalidRequest, Unavailable
from schemas.jsonrpc import RequestId, encode, error_reply

ID = re.compile(r"([0-9a-f]{14})([0-9a-f]{10})([0-9a-f]{6})")
MARKS = 1024  # cached, of streams: one is needed three times for each event
UNKNOWN = "No such event in this stream"
EXPIRED_TEXT = "What followed this event is no longer kept"

log = logging.getLogger("toolgate.streams")


READ_AT_ONCE = 100
HEARTBEAT_S = 5.0
# not 404, which would mean that the session has ended
UNKNOWN_EVENT = (
    "Last-Event-ID is not known in this session, or too old: what followed it is no longer kept. "
    "Without the header a new stream is opened"
)
OUTCOME_UNKNOWN = "The gateway that ran this request has stopped; its outcome is unknown"


@dataclass(frozen=True, slots=True, order=True)
class StreamPlace:
    born: int  # microseconds since 1970
    n: int  # 1 for the first event


START = StreamPlace(0, 0)


def event_id(stream: str, place: StreamPlace) -> str:
    return f"{place.born:014x}{place.n:010x}{_mark(stream)}"


def place_of(stream: str, event_id: str) -> StreamPlace:
    """The place of an event in `stream`; "" is before the first. Raises InvalidParams for an id
    that cannot be of this stream."""
    if not event_id:
        return START
    match = ID.fullmatch(event_id)
    if match is None or match[3] != _mark(stream):
        raise InvalidParams(UNKNOWN)
    return StreamPlace(int(match[1], 16), int(match[2], 16))


def check(after: StreamPlace, first: StreamPlace, last: StreamPlace) -> None:
    """Check that a stream that keeps `first` to `last` can be resumed from `after`.

    Raises InvalidParams when it was never that long, or when an event in between is gone. An older
    birth is no gap: the whole stream had expired, after a long silence.
    """
    if after > last:
        raise InvalidParams(UNKNOWN)
    if after.born == first.born and after.n + 1 < first.n:
        raise InvalidParams(EXPIRED_TEXT)


@lru_cache(MARKS)
def _mark(stream: str) -> str:
    return blake2b(stream.encode(), digest_size=3).hexdigest()


Wake = Callable[[], None]


class Watchers:
    """Wake-up callbacks by stream; sized for thousands of streams with one watch each."""

    def __init__(self) -> None:
        self._wakes: dict[str, list[Wake]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._wakes.values()))

    def watch(self, stream: str, wake: Wake) -> AbstractContextManager[None]:
        return _Waiting(self._wakes, stream, wake)

    def wake(self, stream: str) -> None:
        for wake in tuple(self._wakes.get(stream, ())):
            wake()

    def wake_all(self) -> None:
        """Wake all watchers: wake-ups may have been missed."""
        for stream in tuple(self._wakes):
            self.wake(stream)


class _Waiting(AbstractContextManager[None]):
    __slots__ = ("_stream", "_wake", "_wakes")

    def __init__(self, wakes: dict[str, list[Wake]], stream: str, wake: Wake) -> None:
        self._wakes = wakes
        self._stream = stream
        self._wake = wake

    def __enter__(self) -> None:
        self._wakes.setdefault(self._stream, []).append(self._wake)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        waiting = self._wakes[self._stream]
        waiting.remove(self._wake)
        if not waiting:
            del self._wakes[self._stream]


Ids = RequestId | list[RequestId]
"""The id of the request that a stream belongs to, or those of a batch."""


@dataclass(frozen=True, slots=True)
class ReplayedEvent:
    """An event of a POST's stream, as replayed to a client that resumes it."""

    position: Position
    message: bytes  # b"": no message; the stream was begun, or ended by the client


class StreamRecorder:
    """Recorder of the stream of one POST, while it is written."""

    __slots__ = (
        "_background",
        "_head",
        "_log",
        "_name",
        "_refreshed_at",
        "_retention_s",
        "_stream",
        "_unavailable",
    )

    def __init__(
        self,
        event_log: Log,
        background: BackgroundTasks,
        session: Session,
        *,
        stream: str,
        ids: Ids,
        retention_s: float,
    ) -> None:
        self._log = event_log
        self._background = background
        self._stream = stream
        self._name = name_of(session, stream)
        self._head = encode(ids) + b"\n"
        self._retention_s = retention_s
        self._refreshed_at = time.monotonic()
        self._unavailable = False  # the log was unavailable: later messages must not wait for it

    async def add(self, kind: Literal[b"!", b"+", b"."], message: bytes = b"") -> str:
        """Record a message: "!" marks the stream as begun, "." ends it. Returns the id of its
        event; "" when the log is unavailable: then the client cannot resume it. Of later messages
        only the end is recorded, if that is possible then."""
        self._refreshed_at = time.monotonic()
        record = kind + self._head + message
        if self._unavailable:
            if kind == b".":
                self._background.start(self._end(record))
            return ""
        try:
            after = await self._log.append(self._name, record)
        except Unavailable:
            log.warning("stream_not_recorded")
            self._unavailable = True
            return ""
        return Position(self._stream, after, ended=kind == b".").id

    async def refresh(self) -> None:
        """Refresh a silent stream, so that it does not expire in the log."""
        if time.monotonic() - self._refreshed_at > self._retention_s / 2:
            await self.add(b"!")

    async def _end(self, record: bytes) -> None:
        await self._log.append(self._name, record)


class Streams:
    def __init__(
        self,
        event_log: Log,
        store: SessionStore,
        counter: Counter,
        bus: Bus,
        *,
        replay_s: float,
        background: BackgroundTasks,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        """`heartbeat_s` is the interval of the nodes' heartbeats."""
        self.heartbeat_s = heartbeat_s
        self._log = event_log
        self._background = background
        self._store = store
        self._counter = counter
        self._bus = bus
        self._replay_s = replay_s
        self._numbers = itertools.count(1)

    def record(self, session: Session, ids: Ids) -> StreamRecorder:
        stream = f"p{self._bus.node}-{next(self._numbers)}"
        return StreamRecorder(
            self._log, self._background, session, stream=stream, ids=ids, retention_s=self._replay_s
        )

    def watch(
        self, session: Session, stream: str, wake: Callable[[], None]
    ) -> AbstractContextManager[None]:
        """Context in which `wake` is called when any node has appended to the stream."""
        return self._log.watch(name_of(session, stream), wake)

    async def send(self, session: Session, message: bytes) -> None:
        """Append a message to the standalone stream, at whichever node has it open or will open
        it."""
        await self._log.append(name_of(session, STANDALONE), message)

    async def standalone(self, session: Session, after: str) -> Sequence[Event]:
        """The events after `after` on the standalone stream. Raises InvalidRequest for an unknown
        id."""
        return await self._read(session, STANDALONE, after)

    async def newest(self, session: Session) -> str:
        return await self._log.last(name_of(session, STANDALONE))

    async def replay(self, session: Session, position: Position) -> list[ReplayedEvent]:
        """Replay the events after `position` on the stream of a POST, at most up to its answer,
        which is made here when the node that ran it is dead. Raises InvalidRequest for an unknown
        id."""
        alive = await self._alive(position.node)
        events = await self._read(session, position.stream, position.after)
        replayed = _replay_events(position.stream, events)
        answered = bool(replayed) and replayed[-1].position.ended
        if alive or answered or len(events) == READ_AT_ONCE:
            return replayed
        await self._answer_for_gone_node(session, position.stream)
        return _replay_events(
            position.stream, await self._read(session, position.stream, position.after)
        )

    async def is_orphaned(self, position: Position) -> bool:
        """Whether the node that runs a POST's requests is dead; False while the store is
        unavailable."""
        try:
            return not await self._alive(position.node)
        except Unavailable:
            return False

    async def exists(self, session: Session, stream: str) -> bool:
        return await self._log.last(name_of(session, stream)) != ""

    async def _alive(self, node: str) -> bool:
        if node == self._bus.node:
            return True
        return self._store.shared and await self._store.is_alive(node)

    async def _read(self, session: Session, stream: str, after: str) -> Sequence[Event]:
        try:
            return await self._log.read(name_of(session, stream), after, READ_AT_ONCE)
        except InvalidParams as error:
            raise InvalidRequest(UNKNOWN_EVENT) from error

    async def _answer_for_gone_node(self, session: Session, stream: str) -> None:
        """Answer with an error in place of a dead node; exactly one node does."""
        name = name_of(session, stream)
        events = await self._log.read(name, "")
        verdict = await self._counter.hit(f"gone/{name}", 1, self._replay_s)
        if events and verdict.is_allowed:
            head = _parts(events[-1].data)[1]
            try:
                ids = msgspec.json.decode(head)
            except msgspec.DecodeError as error:  # not written by a gateway
                raise InvalidRequest(UNKNOWN_EVENT) from error
            answer: Any = (
                [error_reply(id_, InternalError(OUTCOME_UNKNOWN)) for id_ in ids]
                if isinstance(ids, list)
                else error_reply(ids, InternalError(OUTCOME_UNKNOWN))
            )
            await self._log.append(name, b"." + head + b"\n" + encode(answer))


def name_of(session: Session, stream: str) -> str:
    return f"s/{session.id}/{stream}"


def _parts(record: bytes) -> tuple[str, bytes, bytes]:
    """The kind of a record, the ids of its requests, and its message."""
    head, _, message = record.partition(b"\n")
    return head[:1].decode("latin-1"), head[1:], message


def _replay_events(stream: str, events: Sequence[Event]) -> list[ReplayedEvent]:
    replayed = []
    for event in events:
        kind, _, message = _parts(event.data)
        ended = kind == "."
        replayed.append(ReplayedEvent(Position(stream, event.id, ended=ended), message))
        if ended:
            break
    return replayed
