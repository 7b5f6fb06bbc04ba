"""Which endpoint serves whom: toolsets, clients without session, clients that know one URL."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from config.settings import Settings, Toolset
from tests.fixtures_gateway import META, MODERN, Client, Recorder, running, with_mcp
from tests.gateway.events import listening, refusal_of_stream
from tests.gateway.shared import anyio_backend, client, service
from tests.gateway.verbs import install

__all__ = ["anyio_backend", "client", "service"]
pytestmark = pytest.mark.anyio

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x"}}


def request(method: str, params: Any = None, id_: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params or {}}


def with_toolsets(settings: Settings) -> Settings:
    reading, other = Toolset(include=("get*", "list*")), Toolset(include=("create*",))
    return replace(settings, toolsets={"reading": reading, "other": other})


@pytest.fixture(scope="module")
def shared_settings(shared_settings: Settings) -> Settings:
    return with_toolsets(shared_settings)


@pytest.fixture(scope="module")
async def sessionless(shared_settings: Settings) -> AsyncIterator[Client]:
    async with running(with_mcp(shared_settings, sessionless=True)) as client:
        yield client


def names(answer: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in answer["result"]["tools"]]


@pytest.mark.parametrize("path", ["/mcp/reading", "/mcp?scope=reading"])
async def test_a_toolset_is_an_endpoint_with_sessions_of_its_own(client: Client, path: str) -> None:
    status, _, headers = await client.post(path, request("initialize", HELLO))
    assert status == 200
    session = {"Mcp-Session-Id": headers["mcp-session-id"]}
    for same in ("/mcp/reading", "/mcp?scope=reading", "/mcp/reading?scope=reading"):
        _, listed, _ = await client.post(same, request("tools/list"), session)
        assert names(listed) == ["getPet", "listPets"]
    call = request("tools/call", {"name": "createPet", "arguments": {"name": "x"}})
    _, called, _ = await client.post(path, call, session)
    assert called["error"]["code"] == -32602
    for elsewhere in ("/mcp", "/mcp/other", "/mcp?scope=other"):
        status, answer, _ = await client.post(elsewhere, request("ping"), session)
        assert (status, answer["error"]["code"]) == (404, -32001)
    async with client.http.delete(client.url + "/mcp", headers=session) as response:
        assert response.status == 404
    async with client.http.delete(client.url + path, headers=session) as response:
        assert response.status == 204


@pytest.mark.parametrize("path", ["/mcp/reading", "/mcp?scope=reading"])
async def test_a_stateless_client_sees_the_requested_toolset(client: Client, path: str) -> None:
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}
    body = request("tools/list", {"_meta": META})
    status, listed, _ = await client.post(path, body, headers)
    assert (status, names(listed)) == (200, ["getPet", "listPets"])


@pytest.mark.parametrize("path", ["/mcp/reading/sse", "/mcp/reading", "/mcp/sse?scope=reading"])
async def test_a_2024_11_05_client_has_a_stream_of_its_toolset(client: Client, path: str) -> None:
    async with listening(client, path, {"Accept": "text/event-stream"}) as events:
        name, endpoint = await events.next()
        assert (name, endpoint.partition("?")[0]) == ("endpoint", "/mcp/reading/message")
        assert (await client.post(endpoint, request("tools/list")))[0] == 202
        assert names(await events.message()) == ["getPet", "listPets"]
        elsewhere = endpoint.replace("/reading", "")
        assert (await client.post(elsewhere, request("ping")))[0] == 404


@pytest.mark.parametrize(
    "path", ["/mcp/unknown", "/mcp?scope=unknown", "/mcp/reading?scope=other", "/mcp/reading/x"]
)
async def test_an_unknown_toolset_is_not_there(client: Client, path: str) -> None:
    status, answer, _ = await client.post(path, request("initialize", HELLO))
    assert status == 404
    assert answer["jsonrpc"] == "2.0"
    assert "other" not in answer["error"]["message"]  # which there are is nobody's business
    assert (await refusal_of_stream(client, path))[0] == 404


async def test_a_client_that_knows_one_url_gets_the_stream_of_2024_11_05(client: Client) -> None:
    async with listening(client, "/mcp", {"Accept": "text/event-stream"}) as events:
        name, endpoint = await events.next()
        assert (name, endpoint.partition("?")[0]) == ("endpoint", "/mcp/message")
        await client.post(endpoint, request("ping", id_="p"))
        assert await events.message() == {"jsonrpc": "2.0", "id": "p", "result": {}}


@pytest.mark.parametrize(
    "headers",
    [
        {"Accept": "text/html,*/*"},  # somebody looks with a browser
        {"MCP-Protocol-Version": "2025-06-18"},
        {"Last-Event-ID": "g.1"},
    ],
)
async def test_ambiguous_requests_are_told_the_missing_session_header(
    client: Client, headers: dict[str, str]
) -> None:
    status, error = await refusal_of_stream(client, "/mcp", headers)
    assert (status, error["code"]) == (400, -32600)
    assert "Mcp-Session-Id is missing" in error["message"]


async def test_the_stream_of_2024_11_05_can_be_left_to_its_own_url(settings: Settings) -> None:
    async with running(with_mcp(settings, get_opens_sse=False)) as client:
        assert (await refusal_of_stream(client, "/mcp"))[0] == 400
        async with listening(client, "/mcp/sse") as events:
            assert (await events.next())[0] == "endpoint"


@pytest.mark.parametrize("version", [None, "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_client_without_initialize_is_served_in_sessionless_mode(
    sessionless: Client, version: str | None
) -> None:
    sent = {} if version is None else {"MCP-Protocol-Version": version}
    listing = request("tools/list", id_="a3f1b0c2-9d0e-4c57-8f5e-0123456789ab")
    status, answer, headers = await sessionless.post("/mcp", listing, sent)
    assert (status, answer["id"]) == (200, listing["id"])
    assert "mcp-session-id" not in headers
    call = request("tools/call", {"name": "getPet", "arguments": {"id": 1}})
    _, called, _ = await sessionless.post("/mcp", call, sent)
    assert json.loads(called["result"]["content"][0]["text"])["heard"]["path"] == "/pets/1"
    structured = "structuredContent" in called["result"]
    assert structured is (version not in {None, "2025-03-26"})
    noted = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await sessionless.post("/mcp", noted, sent))[:2] == (202, None)
    assert len(sessionless.gateway.shared.sessions) == 0
    status, answer, _ = await sessionless.post("/mcp", {"jsonrpc": "2.0", "id": 1, "result": {}})
    assert status == 400  # nobody asked anything


async def test_a_client_that_never_initializes_may_send_batches_of_2025_03_26(
    sessionless: Client,
) -> None:
    batch = [request("ping", id_=1), request("tools/list", id_="b")]
    status, answers, _ = await sessionless.post("/mcp", batch)
    assert (status, [one["id"] for one in answers]) == (200, [1, "b"])
    headers = {"MCP-Protocol-Version": "2025-06-18"}
    assert (await sessionless.post("/mcp", batch, headers))[0] == 400
    status, answer, _ = await sessionless.post("/mcp", batch, {"MCP-Protocol-Version": "1999"})
    assert (status, answer["error"]["code"]) == (400, -32022)


async def test_sessions_are_still_opened_in_sessionless_mode(
    sessionless: Client,
) -> None:
    session = await sessionless.session()
    assert (await session.call("ping"))["result"] == {}
    unknown = {"Mcp-Session-Id": "unknown"}
    assert (await sessionless.post("/mcp", request("ping"), unknown))[0] == 404


async def test_a_caller_that_opens_too_many_sessions_is_told_when_to_come_back(
    settings: Settings,
) -> None:
    async with running(with_mcp(settings, session_rate=2)) as client:
        await client.session()
        await client.session()
        status, answer, headers = await client.post("/mcp", request("initialize", HELLO))
        assert (status, answer["id"], answer["error"]["code"]) == (429, 1, 1429)
        assert 1 <= int(headers["retry-after"]) <= 62
        assert (await refusal_of_stream(client, "/mcp/sse"))[0] == 429


async def test_a_batch_that_was_told_something_is_answered_by_one_stream(client: Client) -> None:
    install(client.gateway)
    session = await client.session("2025-03-26")
    batch = [request("test/say", {"texts": ["a"]}, 1), request("ping", id_=2)]
    async with listening(client, "/mcp", session.headers, batch) as events:
        assert (await events.event()).text == "a"
        answers = await events.message()
        assert [one["id"] for one in answers] == [1, 2]
        assert await events.rest() == []
    quiet = [request("test/say", {}, 1), request("ping", id_=2)]
    status, answers = await session.post(quiet)
    assert (status, [one["id"] for one in answers]) == (200, [1, 2])


@pytest.mark.parametrize("era", ["2025-06-18", "2025-11-25", MODERN])
async def test_a_long_call_sends_keep_alives(
    settings: Settings, service: Recorder, era: str
) -> None:
    async with running(with_mcp(settings, keep_alive_s=0.02)) as client:
        headers, call = {}, request("tools/call", {"name": "slow"})
        if era == MODERN:
            headers = {"MCP-Protocol-Version": era, "Mcp-Method": "tools/call", "Mcp-Name": "slow"}
            call["params"]["_meta"] = META
        else:
            headers = (await client.session(era)).headers
        async with listening(client, "/mcp", headers, call) as events, asyncio.timeout(30):
            comments = 0
            while comments < 3:
                line = await events.response.content.readline()
                comments += line == b": keep-alive\n"
            service.release.set()
            assert (await events.message())["id"] == 1


async def test_the_http_status_of_errors_suits_stateless_clients(settings: Settings) -> None:
    async with running(settings) as client:
        install(client.gateway)
        methods = ("test/need", "test/unknown")
        assert [(await client.modern(method))[0] for method in methods] == [400, 404]
        session = await client.session()
        assert (await session.call("test/need"))["error"]["code"] == -32021
        assert (await session.call("test/unknown"))["error"]["code"] == -32601


async def test_a_header_that_mirrors_an_argument_must_not_come_twice(client: Client) -> None:
    twice = [("Mcp-Param-Region", "eu"), ("Mcp-Param-Region", "eu")]
    base = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/list")]
    body = request("tools/list", {"_meta": META})
    async with client.http.post(client.url + "/mcp", json=body, headers=[*base, *twice]) as bad:
        assert bad.status == 400
        assert (await bad.json())["error"]["code"] == -32020
    session = await client.session()
    headers = [*session.headers.items(), *twice]  # of no meaning in a session
    async with client.http.post(
        client.url + "/mcp", json=request("ping"), headers=headers
    ) as served:
        assert served.status == 200
