import asyncio
import gc
import tracemalloc
from contextlib import ExitStack

import anyio
import pytest

from gateway.context import Outbox, Principal, reason_of
from gateway.interfaces import SessionChange, SessionRecord
from gateway.state.change_streams import LIST_NOTIFICATIONS
from gateway.state.memory import MemorySessions
from gateway.state.node_bus import STREAM
from gateway.state.peer_nodes import CANCELS
from gateway.state.sessions import STREAM_LIMIT
from schemas.errors import InvalidParams, SessionNotFound, TooManyRequests, Unavailable
from tests.gateway.state.conftest import ANN, IDLE_S, Node, stores_of
from tests.polling import until

pytestmark = pytest.mark.anyio


def alone(**limits):
    return Node(stores_of(MemorySessions()), **limits)


@pytest.fixture
async def node(anyio_backend):
    return alone()


async def test_a_session_is_found_by_its_id(node):
    session = await node.open()
    assert node.sessions.find(session.id, ANN) is session
    assert (session.client, session.capabilities) == ({"name": "client"}, {"sampling": {}})
    assert len(node.sessions) == 1


async def test_ids_cannot_be_guessed_and_fit_a_header(node):
    ids = {(await node.open()).id for _ in range(50)}
    assert len(ids) == 50
    for id_ in ids:
        assert len(id_) >= 32
        assert all("!" <= char <= "~" for char in id_)  # visible ASCII, as the transport demands


@pytest.mark.parametrize(
    "somebody_else", [Principal("bob", "tenant"), Principal("ann", "another tenant")]
)
async def test_a_session_is_that_of_its_principal(node, somebody_else):
    session = await node.open()
    assert node.sessions.find(session.id, somebody_else) is None
    assert node.sessions.find(session.id, ANN) is session  # and not harmed by the attempt


async def test_a_session_belongs_to_its_endpoint(node):
    session, other = await node.open(toolset="reading"), await node.open()
    assert node.sessions.find(session.id, ANN) is None
    assert node.sessions.find(other.id, ANN, "reading") is None
    assert node.sessions.find(session.id, ANN, "reading") is session


async def test_a_principal_is_the_same_whatever_its_token_says_today(node):
    session = await node.open()
    renewed = Principal("ann", "tenant", frozenset({"read"}), {"exp": 2})
    assert node.sessions.find(session.id, renewed) is session


@pytest.mark.parametrize("id_", ["", "nobody", "\u00e9"])
async def test_an_unknown_id_finds_nothing(node, id_):
    await node.open()
    assert node.sessions.find(id_, ANN) is None
    assert not node.sessions.needs_load(id_)  # nobody else could know it


async def test_a_closed_session_is_gone(node):
    session = await node.open()
    node.sessions.close(session)
    node.sessions.close(session)  # twice does no harm
    assert node.sessions.find(session.id, ANN) is None
    assert session.outbox.closed
    assert len(node.sessions) == 0


async def test_a_session_that_nobody_uses_ends(node, clock):
    session = await node.open()
    clock.now += IDLE_S - 1
    assert node.sessions.find(session.id, ANN) is session  # and this use counts
    clock.now += IDLE_S - 1
    assert node.sessions.reap() == 0
    clock.now += 1
    assert node.sessions.find(session.id, ANN) is None
    assert len(node.sessions) == 0
    assert session.outbox.closed


async def test_reaping_takes_only_idle_sessions(node, clock):
    idle = [await node.open() for _ in range(3)]
    clock.now += IDLE_S / 2
    used = await node.open()
    node.sessions.find(idle[1].id, ANN)
    clock.now += IDLE_S / 2
    assert node.sessions.reap() == 2
    assert node.sessions.find(used.id, ANN) is used
    assert node.sessions.find(idle[1].id, ANN) is idle[1]


async def test_a_session_with_a_stream_or_a_request_is_not_idle(node, clock):
    streaming, busy = await node.open(), await node.open()
    streaming.streams += 1
    busy.running[1] = None
    clock.now += 10 * IDLE_S
    assert node.sessions.reap() == 0
    assert node.sessions.find(streaming.id, ANN) is streaming
    assert node.sessions.find(busy.id, ANN) is busy


async def test_one_more_than_the_limit_ends_the_session_unused_for_longest(clock):
    node = alone(sessions=2)
    first = await node.open()
    clock.now += 1
    second = await node.open()
    clock.now += 1
    third = await node.open()
    assert node.sessions.find(first.id, ANN) is None
    assert node.sessions.find(second.id, ANN) is second
    assert node.sessions.find(third.id, ANN) is third


async def test_at_the_limit_sessions_in_use_are_kept_and_one_more_is_refused(clock):
    node = alone(sessions=2)
    listening, calling = await node.open(), await node.open()
    listening.streams = 1
    calling.running["x"] = None
    with pytest.raises(Unavailable, match=r"Too many sessions in use \(limit 2\)"):
        await node.open()
    node.sessions.close(listening)
    await node.open()
    assert len(node.sessions) == 2


async def test_at_the_limit_idle_sessions_make_room_whoever_was_used_without_being_found(clock):
    node = alone(sessions=2)
    long_call, idle = await node.open(), await node.open()
    clock.now += IDLE_S
    long_call.touch()  # as at the end of its call
    await node.open()
    assert node.sessions.find(idle.id, ANN) is None
    assert node.sessions.find(long_call.id, ANN) is long_call


async def test_a_caller_opens_a_limited_number_of_sessions_in_a_minute(anyio_backend):
    node = alone(rate=2)
    await node.open()
    await node.open()
    with pytest.raises(TooManyRequests, match="limit 2 in a minute") as caught:
        await node.open()
    assert caught.value.retry_after > 0
    await node.open(Principal("bob", "tenant"))


async def test_a_session_beyond_the_limit_ends_the_least_used_session(clock):
    node = alone(per_principal=2)
    bob = Principal("bob", "tenant")
    others = await node.open(bob)
    first = await node.open()
    clock.now += 1
    second = await node.open()
    third = await node.open()
    found = [node.sessions.find(one.id, ANN) for one in (first, second, third)]
    assert found == [None, second, third]
    assert node.sessions.find(others.id, bob) is others
    second.streams = third.streams = 1
    with pytest.raises(TooManyRequests, match="You have 2 sessions in use") as caught:
        await node.open()
    assert caught.value.data == {"retryAfter": 1, "limit": "limits.principal_sessions"}
    node.sessions.close(third)
    await node.open()
    await node.sessions.close_all()
    assert node.sessions._open._owned == {}


async def test_sessions_that_come_from_other_nodes_count_too(clock):
    stores = stores_of()
    one, other = Node(stores, "a"), Node(stores, "b", per_principal=1)
    session = await one.open()
    there = await other.load(session)
    session.streams = there.streams = 1
    with pytest.raises(TooManyRequests, match="1 sessions in use"):
        await other.open()


async def test_a_principal_has_so_many_streams_in_all_of_its_sessions(node):
    node.hub._owner_limit = 2
    with ExitStack() as streams:
        for session in [await node.open(), await node.open()]:
            streams.enter_context(node.sessions.stream(session))
        with pytest.raises(TooManyRequests), node.sessions.stream(await node.open()):
            pass
        with node.sessions.stream(await node.open(Principal("bob", "tenant"))):
            pass


async def test_ending_a_session_stops_its_running_requests(node):
    session = await node.open()
    running = asyncio.create_task(asyncio.Event().wait())
    session.running["x"] = running
    await node.sessions.close_all()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(node.sessions) == 0


async def test_ten_thousand_abandoned_sessions_leave_no_memory_in_use(clock):
    node = alone(sessions=10_000)

    async def come_and_go():
        for _ in range(10_000):
            await node.open()
        clock.now += IDLE_S
        assert node.sessions.reap() == 10_000
        assert len(node.sessions) == 0

    await come_and_go()  # what is kept for ever is made now
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    await come_and_go()
    gc.collect()
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak - before > 5_000_000  # they were there
    assert after - before < 500_000  # dictionaries do not shrink


async def test_a_client_that_opens_its_stream_is_told_of_the_lists_that_changed(node):
    session = await node.open()
    with node.sessions.stream(session) as outbox:
        assert await outbox.take(0) == []
    node.version = "XXXXBBBBYYYY"
    with node.sessions.stream(session) as outbox:
        assert await outbox.take(0) == [
            LIST_NOTIFICATIONS["tools"],
            LIST_NOTIFICATIONS["resources"],
        ]
    with node.sessions.stream(session) as outbox:
        assert await outbox.take(0) == []


async def test_a_returning_client_is_notified_of_lists_changed_since(node):
    session = await node.open()
    with node.sessions.stream(session, "AAAABBBBCCCC") as outbox:
        assert await outbox.take(0) == []
    with node.sessions.stream(session, "AAAAOLD_CCCC") as outbox:
        assert await outbox.take(0) == [LIST_NOTIFICATIONS["prompts"]]


async def test_a_client_hears_of_changes_while_its_stream_is_open(node):
    session = await node.open()
    with node.sessions.stream(session) as outbox:
        node.version = "XXXXBBBBCCCC"
        node.hub.change("tenant", {"tools"})
        node.hub.change("tenant", {"tools"})
        node.hub.change("another tenant", {"prompts"})
        assert await outbox.take(0) == [LIST_NOTIFICATIONS["tools"]]
        assert outbox.lists_version == "XXXXBBBBCCCC"
    node.hub.change("tenant", {"tools"})
    assert node.hub._followers == {}


async def test_a_new_stream_takes_over_pending_messages_and_ends_its_predecessor(node):
    session = await node.open()
    with node.sessions.stream(session) as before:
        node.hub.change("tenant", {"tools"})
        with node.sessions.stream(session) as after:
            assert before.closed
            assert await before.take(0) == []
            assert await after.take(0) == [LIST_NOTIFICATIONS["tools"]]
            assert session.outbox is after


async def test_another_node_serves_a_session_with_its_agreed_state(nodes):
    a, b = nodes
    session = await a.open(toolset="reading")
    change = SessionChange(log_level="error", subscribe=("test://x",))
    await a.sessions.change(session, change)
    assert b.sessions.find(session.id, ANN, "reading") is None
    assert b.sessions.needs_load(session.id)
    there = await b.load(session)
    assert there is not session
    assert (there.revision, there.capabilities) == (session.revision, {"sampling": {}})
    assert (there.log_level, there.subscriptions) == ("error", {"test://x"})
    assert b.sessions.find(session.id, Principal("bob", "tenant"), "reading") is None
    assert not b.sessions.needs_load(session.id)


async def test_a_session_that_ends_at_one_node_ends_at_all(nodes):
    a, b = nodes
    session = await a.open()
    there = await b.load(session)
    running = asyncio.create_task(asyncio.Event().wait())
    there.running["x"] = running
    await a.sessions.delete(session)
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: len(b.sessions) == 0)
    await b.sessions.load(session.id)
    assert b.sessions.find(session.id, ANN) is None


async def test_any_node_can_end_a_session(nodes):
    a, b = nodes
    session = await a.open()
    (record,) = await b.sessions.all(ANN.tenant)
    assert await b.sessions.all("another") == []
    await b.sessions.end(record)
    await until(lambda: len(a.sessions) == 0)
    await a.sessions.load(session.id)
    assert a.sessions.find(session.id, ANN) is None
    assert await b.sessions.all(ANN.tenant) == []


async def test_a_session_that_ended_unheard_is_not_served_for_long(nodes, clock):
    a, b = nodes
    session = await a.open()
    await b.load(session)
    await a.stores.sessions.delete(session.id)
    clock.now += IDLE_S / 10 + 1
    assert b.sessions.needs_load(session.id)
    await b.sessions.load(session.id)
    assert b.sessions.find(session.id, ANN) is None


async def test_the_end_of_a_session_is_published_with_its_owner_at_each_node(nodes, clock):
    ended = []
    for node in nodes:
        node.events.session_ended.subscribe(
            lambda one, name=node.bus.node: ended.append(
                (name, one.id, one.principal.key, one.toolset)
            )
        )
    a, b = nodes
    session = await a.open(toolset="reading")
    await b.load(session)
    clock.now += IDLE_S
    for node in nodes:
        node.sessions.reap()
    assert ended == [(name, session.id, ANN.key, "reading") for name in ("aa", "bb")]


async def test_releasing_a_session_at_one_node_keeps_the_session(nodes, clock):
    a, b = nodes
    session = await a.open()
    clock.now += IDLE_S
    assert a.sessions.reap() == 1
    await a.sessions.close_all()
    assert (await b.load(session)).id == session.id


async def test_a_session_in_use_is_kept_in_the_store(nodes, clock):
    a, _ = nodes
    session = await a.open()
    touched, hold = [], a.stores.sessions.hold

    async def record_hold(session_id, node, ttl_s):
        touched.append((session_id, ttl_s))
        return await hold(session_id, node, ttl_s)

    a.stores.sessions.hold = record_hold
    await a.sessions.renew()
    clock.now += IDLE_S / 2
    await a.sessions.renew()
    assert touched == []  # nobody uses it
    session.streams = 1
    await a.sessions.renew()
    await a.sessions.renew()
    assert touched == [(session.id, IDLE_S)]


async def test_a_session_of_a_newer_gateway_is_not_served(nodes):
    a, _ = nodes
    record = SessionRecord("new", "2099-01-01", "tenant", "ann", None, {}, {})
    await a.stores.sessions.put(record, IDLE_S)
    await a.sessions.load("new")
    assert a.sessions.find("new", ANN) is None


async def test_session_changes_reach_all_nodes(nodes):
    a, b = nodes
    session = await a.open()
    there = await b.load(session)
    await b.sessions.change(there, SessionChange(log_level="debug"))
    assert session.log_level == "debug"


async def test_a_change_that_is_made_while_another_node_loads_the_session_is_not_missed(nodes):
    a, b = nodes
    session = await a.open()
    read, may, hold = anyio.Event(), anyio.Event(), b.stores.sessions.hold

    async def slowly(*what):
        record = await hold(*what)
        read.set()
        await may.wait()
        return record

    b.stores.sessions.hold = slowly
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(b.sessions.load, session.id)
            await read.wait()
            await a.sessions.change(session, SessionChange(log_level="error", use=("mail",)))
            may.set()
    there = b.sessions.find(session.id, ANN)
    assert there is not None
    assert (there.log_level, there.skills) == ("error", {"mail"})


async def test_a_session_ended_while_loading_at_another_node_is_not_served(nodes):
    a, b = nodes
    session = await a.open()
    heard, hold = [], b.stores.sessions.hold

    async def hear(said):
        heard.append(said)

    b.bus.on("heard", hear)

    async def slowly(*what):
        record = await hold(*what)
        await a.sessions.delete(session)
        await a.bus.broadcast("heard")
        await until(lambda: heard)
        return record

    b.stores.sessions.hold = slowly
    with anyio.fail_after(30):
        await b.sessions.load(session.id)
    assert b.sessions.find(session.id, ANN) is None
    assert len(b.sessions) == 0


async def test_a_session_loaded_while_ending_is_not_served(nodes):
    a, _ = nodes
    session, hold = await a.open(), a.stores.sessions.hold

    async def slowly(*what):
        record = await hold(*what)
        await a.sessions.delete(session)
        return record

    a.stores.sessions.hold = slowly
    with anyio.fail_after(30):
        await a.sessions.load(session.id)
    assert len(a.sessions) == 0


async def test_a_session_loaded_before_its_stored_end_is_not_served(nodes):
    a, _ = nodes
    session, delete = await a.open(), a.stores.sessions.delete

    async def slowly(session_id):
        await a.sessions.load(session_id)
        return await delete(session_id)

    a.stores.sessions.delete = slowly
    with anyio.fail_after(30):
        await a.sessions.delete(session)
    assert len(a.sessions) == 0


async def test_a_store_that_went_back_is_not_asked_without_end(nodes):
    a, b = nodes
    session = await a.open()
    hold, get, asked = b.stores.sessions.hold, b.stores.sessions.get, []

    async def slowly(*what):
        record = await hold(*what)
        await a.bus.broadcast("changed", session=session.id, version=1_000_000)
        await until(lambda: any(one.version for one in b.sessions._peers._loads[session.id]))
        asked.clear()  # this store holds what it gets
        return record

    async def count_get(session_id):
        await anyio.lowlevel.checkpoint()
        asked.append(session_id)
        return await get(session_id)

    b.stores.sessions.hold, b.stores.sessions.get = slowly, count_get
    with anyio.fail_after(30):
        await b.sessions.load(session.id)
    assert b.sessions.find(session.id, ANN) is not None
    assert asked == [session.id]


async def test_missed_changes_are_read_from_the_store(nodes, clock):
    a, b = nodes
    session = await a.open()
    there = await b.load(session)
    await b.hub.subscribe(there, "test://gone")
    change = SessionChange(subscribe=("test://x",), unsubscribe=("test://gone",))
    await a.stores.sessions.change(session.id, change, IDLE_S)  # and nobody says so
    clock.now += IDLE_S / 10 + 1
    assert b.sessions.needs_load(session.id)
    assert await b.load(session) is there
    assert (there.subscriptions, there.watched) == ({"test://x"}, set())


async def test_a_change_of_a_session_that_has_ended_is_refused(nodes):
    a, _ = nodes
    session = await a.open()
    await a.stores.sessions.delete(session.id)
    with pytest.raises(SessionNotFound, match="it ended"):
        await a.hub.subscribe(session, "test://x")
    assert (session.subscriptions, session.watched) == (set(), set())
    assert a.sessions.needs_load(session.id)


async def test_cancelling_a_request_does_not_leave_its_change_half_made(nodes):
    a, b = nodes
    session = await a.open()
    there = await b.load(session)
    changing = asyncio.create_task(a.sessions.change(session, SessionChange(log_level="info")))
    await anyio.lowlevel.checkpoint()
    changing.cancel()
    await until(lambda: session.log_level == there.log_level == "info")


async def test_a_request_is_cancelled_at_its_running_node(nodes):
    """The reason of a cancellation goes with it from node to node (mending 22)."""
    a, b = nodes
    session = await a.open()
    there = await b.load(session)
    running = asyncio.create_task(asyncio.Event().wait())
    session.running["1"] = asyncio.create_task(asyncio.Event().wait())
    session.running[1] = running
    await b.sessions.cancel(there, 1, "Enough")
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await running
    assert reason_of(cancelled.value) == "Enough"
    assert not session.running["1"].done()
    session.running["1"].cancel()


async def test_one_client_cannot_fill_the_ears_of_the_other_nodes(nodes):
    a, b = nodes
    heard = []

    async def hear(said):
        heard.append(said)

    b.bus.on("cancel", hear)
    noisy, quiet = await a.open(), await a.open()
    for number in range(5 * CANCELS):
        await a.sessions.cancel(noisy, number)
    await a.sessions.cancel(quiet, "mine")
    await until(lambda: heard and heard[-1]["id"] == "mine")
    assert len(heard) == CANCELS + 1


async def test_a_request_that_is_cancelled_here_is_not_told_of(nodes):
    a, _ = nodes
    session = await a.open()
    for number in range(5 * CANCELS):
        session.running[number] = asyncio.create_task(asyncio.Event().wait())
        await a.sessions.cancel(session, number)
    assert await a.stores.log.last(STREAM) == ""


@pytest.mark.parametrize("id_", ["x" * 1025, "\u00e9" * 513])
async def test_no_request_has_an_id_as_long_as_that(node, id_):
    with pytest.raises(InvalidParams, match="requestId must have at most 1024 bytes"):
        await node.sessions.cancel(await node.open(), id_)


async def test_a_session_has_a_limited_number_of_streams(node):
    session, other = await node.open(), await node.open()
    with ExitStack() as streams:
        streams.enter_context(node.sessions.stream(session))
        for _ in range(STREAM_LIMIT - 1):
            streams.enter_context(node.sessions.replaying(session, Outbox()))
        with (
            pytest.raises(TooManyRequests, match="20 open streams"),
            node.sessions.replaying(session, Outbox()),
        ):
            pass
        with pytest.raises(TooManyRequests), node.sessions.stream(session):
            pass
        with node.sessions.stream(other):
            assert node.hub.streams == STREAM_LIMIT + 1
    with node.sessions.stream(session):
        assert session.streams == 1


async def test_a_stream_at_another_node_ends_the_one_here(nodes):
    a, b = nodes
    session = await a.open()
    there = await b.load(session)
    with a.sessions.stream(session) as before, anyio.fail_after(30), b.sessions.stream(there):
        assert await before.take(5) == []
        assert before.closed
        await until(lambda: session.outbox is not before)
