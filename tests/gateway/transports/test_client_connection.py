"""The client of one POST, as what serves it sees it."""

import asyncio

import anyio
import pytest

from gateway.context import Principal, Session
from gateway.transports.client_connection import KeepAliveTimer, PostPeer, StreamPeer
from gateway.transports.http_messages import Responder
from schemas.errors import ClientRequestFailed, Unavailable
from schemas.jsonrpc import Notification, encode
from schemas.mcp.revisions import V2024_11_05
from tests.gateway.asgi import Wire

pytestmark = pytest.mark.anyio

NOTE = encode(Notification("notifications/note"))
EVENT = b"event: message\ndata: " + NOTE + b"\n\n"


class Slow(Wire):
    """A client whose connection is full until `room` is set."""

    def __init__(self):
        super().__init__()
        self.room = asyncio.Event()

    async def send(self, message):
        await self.room.wait()
        await super().send(message)


@pytest.fixture
async def wire(anyio_backend):
    return Wire()


def peer_of(wire):
    responder = Responder(wire.send)
    return PostPeer(responder, KeepAliveTimer(60)), responder


async def test_an_answer_that_nothing_went_before_is_no_stream(wire):
    peer, responder = peer_of(wire)
    assert peer.is_silent()
    assert not responder.started
    await peer.notify(NOTE)  # too late
    await peer.keep_alive()
    assert wire.sent == []


async def test_the_first_message_begins_a_stream_and_the_answer_ends_the_stream(wire):
    peer, _ = peer_of(wire)
    await peer.notify(NOTE)
    assert not peer.is_silent()
    assert await peer.finish(b"{}")
    await peer.notify(NOTE)
    assert wire.headers["content-type"] == "text/event-stream"
    assert wire.body == EVENT + b"event: message\ndata: {}\n\n"
    assert wire.sent[-1]["more_body"] is False


async def test_a_stream_may_end_without_an_answer(wire):
    peer, _ = peer_of(wire)
    await peer.notify(NOTE)
    assert await peer.finish(None)
    assert wire.body == EVENT
    assert wire.sent[-1]["more_body"] is False


async def test_silence_begins_a_stream(wire):
    peer, _ = peer_of(wire)
    peer.beat()
    await anyio.wait_all_tasks_blocked()
    assert wire.body == b": keep-alive\n\n"
    assert await peer.finish(b"{}")


async def test_concurrent_messages_are_sent_whole_and_in_order(anyio_backend):
    wire = Slow()
    peer, _ = peer_of(wire)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(peer.notify, NOTE)
        await anyio.wait_all_tasks_blocked()
        peer.beat()
        peer.beat()  # nobody reads: no use in saying it twice
        await anyio.wait_all_tasks_blocked()
        assert not peer.is_silent()
        tasks.start_soon(peer.finish, b"{}")
        await anyio.wait_all_tasks_blocked()
        wire.room.set()
    assert [message["type"] for message in wire.sent[:2]] == [
        "http.response.start",
        "http.response.body",
    ]
    assert wire.body == EVENT + b": keep-alive\n\nevent: message\ndata: {}\n\n"


class Far:
    """The streams of sessions, while the log is away."""

    def __init__(self):
        self.said = []
        self.away = True

    async def send(self, _session, message):
        self.said.append(message)
        if self.away:
            raise Unavailable("away")


async def test_a_call_waits_once_for_a_log_that_is_away_and_its_answer_is_tried_again():
    far, session = Far(), Session("s", V2024_11_05, Principal("p", "t"), {}, {})
    peer = StreamPeer(session, far, asks=None)
    for _ in range(10):
        with pytest.raises(Unavailable):
            await peer.notify(NOTE)
    assert far.said == [NOTE]
    far.away = False
    await peer.answer(b"{}")
    assert far.said == [NOTE, b"{}"]
    session.has_stream = True  # the client has opened its stream here
    await peer.notify(NOTE)
    assert await session.outbox.take(0) == [NOTE]


async def test_a_client_without_a_session_cannot_be_asked(wire):
    peer, _ = peer_of(wire)
    with pytest.raises(ClientRequestFailed, match="roots/list needs a session"):
        await peer.ask("roots/list", {})
