"""Requests of the server to its clients, and what they answer."""

import asyncio
from typing import Any

import pytest

from config.settings import Settings
from tests.fixtures_gateway import Client, SessionClient, running, with_mcp
from tests.gateway.events import listening
from tests.gateway.verbs import Verbs, install

pytestmark = pytest.mark.anyio

ROOTS = {"method": "roots/list", "params": {"x": 1}}


@pytest.fixture
def verbs(client: Client) -> Verbs:
    return install(client.gateway)


def ask(id_: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": "test/ask", "params": ROOTS}


def answer(asked: dict[str, Any], **said: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": asked["id"], **said}


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_client_is_asked_on_the_stream_of_its_call(
    client: Client, verbs: Verbs, revision: str
) -> None:
    session = await client.session(revision)
    async with listening(client, "/mcp", session.headers, ask()) as events:
        asked = await events.message()
        assert (asked["method"], asked["params"]) == ("roots/list", {"x": 1})
        assert await session.post(answer(asked, result={"roots": []})) == (202, None)
        assert (await events.message())["result"] == {"answer": {"roots": []}}


async def test_a_client_that_will_not_says_so(client: Client, verbs: Verbs) -> None:
    session = await client.session()
    async with listening(client, "/mcp", session.headers, ask()) as events:
        asked = await events.message()
        refusal = {"code": -1, "message": "User said no", "data": {"why": "tired"}}
        assert await session.post(answer(asked, error=refusal)) == (202, None)
        error = (await events.message())["error"]
    assert (error["code"], error["message"]) == (-1, "User said no")
    assert error["data"]["why"] == "tired"


async def test_two_calls_are_answered_each_its_own(client: Client, verbs: Verbs) -> None:
    session = await client.session()
    async with (
        listening(client, "/mcp", session.headers, ask("a")) as one,
        listening(client, "/mcp", session.headers, ask("b")) as two,
    ):
        asked_by_one, asked_by_two = await one.message(), await two.message()
        assert asked_by_one["id"] != asked_by_two["id"]
        await session.post(answer(asked_by_two, result=2))
        await session.post(answer(asked_by_one, result=1))
        assert (await one.message())["result"] == {"answer": 1}
        assert (await two.message())["result"] == {"answer": 2}


async def test_answers_come_in_batches_where_there_are_batches(
    client: Client, verbs: Verbs
) -> None:
    session = await client.session("2025-03-26")
    batch = [ask("a"), ask("b")]
    async with listening(client, "/mcp", session.headers, batch) as events:
        asked = [await events.message() for _ in batch]
        answers = [answer(one, result=number) for number, one in enumerate(asked)]
        assert await session.post(answers) == (202, None)
        answered = {one["id"]: one["result"]["answer"] for one in await events.message()}
    assert sorted(answered) == ["a", "b"]
    assert sorted(answered.values()) == [0, 1]


async def test_an_answer_in_another_session_answers_nothing(client: Client, verbs: Verbs) -> None:
    session, other = await client.session(), await client.session()
    async with listening(client, "/mcp", session.headers, ask()) as events:
        asked = await events.message()
        assert await other.post(answer(asked, result="forged")) == (202, None)
        assert await session.post(answer(asked, result="real")) == (202, None)
        assert (await events.message())["result"] == {"answer": "real"}


async def test_a_2024_11_05_client_is_asked_on_its_one_stream(client: Client, verbs: Verbs) -> None:
    async with listening(client, "/mcp/sse") as events:
        _, endpoint = await events.next()
        assert (await client.post(endpoint, ask("call")))[0] == 202
        asked = await events.message()
        assert asked["method"] == "roots/list"
        assert (await client.post(endpoint, answer(asked, result=[])))[0] == 202
        assert await events.message() == {
            "jsonrpc": "2.0",
            "id": "call",
            "result": {"answer": []},
        }


async def test_a_2024_11_05_client_declares_its_capabilities_on_initialize(client: Client) -> None:
    params = {
        "protocolVersion": "2024-11-05",
        "capabilities": {"roots": {}},
        "clientInfo": {"name": "old", "version": "1"},
    }
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    async with listening(client, "/mcp/sse") as events:
        _, endpoint = await events.next()
        assert (await client.post(endpoint, hello))[0] == 202
        assert (await events.message())["result"]["protocolVersion"] == "2024-11-05"
        id_ = endpoint.partition("session_id=")[2]
        session = client.gateway.shared.sessions.find(id_, client.gateway.principal)
        assert session is not None
        assert (session.capabilities, session.client["name"]) == ({"roots": {}}, "old")
        bad = {**hello, "params": {}}
        status, refusal, _ = await client.post(endpoint, bad)
        assert (status, refusal["error"]["code"]) == (400, -32602)


async def test_clients_without_a_session_cannot_be_asked(settings: Settings) -> None:
    async with running(with_mcp(settings, sessionless=True)) as client:
        install(client.gateway)
        status, answered = await client.modern("test/ask", ROOTS)
        assert (status, answered["error"]["code"]) == (200, 1504)
        status, answered, _ = await client.post("/mcp", ask())
        assert (status, answered["error"]["code"]) == (200, 1504)


async def test_a_client_that_leaves_can_still_answer(client: Client, verbs: Verbs) -> None:
    session = await client.session()
    async with listening(client, "/mcp", session.headers, ask()) as events:
        sent = await events.event()
    await session.post(answer(sent.message, result="late"))
    headers = {**session.headers, "Last-Event-ID": sent.id}
    async with listening(client, "/mcp", headers) as events:
        assert (await events.message())["result"] == {"answer": "late"}


async def test_a_client_that_does_not_answer_fails_its_call(settings: Settings) -> None:
    async with running(with_mcp(settings, client_request_timeout_s=0.05)) as client:
        install(client.gateway)
        session = await client.session()
        async with listening(client, "/mcp", session.headers, ask()) as events:
            asked = await events.message()
            cancelled = await events.message()
            assert cancelled["method"] == "notifications/cancelled"
            assert cancelled["params"]["requestId"] == asked["id"]
            error = (await events.message())["error"]
        assert (error["code"], "within 0.05 s" in error["message"]) == (1504, True)


async def test_ending_the_session_ends_its_waiting_questions(client: Client, verbs: Verbs) -> None:
    session: SessionClient = await client.session()
    async with (
        listening(client, "/mcp", session.headers, ask()) as events,
        asyncio.timeout(30),
    ):
        await events.message()
        async with client.http.delete(client.url + "/mcp", headers=session.headers) as response:
            assert response.status == 204
        sent = await events.rest()
    assert [one.message["method"] for one in sent] == ["notifications/cancelled"]
