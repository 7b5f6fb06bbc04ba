"""What a model is told before it is asked, and what the calls of its run are marked with."""

import dataclasses
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from config.settings import DatabaseSettings
from gateway.context import NO_CALL_HEADERS, Context, Identity, Principal, RunMark
from gateway.operations.stored_callers import caller_of, later_context, read_caller
from gateway.wings.agent.toolbox import Toolbox
from registry.access.approvals import ApprovalRequest, Approvals
from registry.search.usage_log import UsageLog
from schemas.mcp.revisions import V2025_11_25
from tests import polling
from tests.fixtures_database import HOST
from tests.fixtures_gateway import Recorder, running
from tests.fixtures_servers import serving
from tests.servers.provider import Answer, chat_whole, providing
from tests.wings.agent.rig import Rig, agent_settings
from tests.wings.agent.test_rights import call_agent, until
from tests.wings.agent.test_takeover import GET, PET
from tests.wings.holding import holding

pytestmark = pytest.mark.anyio

SCOPES = frozenset(
    {"agent:read", "agent:write", "memory:read", "memory:write", "pets"}
    | {"knowledge:read", "knowledge:write", "librarian:read"}
)


def caller(name: str, run: RunMark | None = None) -> Context:
    identity = Identity(Principal(name, HOST, scopes=SCOPES), verified=True)
    return Context(identity, V2025_11_25, "1", run=run)


@pytest.fixture(scope="module")
async def rig(
    module_database: DatabaseSettings, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Rig]:
    """The agent beside the memory and the knowledge."""
    service = Recorder()
    folder: Path = tmp_path_factory.mktemp("agent")
    async with serving(service) as service.url, providing(Answer()) as provider:
        settings = agent_settings(
            module_database, folder / "pets.json", service, provider.url,
            context_tools=("memory_context", "knowledge_query", "pets.getPet", "pets.noSuchTool"),
        )  # fmt: skip
        settings = replace(
            settings,
            memory=replace(settings.memory, enabled=True),
            knowledge=replace(settings.knowledge, enabled=True),
            librarian=replace(settings.librarian, enabled=True),
        )
        async with running(settings) as client:
            yield Rig(client, provider, service)


async def test_memory_is_read_before_a_run_and_written_afterwards(rig: Rig) -> None:
    ann = caller("ann")
    await call_agent(rig, ann, "memory_add", content="Ann likes grey cats.", scope="user")
    rig.script(chat_whole("A grey one, then."))
    run = await call_agent(rig, ann, "agent_ask", message="Which cats does Ann like?")
    told = rig.sent_messages(0)[1]
    assert told["role"] == "user"
    assert 'source="memory_context" trusted="no">' in told["content"]
    assert "likes grey cats" in told["content"]
    assert "noSuchTool" not in told["content"]
    assert 'getPet" trusted' not in told["content"]  # it failed: it has other arguments
    found = await call_agent(rig, ann, "memory_list", session=run["conversation"], scope="session")
    assert {one["content"] for one in found["items"]} == {
        "Which cats does Ann like?", "A grey one, then.",
    }  # fmt: skip
    bob = caller("bob")
    await call_agent(rig, bob, "agent_ask", message="Which cats does Ann like?")
    assert "likes grey cats" not in str(rig.sent_messages(1))


async def test_knowledge_is_read_before_a_run(rig: Rig) -> None:
    """As the caller: a document of another one is not."""
    eve = caller("eve")
    for text in ("Axolotls regrow limbs.", "Newts regrow eyes."):
        await call_agent(rig, eve, "knowledge_add", collection="eves", text=text)

    async def is_found() -> bool:
        found = await call_agent(rig, eve, "knowledge_query", query="What do axolotls regrow?")
        return "limbs" in str(found)

    await polling.until(is_found)
    rig.script(chat_whole("Limbs."), chat_whole("Who knows."))
    run = await call_agent(rig, eve, "agent_ask", message="What do axolotls regrow?")
    assert run["answer"] == "Limbs."
    told = rig.sent_messages(0)[1]["content"]
    assert 'source="knowledge_query" trusted="no">' in told
    assert "regrow limbs" in told
    await call_agent(rig, caller("mallory"), "agent_ask", message="What do axolotls regrow?")
    assert "knowledge_query" not in str(
        rig.sent_messages(1)
    )  # nothing found is not told, and taints nothing


async def test_context_tools_are_marked_like_the_calls_of_the_run(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts: dict[str, Context] = {}
    told = Toolbox.ask_tool

    async def record_context(tools: Toolbox, context: Context, name: str, *rest: Any) -> str:
        contexts[name] = context
        return await told(tools, context, name, *rest)

    monkeypatch.setattr(Toolbox, "ask_tool", record_context)
    dan = caller("dan")
    dan = replace(dan, headers=replace(dan.headers, idempotency_key="dans-own"))
    rig.script(chat_whole("", [GET]), chat_whole("Done."))
    await call_agent(rig, dan, "agent_ask", message="Look.")
    marks = {name: one.run for name, one in contexts.items()}
    assert marks["memory_context"] == RunMark(tainted=False)
    assert marks["memory_observe"] == RunMark(tainted=True)
    keys = {one.headers.idempotency_key for one in contexts.values()}
    assert len(keys) == len(contexts)
    assert "dans-own" not in keys


async def test_after_a_result_from_outside_changes_need_an_approval(rig: Rig) -> None:
    """By the rule `context.tainted && !tool.readOnly`."""
    careful = caller("careful")
    rig.script(chat_whole("", [PET]), chat_whole("Done."))
    assert (await call_agent(rig, careful, "agent_ask", message="Make one."))["answer"] == "Done."
    assert rig.service_calls.count("POST /pets") == 1
    rig.script(chat_whole("", [GET]), chat_whole("", [PET]), chat_whole("Done."))
    run = await call_agent(rig, careful, "agent_ask", message="Copy it.", wait=False)
    await until(rig, careful, run["run"], "waiting")
    assert rig.service_calls == ["GET /pets/7"]
    # and what an earlier turn has read counts, too
    await call_agent(rig, careful, "agent_cancel_run", run=run["run"])
    rig.script(chat_whole("", [PET]), chat_whole("Done."))
    run = await call_agent(
        rig, careful, "agent_send", conversation=run["conversation"], content="Do.", wait=False
    )
    await until(rig, careful, run["run"], "waiting")
    assert rig.service_calls == []


@pytest.mark.parametrize("later", [False, True])
async def test_calls_for_a_run_do_not_reach_the_agent(rig: Rig, later: bool) -> None:
    rig.script(chat_whole("Never."))
    context = caller("eve", RunMark(tainted=True))
    if later:  # as jobs, invocations and tasks of MCP make calls
        stored = read_caller(caller_of(context))
        context = later_context(stored, stored.principal, request_id="2", headers=NO_CALL_HEADERS)
    parts = await rig.parts()
    for name in ("agent_ask", "call_tool"):
        arguments: dict[str, Any] = {"message": "Again."}
        if name == "call_tool":
            arguments = {"name": "agent_ask", "arguments": arguments}
        result = await parts.call(context, name, arguments)
        assert result.is_error
        text = json.dumps([getattr(one, "text", "") for one in result.content])
        assert "An agent does not call agents" in text
    assert rig.provider.requests == []


async def test_an_erasure_reaches_conversations_and_the_search_log(rig: Rig) -> None:
    """Texts of an erased person stay in no table: conversations of the agent, approvals, jobs and
    the log of searches have copies of them (mending 10)."""
    zoe, tom, told = caller("zoe"), caller("tom"), "xylophonequartz"
    await call_agent(rig, zoe, "memory_add", content=f"Zoe likes {told} cats.", scope="user")
    rig.script(chat_whole(f"A {told} one."), chat_whole("Black ones."))
    keyed = replace(zoe, headers=replace(zoe.headers, idempotency_key="a"))
    await call_agent(rig, keyed, "agent_ask", message="Which cats does Zoe like?")
    await call_agent(rig, tom, "agent_ask", message="Which cats are there?")
    pool = rig.client.gateway.feed.pool
    assert pool is not None
    wanted = ApprovalRequest("zoe", str(uuid4()), "buy", "shop", "d" * 64, "r", "")
    shown = f'{{"what": "{told}"}}'
    decided, _ = await Approvals(pool, HOST).request(wanted, shown, 60, 9)
    await Approvals(pool, HOST).decide(decided, True, "tom")
    again = dataclasses.replace(wanted, digest="e" * 64)
    await Approvals(pool, HOST).request(again, shown, 60, 9)
    log = UsageLog(lambda: pool, 1, 1000)
    await log.record(HOST, str(uuid4()), request_id=str(uuid4()), query=told, principal="zoe")
    await call_agent(rig, zoe, "librarian_query", question=f"Which {told} cats?")
    job = "INSERT INTO job_t (host_id, operation, principal_id, principal, request, state, result,"
    job += " ended_ts) VALUES (%s, 'x', 'zoe', '{}', %s, %s, %s, %s)"
    async with pool.connection() as connection:
        await connection.execute(job, [HOST, "null", "succeeded", shown, datetime.now(UTC)])
        await connection.execute(job, [HOST, shown, "waiting", None, None])
    copies = {"agent_step_t", "approval_t", "usage_request_t", "librarian_question_t", "job_t"}
    assert copies | {"command_idempotency_t"} <= set(await holding(pool, told))
    assert await call_agent(rig, zoe, "memory_forget", subject="zoe")
    assert await holding(pool, told) == []
    assert len((await call_agent(rig, tom, "agent_list_runs"))["runs"]) == 1
