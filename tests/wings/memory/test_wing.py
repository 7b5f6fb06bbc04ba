"""The memory as a wing of a gateway, on every front."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from msgspec.structs import replace
from psycopg.conninfo import conninfo_to_dict

from config.access import Rule
from config.settings import Settings
from gateway.audit.queries import AuditQuery, search
from tests.fixtures_database import HOST, Cluster
from tests.fixtures_gateway import DEADLINE_S, Client, running
from tests.gateway.admin.client import KEY, bearer
from tests.gateway.guards.signing import by_jwks
from tests.wings.events.rig import invoke_skill, wait_for_end, with_events
from tests.wings.test_toy import got, rpc

pytestmark = pytest.mark.anyio

TEA = {"content": "Ann prefers green tea", "scope": "user"}


@pytest.fixture
def remembering(settings: Settings) -> Settings:
    return replace(settings, memory=replace(settings.memory, enabled=True))


@pytest.fixture
async def client(remembering: Settings) -> AsyncIterator[Client]:
    async with running(remembering) as client:
        yield client


async def call_tool(client: Client, name: str, arguments: Any) -> Any:
    session = await client.session()
    params = {"name": name, "arguments": arguments}
    result = (await session.call("tools/call", params))["result"]
    assert not result.get("isError"), result
    return result["structuredContent"]


async def test_every_front_serves_the_same_memory(client: Client) -> None:
    status, added, headers = await client.post("/memory/v1/memories", TEA)
    assert (status, added["items"][0]["created"]) == (201, True)
    assert headers["location"] == f"/memory/v1/memories/{added['items'][0]['id']}"
    status, view, _ = await got(client, headers["location"])
    assert (status, view["content"], view["trust"]) == (200, TEA["content"], "agent")
    answer = await client.rpc(rpc("memory_search", {"query": "which tea does she drink?"}))
    assert [one["content"] for one in answer["result"]["items"]] == [TEA["content"]]
    again = await call_tool(client, "memory_add", TEA)
    assert again["items"] == [{"id": added["items"][0]["id"], "created": False}]
    shown = await (await client.http.get(f"{client.url}/metrics")).text()
    assert 'toolgate_memory_writes_total{outcome="added",scope="user"} 1.0' in shown
    assert 'toolgate_memory_writes_total{outcome="present",scope="user"} 1.0' in shown
    assert re.search(r'toolgate_memory_searches_total\{outcome="(found|words_only)"\} ', shown)
    assert "toolgate_memory_sessions_waiting 0.0" in shown
    found = await call_tool(client, "memory_search", {"query": "green tea", "explain": True})
    assert found["items"][0]["parts"]["words"] > 0


async def test_answers_to_searches_are_not_kept_for_their_keys(client: Client) -> None:
    headers = {"Idempotency-Key": "k"}
    for count in (0, 1):
        status, found, _ = await client.post("/memory/v1/search", {"query": "tea"}, headers)
        assert (status, len(found["items"])) == (200, count)
        await client.post("/memory/v1/memories", TEA)


async def test_a_write_requires_a_known_scope(client: Client) -> None:
    """A write names one of four scopes (M01)."""
    for scope in ("global", None, ["user"]):
        status, problem, _ = await client.post("/memory/v1/memories", {**TEA, "scope": scope})
        assert (status, problem["errors"][0]["pointer"]) == (422, "/scope")
    session = await client.session()
    params = {"name": "memory_add", "arguments": {"content": "A fact"}}
    answer = await session.call("tools/call", params)
    assert "scope" in json.dumps(answer)


async def test_a_session_ended_by_its_client_is_promoted(client: Client) -> None:
    """A session ended by its client is promoted (M18)."""
    session = await client.session()
    turns = [{"content": "Remember that my badge is blue"}, {"content": "It rains"}]
    params = {"name": "memory_observe", "arguments": {"turns": turns}}
    assert not (await session.call("tools/call", params))["result"].get("isError")
    other = await call_tool(client, "memory_search", {"query": "badge"})
    assert other["items"] == []  # of another session
    async with client.http.delete(client.url + "/mcp", headers=session.headers) as response:
        assert response.status < 300
    with anyio.fail_after(DEADLINE_S):
        while not (found := await call_tool(client, "memory_search", {"query": "badge"}))["items"]:
            await checkpoint()
    [kept] = found["items"]
    assert (kept["scope"], kept["content"]) == ("user", "Remember that my badge is blue")


async def test_calls_of_a_session_are_noted_where_settings_say_so(remembering: Settings) -> None:
    capturing = replace(remembering, memory=replace(remembering.memory, capture="calls"))
    async with running(capturing) as client:
        session, wanted = await client.session(), {"scope": "session", "kind": "turn"}
        for name, arguments in (("listPets", {"limit": 47}), ("memory_stats", {})):
            await session.call("tools/call", {"name": name, "arguments": arguments})
        listing = {"name": "memory_list", "arguments": wanted}
        with anyio.fail_after(DEADLINE_S):
            while not (found := await list_notes(session, listing)):
                await checkpoint()
    [line] = found
    assert line["content"].startswith("Called the tool listPets of ")
    assert (line["trust"], "47" in line["content"]) == ("tool", False)


async def list_notes(session: Any, listing: Any) -> Any:
    answer = await session.call("tools/call", listing)
    return answer["result"]["structuredContent"]["items"]


async def test_calls_pass_no_guard_of_the_memory_by_default(client: Client) -> None:
    assert client.gateway.wings is not None
    assert client.gateway.wings.guards == []


async def test_policy_and_audit_hold_on_every_front(remembering: Settings, tmp_path: Path) -> None:
    """Policy and audit hold on every front (M27)."""
    rules = {
        "no-org": Rule("deny", tools=("memory_add",), when="arguments.scope == 'org'"),
        "no-forget": Rule("deny", tools=("memory_forget",)),
    }
    audit = replace(remembering.audit, mode="always", spool_dir=str(tmp_path / "spool"))
    policy = replace(remembering.policy, rules=rules)
    async with running(replace(remembering, policy=policy, audit=audit)) as client:
        for scope, status in (("org", 404), ("user", 201)):
            body = {**TEA, "scope": scope}
            assert (await client.post("/memory/v1/memories", body))[0] == status
        assert (await client.post("/memory/v1/forget", {"ids": []}))[0] == 404
        denied = await client.rpc(rpc("memory_add", {**TEA, "scope": "org"}))
        assert denied["error"]["code"] == -32601
        await client.gateway.access.settle()
        assert client.gateway.feed.pool is not None
        page = await search(client.gateway.feed.pool, HOST, AuditQuery())
    rows = [(one.entry.subject, one.entry.rule) for one in page.records]
    assert rows.count(("memory_add", "no-org")) == 2
    assert ("memory_forget", "no-forget") in rows


async def test_scopes_are_required_for_calls_and_for_acting_on_behalf(
    remembering: Settings, tmp_path: Path
) -> None:
    """Scopes are required for calls and for acting on behalf (M27)."""
    reader, writer = bearer(scope="memory:read"), bearer(scope="memory:read memory:write")
    behalf = bearer("nurse", scope="memory:read memory:write memory:on_behalf")
    async with running(replace(remembering, auth=by_jwks(tmp_path, [KEY.jwk()]))) as client:
        assert (await client.post("/memory/v1/memories", TEA))[0] == 401
        assert (await client.post("/memory/v1/memories", TEA, reader))[0] == 403
        assert (await client.post("/memory/v1/memories", TEA, writer))[0] == 201
        status, problem, _ = await client.post(
            "/memory/v1/memories", {**TEA, "user_id": "somebody"}, writer
        )
        assert (status, problem["type"]) == (403, "problems/insufficient-scope")
        assert problem["detail"].startswith("Required scope: memory:on_behalf. Acting for another")
        for_ann = {**TEA, "user_id": "ann"}
        assert (await client.post("/memory/v1/memories", for_ann, behalf))[0] == 201
        for who, query, count in (
            (behalf, {"query": "tea"}, 0),
            (behalf, {"query": "tea", "user_id": "ann"}, 1),
            (bearer("ann", scope="memory:read"), {"query": "tea"}, 1),
        ):
            _, found, _ = await client.post("/memory/v1/search", query, who)
            assert len(found["items"]) == count


async def test_other_tools_work_without_the_memory_database(
    remembering: Settings, cluster: Cluster
) -> None:
    """Other tools work without the memory database (M32)."""
    name = conninfo_to_dict(remembering.database.url)["dbname"]
    async with running(remembering) as client:
        await client.post("/memory/v1/memories", TEA)
        cluster.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        cluster.execute(
            "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity"
            f" WHERE datname = '{name}'"
        )
        status, problem, headers = await client.post("/memory/v1/search", {"query": "tea"})
        assert (status, problem["type"]) == (503, "problems/unavailable")
        assert int(headers["retry-after"]) >= 1
        assert (await client.rpc(rpc("listPets", {})))["result"]
        cluster.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        with anyio.fail_after(DEADLINE_S):
            while (await client.post("/memory/v1/search", {"query": "tea"}))[0] != 200:
                await checkpoint()


async def test_an_erasure_reaches_stored_invocations(remembering: Settings) -> None:
    """An erasure reaches stored invocations (M28)."""
    settings = with_events(remembering)
    async with running(settings) as client:
        await client.post("/memory/v1/memories", TEA)
        accepted = await invoke_skill(client, "listPets", {"limit": 7})
        ran = await wait_for_end(client, accepted["id"])
        assert ran["status"] == "ACKED"
        status, erased, _ = await client.post("/memory/v1/forget", {"subject": "local"})
        assert (status, erased["memories"]) == (200, 1)
        assert client.gateway.feed.pool is not None
        async with client.gateway.feed.pool.connection() as connection:
            found = await connection.execute(
                "SELECT arguments::text, result FROM invocation_v WHERE host_id = %s", [HOST]
            )
            assert await found.fetchall() == [("null", None)]
