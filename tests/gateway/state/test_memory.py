import asyncio
from dataclasses import dataclass

import pytest

from gateway import context
from gateway.context import Principal
from gateway.state import memory
from gateway.state.hub import Hub
from gateway.state.memory import TOOLS_CHANGED_MESSAGE, Sessions
from schemas.errors import Unavailable
from schemas.mcp.revisions import V2025_06_18

ANN = Principal("ann", "tenant")
IDLE_S = 60


@dataclass
class Clock:
    """A monotonic clock that a test moves."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(context, "time", clock)
    monkeypatch.setattr(memory, "time", clock)
    return clock


@pytest.fixture
def hub():
    return Hub(stream_limit=10)


def sessions_of(hub, limit=100):
    return Sessions(hub, IDLE_S, limit, calls_limit=10)


@pytest.fixture
def sessions(hub):
    return sessions_of(hub)


def opened(sessions, principal=ANN):
    session = sessions.open(V2025_06_18, principal, {"name": "client"}, {"sampling": {}})
    session.touch()  # by the clock of the test
    return session


def test_a_session_is_found_by_its_id(sessions):
    session = opened(sessions)
    assert sessions.find(session.id, ANN) is session
    assert (session.client, session.capabilities) == ({"name": "client"}, {"sampling": {}})
    assert len(sessions) == 1


def test_ids_cannot_be_guessed_and_fit_a_header(sessions):
    ids = {opened(sessions).id for _ in range(50)}
    assert len(ids) == 50
    for id_ in ids:
        assert len(id_) >= 32
        assert all("!" <= char <= "~" for char in id_)  # visible ASCII, as the transport demands


@pytest.mark.parametrize(
    "somebody_else", [Principal("bob", "tenant"), Principal("ann", "another tenant")]
)
def test_a_session_is_that_of_its_principal(sessions, somebody_else):
    session = opened(sessions)
    assert sessions.find(session.id, somebody_else) is None
    assert sessions.find(session.id, ANN) is session  # and not harmed by the attempt


def test_a_principal_is_the_same_whatever_its_token_says_today(sessions):
    session = opened(sessions)
    renewed = Principal("ann", "tenant", frozenset({"read"}), {"exp": 2})
    assert sessions.find(session.id, renewed) is session


@pytest.mark.parametrize("id_", ["", "nobody", "\u00e9"])
def test_an_unknown_id_finds_nothing(sessions, id_):
    opened(sessions)
    assert sessions.find(id_, ANN) is None


def test_a_closed_session_is_gone(sessions, hub):
    session = opened(sessions)
    sessions.close(session)
    sessions.close(session)  # twice does no harm
    assert sessions.find(session.id, ANN) is None
    assert session.outbox.closed
    hub.tools_changed("tenant")
    assert len(sessions) == 0


@pytest.mark.anyio
async def test_a_session_hears_once_that_the_tools_changed(sessions, hub):
    session = opened(sessions)
    hub.tools_changed("tenant")
    hub.tools_changed("tenant")
    hub.tools_changed("another tenant")
    assert await session.outbox.take(0) == [TOOLS_CHANGED_MESSAGE]
    expected = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
    assert expected == TOOLS_CHANGED_MESSAGE


def test_a_session_that_nobody_uses_ends(sessions, clock):
    session = opened(sessions)
    clock.now += IDLE_S - 1
    assert sessions.find(session.id, ANN) is session  # and this use counts
    clock.now += IDLE_S - 1
    assert sessions.reap() == 0
    clock.now += 1
    assert sessions.find(session.id, ANN) is None
    assert len(sessions) == 0
    assert session.outbox.closed


def test_reaping_takes_the_idle_ones_only(sessions, clock):
    idle = [opened(sessions) for _ in range(3)]
    clock.now += IDLE_S / 2
    used = opened(sessions)
    sessions.find(idle[1].id, ANN)
    clock.now += IDLE_S / 2
    assert sessions.reap() == 2
    assert sessions.find(used.id, ANN) is used
    assert sessions.find(idle[1].id, ANN) is idle[1]


def test_a_session_with_a_stream_or_a_request_is_not_idle(sessions, clock):
    streaming, busy = opened(sessions), opened(sessions)
    streaming.streams += 1
    busy.running[1] = None
    clock.now += 10 * IDLE_S
    assert sessions.reap() == 0
    assert sessions.find(streaming.id, ANN) is streaming
    assert sessions.find(busy.id, ANN) is busy


def test_one_more_than_the_limit_ends_the_session_unused_for_longest(hub, clock):
    sessions = sessions_of(hub, limit=2)
    first = opened(sessions)
    clock.now += 1
    second = opened(sessions)
    clock.now += 1
    third = opened(sessions)
    assert sessions.find(first.id, ANN) is None
    assert sessions.find(second.id, ANN) is second
    assert sessions.find(third.id, ANN) is third


def test_at_the_limit_sessions_in_use_are_kept_and_one_more_is_refused(hub, clock):
    sessions = sessions_of(hub, limit=2)
    listening, calling = opened(sessions), opened(sessions)
    listening.streams = 1
    calling.running["x"] = None
    with pytest.raises(Unavailable, match=r"Too many sessions in use \(limit 2\)"):
        opened(sessions)
    sessions.close(listening)
    opened(sessions)
    assert len(sessions) == 2


def test_at_the_limit_an_idle_session_makes_room(hub, clock):
    sessions = sessions_of(hub, limit=2)
    opened(sessions)
    clock.now += IDLE_S
    opened(sessions)
    opened(sessions)
    assert len(sessions) == 2


def test_at_the_limit_idle_sessions_make_room_whoever_was_used_without_being_found(hub, clock):
    sessions = sessions_of(hub, limit=2)
    long_call, idle = opened(sessions), opened(sessions)
    clock.now += IDLE_S
    long_call.touch()  # as at the end of its call
    opened(sessions)
    assert sessions.find(idle.id, ANN) is None
    assert sessions.find(long_call.id, ANN) is long_call


@pytest.mark.anyio
async def test_ending_a_session_stops_what_it_runs(sessions):
    session = opened(sessions)
    running = asyncio.create_task(asyncio.Event().wait())
    session.running["x"] = running
    sessions.close_all()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(sessions) == 0


def test_ten_thousand_sessions_come_and_go(hub, clock):
    sessions = sessions_of(hub, limit=10_000)
    for _ in range(10_000):
        opened(sessions)
    opened(sessions)
    assert len(sessions) == 10_000
    clock.now += IDLE_S
    assert sessions.reap() == 10_000
    assert len(sessions) == 0
    assert hub._followers == {}
    opened(sessions)


@pytest.mark.anyio
async def test_a_new_stream_takes_over_the_news_and_ends_the_one_before(sessions, hub):
    session = opened(sessions)
    before = session.outbox
    hub.tools_changed("tenant")
    after = sessions.take_stream(session)
    assert before.closed
    assert await before.take(0) == []
    assert await after.take(0) == [TOOLS_CHANGED_MESSAGE]
    hub.tools_changed("tenant")
    assert await before.take(0) == []
    assert await session.outbox.take(0) == [TOOLS_CHANGED_MESSAGE]
    sessions.close(session)
    assert hub._followers == {}
