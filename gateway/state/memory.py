"""Streams, sessions and counters in the memory of this process: for a single gateway."""

import secrets
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from types import MappingProxyType

from msgspec.structs import replace

from gateway.interfaces import Event, SessionChange, SessionRecord, Verdict
from gateway.state.open_sessions import with_change
from gateway.state.rate_windows import MICROS, admit, live, slot_us
from gateway.state.session_streams import StreamPlace, Watchers, check, event_id, place_of

Clock = Callable[[], float]  # s, monotonic

EVENT_BYTES = 100  # overhead of an event
FILL_TARGET = 0.9  # target fill after eviction, so that evictions are rare


@dataclass(slots=True)
class _Stream:
    born: int
    touched: float
    last: int = 0
    size: int = 0  # bytes
    events: deque[bytes] = field(default_factory=deque)  # the newest is number `last`

    @property
    def first(self) -> int:
        return self.last - len(self.events) + 1


class MemoryLog:
    is_remote = False

    def __init__(
        self,
        max_events: int,
        retention_s: float,
        limit_bytes: int,
        *,
        clock: Clock = time.monotonic,
        limits_by_stream: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """An in-memory log that keeps at most `max_events` of a stream (`limits_by_stream`
        overrides this by stream name), for `retention_s` after its last event, and `limit_bytes` in
        all: the session that uses the most memory is evicted from first."""
        self._max_events = max_events
        self._limits_by_stream = limits_by_stream
        self._retention_s = retention_s
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._streams: OrderedDict[str, _Stream] = OrderedDict()  # by time of last event
        self._size = 0  # bytes
        self._born = 0  # of the newest stream: when it was created
        self._watchers = Watchers()

    def __len__(self) -> int:
        return len(self._streams)

    async def append(self, stream: str, data: bytes) -> str:
        entry = self._streams.get(stream) or self._begin(stream)
        self._streams.move_to_end(stream)
        entry.touched = self._clock()
        entry.last += 1
        entry.events.append(data)
        self._resize(entry, len(data) + EVENT_BYTES)
        if len(entry.events) > self._limits_by_stream.get(stream, self._max_events):
            self._shorten(entry)
        self._forget()
        if self._size > self._limit_bytes:
            self._make_room(stream)
        self._watchers.wake(stream)
        return event_id(stream, StreamPlace(entry.born, entry.last))

    async def read(self, stream: str, after: str, limit: int = 1000) -> Sequence[Event]:
        place = place_of(stream, after)
        entry = self._streams.get(stream)
        if entry is None:
            return []
        check(place, StreamPlace(entry.born, entry.first), StreamPlace(entry.born, entry.last))
        skipped = place.n + 1 - entry.first if place.born == entry.born else 0
        events, first = entry.events, entry.first
        return [  # by index: an iterator would pass all that a follower has read
            Event(event_id(stream, StreamPlace(entry.born, first + index)), events[index])
            for index in range(skipped, min(skipped + limit, len(events)))
        ]

    async def last(self, stream: str) -> str:
        entry = self._streams.get(stream)
        return event_id(stream, StreamPlace(entry.born, entry.last)) if entry else ""

    def watch(self, stream: str, wake: Callable[[], None]) -> AbstractContextManager[None]:
        return self._watchers.watch(stream, wake)

    async def drop(self, stream: str) -> None:
        if entry := self._streams.pop(stream, None):
            self._size -= entry.size

    async def purge(self) -> None:
        self._forget()

    def _begin(self, stream: str) -> _Stream:
        # Strictly increasing, however fast a stream is dropped and begins again.
        self._born = max(self._born + 1, time.time_ns() // 1000)
        self._streams[stream] = begun = _Stream(self._born, 0)
        return begun

    def _resize(self, stream: _Stream, change: int) -> None:
        stream.size += change
        self._size += change

    def _shorten(self, stream: _Stream) -> None:
        self._resize(stream, -len(stream.events.popleft()) - EVENT_BYTES)

    def _forget(self) -> None:
        before = self._clock() - self._retention_s
        while self._streams:
            name, oldest = next(iter(self._streams.items()))
            if oldest.touched > before:
                return
            self._pop(name)

    def _pop(self, name: str) -> None:
        self._size -= self._streams.pop(name).size

    def _make_room(self, newest: str) -> None:
        """Evict the least recently appended stream of the owner that uses the most memory. Of the
        stream `newest` only older events are evicted, never its last."""
        owned: defaultdict[str, deque[str]] = defaultdict(deque)
        sizes: defaultdict[str, int] = defaultdict(int)
        for name, stream in self._streams.items():
            owned[_owner(name)].append(name)
            sizes[_owner(name)] += stream.size
        largest = [(-sizes[owner], place, owner) for place, owner in enumerate(owned)]
        heapify(largest)
        while largest and self._size > self._limit_bytes * FILL_TARGET:
            freed_bytes, place, owner = heappop(largest)
            freed = self._take_from(owned[owner], newest)
            if freed:
                heappush(largest, (freed_bytes + freed, place, owner))

    def _take_from(self, names: deque[str], newest: str) -> int:
        """Evict one stream or event; returns the bytes freed, 0 when `names` has no more to
        evict."""
        before = self._size
        if names and names[0] != newest:
            self._pop(names.popleft())
        elif names and len(self._streams[newest].events) > 1:
            self._shorten(self._streams[newest])
        return before - self._size


def _owner(stream: str) -> str:
    """The owner of a stream for accounting: all streams of a session have the same one."""
    return stream.rpartition("/")[0] or stream


class MemorySessions:
    shared = False

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._records: dict[str, tuple[SessionRecord, float]] = {}  # with expiry time
        self._nodes: dict[str, float] = {}
        self._secret = secrets.token_bytes(32)

    async def put(self, record: SessionRecord, ttl_s: float) -> None:
        self._records[record.id] = (record, self._clock() + ttl_s)

    async def get(self, session_id: str) -> SessionRecord | None:
        record, until = self._records.get(session_id, (None, 0.0))
        return record if until > self._clock() else None

    async def hold(self, session_id: str, node: str, ttl_s: float) -> SessionRecord | None:
        if (record := await self.get(session_id)) is None:
            return None
        on_node = replace(record, nodes=tuple(sorted({*record.nodes, node})))
        await self.put(on_node, ttl_s)
        return on_node

    async def change(
        self, session_id: str, change: SessionChange, ttl_s: float
    ) -> SessionRecord | None:
        if (record := await self.get(session_id)) is None:
            return None
        await self.put(with_change(record, change), ttl_s)
        return await self.get(session_id)

    async def delete(self, session_id: str) -> bool:
        there = await self.get(session_id) is not None
        self._records.pop(session_id, None)
        return there

    async def all(self) -> list[SessionRecord]:
        now = self._clock()
        return [record for record, until in self._records.values() if until > now]

    async def purge(self) -> int:
        now = self._clock()
        expired = [session_id for session_id, (_, until) in self._records.items() if until <= now]
        for session_id in expired:
            del self._records[session_id]
        return len(expired)

    async def beat(self, node: str, ttl_s: float) -> None:
        self._nodes[node] = self._clock() + ttl_s

    async def is_alive(self, node: str) -> bool:
        return self._nodes.get(node, 0.0) > self._clock()

    async def secret(self) -> bytes:
        return self._secret


class MemoryCounter:
    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._uses: dict[tuple[str, int], dict[int, int]] = {}  # by key and length of a slot

    def __len__(self) -> int:
        return len(self._uses)

    async def hit(self, key: str, limit: int, window_s: float, count: int = 1) -> Verdict:
        slot, now = slot_us(window_s), self._now_us()
        uses = self._uses[key, slot] = live(self._uses.get((key, slot), {}), now, slot)
        return admit(uses, limit, now, slot, count=count)

    async def purge(self) -> None:
        """Remove keys that were not used within their windows."""
        now = self._now_us()
        idle = [bucket for bucket, uses in self._uses.items() if not live(uses, now, bucket[1])]
        for bucket in idle:
            del self._uses[bucket]

    def _now_us(self) -> int:
        return int(self._clock() * MICROS)
