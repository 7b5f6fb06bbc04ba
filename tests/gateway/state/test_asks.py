"""Requests of ours to clients."""

import asyncio
import json

import anyio
import pytest

from schemas.errors import AskFailed
from schemas.jsonrpc import Response
from tests.gateway.state.conftest import Node, stores_of, until

pytestmark = pytest.mark.anyio


class Client:
    """What one client was told, and its answers."""

    def __init__(self):
        self.told = []

    async def tell(self, message):
        self.told.append(json.loads(message))

    async def asked(self, count=1):
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
    asked = await client.asked()
    assert (asked["jsonrpc"], asked["method"], asked["params"]) == ("2.0", "roots/list", {"x": 1})
    assert asked["id"].startswith("aa:")
    await a.asks.answer(session, Response(asked["id"], {"roots": []}))
    await a.asks.answer(session, Response(asked["id"], {"roots": ["too late"]}))
    assert await ask == {"roots": []}
    assert session.asked == 0
    assert len(client.told) == 1


async def test_a_client_answers_at_another_node(nodes, client):
    a, b = nodes
    session = await a.open()
    ask = asking(a, session, client)
    asked = await client.asked()
    with anyio.fail_after(5):
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
async def test_the_error_of_a_client_is_told_as_it_is(nodes, client, error, code, message, data):
    a, _ = nodes
    session = await a.open()
    for node in nodes:
        ask = asking(a, session, client)
        asked = await client.asked(len(client.told) + 1)
        with anyio.fail_after(5):
            await node.asks.answer(await node.load(session), Response(asked["id"], error=error))
            with pytest.raises(AskFailed) as caught:
                await ask
        fault = caught.value
        assert (fault.code, fault.message, fault.data) == (code, message, data)


async def test_the_answer_of_another_session_is_none(nodes, client):
    a, b = nodes
    session, other = await a.open(), await a.open()
    ask = asking(a, session, client)
    asked = await client.asked()
    await a.asks.answer(other, Response(asked["id"], "forged"))
    await b.asks.answer(await b.load(other), Response(asked["id"], "forged"))
    await a.asks.answer(session, Response(asked["id"], "real"))
    assert await ask == "real"


@pytest.mark.parametrize("id_", [1, None, "", "aa", "aa:", "aa:1:2", "bb:7", "cc:1", "x" * 1000])
async def test_answers_to_what_nobody_asked_are_dropped(nodes, client, id_):
    a, _ = nodes
    session = await a.open()
    ask = asking(a, session, client)
    asked = await client.asked()
    await a.asks.answer(session, Response(id_, "unasked"))
    assert not ask.done()
    await a.asks.answer(session, Response(asked["id"], "asked"))
    assert await ask == "asked"


async def test_a_client_that_does_not_answer_in_time_is_told_that_it_need_not(client):
    node = Node(stores_of(), timeout_s=0.01)
    session = await node.open()
    with pytest.raises(AskFailed, match=r"did not answer roots/list within 0\.01 s"):
        await node.asks.ask(session, client.tell, "roots/list", {})
    asked, cancelled = client.told
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"]["requestId"] == asked["id"]
    assert session.asked == 0


async def test_a_call_that_is_cancelled_takes_its_question_back(nodes, client):
    a, _ = nodes
    session = await a.open()
    ask = asking(a, session, client)
    asked = await client.asked()
    ask.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ask
    assert client.told[1]["params"]["requestId"] == asked["id"]
    assert session.asked == 0


async def test_a_client_is_asked_so_much_at_a_time(client):
    node = Node(stores_of(), asks=2)
    session, other = await node.open(), await node.open()
    asks = [asking(node, session, client) for _ in range(2)]
    await client.asked(2)
    with pytest.raises(AskFailed, match="2 requests to answer already"):
        await node.asks.ask(session, client.tell, "roots/list", {})
    third = asking(node, other, client)
    await client.asked(3)
    for ask in (*asks, third):
        ask.cancel()
    await asyncio.gather(*asks, third, return_exceptions=True)
