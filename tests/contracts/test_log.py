"""What every `Log` does, seen from two nodes."""

import re
from collections.abc import Sequence

import anyio
import pytest
from anyio.lowlevel import checkpoint

from gateway.interfaces import Event, Log
from gateway.state.node_bus import STREAM
from gateway.state.session_streams import StreamPlace, event_id, place_of
from gateway.state.stores import Retention
from schemas.errors import InvalidParams, Unavailable
from tests.contracts.backends import DEADLINE_S, Backend, Pair

pytestmark = pytest.mark.anyio


def data(events: Sequence[Event]) -> list[bytes]:
    return [event.data for event in events]


async def fill(log: Log, stream: str, count: int) -> list[str]:
    return [await log.append(stream, b"%d" % number) for number in range(1, count + 1)]


async def test_events_appended_at_one_node_are_read_at_another(nodes: Pair) -> None:
    first = await nodes.a.log.append("s", b"one")
    second = await nodes.b.log.append("s", b"two")
    expected = [Event(first, b"one"), Event(second, b"two")]
    assert list(await nodes.a.log.read("s", "")) == expected
    assert list(await nodes.b.log.read("s", "")) == expected


async def test_reading_goes_on_after_an_event(nodes: Pair) -> None:
    ids = await fill(nodes.a.log, "s", 5)
    assert data(await nodes.b.log.read("s", ids[1])) == [b"3", b"4", b"5"]
    assert data(await nodes.b.log.read("s", ids[1], limit=2)) == [b"3", b"4"]
    assert data(await nodes.b.log.read("s", "", limit=1)) == [b"1"]
    assert data(await nodes.b.log.read("s", ids[4])) == []


async def test_ids_grow_and_fit_into_composed_ids(nodes: Pair) -> None:
    ids = [await store.log.append("s", b"") for _ in range(20) for store in (nodes.a, nodes.b)]
    assert ids == sorted(set(ids))
    assert all(re.fullmatch(r"[!-~]+", one) and "." not in one for one in ids)


@pytest.mark.parametrize("text", [b"", b"\0\xff", b"x" * 1_000_000], ids=["none", "binary", "long"])
async def test_any_bytes_are_read_as_written(nodes: Pair, text: bytes) -> None:
    await nodes.a.log.append("s", text)
    assert data(await nodes.b.log.read("s", "")) == [text]


async def test_streams_are_apart(nodes: Pair) -> None:
    await nodes.a.log.append("s", b"s")
    await nodes.a.log.append("t", b"t")
    assert data(await nodes.b.log.read("t", "")) == [b"t"]


async def test_concurrent_appends_have_one_order_and_no_reader_skips_an_event(nodes: Pair) -> None:
    total, followed, after = 100, list[Event](), ""

    async def add(log: Log, name: bytes) -> None:
        for number in range(10):
            await log.append("s", name + b"%d" % number)

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(add, nodes.a.log, b"a%d-" % number)
                tasks.start_soon(add, nodes.b.log, b"b%d-" % number)
            while len(followed) < total:
                events = await nodes.b.log.read("s", after)
                followed.extend(events)
                after = followed[-1].id if followed else ""
                await checkpoint()
    assert followed == list(await nodes.a.log.read("s", ""))
    assert len({event.id for event in followed}) == total
    for writer in (b"a0-", b"b4-"):
        own = [event.data for event in followed if event.data.startswith(writer)]
        assert own == sorted(own)


async def test_the_newest_event_is_known(nodes: Pair) -> None:
    assert await nodes.a.log.last("s") == ""
    ids = await fill(nodes.a.log, "s", 2)
    assert await nodes.b.log.last("s") == ids[-1]


async def test_only_so_many_events_are_kept(backend: Backend) -> None:
    async with backend.nodes(Retention(3, 300)) as nodes:
        ids = await fill(nodes.a.log, "s", 5)
        assert data(await nodes.b.log.read("s", "")) == [b"3", b"4", b"5"]
        # the second is forgotten too, but nothing that followed it is
        assert data(await nodes.b.log.read("s", ids[1])) == [b"3", b"4", b"5"]
        assert await nodes.b.log.last("s") == ids[-1]


async def test_messages_between_nodes_are_not_bounded_by_replay_limits(
    backend: Backend,
) -> None:
    async with backend.nodes(Retention(3, 300)) as nodes:
        ids = await fill(nodes.a.log, STREAM, 20)
        assert len(await nodes.b.log.read(STREAM, ids[0])) == 19


async def test_a_gap_is_not_passed_over_in_silence(backend: Backend) -> None:
    async with backend.nodes(Retention(3, 300)) as nodes:
        ids = await fill(nodes.a.log, "s", 5)
        with pytest.raises(InvalidParams, match="no longer kept"):
            await nodes.b.log.read("s", ids[0])


async def test_concurrent_appends_keep_the_bound(backend: Backend) -> None:
    async with backend.nodes(Retention(3, 300)) as nodes:
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(fill, nodes.a.log, "s", 3)
                tasks.start_soon(fill, nodes.b.log, "s", 3)
        assert len(await nodes.a.log.read("s", "")) == 3


@pytest.mark.parametrize("other", ["t", "s/", "S"])
async def test_ids_of_other_streams_are_refused(nodes: Pair, other: str) -> None:
    await nodes.a.log.append("s", b"")
    foreign = await nodes.a.log.append(other, b"")
    with pytest.raises(InvalidParams, match="No such event in this stream"):
        await nodes.b.log.read("s", foreign)
    with pytest.raises(InvalidParams):  # whether the stream is there or not
        await nodes.b.log.read("never", foreign)


@pytest.mark.parametrize("after", ["1", "x" * 30, "0-0", "\0", " ", "ff" * 1000, "é"])
async def test_invalid_ids_are_refused(nodes: Pair, after: str) -> None:
    await nodes.a.log.append("s", b"")
    with pytest.raises(InvalidParams):
        await nodes.b.log.read("s", after)


async def test_an_id_from_the_future_is_refused(nodes: Pair) -> None:
    place = place_of("s", await nodes.a.log.append("s", b""))
    for later in (StreamPlace(place.born, place.n + 1), StreamPlace(place.born + 1, 1)):
        with pytest.raises(InvalidParams):
            await nodes.b.log.read("s", event_id("s", later))


async def test_a_dropped_stream_is_forgotten(nodes: Pair) -> None:
    await fill(nodes.a.log, "s", 2)
    await nodes.a.log.append("t", b"kept")
    await nodes.b.log.drop("s")
    assert (await nodes.a.log.last("s"), list(await nodes.a.log.read("s", ""))) == ("", [])
    assert data(await nodes.a.log.read("t", "")) == [b"kept"]
    await nodes.a.log.drop("never")


async def test_a_follower_of_a_forgotten_stream_sees_the_stream_begin_again(nodes: Pair) -> None:
    before = (await fill(nodes.a.log, "s", 3))[-1]
    await nodes.a.log.drop("s")
    assert list(await nodes.b.log.read("s", before)) == []
    after = await fill(nodes.a.log, "s", 2)
    assert [event.id for event in await nodes.b.log.read("s", before)] == after
    assert before < after[0]


async def test_a_stream_that_is_silent_for_long_is_forgotten(backend: Backend) -> None:
    async with backend.nodes(Retention(1000, 0.001)) as nodes:
        await nodes.a.log.append("s", b"1")
        with anyio.fail_after(DEADLINE_S):
            while await nodes.b.log.last("s"):
                await nodes.b.purge()
        assert list(await nodes.a.log.read("s", "")) == []


async def test_a_stream_in_use_is_kept(nodes: Pair) -> None:
    await nodes.a.log.append("s", b"1")
    await nodes.b.purge()
    assert data(await nodes.b.log.read("s", "")) == [b"1"]


async def test_dropping_and_appending_at_a_time_leaves_a_whole_stream(nodes: Pair) -> None:
    async def drop() -> None:
        for _ in range(20):
            await nodes.b.log.drop("s")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drop)
        for _ in range(4):
            tasks.start_soon(fill, nodes.a.log, "s", 20)
    await nodes.a.log.append("s", b"last")
    places = [place_of("s", event.id) for event in await nodes.b.log.read("s", "")]
    assert [place.n for place in places] == list(range(1, len(places) + 1))
    assert len({place.born for place in places}) == 1


async def test_an_append_wakes_watchers_of_the_stream_at_any_node(nodes: Pair) -> None:
    woken, other = anyio.Event(), anyio.Event()
    with nodes.b.log.watch("s", woken.set), nodes.b.log.watch("t", other.set):
        await nodes.a.log.append("s", b"")
        with anyio.fail_after(DEADLINE_S):
            await woken.wait()
        assert not other.is_set()


async def test_all_watchers_of_a_stream_are_woken_until_leaving(nodes: Pair) -> None:
    calls: list[str] = []
    woken = anyio.Event()
    with nodes.a.log.watch("s", woken.set):
        with nodes.a.log.watch("s", lambda: calls.append("left")):
            pass
        with nodes.a.log.watch("s", lambda: calls.append("stayed")):
            await nodes.b.log.append("s", b"")
            with anyio.fail_after(DEADLINE_S):
                await woken.wait()
                while "stayed" not in calls:
                    await checkpoint()
    assert "left" not in calls


async def test_a_watcher_leaving_while_woken_disturbs_no_watcher(nodes: Pair) -> None:
    woken, first = anyio.Event(), nodes.a.log.watch("s", lambda: first.__exit__(None, None, None))
    first.__enter__()
    with nodes.a.log.watch("s", woken.set):
        await nodes.b.log.append("s", b"")
        with anyio.fail_after(DEADLINE_S):
            await woken.wait()


async def test_an_unreachable_backend_is_unavailable_until_back(shared_backend: Backend) -> None:
    async with shared_backend.nodes() as nodes:
        log = nodes.a.log
        await log.append("s", b"before")
        await shared_backend.refuses(
            log.append("s", b""), log.read("s", ""), log.last("s"), log.drop("s")
        )
        with anyio.fail_after(DEADLINE_S):
            await append_when_back(nodes.a.log)
        assert (await nodes.b.log.read("s", ""))[-1].data == b"back"


async def test_failed_purges_are_left_for_the_next_time(shared_backend: Backend) -> None:
    assert shared_backend.away is not None
    async with shared_backend.nodes() as nodes:
        with shared_backend.away():
            await nodes.a.purge()


async def test_watchers_are_woken_when_the_backend_is_back(shared_backend: Backend) -> None:
    assert shared_backend.away is not None
    async with shared_backend.nodes() as nodes:
        woken = anyio.Event()
        with nodes.b.log.watch("s", woken.set), anyio.fail_after(DEADLINE_S):
            with shared_backend.away(), pytest.raises(Unavailable):
                await nodes.a.log.last("s")
            await woken.wait()  # something may have been missed
            woken = anyio.Event()
            with nodes.b.log.watch("s", lambda: woken.set()):
                await append_when_back(nodes.a.log)
                await woken.wait()


async def append_when_back(log: Log) -> None:
    """Append "back" as soon as that is possible."""
    while True:
        try:
            await log.append("s", b"back")
            return
        except Unavailable:
            await checkpoint()


async def test_calls_that_are_cancelled_cost_no_connection(shared_backend: Backend) -> None:
    async with shared_backend.nodes() as nodes:
        for turns in range(40):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(nodes.a.log.append, "s", b"x")
                    tasks.start_soon(nodes.a.log.read, "s", "")
                for _ in range(turns):
                    await checkpoint()
                tasks.cancel_scope.cancel()
        with anyio.fail_after(DEADLINE_S):
            added = await nodes.a.log.append("s", b"last")
            assert (await nodes.a.log.read("s", ""))[-1] == Event(added, b"last")
