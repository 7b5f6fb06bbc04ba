"""Requests of ours to clients."""

import asyncio
import json
from contextlib import nullcontext

import anyio
import pytest

from schemas.errors import ClientRequestFailed, Unavailable
from schemas.jsonrpc import Response
from tests.gateway.state.conftest import Node, stores_of
from tests.polling import until

pytestmark = pytest.mark.anyio


class Client:
    """What one client was told, and its answers."""

    def __init__(self):
        self.told = []

    async def tell(self, message):
        self.told.append(json.loads(message))

    async def wait_for_question(self, count=1):
        await until(lambda: len(self.told) >= count)
        return self.told[count - 1]


@pytest.fixture
def client():
    return Client()


def asking(node, session, client, method="roots/list", params=None):
    return asyncio.create_task(node.asks.ask(session, client.tell, method, params or {}))


async def test_a_client_is_asked_and_answers(nodes, client):
    a, _ = nodes
    session = await a.open()
    ask = asking(a, session, client, "roots/list", {"x": 1})
    asked = await client.wait_for_question()
    assert (asked["jsonrpc"], asked["method"], asked["params"]) == ("2.0", "roots/list", {"x": 1})
    assert asked["id"].startswith("aa:")
    await a.asks.answer(session, Response(asked["id"], {"roots": []}))
    await a.asks.answer(session, Response(asked["id"], {"roots": ["too late"]}))
    assert await ask == {"roots": []}
    assert session.pending_requests == 0
    assert len(client.told) == 1


async def test_a_client_answers_at_another_node(nodes, client):
    a, b = nodes
    session = await a.open()
    ask = asking(a, session, client)
    asked = await client.wait_for_question()
    with anyio.fail_after(30):
        await b.asks.answer(await b.load(session), Response(asked["id"], {"roots": [1]}))
        assert await ask == {"roots": [1]}


@pytest.mark.parametrize(
    ("error", "code", "message", "data"),
    [
        ({"code": -1, "message": "User said no", "data": [1]}, -1, "User said no", [1]),
        ({"code": -32601, "message": "What?"}, -32601, "What?", None),
        ({"code": "x", "message": "No code"}, 1504, "No code", None),
        ("nonsense", 1504, "The client answered with an error that is none of JSON-RPC", None),
    ],
)
async def test_errors_of_a_client_are_forwarded_unchanged(
    nodes, client, error, code, message, data
):
    a, _ = nodes
    session = await a.open()
    for node in nodes:
        ask = asking(a, session, client)
        asked = await client.wait_for_question(len(client.told) + 1)
        with anyio.fail_after(30):
            await node.asks.answer(await node.load(session), Response(asked["id"], error=error))
            with pytest.raises(ClientRequestFailed) as caught:
                await ask
        fault = caught.value
        assert (fault.code, fault.message, fault.data) == (code, message, data)


async def test_the_answer_of_another_session_is_none(nodes, client):
    a, b = nodes
    session, other = await a.open(), await a.open()
    ask = asking(a, session, client)
    asked = await client.wait_for_question()
    await a.asks.answer(other, Response(asked["id"], "forged"))
    await b.asks.answer(await b.load(other), Response(asked["id"], "forged"))
    await a.asks.answer(session, Response(asked["id"], "real"))
    assert await ask == "real"


async def test_answers_survive_trimmed_messages_between_nodes(client):
    stores = stores_of(keep_events=3)
    a, b = Node(stores, "aa"), Node(stores, "bb")  # neither hears the other
    session = await a.open()
    ask = asking(a, session, client)
    asked = await client.wait_for_question()
    for _ in range(10):
        await b.bus.broadcast("noise")
    with anyio.fail_after(30):
        await b.asks.answer(await b.load(session), Response(asked["id"], "heard"))
        assert await ask == "heard"


async def test_delivered_answers_are_not_kept(nodes, client):
    a, b = nodes
    session = await a.open()
    there = await b.load(session)
    ask = asking(a, session, client)
    asked = await client.wait_for_question()
    stream = f"a/{asked['id']}"
    await b.asks.answer(there, Response(asked["id"], 1))
    await b.asks.answer(there, Response(asked["id"], "and again"))
    assert len(await a.stores.log.read(stream, "")) == 2
    with anyio.fail_after(30):
        assert await ask == 1
    await a.sessions.background.drain()
    await b.asks.answer(there, Response(asked["id"], "too late"))
    assert await a.stores.log.read(stream, "") == []


async def test_unrequested_answers_are_not_kept_for_live_nodes(nodes):
    a, b = nodes
    for node in nodes:
        await node.stores.sessions.beat(node.bus.node, 60)
    session = await a.open()
    there = await b.load(session)
    before = len(a.stores.log)
    for number in range(10):
        await b.asks.answer(there, Response(f"aa:{number}", "x" * 1000))
    assert len(a.stores.log) == before


async def test_a_node_polls_for_answers_without_a_wakeup(nodes, client, monkeypatch):
    monkeypatch.setattr("gateway.state.client_requests.LOOK_EVERY_S", 0.01)
    a, b = nodes
    monkeypatch.setattr(a.stores.log, "watch", lambda _stream, _wake: nullcontext())
    session = await a.open()
    ask = asking(a, session, client)
    asked = await client.wait_for_question()
    with anyio.fail_after(30):
        await b.asks.answer(await b.load(session), Response(asked["id"], "found"))
        assert await ask == "found"


async def test_a_question_is_not_forgotten_while_waiting(client):
    stores = stores_of()
    a, b = Node(stores, "aa", keep_s=0.01), Node(stores, "bb")
    session = await a.open()
    ask = asking(a, session, client)
    asked = await client.wait_for_question()
    stream = f"a/{asked['id']}"
    with anyio.fail_after(30):
        while len(await stores.log.read(stream, "")) < 3:  # said again and again
            await anyio.lowlevel.checkpoint()
        await b.asks.answer(await b.load(session), Response(asked["id"], "late"))
        assert await ask == "late"


async def test_a_client_is_asked_and_answers_here_while_the_log_is_away(nodes, client, caplog):
    a, _ = nodes
    session = await a.open()

    async def away(*_):
        raise Unavailable("away")

    for name in ("append", "read", "drop"):
        setattr(a.stores.log, name, away)
    ask = asking(a, session, client)
    asked = await client.wait_for_question()
    await a.asks.answer(session, Response(asked["id"], "here"))
    assert await ask == "here"


@pytest.mark.parametrize("id_", [1, None, "", "aa", "aa:", "aa:1:2", "bb:7", "cc:1", "x" * 1000])
async def test_unrequested_answers_are_dropped(nodes, client, id_):
    a, _ = nodes
    session = await a.open()
    ask = asking(a, session, client)
    asked = await client.wait_for_question()
    await a.asks.answer(session, Response(id_, "unasked"))
    assert not ask.done()
    await a.asks.answer(session, Response(asked["id"], "asked"))
    assert await ask == "asked"


async def test_a_client_is_sent_a_cancellation_after_the_timeout(client):
    node = Node(stores_of(), timeout_s=0.01)
    session = await node.open()
    with pytest.raises(ClientRequestFailed, match=r"did not answer roots/list within 0\.01 s"):
        await node.asks.ask(session, client.tell, "roots/list", {})
    asked, cancelled = client.told
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"]["requestId"] == asked["id"]
    assert session.pending_requests == 0


async def test_a_call_that_is_cancelled_takes_its_question_back(nodes, client):
    a, _ = nodes
    session = await a.open()
    ask = asking(a, session, client)
    asked = await client.wait_for_question()
    ask.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ask
    assert client.told[1]["params"]["requestId"] == asked["id"]
    assert session.pending_requests == 0


async def test_a_client_is_asked_so_much_at_a_time(client):
    node = Node(stores_of(), asks=2)
    session, other = await node.open(), await node.open()
    asks = [asking(node, session, client) for _ in range(2)]
    await client.wait_for_question(2)
    with pytest.raises(ClientRequestFailed, match="2 requests to answer already"):
        await node.asks.ask(session, client.tell, "roots/list", {})
    third = asking(node, other, client)
    await client.wait_for_question(3)
    for ask in (*asks, third):
        ask.cancel()
    await asyncio.gather(*asks, third, return_exceptions=True)
