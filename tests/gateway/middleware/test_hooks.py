"""Hooks of operators around calls: on every front, before rules, and next to services."""

import asyncio
import contextlib
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from config.access import Guardrail, Rule
from config.hooks import HookSettings
from config.settings import Settings
from config.sources import SourceSettings
from gateway.audit.queries import AuditQuery, search
from gateway.cli.doctor.registry import hook_runs
from gateway.middleware.hooks.configured_hook import Hook, HookFailed
from schemas.errors import ToolgateError
from tests.fixtures_gateway import Client, Recorder, running
from tests.fixtures_servers import serving
from tests.polling import until
from tests.servers.hooks import EVENTS, GATE, MODULE, SECRET, Endpoint
from tests.servers.mcp_wire import MODERN, Scripted, Turn

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _no_events() -> None:
    EVENTS.clear()


def hook(function: str, at: Any = "before", **members: Any) -> HookSettings:
    return HookSettings(at, use=f"{MODULE}:{function}", **members)


def with_hooks(settings: Settings, **hooks: HookSettings) -> Settings:
    return replace(settings, hooks=hooks)


async def create(client: Client, name: str = "rex") -> Any:
    _, answer = await client.modern(
        "tools/call", {"name": "createPet", "arguments": {"name": name}}
    )
    return answer["result"]


def threads_of(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"hook-{name}")]


def text_of(result: Any) -> str:
    return result["content"][0]["text"]


async def test_every_front_asks_a_hook_once_for_each_call(
    settings: Settings, service: Recorder
) -> None:
    call = {"name": "getPet", "arguments": {"id": 1}}
    inner = {"name": "call_tool", "arguments": call}
    deferring = replace(settings, disclosure=replace(settings.disclosure, mode="search"))
    async with running(with_hooks(deferring, watch=hook("remember"))) as client:
        session = await client.session()
        await session.call("tools/call", call)
        assert [event["front"] for event in EVENTS] == ["2025-06-18"]
        await client.modern("tools/call", call)
        await client.modern("tools/call", inner)
        await client.rpc({"jsonrpc": "2.0", "id": 1, "method": "getPet", "params": {"id": 1}})
        member = {"jsonrpc": "2.0", "method": "tools/call", "params": call}
        await client.rpc([{**member, "id": 1}, member, {**member, "id": 2}])
        assert len(EVENTS) == 7
        await client.modern("tools/call", {"name": "search_tools", "arguments": {"query": "pet"}})
    assert len(EVENTS) == len(service.requests) == 7
    assert len({event["id"] for event in EVENTS}) == 7
    assert {event["attempt"] for event in EVENTS} == {1}


async def test_a_hook_gets_facts_and_no_token(settings: Settings) -> None:
    async with running(with_hooks(settings, watch=hook("remember"))) as client:
        token = {"Authorization": "Bearer very-secret"}
        await client.modern("tools/call", {"name": "getPet", "arguments": {"id": 1}}, **token)
    [event] = EVENTS
    assert event["v"] == 1
    tool = event["tool"]
    assert (tool["name"], tool["source"], tool["tier"]) == ("getPet", "pets", None)
    assert tool["hints"]["readOnlyHint"] is True
    assert event["arguments"] == {"id": 1}
    assert event["principal"] == "anonymous"
    assert event["context"]["tainted"] is False
    assert "very-secret" not in json.dumps(event)


async def test_changed_arguments_reach_the_service(settings: Settings, service: Recorder) -> None:
    async with running(with_hooks(settings, name=hook("rename", changes=True))) as client:
        await create(client)
    assert json.loads(service.requests[-1]["body"]) == {"name": "rex the second"}


async def test_a_hook_changes_nothing_by_its_own_copy(
    settings: Settings, service: Recorder
) -> None:
    only = hook("rename", when="arguments.name == 'unchanged'", changes=True)
    watching = hook("rename", order=-1, failure="pass")
    async with running(with_hooks(settings, watching=watching, only=only)) as client:
        await create(client)
    assert json.loads(service.requests[-1]["body"]) == {"name": "rex"}


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({}, "failed"),  # it may change nothing
        ({"changes": True, "name": "old"}, "failed"),  # what it changes does not fit the schema
    ],
)
async def test_changes_that_may_not_be_are_a_failure(
    settings: Settings, service: Recorder, members: dict[str, Any], reason: str
) -> None:
    name = members.pop("name", "rex")
    async with running(with_hooks(settings, name=hook("rename", **members))) as client:
        result = await create(client, name)
    assert result["isError"]
    assert reason in text_of(result)
    assert service.requests == []


async def test_rules_judge_changed_arguments(settings: Settings, service: Recorder) -> None:
    deny = Rule(effect="deny", tools=("createPet",), when="arguments.name == 'rex the second'")
    policy = replace(settings.policy, rules={"no-seconds": deny})
    ruled = replace(with_hooks(settings, name=hook("rename", changes=True)), policy=policy)
    async with running(ruled) as client:
        _, answer = await client.modern(
            "tools/call", {"name": "createPet", "arguments": {"name": "rex"}}
        )
    assert answer["error"]["code"] == -32602
    assert service.requests == []


async def test_approvers_see_changed_arguments(settings: Settings, service: Recorder) -> None:
    approve = Rule(effect="approve", tools=("createPet",))
    policy = replace(settings.policy, rules={"ask": approve})
    ruled = replace(with_hooks(settings, name=hook("rename", changes=True)), policy=policy)
    async with running(ruled) as client:
        await create(client)
        pool = client.gateway._handle.pool()
        assert pool is not None
        async with pool.connection() as connection:
            [row] = await (await connection.execute("SELECT arguments FROM approval_t")).fetchall()
    assert "rex the second" in str(row)
    assert service.requests == []


@pytest.mark.parametrize(("failure", "calls"), [("refuse", 0), ("pass", 1)])
@pytest.mark.parametrize("function", ["crash", "sleep"])
async def test_a_hook_that_fails_refuses_unless_told_to_pass(
    settings: Settings, service: Recorder, failure: Any, calls: int, function: str
) -> None:
    failing = hook(function, failure=failure, timeout_s=0.05)
    async with running(with_hooks(settings, failing=failing)) as client:
        result = await create(client)
        metrics = await (await client.http.get(client.url + "/metrics")).text()
    assert len(service.requests) == calls
    assert result.get("isError", False) is (calls == 0)
    assert "a secret of the operator" not in json.dumps(result)
    outcome = "passed" if calls else "failed"
    assert f'toolgate_hook_calls_total{{hook="failing",outcome="{outcome}"}} 1.0' in metrics


async def test_a_hook_that_keeps_failing_is_not_asked(settings: Settings) -> None:
    breaker = replace(settings.breaker, calls=3)
    failing = replace(with_hooks(settings, failing=hook("crash")), breaker=breaker)
    async with running(failing) as client:
        for _ in range(6):
            assert (await create(client))["isError"]
    assert len(EVENTS) == 3


async def test_one_caller_opens_the_circuit_of_a_hook_for_itself_alone(settings: Settings) -> None:
    breaker = replace(settings.breaker, calls=3, failures=0.5)
    checked = Hook("failing", hook("crash"), breaker, 100)
    for _ in range(20):
        assert await outcome_of(checked, "ann") == "HookFailed"
    assert len(EVENTS) == 3
    for name in ("bob", "cat"):  # now it is no longer the caller
        assert await outcome_of(checked, name) == "HookFailed"
    assert await outcome_of(checked, "dan") == "HookFailed"
    assert [event["principal"] for event in EVENTS] == ["ann", "ann", "ann", "bob", "cat"]
    await checked.retire()


async def test_callers_of_a_tenant_open_the_circuit_of_a_hook_for_their_tenant_alone(
    settings: Settings,
) -> None:
    breaker = replace(settings.breaker, calls=3, failures=0.5)
    checked = Hook("failing", hook("crash"), breaker, 100)
    for number in range(20):
        assert await outcome_of(checked, f"ann{number}", "a") == "HookFailed"
    assert [event["tenant"] for event in EVENTS] == ["a"] * 3
    for tenant in "bcd":
        assert await outcome_of(checked, "bob", tenant) == "HookFailed"
    assert [event["tenant"] for event in EVENTS[3:]] == ["b", "c"]  # now it is no longer a tenant
    await checked.retire()


async def test_shares_of_a_hook_are_settings(settings: Settings) -> None:
    GATE.clear()
    slow = hook("wait_for_gate", concurrency=2, timeout_s=0.1, caller_share=1.0, tenant_share=1.0)
    checked = Hook("slow", slow, settings.breaker, 100)
    try:
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(outcome_of(checked, "ann")) for _ in range(3)]
        assert [task.result() for task in asked].count("HookBusy") == 1
    finally:
        GATE.set()
        await checked.retire()


@pytest.mark.parametrize("failure", ["refuse", "pass"])
async def test_slow_calls_of_one_caller_delay_no_second_caller(
    settings: Settings, failure: Any
) -> None:
    """Not even the threads that nobody waits for any more are all theirs."""
    GATE.clear()
    breaker = replace(settings.breaker, calls=2, failures=0.9)
    slow = hook("wait_for_gate", concurrency=2, timeout_s=0.1, failure=failure)
    checked = Hook("slow", slow, breaker, 100)
    try:
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(outcome_of(checked, "ann")) for _ in range(3)]
        assert [task.result() for task in asked].count("HookBusy") == 2
        assert (await outcome_of(checked, "bob")) == "was asked"
        assert checked.outcomes["busy"] == 2
    finally:
        GATE.set()
    with anyio.fail_after(5):
        while await outcome_of(checked, "ann") == "HookBusy":
            pass
    await checked.retire()


async def outcome_of(asked: Hook, principal: str, tenant: str = "t") -> str:
    try:
        return (await asked.ask({"tenant": tenant, "principal": principal})).refuse or "passed"
    except HookFailed as error:
        return type(error).__name__


async def test_a_call_that_gets_no_turn_is_refused_though_failures_pass(
    settings: Settings, service: Recorder
) -> None:
    GATE.clear()
    slow = hook("wait_for_anybody", concurrency=1, timeout_s=0.1, failure="pass")
    async with running(with_hooks(settings, slow=slow)) as client:
        try:
            await create(client)  # its thread goes on
            assert "busy" in text_of(await create(client))
        finally:
            GATE.set()
    assert len(service.requests) == 1


async def test_a_refusal_is_the_result_of_the_call(settings: Settings, service: Recorder) -> None:
    async with running(with_hooks(settings, no=hook("refuse", tools=("create*",)))) as client:
        assert text_of(await create(client)) == "Refused by the hook 'no': not today"
        _, answer = await client.modern("tools/call", {"name": "getPet", "arguments": {"id": 1}})
        assert not answer["result"].get("isError")
    assert len(service.requests) == len(EVENTS) == 1


async def test_an_answer_of_a_hook_is_judged_like_the_service_s(
    settings: Settings, service: Recorder
) -> None:
    rule = Guardrail(looks_at="result", effect="redact", pattern="hook")
    guardrails = replace(settings.guardrails, rules={"no-hooks": rule})
    answering = replace(
        with_hooks(settings, cache=hook("answer", changes=True)), guardrails=guardrails
    )
    async with running(answering) as client:
        result = await create(client)
    assert text_of(result) == "of the ***"
    assert service.requests == []


async def test_a_result_that_a_hook_changes_is_masked(settings: Settings) -> None:
    rule = Guardrail(looks_at="result", effect="redact", pattern="4111-1111")
    guardrails = replace(settings.guardrails, rules={"cards": rule})
    stamping = replace(
        with_hooks(settings, stamp=hook("stamp", "after", changes=True)), guardrails=guardrails
    )
    async with running(stamping) as client:
        result = await create(client)
        answer = await client.rpc(
            {"jsonrpc": "2.0", "id": 1, "method": "createPet", "params": {"name": "rex"}}
        )
    assert result["content"][-1]["text"] == "card ***"
    assert "heard" in json.dumps(answer["result"])
    assert "heard" in json.dumps(EVENTS[0]["result"]["structuredContent"])


async def test_a_long_result_is_told_by_size_and_hash(settings: Settings) -> None:
    async with running(
        with_hooks(settings, stamp=hook("stamp", "after", result_bytes=10))
    ) as client:
        assert not (await create(client)).get("isError")
    assert EVENTS[0]["result"].keys() == {"bytes", "sha256"}


async def test_a_record_names_hooks_versions_and_changed_paths(
    settings: Settings, tmp_path: Path
) -> None:
    audit = replace(settings.audit, mode="always", spool_dir=str(tmp_path / "spool"))
    recording = replace(settings, audit=audit)
    hooks = {"name": hook("rename", changes=True), "watch": hook("remember", order=1)}
    async with running(with_hooks(recording, **hooks)) as client:
        await create(client)
        await client.gateway.access.settle()
        assert client.gateway.feed.pool is not None
        page = await search(client.gateway.feed.pool, settings.tenant.host_id, AuditQuery())
    [record] = page.records
    ran = json.loads(record.entry.hooks)
    assert [(entry["name"], entry["version"], entry.get("changed")) for entry in ran] == [
        ("name", "7.1", ["/name"]),
        ("watch", "7.1", None),
    ]
    assert all(entry["us"] > 0 for entry in ran)


async def test_the_doctor_reports_the_last_run_of_each_hook(
    settings: Settings, tmp_path: Path
) -> None:
    audit = replace(settings.audit, mode="always", spool_dir=str(tmp_path / "spool"))
    hooks = {
        "good": hook("remember"),
        "bad": hook("crash", "after", failure="pass"),
        "idle": hook("remember", tools=("delete*",)),
    }
    recording = with_hooks(replace(settings, audit=audit), **hooks)
    async with running(recording) as client:
        for _ in range(2):
            await create(client)
        await client.gateway.access.settle()
        database = SimpleNamespace(pool=client.gateway.feed.pool)
        registry: Any = SimpleNamespace(database=database, host_id=settings.tenant.host_id)
        good, bad, idle = [check async for check in hook_runs(recording, registry)]
    assert good.status == idle.status == "ok"
    assert good.detail.endswith("succeeded; 0 of 2 failed")
    assert bad.status == "warning"
    assert bad.detail.endswith("failed: RuntimeError in it, or in its answer; 2 of 2 failed")
    assert "no run" in idle.detail


async def test_a_record_cuts_long_names_of_changed_arguments(
    settings: Settings, tmp_path: Path
) -> None:
    audit = replace(settings.audit, mode="always", spool_dir=str(tmp_path / "spool"))
    travel = Scripted({"tools/list": list_tools, "tools/call": book}, capabilities={"tools": {}})
    async with serving(travel) as url:
        sources = {"travel": SourceSettings(mcp=url, era="handshake")}
        recording = replace(settings, audit=audit, sources=sources)
        adding = hook("add_long_name", changes=True)
        async with running(with_hooks(recording, adding=adding)) as client:
            await client.modern("tools/call", {"name": "book", "arguments": {}})
            await client.gateway.access.settle()
            assert client.gateway.feed.pool is not None
            page = await search(client.gateway.feed.pool, settings.tenant.host_id, AuditQuery())
    [entry] = json.loads(page.records[0].entry.hooks)
    assert entry["changed"] == ["/" + 199 * "x"]


async def test_a_hook_that_cannot_be_loaded_stops_the_reload_alone(
    settings: Settings, service: Recorder
) -> None:
    async with running(with_hooks(settings, name=hook("rename", changes=True))) as client:
        broken = with_hooks(settings, name=hook("missing"))
        with pytest.raises(ToolgateError, match=r"hooks\.name\.use: .* has no function missing"):
            await client.gateway.reconfigure(broken)
        await create(client)
        assert json.loads(service.requests[-1]["body"]) == {"name": "rex the second"}
        await client.gateway.reconfigure(with_hooks(settings))
        await create(client)
        assert json.loads(service.requests[-1]["body"]) == {"name": "rex"}
        await client.gateway.reconfigure(with_hooks(settings, no=hook("refuse")))
        assert (await create(client))["isError"]


async def test_hooks_that_a_reload_replaces_keep_no_thread_or_connection(
    settings: Settings, service: Recorder
) -> None:
    opened: list[asyncio.BaseTransport] = []

    class Connection(HttpToolsProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            opened.append(transport)
            super().connection_made(transport)

    async with serving(Endpoint(), Connection) as url:
        remote = HookSettings("before", url=url, secret=SECRET)
        hooks = {"remote": remote, "thread": hook("rename", changes=True)}
        async with running(with_hooks(settings, **hooks)) as client:
            await create(client)
            assert not opened[0].is_closing()
            assert threads_of("thread")
            await client.gateway.reconfigure(with_hooks(settings))
            await until(lambda: opened[0].is_closing() and not threads_of("thread"))


async def test_a_call_ends_with_the_hook_that_a_reload_replaces(
    settings: Settings, service: Recorder
) -> None:
    heard, go_on = anyio.Event(), anyio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        heard.set()
        await go_on.wait()
        await Endpoint()(scope, receive, send)

    async with serving(slow) as url, contextlib.AsyncExitStack() as stack:
        remote = HookSettings("before", url=url, secret=SECRET, timeout_s=60)
        client = await stack.enter_async_context(running(with_hooks(settings, remote=remote)))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(create, client)
        await heard.wait()
        await client.gateway.reconfigure(with_hooks(settings))
        go_on.set()
    assert len(service.requests) == 1


async def test_an_endpoint_is_asked_by_signed_requests(
    settings: Settings, service: Recorder
) -> None:
    endpoint = Endpoint({"arguments": {"name": "of the endpoint"}, "version": "2"})
    async with serving(endpoint) as url:
        remote = HookSettings("before", url=url, secret=SECRET, changes=True)
        async with running(with_hooks(settings, remote=remote)) as client:
            await create(client)
    assert json.loads(service.requests[-1]["body"]) == {"name": "of the endpoint"}
    [event], [headers] = endpoint.heard, endpoint.headers
    assert headers["webhook-id"] == event["id"]
    assert (event["at"], event["hook"]) == ("before", "remote")


@pytest.mark.parametrize(
    "endpoint",
    [
        Endpoint({}, answering_secret="whsec_" + "Yg" * 16 + "=="),  # forged
        Endpoint({}, replays=True),
        Endpoint({}, elsewhere="http://127.0.0.1:9/"),
        Endpoint({"unknown": 1}),
        Endpoint({"roles": ["admin"]}),
        Endpoint([]),
    ],
)
async def test_answers_of_no_proven_endpoint_refuse_the_call(
    settings: Settings, service: Recorder, endpoint: Endpoint
) -> None:
    async with serving(endpoint) as url:
        remote = HookSettings("before", url=url, secret=SECRET, changes=True)
        async with running(with_hooks(settings, remote=remote)) as client:
            results = [await create(client) for _ in range(2)]
    assert results[-1]["isError"]
    assert len(service.requests) == (1 if endpoint.replays else 0)


async def list_tools(turn: Turn) -> None:
    tools = [{"name": "book", "inputSchema": {"type": "object"}}]
    await turn.result(resultType="complete", tools=tools, ttlMs=0, cacheScope="private")


async def discover(turn: Turn) -> None:
    info = {"name": "travel", "version": "1"}
    await turn.result(
        resultType="complete", supportedVersions=[MODERN], capabilities={"tools": {}},
        serverInfo=info, ttlMs=0, cacheScope="private",
    )  # fmt: skip


async def book(turn: Turn) -> None:
    if "inputResponses" not in turn.params:
        form = {"mode": "form", "message": "When?", "requestedSchema": {"type": "object"}}
        asked = {"q": {"method": "elicitation/create", "params": form}}
        await turn.result(resultType="input_required", inputRequests=asked, requestState="own")
        return
    await turn.result(resultType="complete", content=[{"type": "text", "text": "done"}])


async def test_a_call_with_questions_asks_its_hooks_once(settings: Settings) -> None:
    plays = {"server/discover": discover, "tools/list": list_tools, "tools/call": book}
    travel = Scripted(plays, session=None)
    capable = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    }
    async with serving(travel) as url:
        sources = {"travel": SourceSettings(mcp=url, era="stateless")}
        hooks = {
            "name": hook("rename", changes=True),
            "last": hook("stamp", "after", changes=True),
        }
        async with running(with_hooks(replace(settings, sources=sources), **hooks)) as client:

            async def call(name: str, **more: Any) -> Any:
                headers = {
                    "MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "book",
                }  # fmt: skip
                params = {"name": "book", "arguments": {"name": name}, "_meta": capable, **more}
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                _, answer, _ = await client.post("/mcp", body, headers)
                return answer

            first = (await call("rex"))["result"]
            assert first["resultType"] == "input_required"
            answers = {"inputResponses": {"q": {"action": "accept", "content": {}}}}
            state = {"requestState": first["requestState"]}
            last = (await call("rex", **answers, **state))["result"]
            assert last["content"][0]["text"] == "done"
            assert [event["at"] for event in EVENTS] == ["before", "after"]
            rounds = [turn.params for turn in travel.all("tools/call")]
            assert [each["arguments"] for each in rounds] == [{"name": "rex the second"}] * 2
            assert rounds[1]["requestState"] == "own"
            refused = await call("other", **answers, **state)
            assert refused["error"]["code"] == -32602  # a state of other arguments
            await call("rex", **answers, requestState="own")  # no state of ours: they are asked
            assert [event["at"] for event in EVENTS] == ["before", "after"] * 2
