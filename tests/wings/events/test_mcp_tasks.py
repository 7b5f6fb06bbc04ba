"""Any tool as a task of MCP: both forms, at another gateway, after a restart, and for its owner."""

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client as OfficialClient
from mcp.client.extension import ClaimContext
from msgspec.structs import replace

from config.settings import Settings
from gateway.operations.paging import cursor
from gateway.wings.events.acceptor import InvocationAcceptor
from gateway.wings.events.invocation_journal import Journal
from gateway.wings.events.wakeups import CompletionWaiters
from registry.database.postgres import borrow
from registry.database.shared_pool import NoTurn
from tests.fixtures_gateway import (
    DEADLINE_S,
    META,
    MODERN,
    Client,
    Recorder,
    SessionClient,
    running,
)
from tests.gateway.admin.client import KEY, bearer
from tests.gateway.guards.signing import by_jwks
from tests.sharing import hold_turns
from tests.wings.events.rig import EXTENSION, got, invoke_skill, with_events
from tests.wings.events.shared import anyio_backend, client, service, shared_events

__all__ = ["anyio_backend", "client", "service", "shared_events"]

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]

CHANGES = {"task_wait_s": 0.2}
LEGACY = "2025-11-25"
OVER = ("completed", "failed", "cancelled")
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
KNOWS = {**META, CAPABILITIES: {"extensions": {EXTENSION: {}}}}
UNKNOWN = (-32602, "Unknown task: it ended, or never was")


@pytest.fixture
def event_settings(settings: Settings) -> Settings:
    return with_events(settings, **CHANGES)


@pytest.fixture(scope="module")
def event_changes() -> dict[str, Any]:
    return CHANGES


async def modern(
    client: Client, method: str, meta: Any = KNOWS, headers: Any = None, **params: Any
) -> Any:
    sent = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, **(headers or {})}
    sent["Mcp-Name"] = params.get("name") or params.get("taskId") or ""
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    _, answer, _ = await client.post("/mcp", request, sent)
    return answer


async def begin_task(session: SessionClient, tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments, "task": {"ttl": 60_000}}
    answer = await session.call("tools/call", params)
    assert "result" in answer, answer
    task: dict[str, Any] = answer["result"]["task"]
    assert task["status"] in ("working", "completed", "failed")
    return task


async def over(session: SessionClient, task: str) -> dict[str, Any]:
    with anyio.fail_after(DEADLINE_S):
        while True:
            answer = await session.call("tasks/get", {"taskId": task})
            assert answer["result"]["taskId"] == task
            if answer["result"]["status"] in OVER:
                return dict(answer["result"])
            await anyio.sleep(0.02)


async def test_a_call_of_any_tool_can_be_a_task(client: Client) -> None:
    """A call of any tool can be a task (V21)."""
    session = await client.session(LEGACY)
    assert session.initialized["capabilities"]["tasks"] == {
        "cancel": {},
        "requests": {"tools": {"call": {}}},
    }
    listed = (await session.call("tools/list"))["result"]["tools"]
    assert {"optional"} == {
        one["execution"]["taskSupport"] for one in listed if one["name"].endswith("Pet")
    }
    task = await begin_task(session, "getPet", id=7)
    result = (await session.call("tasks/result", {"taskId": task["taskId"]}))["result"]
    assert result["structuredContent"]["heard"]["path"] == "/pets/7"
    related = result["_meta"]["io.modelcontextprotocol/related-task"]
    assert related == {"taskId": task["taskId"]}
    assert (await over(session, task["taskId"]))["status"] == "completed"


async def test_call_tool_and_failures_are_tasks_too(client: Client) -> None:
    session = await client.session(LEGACY)
    task = await begin_task(session, "call_tool", name="getPet", arguments={"id": 404})
    ended = await over(session, task["taskId"])
    assert (ended["status"], ended["statusMessage"]) == ("failed", "HTTP 404 Not Found")
    result = (await session.call("tasks/result", {"taskId": task["taskId"]}))["result"]
    assert result["isError"]


async def test_invalid_task_requests_are_refused(client: Client) -> None:
    session = await client.session(LEGACY)
    wish = {"name": "getPet", "arguments": {"id": "x"}, "task": {}}
    assert "Invalid arguments" in (await session.call("tools/call", wish))["error"]["message"]
    wish = {"name": "createPet", "arguments": {"name": "\0"}, "task": {}}
    assert "NUL" in (await session.call("tools/call", wish))["error"]["message"]
    wish = {"name": "search_tools", "arguments": {"query": "pets"}, "task": {}}
    assert "task" not in (await session.call("tools/call", wish))["result"]
    wish = {"name": "getPet", "arguments": {"id": 7}}
    assert "content" in (await session.call("tools/call", wish))["result"]
    for method in ("tasks/get", "tasks/cancel", "tasks/result"):
        error = (await session.call(method, {"taskId": "nowhere"}))["error"]
        assert (error["code"], error["message"]) == UNKNOWN
    assert (await session.call("tasks/list"))["error"]["code"] == -32601
    older = await client.session("2025-06-18")
    assert "tasks" not in older.initialized["capabilities"]
    assert (await older.call("tasks/get", {"taskId": "x"}))["error"]["code"] == -32601


async def test_a_running_task_is_cancelled(client: Client, service: Recorder) -> None:
    session = await client.session(LEGACY)
    task = await begin_task(session, "slow")
    with anyio.fail_after(DEADLINE_S):
        await service.arrived.wait()
    assert "result" in await session.call("tasks/cancel", {"taskId": task["taskId"]})
    with anyio.fail_after(DEADLINE_S):
        await service.gone.wait()
    assert (await over(session, task["taskId"]))["status"] == "cancelled"
    again = await session.call("tasks/cancel", {"taskId": task["taskId"]})
    assert again["error"]["message"] == "The task is cancelled already"
    assert (
        "Cancelled"
        in (await session.call("tasks/result", {"taskId": task["taskId"]}))["error"]["message"]
    )


async def test_the_task_extension_turns_long_calls_into_tasks(
    client: Client, service: Recorder
) -> None:
    """The task extension turns long calls into tasks (V21)."""
    capabilities = (await modern(client, "server/discover"))["result"]["capabilities"]
    assert capabilities["extensions"][EXTENSION] == {}
    at_once = await modern(client, "tools/call", name="getPet", arguments={"id": 7})
    assert (at_once["result"]["resultType"], service.requests[0]["path"]) == ("complete", "/pets/7")
    wrong = await modern(client, "tools/call", name="getPet", arguments={"id": "x"})
    assert wrong["result"]["isError"]
    task = (await modern(client, "tools/call", name="slow", arguments={}))["result"]
    assert (task["resultType"], task["status"]) == ("task", "working")
    known = await modern(client, "tasks/get", taskId=task["taskId"])
    assert (known["result"]["resultType"], known["result"]["status"]) == ("complete", "working")
    assert (await modern(client, "tasks/update", taskId=task["taskId"]))["result"] == {
        "resultType": "complete"
    }
    service.release.set()
    with anyio.fail_after(DEADLINE_S):
        while True:
            known = (await modern(client, "tasks/get", taskId=task["taskId"]))["result"]
            if known["status"] == "completed":
                break
    assert known["result"]["structuredContent"]["heard"]["path"] == "/slow"
    done = await modern(client, "tasks/cancel", taskId=task["taskId"])
    assert done["result"] == {"resultType": "complete"}


async def test_clients_without_the_extension_get_no_task(client: Client, service: Recorder) -> None:
    service.release.set()
    answer = await modern(client, "tools/call", META, name="slow", arguments={})
    assert answer["result"]["resultType"] == "complete"
    refused = await modern(client, "tasks/get", META, taskId="x")
    assert refused["error"]["code"] == -32021


async def test_a_failed_call_is_complete_for_the_extension(event_settings: Settings) -> None:
    settings = with_events(event_settings, task_wait_s=0.001)
    async with running(settings) as client:
        task = (await modern(client, "tools/call", name="getPet", arguments={"id": 404}))["result"]
        with anyio.fail_after(DEADLINE_S):
            while task.get("status") == "working":
                task = (await modern(client, "tasks/get", taskId=task["taskId"]))["result"]
        assert task.get("result", task)["isError"]


async def test_a_task_is_read_at_another_gateway_and_after_a_restart(
    event_settings: Settings, service: Recorder
) -> None:
    """Each has its sessions in memory: the client opens another one (V20)."""
    async with running(event_settings) as first:
        session = await first.session(LEGACY)
        task = await begin_task(session, "slow")
        with anyio.fail_after(DEADLINE_S):
            await service.arrived.wait()
        async with running(event_settings) as second:
            there = await second.session(LEGACY)
            answer = await there.call("tasks/get", {"taskId": task["taskId"]})
            assert answer["result"]["status"] == "working"
            async with anyio.create_task_group() as group:

                async def read() -> None:
                    read = await there.call("tasks/result", {"taskId": task["taskId"]}, id_=2)
                    assert read["result"]["structuredContent"]["heard"]["path"] == "/slow"

                group.start_soon(read)
                service.release.set()
    async with running(event_settings) as third:
        again = await third.session(LEGACY)
        assert (await over(again, task["taskId"]))["status"] == "completed"
    assert len(service.requests) == 1


async def test_a_task_belongs_to_and_is_listed_for_its_owner(
    event_settings: Settings, tmp_path: Path
) -> None:
    settings = replace(event_settings, auth=by_jwks(tmp_path, [KEY.jwk()]))
    async with running(settings) as client:
        ada, eve = (bearer(name, scope="") for name in ("ada", "eve"))
        call = {"name": "getPet", "arguments": {"id": 7}}
        made = await session_of(client, ada)
        tasks = [
            (await made("tools/call", {**call, "task": {}}))["result"]["task"]["taskId"]
            for _ in range(2)
        ]
        listed = (await made("tasks/list", {}))["result"]
        assert [one["taskId"] for one in listed["tasks"]] == tasks[::-1]
        other = await session_of(client, eve)
        assert (await other("tasks/list", {}))["result"]["tasks"] == []
        for method in ("tasks/get", "tasks/cancel", "tasks/result"):
            error = (await other(method, {"taskId": tasks[0]}))["error"]
            assert (error["code"], error["message"]) == UNKNOWN
        for foreign in ("!", cursor("9" * 19)):
            assert (await made("tasks/list", {"cursor": foreign}))["error"]["code"] == -32602


async def session_of(client: Client, credentials: dict[str, str]) -> Any:
    """A function that sends requests in a session of a caller."""
    params = {
        "protocolVersion": LEGACY,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    status, answer, headers = await client.post("/mcp", request, credentials)
    assert status == 200
    assert "list" in answer["result"]["capabilities"]["tasks"]
    sent = {
        **credentials,
        "Mcp-Session-Id": headers["mcp-session-id"],
        "MCP-Protocol-Version": LEGACY,
    }

    async def call(method: str, params: Any) -> Any:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        _, answer, _ = await client.post("/mcp", request, sent)
        return answer

    return call


async def test_tools_declare_tasks_that_run_as_tasks(client: Client) -> None:
    """Listed task support is what a call as a task meets (mending 20)."""
    session = await client.session(LEGACY)
    listed = (await session.call("tools/list"))["result"]["tools"]
    declared = {one["name"] for one in listed if "execution" in one}
    assert "getPet" in declared
    assert not [name for name in declared if name.startswith("events_")]
    assert "search_tools" not in declared
    wish = {"name": "events_list", "arguments": {}, "task": {}}
    refused = await session.call("tools/call", wish)
    assert refused["error"]["message"] == "events_list does not run as a task"


async def test_a_task_is_known_for_as_long_as_its_client_asked(event_settings: Settings) -> None:
    """A task's `ttl` is the client's within `events.retention_s`, and no id outlives it
    (mending 20)."""
    event_settings = replace(
        event_settings, events=replace(event_settings.events, retention_s=120.0)
    )
    async with running(event_settings) as client:
        session = await client.session(LEGACY)

        async def task(**wish: Any) -> Any:
            params = {"name": "getPet", "arguments": {"id": 7}, "task": wish}
            return await session.call("tools/call", params)

        begun = [await task(ttl=ttl) for ttl in (90_000, 500_000, None)]
        assert [one["result"]["task"]["ttl"] for one in begun] == [90_000, 120_000, 120_000]
        seen = await session.call("tasks/get", {"taskId": begun[0]["result"]["task"]["taskId"]})
        assert seen["result"]["ttl"] == 90_000
        for wrong in (0, -1, "soon", True):
            assert "task.ttl" in (await task(ttl=wrong))["error"]["message"]
        short = (await task(ttl=400))["result"]["task"]
        with anyio.fail_after(DEADLINE_S):
            while "error" not in (last := await session.call("tasks/get", short)):
                assert last["result"]["ttl"] == 400
                await anyio.sleep(0.05)
        assert (last["error"]["code"], last["error"]["message"]) == UNKNOWN


async def test_the_extension_of_the_chapter_waits_for_tasks(
    event_settings: Settings, service: Recorder
) -> None:
    """docs/events.md has it, for the official client."""
    chapter = (ROOT / "docs/events.md").read_text().partition("## Tasks of MCP")[2]
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(chapter.partition("```python\n")[2].partition("```")[0], namespace)
    async with (
        running(event_settings) as gateway,
        OfficialClient(f"{gateway.url}/mcp", extensions=[namespace["Tasks"]()]) as client,
    ):
        begun = await client.session.call_tool("slow", {}, allow_claimed=True)
        assert isinstance(begun, namespace["Begun"])
        service.release.set()
        context = ClaimContext(session=client.session, tool_name="slow", read_timeout_seconds=None)
        with anyio.fail_after(DEADLINE_S):
            result = await namespace["wait_for_task"](begun, context)
        assert result.structured_content["heard"]["path"] == "/slow"


async def test_requests_about_tasks_wait_for_the_turns_of_their_caller(client: Client) -> None:
    session = await client.session(LEGACY)
    task = (await begin_task(session, "getPet", id=7))["taskId"]
    pool = client.gateway._handle.pool()
    assert pool is not None
    async with borrow(pool) as connection:
        rows = await connection.execute("SELECT host_id::text, principal_id FROM invocation_v")
        caller = await rows.fetchone()
    assert caller is not None
    async with hold_turns(pool, caller):
        for send in (
            partial(session.call, "tasks/get", {"taskId": task}),
            partial(modern, client, "tools/call", name="getPet", arguments={"id": 7}),
        ):
            with anyio.move_on_after(0.5) as waited:
                await send()
            assert waited.cancelled_caught, send
    answer = await session.call("tasks/get", {"taskId": task}, 2)
    assert answer["result"]["taskId"] == task, answer


async def test_requests_about_tasks_without_a_connection_are_to_be_repeated(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await client.session(LEGACY)
    task = (await begin_task(session, "getPet", id=7))["taskId"]
    monkeypatch.setattr(Journal, "get", fail_without_turn)
    monkeypatch.setattr(InvocationAcceptor, "accept", fail_without_turn)
    call = {"name": "getPet", "arguments": {"id": 7}, "task": {}}
    for method, params in (("tasks/get", {"taskId": task}), ("tools/call", call)):
        error = (await session.call(method, params))["error"]
        text = "Too many requests of this caller wait for the database; try again later"
        assert (error["code"], error["message"]) == (1503, text), method


async def test_accepted_calls_become_tasks_without_a_connection_for_their_end(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error would have the client repeat a call that runs."""
    with monkeypatch.context() as patch:
        patch.setattr(CompletionWaiters, "until_ended", fail_without_turn)
        answer = await modern(client, "tools/call", name="getPet", arguments={"id": 7})
    task = answer["result"]
    assert task["resultType"] == "task"
    known = await modern(client, "tasks/get", taskId=task["taskId"])
    assert known["result"]["taskId"] == task["taskId"]


async def test_accepted_invocations_are_answered_without_a_further_connection(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error would have the client repeat a call that runs."""
    session = await client.session(LEGACY)
    monkeypatch.setattr(Journal, "get", fail_without_turn)
    call = {"name": "getPet", "arguments": {"id": 7}, "task": {}}
    answer = await session.call("tools/call", call)
    assert answer["result"]["task"]["status"] == "working"
    invocation = await invoke_skill(client, "getPet", {"id": 7})
    assert (invocation["status"], invocation["arguments"]) == ("PENDING", {"id": 7})


async def test_a_wait_over_rest_goes_on_after_a_question(
    client: Client, service: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Questions of a task wake those who wait for its end."""
    until_ended = CompletionWaiters.until_ended

    async def wake_early(waits: CompletionWaiters, *args: Any) -> None:
        if service.release.is_set():
            await until_ended(waits, *args)
        service.release.set()

    session = await client.session(LEGACY)
    await begin_task(session, "slow")
    _, page = await got(client, "/events/v1/invocations")
    monkeypatch.setattr(CompletionWaiters, "until_ended", wake_early)
    _, row = await got(client, f"/events/v1/invocations/{page['items'][0]['id']}?waitS=30")
    assert row["status"] == "ACKED"


async def fail_without_turn(*_: object, **__: object) -> None:
    raise NoTurn
