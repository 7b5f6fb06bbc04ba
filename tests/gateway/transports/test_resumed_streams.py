"""Streams that break off, and clients that come back to them."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from config.settings import Settings
from gateway.state.sessions import STREAM_LIMIT
from schemas.mcp.messages import TOOLS_CHANGED
from tests.fixtures_gateway import (
    DEADLINE_S,
    Client,
    SessionClient,
    SharedGateway,
    running,
    with_mcp,
)
from tests.gateway.events import Events, Sent, listening, refusal_of_stream
from tests.gateway.shared import anyio_backend
from tests.gateway.verbs import Verbs, install

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

REVISIONS = ["2025-03-26", "2025-06-18", "2025-11-25"]


@pytest.fixture(scope="module")
def installed_verbs(shared_gateway: SharedGateway) -> Verbs:
    return install(
        shared_gateway.client.gateway
    )  # before any call, and once: it keeps the methods that it found


@pytest.fixture
async def client(shared_gateway: SharedGateway, installed_verbs: Verbs) -> Client:
    """The client of a gateway without streams, not even of the test before."""
    client = shared_gateway.client
    with anyio.fail_after(DEADLINE_S):
        while client.gateway.shared.hub.streams:  # noqa: ASYNC110
            await anyio.sleep(0.001)
    return client


@pytest.fixture
def verbs(installed_verbs: Verbs) -> Verbs:
    installed_verbs.renew()
    return installed_verbs


def say(*texts: str, hold: bool = False, more: Any = (), id_: Any = 1) -> dict[str, Any]:
    params = {"texts": texts, "hold": hold, "more": more}
    return {"jsonrpc": "2.0", "id": id_, "method": "test/say", "params": params}


def after(session: SessionClient, id_: str) -> dict[str, str]:
    return {**session.headers, "Last-Event-ID": id_}


async def leave_stream(
    client: Client, session: SessionClient, verbs: Verbs, request: dict[str, Any]
) -> Sent:
    """The last event that a client saw of a call before it left, while the call runs on."""
    async with listening(client, "/mcp", session.headers, request) as events:
        seen = await events.event()
        if not seen.data:
            seen = await events.event()
        async with asyncio.timeout(30):
            await verbs.holding.wait()
    return seen


@pytest.mark.parametrize("revision", REVISIONS)
async def test_every_event_of_a_session_can_be_come_back_to(
    client: Client, verbs: Verbs, revision: str
) -> None:
    session = await client.session(revision)
    async with listening(client, "/mcp", session.headers, say("a", "b")) as events:
        sent = await events.rest()
    primed = [one for one in sent if not one.data]
    if revision == "2025-11-25":
        assert [(one.retry, one.name) for one in primed] == [("1000", "")]
        assert sent[0] is primed[0]  # before anything else
    else:
        assert primed == []
    messages = [one for one in sent if one.data]
    assert [one.text for one in messages[:2]] == ["a", "b"]
    assert messages[2].message == {"jsonrpc": "2.0", "id": 1, "result": {"said": True}}
    ids = [one.id for one in sent]
    assert all(ids)
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_client_resumes_its_lost_stream(
    client: Client, verbs: Verbs, revision: str
) -> None:
    session = await client.session(revision)
    seen = await leave_stream(client, session, verbs, say("a", hold=True, more=["b", "c"]))
    assert seen.text == "a"
    async with listening(client, "/mcp", after(session, seen.id)) as events:
        verbs.release.set()
        sent = await events.rest()
    assert [one.text for one in sent[:-1]] == ["b", "c"]
    assert sent[-1].message["id"] == 1
    async with listening(client, "/mcp", after(session, sent[0].id)) as events:
        again = await events.rest()
    assert [one.id for one in again] == [one.id for one in sent[1:]]
    async with listening(client, "/mcp", after(session, sent[-1].id)) as events:
        assert await events.rest() == []


async def test_a_client_may_come_back_to_a_priming_event(client: Client, verbs: Verbs) -> None:
    session = await client.session("2025-11-25")
    async with listening(client, "/mcp", session.headers, say("a", hold=True)) as events:
        primed = await events.event()
    verbs.release.set()
    async with listening(client, "/mcp", after(session, primed.id)) as events:
        sent = await events.rest()
    assert [one.text for one in sent[:-1]] == ["a"]
    assert sent[-1].message["id"] == 1


async def test_a_resumed_stream_has_only_its_own_events(client: Client, verbs: Verbs) -> None:
    session = await client.session()
    seen = await leave_stream(
        client, session, verbs, say("mine", hold=True, more=["mine too"], id_=1)
    )
    async with listening(client, "/mcp", session.headers, say("theirs", id_=2)) as events:
        await events.rest()
    await client.gateway.shared.streams.send(_open(client, session), b'{"unasked":true}')
    async with listening(client, "/mcp", after(session, seen.id)) as events:
        verbs.release.set()
        sent = await events.rest()
    assert [one.message.get("id", one.message.get("params")) for one in sent] == [
        {"level": "info", "data": "mine too"},
        1,
    ]


async def test_a_client_may_lose_its_stream_again_and_again(client: Client, verbs: Verbs) -> None:
    session = await client.session()
    texts = [str(number) for number in range(250)]  # more than are read at once
    seen = await leave_stream(client, session, verbs, say("first", *texts, hold=True))
    heard, last = [], seen.id
    for _ in range(3):
        async with listening(client, "/mcp", after(session, last)) as events:
            for _ in range(50):
                sent = await events.event()
                heard.append(sent.text)
                last = sent.id
    verbs.release.set()
    async with listening(client, "/mcp", after(session, last)) as events:
        rest = await events.rest()
    assert heard + [one.text for one in rest[:-1]] == texts
    assert rest[-1].message["id"] == 1


async def test_a_call_that_is_cancelled_ends_its_stream_without_an_answer(
    client: Client, verbs: Verbs
) -> None:
    session = await client.session()
    cancel = {"method": "notifications/cancelled", "params": {"requestId": 1}}
    async with listening(client, "/mcp", session.headers, say("a", hold=True)) as events:
        seen = await events.event()
        assert await session.post({"jsonrpc": "2.0", **cancel}) == (202, None)
        assert await events.rest() == []
    async with listening(client, "/mcp", after(session, seen.id)) as events:
        assert await events.rest() == []


async def test_ending_the_session_ends_the_streams_that_were_come_back_to(
    settings: Settings,
) -> None:
    async with running(with_mcp(settings, keep_alive_s=0.05)) as client:
        verbs = install(client.gateway)
        session = await client.session()
        seen = await leave_stream(client, session, verbs, say("a", hold=True))
        async with listening(client, "/mcp", after(session, seen.id)) as events:
            assert _open(client, session).streams == 1  # not idle
            async with client.http.delete(client.url + "/mcp", headers=session.headers) as gone:
                assert gone.status == 204
            assert await events.rest() == []


async def test_one_session_cannot_have_all_streams(client: Client, verbs: Verbs) -> None:
    session = await client.session()
    other = await client.session()
    seen = await leave_stream(client, session, verbs, say("a", hold=True))
    async with AsyncExitStack() as streams:
        for _ in range(STREAM_LIMIT):
            back = listening(client, "/mcp", after(session, seen.id))
            await streams.enter_async_context(back)
        status, error = await refusal_of_stream(client, "/mcp", after(session, seen.id))
        assert (status, error["code"]) == (429, 1429)
        assert "20 open streams" in error["message"]
        async with listening(client, "/mcp", other.headers):
            assert client.gateway.shared.hub.streams == STREAM_LIMIT + 1
    verbs.release.set()


@pytest.mark.parametrize("id_", ["nonsense", "p0-1.1", "g.1.x", "p0-99.-", "42"])
async def test_ids_that_nobody_gave_are_refused_and_the_session_lives(
    client: Client, id_: str
) -> None:
    session = await client.session()
    status, error = await refusal_of_stream(client, "/mcp", after(session, id_))
    assert (status, error["code"]) == (400, -32600)  # 404 would say that the session has ended
    assert "Last-Event-ID" in error["message"]
    assert (await session.call("ping"))["result"] == {}


async def test_an_id_is_good_in_its_own_session_only(client: Client, verbs: Verbs) -> None:
    session, other = await client.session(), await client.session()
    seen = await leave_stream(client, session, verbs, say("secret", hold=True, more=["secret"]))
    verbs.release.set()
    assert (await refusal_of_stream(client, "/mcp", after(other, seen.id)))[0] == 400
    stream, _, event = seen.id.partition(".")
    for forged in (f"g.{event}", f"{stream}.-", f"{stream}x.{event}"):
        assert (await refusal_of_stream(client, "/mcp", after(other, forged)))[0] == 400


async def test_expired_events_are_reported_on_resuming(settings: Settings) -> None:
    async with running(with_mcp(settings, replay_events=2)) as client:
        verbs = install(client.gateway)
        session = await client.session()
        seen = await leave_stream(client, session, verbs, say("a", "b", "c", "d", hold=True))
        status, error = await refusal_of_stream(client, "/mcp", after(session, seen.id))
        assert (status, error["code"]) == (400, -32600)
        assert "no longer kept" in error["message"]
        verbs.release.set()


def _open(client: Client, session: SessionClient) -> Any:
    found = client.gateway.shared.sessions.find(session.id, client.gateway.principal)
    assert found is not None
    return found


async def first(events: Events) -> Sent:
    """The event that a 2025-11-25 stream begins with."""
    sent = await events.event()
    assert (sent.data, sent.name) == ("", "")
    return sent


async def test_messages_said_while_the_standalone_stream_was_away_come_with_the_next(
    client: Client,
) -> None:
    session = await client.session("2025-11-25")
    streams, opened = client.gateway.shared.streams, _open(client, session)
    await streams.send(opened, b'"0"')
    async with listening(client, "/mcp", session.headers) as events:
        await first(events)
        assert (await events.event()).message == "0"
        await streams.send(opened, b'"1"')
        one = await events.event()
        await streams.send(opened, b'"2"')
        assert (await events.event()).message == "2"
    await streams.send(opened, b'"3"')
    async with listening(client, "/mcp", after(session, one.id)) as events:  # "2" got lost
        await first(events)
        assert [(await events.event()).message for _ in range(2)] == ["2", "3"]
    async with listening(client, "/mcp", session.headers) as events:
        await first(events)
        await streams.send(opened, b'"4"')
        assert (await events.event()).message == "4"


async def test_a_returning_client_is_notified_only_of_changed_lists(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = ["AAAABBBBCCCC"]
    monkeypatch.setattr(client.gateway.shared.hub, "version", lambda *_: version[0])
    session = await client.session("2025-11-25")
    async with listening(client, "/mcp", session.headers) as events:
        heard = await events.event()
        if heard.data:  # told by the version that the session began with
            heard = await events.event()
        begun = heard.id
    async with listening(client, "/mcp", after(session, begun)) as events:
        known = (await first(events)).id
    version[0] = "XXXXBBBBCCCC"
    for _ in range(2):  # whoever lost the news is told again
        async with listening(client, "/mcp", after(session, known)) as events:
            await first(events)
            news = await events.event()
            assert news.message["method"] == TOOLS_CHANGED
    async with listening(client, "/mcp", after(session, news.id)) as events:
        await first(events)
        await client.gateway.shared.streams.send(_open(client, session), b'"next"')
        assert (await events.event()).message == "next"


async def test_ids_of_the_standalone_stream_are_unique(client: Client) -> None:
    session = await client.session("2025-11-25")
    tenant, ids = client.gateway.principal.tenant, []
    async with listening(client, "/mcp", session.headers) as events:
        ids.append((await first(events)).id)
        for number in range(3):
            client.gateway.shared.hub.change(tenant, {"tools"})
            ids.append((await events.event()).id)
            await client.gateway.shared.streams.send(_open(client, session), b"%d" % number)
            ids.append((await events.event()).id)
    assert len(set(ids)) == len(ids) == 7
