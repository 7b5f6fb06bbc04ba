"""Idempotency-Key: a command is done once, however often and however it is sent."""

import json
from typing import Any

import aiohttp
import anyio
import psycopg
import pytest
from msgspec.structs import replace

from config.settings import Settings
from tests.gateway.portal import (
    COMMAND,
    DATA,
    QUERY,
    RPC,
    Portal,
    legacy,
    portal,
    rpc,
    service,
    token,
)
from tests.gateway.shared import anyio_backend, open_portal, shared_portal
from tests.servers import rules

__all__ = ["anyio_backend", "open_portal", "shared_portal"]
pytestmark = pytest.mark.anyio

CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "rule_deleteRule", "arguments": DATA},
}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2024-11-05",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


async def test_a_command_sent_again_gets_its_answer_again(open_portal: Portal) -> None:
    first = await open_portal.post(COMMAND, legacy("deleteRule", data=DATA), idempotency_key="k")
    turned = {"ruleId": "r", "hostId": "h"}  # the same data
    for path, body in (
        (COMMAND, legacy("deleteRule", data=turned, title="again")),
        (RPC, legacy("deleteRule", data=DATA)),
    ):
        again = await open_portal.post(path, body, idempotency_key="k")
        assert (again.status, again.body, again.kind) == (200, first.body, first.kind)
    got = await open_portal.get(COMMAND, rpc("deleteRule", params=DATA), idempotency_key="k")
    assert got.brief == (200, (1, "OK"))
    assert rules.state.done == [DATA]


async def test_commands_without_a_key_run_each_time(open_portal: Portal) -> None:
    for _ in range(2):
        await open_portal.post(COMMAND, rpc("deleteRule", params=DATA))
    assert len(rules.state.done) == 2


@pytest.mark.parametrize(
    ("action", "brief"),
    [("updateRule", (400, "ERR10001 401")), ("crash", (500, "ERR10010 500"))],
)
async def test_a_failure_is_an_answer_too(open_portal: Portal, action: str, brief: Any) -> None:
    for _ in range(3):
        found = await open_portal.post(COMMAND, legacy(action, data=DATA), idempotency_key="k")
        assert found.brief == brief
        assert b"secret" not in found.body
    assert rules.state.done == [DATA]


async def test_a_key_belongs_to_one_request(open_portal: Portal) -> None:
    await open_portal.post(COMMAND, legacy("deleteRule", data=DATA), idempotency_key="k")
    other = {**DATA, "ruleId": "other"}
    refused = await open_portal.post(COMMAND, legacy("deleteRule", data=other), idempotency_key="k")
    assert refused.brief == (409, "ERR18409 409")
    wrapped = await open_portal.post(COMMAND, rpc("deleteRule", params=other), idempotency_key="k")
    assert wrapped.brief == (409, (1, 409, "ERR18409"))
    assert rules.state.done == [DATA]


@pytest.mark.parametrize("length", [0, 129, 5000])
async def test_a_key_has_a_length(open_portal: Portal, length: int) -> None:
    key = "k" * length
    refused = await open_portal.post(COMMAND, legacy("deleteRule", data=DATA), idempotency_key=key)
    assert refused.brief == (400, "ERR18400 400")
    assert refused.json["description"].endswith(f"1 to 128 characters, not {length}")
    wrapped = await open_portal.post(RPC, rpc("deleteRule", params=DATA), idempotency_key=key)
    assert wrapped.json["error"]["code"] == -32600
    assert rules.state.done == []


async def test_the_longest_key_is_a_key(open_portal: Portal) -> None:
    for _ in range(2):
        found = await open_portal.post(
            COMMAND, legacy("deleteRule", data=DATA), idempotency_key="k" * 128
        )
        assert found.brief == (200, "OK")
    assert len(rules.state.done) == 1


async def test_a_query_ignores_the_key(open_portal: Portal) -> None:
    for key in ("k", "k", "x" * 129, ""):
        found = await open_portal.post(QUERY, legacy("getRules"), idempotency_key=key)
        assert found.status == 200
    assert len(rules.state.done) == 4


async def test_bad_data_does_not_use_up_a_key(open_portal: Portal) -> None:
    refused = await open_portal.post(COMMAND, legacy("deleteRule", data={}), idempotency_key="k")
    assert refused.brief == (400, "ERR11004 400")
    done = await open_portal.post(COMMAND, legacy("deleteRule", data=DATA), idempotency_key="k")
    assert done.brief == (200, "OK")


async def test_callers_do_not_share_keys(secured_settings: Settings) -> None:
    async with portal(secured_settings) as to:
        for name in ("ada", "grace", "ada"):
            sender = {"authorization": f"Bearer {token(sub=name)}", "idempotency_key": "k"}
            data = {**DATA, "ruleId": name}
            found = await to.post(COMMAND, legacy("deleteRule", data=data), **sender)
            assert found.brief == (200, "OK")
    assert [done["ruleId"] for done in rules.state.done] == ["ada", "grace"]


async def test_another_token_of_the_same_caller_finds_the_answer(
    secured_settings: Settings,
) -> None:
    async with portal(secured_settings) as to:
        for scope in ("portal.w", "portal.w portal.r"):
            sender = {"authorization": f"Bearer {token(scope=scope)}", "idempotency_key": "k"}
            await to.post(COMMAND, legacy("deleteRule", data=DATA), **sender)
        assert len(rules.state.done) == 1
        reader = {"authorization": f"Bearer {token(scope='portal.r')}", "idempotency_key": "k"}
        refused = await to.post(COMMAND, legacy("deleteRule", data=DATA), **reader)
        assert refused.status == 403  # what was allowed once is asked again


async def test_an_expired_key_is_free_again(open_portal: Portal) -> None:
    url = open_portal.client.gateway.settings.database.url
    for done in (1, 1, 2):
        if done == 2:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("UPDATE command_idempotency_t SET expires_ts = created_ts")
        await open_portal.post(COMMAND, legacy("deleteRule", data=DATA), idempotency_key="k")
        assert len(rules.state.done) == done


async def test_without_its_database_the_gateway_does_no_command_twice(
    settings: Settings,
) -> None:
    """The tools are in memory, and what has no key is served on."""
    short = replace(settings, database=replace(settings.database, connect_timeout_s=0.3))
    async with portal(short) as to:
        await to.client.gateway.feed.pool.close()
        refused = await to.post(COMMAND, legacy("deleteRule", data=DATA), idempotency_key="k")
        assert refused.brief == (503, "ERR18503 503")
        assert refused.headers["retry-after"] == "1"
        wrapped = await to.post(RPC, rpc("deleteRule", params=DATA), idempotency_key="k")
        assert wrapped.json["error"]["code"] == 1503
        assert rules.state.done == []
        assert (await to.post(COMMAND, legacy("deleteRule", data=DATA))).brief == (200, "OK")


async def test_tools_call_honours_the_key_too(open_portal: Portal) -> None:
    params = {"name": service("deleteRule"), "arguments": DATA}
    request = {"jsonrpc": "2.0", "method": "tools/call", "id": 1, "params": params}
    for _ in range(2):
        found = await open_portal.post(COMMAND, request, idempotency_key="k")
        assert found.json["result"]["content"] == [{"type": "text", "text": "OK"}]
    assert len(rules.state.done) == 1


@pytest.mark.parametrize("key", ["", "x" * 129])
async def test_a_key_is_measured_whichever_way_the_command_comes(
    open_portal: Portal, key: str
) -> None:
    by_name = {"jsonrpc": "2.0", "id": 1, "method": "rule_deleteRule", "params": DATA}
    for body in (by_name, CALL, rpc("deleteRule", params=DATA)):
        found = await open_portal.post(RPC, body, idempotency_key=key)
        assert found.brief[1] == (1, -32600, "ERR18400")
    session = await open_portal.client.session()
    headers = {**session.headers, "Idempotency-Key": key}
    _, answer, _ = await open_portal.client.post("/mcp", CALL, headers)
    assert answer["error"]["data"]["code"] == "ERR18400"
    assert rules.state.done == []


async def test_a_command_of_an_agent_has_a_key_too(open_portal: Portal) -> None:
    session = await open_portal.client.session()
    headers = {**session.headers, "Idempotency-Key": "k", "X-Correlation-Id": "c-1"}
    answers = [await open_portal.client.post("/mcp", CALL, headers) for _ in range(2)]
    assert answers[0][1] == answers[1][1]
    assert rules.state.done == [DATA]
    assert rules.state.calls[0].correlation_id == "c-1"


async def test_a_command_of_an_agent_of_2024_has_a_key_too(open_portal: Portal) -> None:
    client = open_portal.client
    sent = {"Idempotency-Key": "k", "X-Correlation-Id": "c-1"}
    with anyio.fail_after(30):
        async with client.http.get(client.url + "/mcp/sse") as stream:
            address = (await event(stream)).decode()
            await client.post(address, INITIALIZE)
            await event(stream)
            for _ in range(2):
                await client.post(address, CALL, sent)
                answer = json.loads(await event(stream))
                assert answer["result"]["content"] == [{"type": "text", "text": "OK"}]
    assert rules.state.done == [DATA]
    assert rules.state.calls[0].correlation_id == "c-1"


async def event(stream: aiohttp.ClientResponse) -> bytes:
    """The data of the next event."""
    while not (line := await stream.content.readline()).startswith(b"data: "):
        pass
    return line.removeprefix(b"data: ").strip()


async def test_two_keys_are_one_too_many(open_portal: Portal) -> None:
    client = open_portal.client
    session = await client.session()
    sessions = len(client.gateway.shared.sessions)
    body = legacy("deleteRule", data=DATA)
    for path, sent, more in (
        (COMMAND, body, {}),
        (RPC, body, {}),
        ("/mcp", CALL, session.headers),
        ("/mcp", INITIALIZE, {}),
    ):
        keys = [("Idempotency-Key", "k"), ("Idempotency-Key", "k"), *more.items()]
        async with client.http.post(client.url + path, json=sent, headers=keys) as response:
            assert response.status == 400
            assert "more than once" in await response.text()
    assert rules.state.done == []
    assert len(client.gateway.shared.sessions) == sessions  # what is refused opens none


async def test_a_batch_of_an_agent_cannot_have_a_key(open_portal: Portal) -> None:
    session = await open_portal.client.session("2025-03-26")
    batch = [CALL]
    headers = {**session.headers, "Idempotency-Key": "k"}
    status, answer, _ = await open_portal.client.post("/mcp", batch, headers)
    assert (status, answer["error"]["code"]) == (400, -32600)
    assert "Idempotency-Key" in answer["error"]["message"]
    assert rules.state.done == []
    status, _, _ = await open_portal.client.post("/mcp", batch, session.headers)
    assert (status, rules.state.done) == (200, [DATA])
