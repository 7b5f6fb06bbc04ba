"""Streams as the log keeps them."""

import json

import pytest

from gateway.protocol.sse_writer import Position, read_position
from gateway.state.memory import MemoryLog
from gateway.state.session_streams import READ_AT_ONCE, name_of
from schemas.errors import InvalidRequest, Unavailable
from tests.gateway.state.conftest import Node, stores_of

pytestmark = pytest.mark.anyio


async def record_messages(node, session, *messages, ids=1, ended=False):
    """A stream on which this was said, and the ids of its events."""
    recording = node.streams.record(session, ids)
    said = [await recording.add(b"!")]
    said += [await recording.add(b"+", message) for message in messages]
    if ended:
        said.append(await recording.add(b".", b"answer"))
    return [read_position(id_) for id_ in said]


def messages_of(said):
    return [one.message for one in said if one.message]


@pytest.fixture
async def alive(nodes):
    for node in nodes:
        await node.stores.sessions.beat(node.bus.node, 60)
    return nodes


async def test_events_after_a_position_are_read_at_any_node(alive):
    a, b = alive
    session = await a.open()
    begun, one, two, answer = await record_messages(a, session, b"1", b"2", ended=True)
    there = await b.load(session)
    for node, at in ((a, session), (b, there)):
        assert messages_of(await node.streams.replay(at, begun)) == [b"1", b"2", b"answer"]
        assert messages_of(await node.streams.replay(at, one)) == [b"2", b"answer"]
        said = await node.streams.replay(at, two)
        assert [(one.position, one.position.ended) for one in said] == [(answer, True)]


async def test_a_call_that_still_runs_at_another_node_is_waited_for(alive):
    a, b = alive
    session = await a.open()
    begun, *_ = await record_messages(a, session, b"1")
    assert messages_of(await b.streams.replay(await b.load(session), begun)) == [b"1"]


@pytest.mark.parametrize(
    ("ids", "answered"), [(7, [7]), ("x", ["x"]), (["a", 2], ["a", 2]), ("line\nbreak", None)]
)
async def test_a_call_whose_node_is_gone_is_answered_once(nodes, ids, answered):
    a, b = nodes
    session = await a.open()
    begun, one = await record_messages(a, session, b"1", ids=ids)
    there = await b.load(session)
    await b.stores.sessions.beat("bb", 60)
    said = await b.streams.replay(there, begun)
    assert messages_of(said)[0] == b"1"
    answer = json.loads(messages_of(said)[1])
    errors = answer if isinstance(ids, list) else [answer]
    assert [error["id"] for error in errors] == (answered or [ids])
    assert {error["error"]["code"] for error in errors} == {-32603}
    assert await b.streams.replay(there, begun) == said  # not another one
    assert [two.position for two in await b.streams.replay(there, one)] == [said[1].position]
    kept = await b.stores.log.read(name_of(session, begun.stream), "")
    assert len(kept) == 3


async def test_nothing_is_said_of_a_stream_that_nobody_knows(nodes):
    a, b = nodes
    session, other = await a.open(), await a.open()
    begun, *_ = await record_messages(a, session, b"1")
    assert await a.streams.exists(session, begun.stream)
    assert not await a.streams.exists(other, begun.stream)
    with pytest.raises(InvalidRequest, match="not known in this session"):
        await a.streams.replay(other, begun)
    await a.stores.log.drop(name_of(session, begun.stream))
    assert await b.streams.replay(await b.load(session), begun) == []
    assert not await b.streams.exists(session, begun.stream)


async def test_much_is_told_in_parts(alive):
    a, b = alive
    session = await a.open()
    messages = [b"%d" % number for number in range(2 * READ_AT_ONCE)]
    begun, *_ = await record_messages(a, session, *messages, ended=True)
    there, found, at = await b.load(session), [], begun
    while not at.ended:
        said = await b.streams.replay(there, at)
        assert len(said) <= READ_AT_ONCE
        found += messages_of(said)
        at = said[-1].position
    assert found == [*messages, b"answer"]


async def test_a_silent_call_is_not_forgotten(nodes, monkeypatch):
    a, _ = nodes
    session = await a.open()
    recording = a.streams.record(session, 1)
    await recording.add(b"!")
    stream = name_of(session, f"p{a.bus.node}-1")
    await recording.refresh()
    assert len(await a.stores.log.read(stream, "")) == 1
    recording._refreshed_at -= 200  # seconds; the log keeps a stream for 300
    await recording.refresh()
    assert len(await a.stores.log.read(stream, "")) == 2


class Away(MemoryLog):
    """A log that is away for the first event, and may come back."""

    away = True
    asked = 0

    async def append(self, stream, data):
        self.asked += 1
        if self.away:
            raise Unavailable("away")
        return await super().append(stream, data)


async def test_a_log_that_is_away_is_asked_once_by_a_call():
    stores = stores_of()
    log = stores.log = Away(10, 60, 1000)
    node = Node(stores)
    recording = node.streams.record(await node.open(), 1)
    for _ in range(10):
        assert await recording.add(b"+", b"1") == ""  # an event that cannot be come back to
    assert log.asked == 1


async def test_an_answer_is_kept_when_the_log_is_back_and_nobody_waits_for_that():
    stores = stores_of()
    log = stores.log = Away(10, 60, 1000)
    node = Node(stores)
    session = await node.open()
    recording = node.streams.record(session, 1)
    assert await recording.add(b"!") == ""
    log.away = False
    assert await recording.add(b"+", b"1") == ""
    assert await recording.add(b".", b"answer") == ""
    await node.sessions.background.drain()
    begun = Position(f"p{node.bus.node}-1", "")
    said = await node.streams.replay(session, begun)
    assert [(one.message, one.position.ended) for one in said] == [(b"answer", True)]


async def test_streams_of_posts_have_names_of_their_own(nodes):
    a, b = nodes
    session = await a.open()
    there = await b.load(session)
    streams = [
        (await record_messages(node, at))[0].stream
        for node, at in ((a, session), (a, session), (b, there))
    ]
    assert len(set(streams)) == 3
    assert [position.partition("-")[0] for position in streams] == ["paa", "paa", "pbb"]
