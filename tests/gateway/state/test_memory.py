"""Stores in memory: that they stay small."""

import tracemalloc
from dataclasses import dataclass

import pytest

from gateway.interfaces import SessionRecord
from gateway.state.memory import EVENT_BYTES, MemoryCounter, MemoryLog, MemorySessions
from gateway.state.session_streams import place_of

pytestmark = pytest.mark.anyio

MEGABYTE = 1 << 20


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def log(clock: Clock, limit_bytes: int = MEGABYTE) -> MemoryLog:
    return MemoryLog(max_events=10, retention_s=60, limit_bytes=limit_bytes, clock=clock)


async def test_a_stream_without_events_costs_nothing(clock: Clock) -> None:
    kept = log(clock)
    for number in range(1000):
        stream = str(number)
        with kept.watch(stream, lambda: None):
            assert await kept.read(stream, "") == []
            assert await kept.last(stream) == ""
            await kept.drop(stream)
    assert len(kept) == 0


async def test_ten_thousand_watches_leave_no_memory_in_use(clock: Clock) -> None:
    kept = log(clock)
    tracemalloc.start()
    try:
        watches = [kept.watch(f"s/{number}", lambda: None) for number in range(10_000)]
        for watch in watches:
            watch.__enter__()
        held, _ = tracemalloc.get_traced_memory()
        for watch in watches:
            watch.__exit__(None, None, None)
        del watch, watches
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 10_000 * 500
    assert left < MEGABYTE


async def test_a_silent_stream_is_forgotten_after_its_retention(clock: Clock) -> None:
    kept = log(clock)
    await kept.append("old", b"")
    clock.now += 30
    await kept.append("young", b"")
    clock.now += 30
    await kept.purge()
    assert (await kept.last("old"), len(kept)) == ("", 1)


async def test_appending_forgets_too(clock: Clock) -> None:
    kept = log(clock)
    await kept.append("old", b"")
    clock.now += 60
    await kept.append("young", b"")
    assert len(kept) == 1


async def test_an_event_keeps_its_stream(clock: Clock) -> None:
    kept = log(clock)
    await kept.append("s", b"1")
    clock.now += 59
    await kept.append("s", b"2")
    clock.now += 59
    await kept.purge()
    assert [event.data for event in await kept.read("s", "")] == [b"1", b"2"]


async def lengths(kept: MemoryLog, *streams: str) -> list[int]:
    return [len(await kept.read(stream, "")) for stream in streams]


async def test_the_longest_silent_streams_go_first_when_memory_is_full(clock: Clock) -> None:
    kept = log(clock, limit_bytes=4 * (1000 + EVENT_BYTES))
    for stream in ("a", "b", "c", "b", "d"):
        await kept.append(stream, b"x" * 1000)
        if stream == "c":
            await kept.drop("b")
    assert await lengths(kept, *"abcd") == [1, 1, 1, 1]
    await kept.append("e", b"x" * 1000)
    assert await lengths(kept, *"abcde") == [0, 1, 0, 1, 1]


async def test_a_session_filling_the_memory_loses_only_its_own_streams(
    clock: Clock,
) -> None:
    kept = log(clock, limit_bytes=50 * (1000 + EVENT_BYTES))
    await kept.append("s/quiet/g", b"x" * 1000)
    for number in range(200):
        await kept.append(f"s/greedy/p{number}", b"x" * 1000)
    assert await lengths(kept, "s/quiet/g", "s/greedy/p0", "s/greedy/p199") == [1, 0, 1]


async def test_a_stream_that_fills_the_memory_loses_its_oldest_events(clock: Clock) -> None:
    kept = log(clock, limit_bytes=8 * (1000 + EVENT_BYTES))
    await kept.append("s/quiet/g", b"x" * 1000)
    for number in range(10):
        await kept.append("s/greedy/g", b"%d" % number * 1000)
    assert await lengths(kept, "s/quiet/g") == [1]
    greedy = await kept.read("s/greedy/g", "")
    assert 0 < len(greedy) <= 7
    assert greedy[-1].data == b"9" * 1000


async def test_a_full_memory_is_not_searched_with_every_event(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = log(clock, limit_bytes=1000 * EVENT_BYTES)
    searched = []
    make_room = kept._make_room

    def count(newest: str) -> None:
        searched.append(newest)
        make_room(newest)

    monkeypatch.setattr(kept, "_make_room", count)
    for number in range(2000):
        await kept.append(f"s/{number}/g", b"")
    assert 0 < len(searched) < 20


async def test_a_stream_may_have_a_number_of_events_of_its_own(clock: Clock) -> None:
    kept = MemoryLog(2, 60, MEGABYTE, clock=clock, limits_by_stream={"bus": 5})
    for _ in range(6):
        await kept.append("bus", b"")
        await kept.append("s", b"")
    assert await lengths(kept, "bus", "s") == [5, 2]


async def test_the_newest_event_is_kept_at_any_length(clock: Clock) -> None:
    kept = log(clock, limit_bytes=10)
    await kept.append("a", b"x" * 1000)
    await kept.append("b", b"y" * 1000)
    assert [len(await kept.read(stream, "")) for stream in "ab"] == [0, 1]


async def test_forgotten_events_make_room(clock: Clock) -> None:
    kept = log(clock, limit_bytes=12 * (100 + EVENT_BYTES))
    for number in range(100):
        await kept.append("s", b"x" * 100)  # of which ten are kept, and one more for a moment
        await kept.append(f"dropped {number}", b"x" * 100)
        await kept.drop(f"dropped {number}")
    assert len(await kept.read("s", "")) == 10


async def test_a_stream_recreated_at_once_has_a_new_identity(clock: Clock) -> None:
    kept = log(clock)
    born = set()
    for _ in range(1000):
        born.add(place_of("s", await kept.append("s", b"")).born)
        await kept.drop("s")
    assert len(born) == 1000


async def test_expired_sessions_take_no_room(clock: Clock) -> None:
    sessions = MemorySessions(clock)
    for number in range(100):
        record = SessionRecord(f"{number}", "2025-11-25", "t", "p", None, {}, {})
        await sessions.put(record, ttl_s=number + 1)
    clock.now += 50
    assert await sessions.purge() == 50
    assert await sessions.get("49") is None
    assert await sessions.get("50") is not None


async def test_idle_keys_of_a_counter_take_no_room(clock: Clock) -> None:
    counter = MemoryCounter(clock)
    for number in range(100):
        await counter.hit(f"{number}", 5, 60)
    clock.now += 30
    await counter.hit("late", 5, 60)
    clock.now += 32
    await counter.purge()
    assert len(counter) == 1
