"""Streams, sessions and counters in the memory of this process: for one gateway alone."""

import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice

from gateway.abc import Event, SessionRecord, Verdict
from gateway.state.ids import Place, check, event_id, place_of
from gateway.state.watching import Watchers
from gateway.state.windows import MICROS, admit, live, slot_us

Clock = Callable[[], float]  # s, monotonic

EVENT_BYTES = 100  # what an event takes besides its data


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
    def __init__(
        self, keep_events: int, keep_s: float, limit_bytes: int, clock: Clock = time.monotonic
    ) -> None:
        """Keeps at most `keep_events` of a stream, for `keep_s` after its last event, and
        `limit_bytes` of all; the streams that are silent for longest go first."""
        self._keep_events = keep_events
        self._keep_s = keep_s
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._streams: OrderedDict[str, _Stream] = OrderedDict()  # by their last events
        self._size = 0  # bytes
        self._born = 0  # of the youngest stream
        self._watchers = Watchers()

    def __len__(self) -> int:
        return len(self._streams)

    async def append(self, stream: str, data: bytes) -> str:
        kept = self._streams.get(stream) or self._begin(stream)
        self._streams.move_to_end(stream)
        kept.touched = self._clock()
        kept.last += 1
        kept.events.append(data)
        self._resize(kept, len(data) + EVENT_BYTES)
        if len(kept.events) > self._keep_events:
            self._resize(kept, -len(kept.events.popleft()) - EVENT_BYTES)
        self._forget()
        self._watchers.wake(stream)
        return event_id(stream, Place(kept.born, kept.last))

    async def read(self, stream: str, after: str, limit: int = 1000) -> Sequence[Event]:
        place = place_of(stream, after)
        kept = self._streams.get(stream)
        if kept is None:
            return []
        check(place, Place(kept.born, kept.first), Place(kept.born, kept.last))
        skipped = place.n + 1 - kept.first if place.born == kept.born else 0
        found = islice(kept.events, skipped, skipped + limit)
        return [
            Event(event_id(stream, Place(kept.born, n)), data)
            for n, data in enumerate(found, kept.first + skipped)
        ]

    async def last(self, stream: str) -> str:
        kept = self._streams.get(stream)
        return event_id(stream, Place(kept.born, kept.last)) if kept else ""

    def watch(self, stream: str, wake: Callable[[], None]) -> AbstractContextManager[None]:
        return self._watchers.watch(stream, wake)

    async def drop(self, stream: str) -> None:
        if kept := self._streams.pop(stream, None):
            self._size -= kept.size

    async def purge(self) -> None:
        self._forget()

    def _begin(self, stream: str) -> _Stream:
        # Never twice the same, however fast a stream is dropped and begins again.
        self._born = max(self._born + 1, time.time_ns() // 1000)
        self._streams[stream] = begun = _Stream(self._born, 0)
        return begun

    def _resize(self, stream: _Stream, change: int) -> None:
        stream.size += change
        self._size += change

    def _forget(self) -> None:
        before = self._clock() - self._keep_s
        while self._streams:
            oldest = next(iter(self._streams.values()))
            full = self._size > self._limit_bytes and len(self._streams) > 1
            if oldest.touched > before and not full:
                return
            self._streams.popitem(last=False)
            self._size -= oldest.size


class MemorySessions:
    shared = False

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._records: dict[str, tuple[SessionRecord, float]] = {}  # and until when
        self._nodes: dict[str, float] = {}
        self._secret = secrets.token_bytes(32)

    async def put(self, record: SessionRecord, ttl_s: float) -> None:
        self._records[record.id] = (record, self._clock() + ttl_s)

    async def get(self, session_id: str) -> SessionRecord | None:
        record, until = self._records.get(session_id, (None, 0.0))
        return record if until > self._clock() else None

    async def touch(self, session_id: str, ttl_s: float) -> None:
        if record := await self.get(session_id):
            await self.put(record, ttl_s)

    async def delete(self, session_id: str) -> bool:
        there = await self.get(session_id) is not None
        self._records.pop(session_id, None)
        return there

    async def purge(self) -> int:
        now = self._clock()
        expired = [one for one, (_, until) in self._records.items() if until <= now]
        for session_id in expired:
            del self._records[session_id]
        return len(expired)

    async def beat(self, node: str, ttl_s: float) -> None:
        self._nodes[node] = self._clock() + ttl_s

    async def beats(self, node: str) -> bool:
        return self._nodes.get(node, 0.0) > self._clock()

    async def secret(self) -> bytes:
        return self._secret


class MemoryCounter:
    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._uses: dict[tuple[str, int], dict[int, int]] = {}  # by key and length of a slot

    def __len__(self) -> int:
        return len(self._uses)

    async def hit(self, key: str, limit: int, window_s: float) -> Verdict:
        slot, now = slot_us(window_s), self._now_us()
        uses = self._uses[key, slot] = live(self._uses.get((key, slot), {}), now, slot)
        return admit(uses, limit, now, slot)

    async def purge(self) -> None:
        """Forget keys that nobody used within their windows."""
        now = self._now_us()
        idle = [known for known, uses in self._uses.items() if not live(uses, now, known[1])]
        for known in idle:
            del self._uses[known]

    def _now_us(self) -> int:
        return int(self._clock() * MICROS)
