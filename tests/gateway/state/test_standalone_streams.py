"""Subscriptions of a session whose stream is at one node, and whose requests come to another."""

import anyio
import pytest

from gateway.state.change_streams import LIST_NOTIFICATIONS, update_notification
from schemas.errors import RelayedFault
from tests.polling import until

pytestmark = pytest.mark.anyio

URI = "test://x"
NEWS = update_notification(URI)


async def test_the_node_that_has_the_stream_watches(nodes):
    a, b = nodes
    session = await a.open()
    there = await b.load(session)
    with a.sessions.stream(session) as outbox, anyio.fail_after(30):
        await b.hub.subscribe(there, URI)
        await until(lambda: session.watched == {URI} and there.watched == set())
        assert (len(a.hub.watches), len(b.hub.watches)) == (1, 0)
        a.hub.resource_updated("tenant", None, URI)
        assert await outbox.take(5) == [NEWS]
        await b.hub.unsubscribe(there, URI)
        await until(lambda: session.watched == set())
        assert len(a.hub.watches) == 0


async def test_until_there_is_a_stream_the_node_watches_that_was_asked_to(nodes):
    a, b = nodes
    session = await a.open()
    there = await b.load(session)
    await b.hub.subscribe(there, URI)
    assert there.watched == {URI}
    b.hub.resource_updated("tenant", None, URI)
    with b.sessions.stream(there) as outbox:
        assert await outbox.take(0) == [NEWS]


async def test_messages_during_a_takeover_are_not_lost(nodes):
    a, b = nodes
    session = await a.open()
    there = await b.load(session)
    with a.sessions.stream(session) as outbox, anyio.fail_after(30):

        async def connect(_tenant, _uri, _begins):  # b hears of a change while a still begins
            b.hub.resource_updated("tenant", None, URI)

        a.events.watch_changed.subscribe(connect)
        await b.hub.subscribe(there, URI)
        assert await outbox.take(5) == [NEWS]
        await until(lambda: there.watched == set())


async def test_a_stream_that_moves_is_told_once_that_something_may_have_changed(nodes):
    a, b = nodes
    session = await a.open()
    await a.hub.subscribe(session, URI)
    there = await b.load(session)
    with anyio.fail_after(30), a.sessions.stream(session) as before:
        assert await before.take(0) == []  # a watched it all the time
        with b.sessions.stream(there) as outbox:
            assert await outbox.take(5) == [NEWS]
            await until(lambda: session.watched == set() and there.watched == {URI})
            assert before.closed
            b.hub.resource_updated("tenant", None, URI)
            assert await outbox.take(5) == [NEWS]


async def test_unwatchable_resources_do_not_end_the_stream(nodes):
    a, b = nodes
    session = await a.open()
    await a.hub.subscribe(session, URI)
    there = await b.load(session)

    async def refuse(_tenant, _uri, _begins):
        raise RelayedFault(-32000, "no")

    b.events.watch_changed.subscribe(refuse)
    with b.sessions.stream(there) as outbox, anyio.fail_after(30):
        b.version = "XXXXBBBBCCCC"
        b.hub.change("tenant", {"tools"})
        assert await outbox.take(5) == [LIST_NOTIFICATIONS["tools"]]
        assert (there.watched, len(b.hub.watches)) == (set(), 0)
