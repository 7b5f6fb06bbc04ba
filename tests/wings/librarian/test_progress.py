"""Progress of long operations, at every front that can tell it, and their cancellation."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from config.models import Price, Strategy
from tests.fixtures_database import TEMPLATE, Cluster, own_database
from tests.fixtures_gateway import META, MODERN, Client, running
from tests.gateway.events import Events, listening
from tests.servers.provider import Answer, Asked, Provider, chat_whole, providing
from tests.wings.librarian.test_wing import REST, lending
from tests.wings.test_toy import rpc

pytestmark = pytest.mark.anyio
QUOTE = "Redis listens on port 6380"
ASKED = {"question": "On which port does Redis listen?", "strategy": "mapreduce"}
TOKEN = {"progressToken": "t-1"}
Call = dict[str, Any]
Opened = Callable[[Client, Call], AbstractAsyncContextManager[Events]]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture(scope="module")
async def provider() -> AsyncIterator[Provider]:
    async with providing(Answer()) as provider:
        yield provider


@pytest.fixture(scope="module")
async def client(cluster: Cluster, provider: Provider) -> AsyncIterator[Client]:
    """A gateway whose model finds the port."""
    for database in own_database(cluster, TEMPLATE):
        settings = lending(database)
        research = replace(settings.librarian.research, enabled=True, model="scripted")
        strategy = Strategy(
            url=provider.url, needs_key=False, model="m", price=Price(input=1.0, output=1.0)
        )
        models = replace(settings.models, strategies={"scripted": strategy}, strategy="scripted")
        librarian = replace(settings.librarian, research=research)
        async with running(replace(settings, librarian=librarian, models=models)) as client:
            added = {"collection": "docs", "path": "ports.md", "text": f"{QUOTE}.\n"}
            status, answer, _ = await client.post("/knowledge/v1/documents", added)
            assert status == 201, answer
            yield client


@pytest.fixture(autouse=True)
async def answering(provider: Provider) -> None:
    provider.answers[:] = [answer_model]
    provider.requests.clear()
    provider.hung_up.clear()
    provider.asked.clear()


def answer_model(request: Asked) -> Answer:
    told = request.body["messages"][0]["content"]
    if "from these findings" in told:
        return chat_whole(json.dumps({"sentences": [{"text": "On 6380.", "findings": [1]}]}))
    return chat_whole(json.dumps({"findings": [{"claim": "It is 6380", "quote": QUOTE}]}))


def make_call(which: str) -> Call:
    """A question of its own, so that no answer of another one is kept for it."""
    return {**ASKED, "question": f"{ASKED['question']} {which}"}


def tool_call(which: str, **meta: Any) -> Call:
    params = {"name": "librarian_research", "arguments": make_call(which)}
    return rpc("tools/call", {**params, "_meta": {**TOKEN, **meta}})


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-11-25"])
async def test_progress_comes_before_the_answer_in_sessions(client: Client, revision: str) -> None:
    """Progress comes before the answer in sessions (L19)."""
    session = await client.session(revision)
    async with listening(client, "/mcp", session.headers, tool_call(revision)) as events:
        check([json.loads(one.data) for one in await events.rest() if one.data])


async def test_progress_comes_on_the_stream_of_2024_11_05(client: Client) -> None:
    """Progress comes on the stream of 2024-11-05 (L19)."""
    async with listening(client, "/mcp/sse") as events:
        _, endpoint = await events.next()
        params = {
            "protocolVersion": "2024-11-05",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        await client.post(endpoint, rpc("initialize", params))
        await events.message()
        await client.post(endpoint, tool_call("2024"))
        told = [await events.message()]
        while "result" not in told[-1]:
            told.append(await events.message())
        check(told, notes=False)


async def test_progress_comes_without_a_session(client: Client) -> None:
    """Progress comes without a session (L19)."""
    headers = {
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "librarian_research",
    }
    async with listening(client, "/mcp", headers, tool_call("modern", **META)) as events:
        check([json.loads(one.data) for one in await events.rest() if one.data])


async def test_progress_comes_through_call_tool(client: Client) -> None:
    """Progress comes through call tool (L19)."""
    session, call = await client.session(), tool_call("inner")
    inner = {"name": call["params"]["name"], "arguments": call["params"]["arguments"]}
    call["params"] = {"name": "call_tool", "arguments": inner, "_meta": TOKEN}
    async with listening(client, "/mcp", session.headers, call) as events:
        check([json.loads(one.data) for one in await events.rest() if one.data])


def check(told: list[Any], *, notes: bool = True) -> None:
    *before, answer = told
    assert "On 6380. [ports.md:1]" in answer["result"]["content"][0]["text"]
    assert before, "there was no progress"
    assert {one["method"] for one in before} == {"notifications/progress"}
    assert {one["params"]["progressToken"] for one in before} == {"t-1"}
    values = [one["params"]["progress"] for one in before]
    assert values == sorted(set(values))
    assert all(("message" in one["params"]) == notes for one in before)


async def test_without_a_token_an_answer_is_no_stream(client: Client) -> None:
    session, call = await client.session(), tool_call("silent")
    del call["params"]["_meta"]
    _, answer = await session.post(call)
    assert "On 6380. [ports.md:1]" in answer["result"]["content"][0]["text"]


async def test_rest_streams_progress_and_then_the_result(client: Client) -> None:
    """REST streams progress and then the result (L19)."""
    headers = {"Accept": "text/event-stream"}
    async with listening(client, f"{REST}/research", headers, ASKED) as events:
        *before, answer = await events.rest()
    assert {one.name for one in before} == {"progress"}
    assert before[0].message["message"] == "searching"
    assert (answer.name, answer.message["answer"]) == ("result", "On 6380. [ports.md:1]")


async def test_refused_requests_are_not_streams(client: Client) -> None:
    for body, path, status in (
        ({}, f"{REST}/research", 422),
        ({"question": "x", "limits": {"calls": -1}}, f"{REST}/research", 422),
    ):
        headers = {"Accept": "text/event-stream"}
        async with client.http.post(client.url + path, json=body, headers=headers) as response:
            assert response.status == status
            assert response.content_type == "application/problem+json"
    headers = {"Accept": "application/json, text/event-stream"}
    async with client.http.get(f"{client.url}{REST}/runs", headers=headers) as response:
        assert (response.status, response.content_type) == (200, "application/json")


async def test_cancelling_a_call_hangs_up_on_the_model(client: Client, provider: Provider) -> None:
    """Cancelling a call hangs up on the model (L19)."""
    provider.answers[:] = [Answer(end="hang", pieces=[b" "])]
    session = await client.session()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(session.post, tool_call("cancelled"))
            await provider.asked.wait()
            gone = {"method": "notifications/cancelled", "params": {"requestId": 1}}
            await session.post({"jsonrpc": "2.0", **gone})
            await provider.hung_up[0].wait()
            group.cancel_scope.cancel()
        await wait_for_cancel(client, "cancelled")


async def test_a_stream_is_cancelled_when_its_client_leaves(
    client: Client, provider: Provider
) -> None:
    """A stream is cancelled when its client leaves (L19)."""
    provider.answers[:] = [Answer(end="hang", pieces=[b" "])]
    body = make_call("left")
    with anyio.fail_after(60):
        headers = {"Accept": "text/event-stream"}
        async with listening(client, f"{REST}/research", headers, body):
            await provider.asked.wait()
        await provider.hung_up[0].wait()
        await wait_for_cancel(client, "left")


async def wait_for_cancel(client: Client, question: str) -> None:
    """Waits until the run of a question is cancelled."""
    while True:
        async with client.http.get(f"{client.url}{REST}/runs") as response:
            runs = (await response.json())["runs"]
        states = {one["state"] for one in runs if one["question"].endswith(question)}
        if states == {"cancelled"}:
            return
        await anyio.sleep(0.05)
