"""Questions of servers during tasks of MCP: asked of both revisions, answered at any node."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from mcp import Client as OfficialClient
from msgspec.structs import replace
from psycopg import AsyncConnection, sql

from config.settings import Settings
from config.sources import SourceSettings
from gateway.context import Asker, Principal
from gateway.operations.stored_callers import StoredCaller
from gateway.wings.events.invocation_journal import Delivery, Journal
from gateway.wings.events.task_questions import (
    LOOK_S,
    QuestionStore,
    TaskQuestions,
    check_answer,
)
from gateway.wings.events.wakeups import WakeupChannel
from registry.database.postgres import RESYNC, Database, Notice, Pool, autocommit, borrow
from schemas.errors import InvalidParams
from tests.fixtures_database import HOST
from tests.fixtures_gateway import DEADLINE_S, META, MODERN, Client, running
from tests.fixtures_servers import serving
from tests.gateway.federation.conftest import caller
from tests.polling import until
from tests.servers.mcp_wire import Turn
from tests.servers.painter import FORM, Painter
from tests.wings.events.drafts import accept_draft, claim_calls, end, upkeep
from tests.wings.events.rig import EXTENSION, invoke_skill, wait_for_end, with_events

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
LEGACY = "2025-11-25"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
ELICITATION: dict[str, Any] = {"elicitation": {}}
RED = {"action": "accept", "content": {"colour": "red"}}


@asynccontextmanager
async def painting(settings: Settings, painter: Painter, **changes: Any) -> AsyncIterator[Client]:
    """A gateway whose source `painter` is that server."""
    async with serving(painter) as url:
        sources = {**settings.sources, "painter": SourceSettings(mcp=f"{url}/mcp")}
        events = {"task_wait_s": 0.05, **changes}
        async with running(with_events(replace(settings, sources=sources), **events)) as client:
            await until(lambda: not client.gateway.federation.servers.failures())
            yield client


async def modern(
    client: Client,
    method: str,
    capabilities: Mapping[str, Any] = ELICITATION,
    *,
    asks_task: bool = True,
    **params: Any,
) -> Any:
    knows = {**capabilities, "extensions": {EXTENSION: {}}}
    meta = {**META, CAPABILITIES: knows, "toolgate/task": asks_task}
    sent = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    sent["Mcp-Name"] = params.get("name") or params.get("taskId") or ""
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    _, answer, _ = await client.post("/mcp", request, sent)
    return answer


async def paint(client: Client, capabilities: Any = ELICITATION, *, asks_task: bool = True) -> Any:
    """The answer to a call that asks for a colour, which may be a task."""
    call = {"name": "paint", "arguments": {}}
    return await modern(client, "tools/call", capabilities, asks_task=asks_task, **call)


async def begin(client: Client) -> str:
    answer = await paint(client)
    assert answer["result"]["resultType"] == "task", answer
    return str(answer["result"]["taskId"])


async def task_of(client: Client, task_id: str, *statuses: str) -> Any:
    """The task, once it has one of these statuses."""
    with anyio.fail_after(DEADLINE_S):
        while True:
            task = (await modern(client, "tasks/get", taskId=task_id))["result"]
            if task["status"] in statuses:
                return task
            await anyio.sleep(0.02)


async def respond(client: Client, task_id: str, **responses: Any) -> Any:
    return await modern(client, "tasks/update", taskId=task_id, inputResponses=responses)


async def test_a_task_waits_for_the_answer_of_its_client(settings: Settings) -> None:
    painter = Painter()
    async with painting(settings, painter) as client:
        task_id = await begin(client)
        task = await task_of(client, task_id, "input_required")
        [(key, asked)] = task["inputRequests"].items()
        assert asked["method"] == "elicitation/create"
        assert asked["params"]["requestedSchema"] == FORM
        assert asked["params"]["message"].endswith("Which colour?")
        assert "result" not in task

        refusals = {
            key: ({"action": "accept", "content": {"colour": 7}}, f"{key}.content: colour"),
            f"{key} ": ({"action": "accept", "content": {}}, ""),  # no question has this key
        }
        for name, (response, reason) in refusals.items():
            answer = await respond(client, task_id, **{name: response})
            if reason:
                assert answer["error"]["code"] == -32602
                assert reason in answer["error"]["message"]
            else:
                assert answer["result"] == {"resultType": "complete"}
        for wrong in ("yes", {"action": "maybe"}, [RED]):
            message = (await respond(client, task_id, **{key: wrong}))["error"]["message"]
            assert "expected an object whose action is one of accept, decline, cancel" in message
        error = (await modern(client, "tasks/update", taskId=task_id, inputResponses=[1]))["error"]
        assert "inputResponses: expected an object" in error["message"]
        assert (await task_of(client, task_id, "input_required"))["inputRequests"] == {key: asked}

        assert (await respond(client, task_id, **{key: RED}))["result"] == {
            "resultType": "complete"
        }
        ended = await task_of(client, task_id, "completed")
        assert ended["result"]["content"][0]["text"] == "accept red"
        await until(lambda: has_no_questions(client))
        late = await respond(client, task_id, **{key: {"action": "decline"}})
        assert late["result"] == {"resultType": "complete"}
    assert painter.calls == 2  # the call, and its retry with the answer


async def has_no_questions(client: Client) -> bool:
    pool = client.gateway.feed.pool
    assert pool is not None
    async with borrow(pool) as connection:
        rows = await connection.execute("SELECT count(*) FROM invocation_question_t")
        return await rows.fetchall() == [(0,)]


async def test_a_pattern_names_tools_of_mcp_servers_that_become_tasks(settings: Settings) -> None:
    expected = {("*",): "input_required", ("*", "pai*"): "task"}
    for patterns, kind in expected.items():
        async with painting(settings, Painter(), tasks=patterns) as client:
            assert (await paint(client, asks_task=False))["result"]["resultType"] == kind


async def test_the_extension_of_the_chapter_answers_questions(settings: Settings) -> None:
    """docs/events.md has it, for the official client."""
    chapter = (ROOT / "docs/events.md").read_text().partition("## Tasks of MCP")[2]
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(chapter.partition("```python\n")[2].partition("```")[0], namespace)

    async def ask(question: dict[str, Any]) -> dict[str, Any]:
        assert question["requestedSchema"] == FORM
        return RED

    async def show_form(context: Any, params: Any) -> Any:
        raise AssertionError("the question is one of a task")

    namespace["ask"] = ask
    async with (
        painting(settings, Painter(), tasks=("paint",)) as gateway,
        OfficialClient(
            f"{gateway.url}/mcp", extensions=[namespace["Tasks"]()], elicitation_callback=show_form
        ) as client,
    ):
        result = await client.call_tool("paint", {})
        assert result.content[0].text == "accept red"  # type: ignore[union-attr]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_refused_question_reaches_the_server(settings: Settings, action: str) -> None:
    async with painting(settings, Painter()) as client:
        task_id = await begin(client)
        task = await task_of(client, task_id, "input_required")
        [key] = task["inputRequests"]
        await respond(client, task_id, **{key: {"action": action, "content": {"colour": "red"}}})
        ended = await task_of(client, task_id, "completed")
        assert ended["result"]["content"][0]["text"] == action


async def test_a_question_is_answered_at_another_gateway(settings: Settings) -> None:
    painter = Painter()
    async with (
        painting(settings, painter) as first,
        running(with_events(settings, concurrency=0)) as second,
    ):
        task_id = await begin(first)
        task = await task_of(second, task_id, "input_required")
        [key] = task["inputRequests"]
        await respond(second, task_id, **{key: RED})
        ended = await task_of(second, task_id, "completed")
        assert ended["result"]["content"][0]["text"] == "accept red"


async def test_a_result_of_2025_11_25_asks_its_client_first(
    settings: Settings,
) -> None:
    async with painting(settings, Painter()) as client:
        person = await caller(client, LEGACY, ELICITATION)
        call = {"name": "paint", "arguments": {}, "task": {"ttl": 60_000}}
        task = (await person.result("tools/call", call))["result"]["task"]
        named = {"taskId": task["taskId"]}

        async def asks() -> bool:
            answer = await person.result("tasks/get", named)
            return bool(answer["result"]["status"] == "input_required")

        await until(asks)
        async with person.send_request("tasks/result", named) as stream:
            asked = await stream.next()
            assert asked["method"] == "elicitation/create"
            assert asked["params"]["requestedSchema"] == FORM
            related = asked["params"]["_meta"]["io.modelcontextprotocol/related-task"]
            assert related == named
            await person.answer(asked["id"], RED)
            answer = (await stream.all())[-1]
        assert answer["result"]["content"][0]["text"] == "accept red"


async def test_a_client_without_forms_is_not_asked(settings: Settings) -> None:
    async with painting(settings, Painter(), task_wait_s=DEADLINE_S) as client:
        answer = await paint(client, {})
        assert "cannot be asked for input" in str(answer)


async def test_a_question_without_an_answer_is_cancelled(settings: Settings) -> None:
    async with painting(settings, Painter(), answer_s=1) as client:
        task = await task_of(client, await begin(client), "completed")
        assert task["result"]["content"][0]["text"] == "cancel"
        await until(lambda: has_no_questions(client))


async def test_tasks_that_wait_for_answers_leave_their_places_to_calls(settings: Settings) -> None:
    async with painting(settings, Painter(), concurrency=1, tenant_running=1) as client:
        tasks = [await begin(client) for _ in range(3)]
        for task_id in tasks:
            await task_of(client, task_id, "input_required")
        made = await invoke_skill(client, "getPet", {"id": 7})
        assert (await wait_for_end(client, made["id"]))["status"] == "ACKED"


@pytest.mark.parametrize("limit", ["questions", "tenant_questions", "principal_questions"])
async def test_questions_beyond_the_limit_are_cancelled(settings: Settings, limit: str) -> None:
    async with painting(settings, Painter(), **{limit: 1}) as client:
        first = await begin(client)
        await task_of(client, first, "input_required")
        result = (await paint(client))["result"]
        if result["resultType"] == "task":
            result = (await task_of(client, result["taskId"], "completed"))["result"]
        assert result["content"][0]["text"] == "cancel"
        [key] = (await task_of(client, first, "input_required"))["inputRequests"]
        await respond(client, first, **{key: RED})
        await task_of(client, first, "completed")


async def test_a_cancelled_task_leaves_no_question(settings: Settings) -> None:
    async with painting(settings, Painter()) as client:
        task_id = await begin(client)
        await task_of(client, task_id, "input_required")
        await modern(client, "tasks/cancel", taskId=task_id)
        await task_of(client, task_id, "cancelled")
        await until(lambda: has_no_questions(client))


async def test_attempts_find_answers_of_former_attempts(settings: Settings) -> None:
    """A call whose process ended is made again, and asks as it did before."""
    params = {"message": "Which colour?", "requestedSchema": FORM}
    async with running(with_events(settings, concurrency=0)) as client:
        pool = client.gateway.feed.pool
        assert pool is not None
        journal = Journal(pool)
        questions = TaskQuestions(
            pool,
            client.gateway.settings.events,
            say=lambda notice: questions.hear(notice),
            freed=lambda: None,
        )

        async def expect_red(ask: Asker) -> None:
            assert await ask(params) == RED

        id_ = await accept_draft(journal)
        person = StoredCaller(Principal("ada", HOST), shows_forms=True)
        [delivery] = await claim_calls(journal)
        ask = questions.asker(delivery, person)
        assert ask is not None
        async with anyio.create_task_group() as group:
            group.start_soon(expect_red, ask)
            key = await until(lambda: open_key(questions, id_))
            await questions.answer(HOST, id_, {key: RED})
        async with anyio.create_task_group() as group:
            group.start_soon(expect_red, ask)  # the same question once more is another one
            assert await until(lambda: open_key(questions, id_)) != key
            group.cancel_scope.cancel()
        await journal.release([delivery.key])
        assert await ask({**params, "message": "Late?"}) == {"action": "cancel"}
        [again] = await claim_calls(journal)
        ask = questions.asker(again, person)
        assert ask is not None
        assert await ask(params) == RED
        await journal.end([end(again)])
        assert await has_no_questions(client)


@asynccontextmanager
async def asking(settings: Settings) -> AsyncIterator[tuple[Journal, TaskQuestions]]:
    """The questions of a process without a loop that runs calls."""
    async with running(with_events(settings, concurrency=0)) as client:
        pool = client.gateway.feed.pool
        assert pool is not None
        events = client.gateway.settings.events
        questions = TaskQuestions(
            pool, events, say=lambda notice: questions.hear(notice), freed=lambda: None
        )
        yield Journal(pool), questions


PARAMS = {"message": "Which colour?", "requestedSchema": FORM}
ADA = StoredCaller(Principal("ada", HOST), shows_forms=True)


async def ask_colour(questions: TaskQuestions, delivery: Delivery) -> Any:
    ask = questions.asker(delivery, ADA)
    assert ask is not None
    return await ask(PARAMS)


async def test_a_call_that_ends_frees_places_of_its_questions(settings: Settings) -> None:
    """Servers over stdio ask outside of the call, which does not cancel their questions."""
    async with asking(settings) as (journal, questions):
        id_ = await accept_draft(journal)
        [delivery] = await claim_calls(journal)
        with anyio.fail_after(DEADLINE_S):
            async with anyio.create_task_group() as group:
                group.start_soon(ask_colour, questions, delivery)
                await until(lambda: open_key(questions, id_))
                questions.end_waits(delivery)
        assert questions.count_waiting() == 0
        assert await open_key(questions, id_) is None


async def test_a_late_attempt_leaves_questions_of_its_successor(settings: Settings) -> None:
    async with asking(settings) as (journal, questions):
        id_ = await accept_draft(journal)
        [late] = await claim_calls(journal)
        async with anyio.create_task_group() as group:
            group.start_soon(ask_colour, questions, late)
            key = await until(lambda: open_key(questions, id_))
            await journal.release([late.key])
            [successor] = await claim_calls(journal)
            group.start_soon(ask_colour, questions, successor)
            await until(lambda: questions.count_waiting() == 2)
            questions.end_waits(late)
            await until(lambda: questions.count_waiting() == 1)
            await anyio.sleep(0.1)
            assert await open_key(questions, id_) == key
            with anyio.fail_after(LOOK_S / 2):
                await questions.answer(HOST, id_, {str(key): RED})
                await until(lambda: not questions.count_waiting())


async def test_a_question_outlives_an_error_of_the_database(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(settings) as (journal, questions):
        id_ = await accept_draft(journal)
        [delivery] = await claim_calls(journal)
        read, failures = QuestionStore.answer_to, [psycopg.OperationalError("away")]

        async def fail_once(store: QuestionStore, delivery: Delivery, key: str) -> Any:
            if failures:
                raise failures.pop()
            return await read(store, delivery, key)

        async def expect_red() -> None:
            assert await ask_colour(questions, delivery) == RED

        monkeypatch.setattr(QuestionStore, "answer_to", fail_once)
        async with anyio.create_task_group() as group:
            group.start_soon(expect_red)
            key = await until(lambda: open_key(questions, id_))
            await until(lambda: not failures)
            await anyio.sleep(0.1)
            await questions.answer(HOST, id_, {str(key): RED})


async def test_an_erased_caller_leaves_no_question(settings: Settings) -> None:
    async with asking(settings) as (journal, questions):
        id_ = await accept_draft(journal)
        [delivery] = await claim_calls(journal)
        async with anyio.create_task_group() as group:
            group.start_soon(ask_colour, questions, delivery)
            await until(lambda: open_key(questions, id_))
            group.cancel_scope.cancel()  # its process ends
        await journal.erase(HOST, "ada")
        assert await open_key(questions, id_) is None


async def test_notices_of_questions_outlive_an_error_of_the_database(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway that hears no notice finds a question by polling, seconds later."""
    failures = [psycopg.OperationalError("away")]

    @asynccontextmanager
    async def fail_once(pool: Pool) -> AsyncIterator[AsyncConnection]:
        if failures:
            raise failures.pop()
        async with autocommit(pool) as connection:
            yield connection

    monkeypatch.setattr("gateway.wings.events.wakeups.autocommit", fail_once)
    async with Database.open(settings.database, migrate=False) as database:
        heard: list[Notice] = []
        sender = WakeupChannel(database, lambda _notice: None)
        listener = WakeupChannel(database, heard.append)
        async with anyio.create_task_group() as group:
            group.start_soon(listener.listen)
            await until(lambda: RESYNC in heard)
            group.start_soon(sender.send)
            sender.say("asked:tenant:id")
            await until(lambda: "asked:tenant:id" in heard)
            group.cancel_scope.cancel()


async def test_a_shutdown_does_not_wait_for_answers(settings: Settings) -> None:
    """Another gateway takes up the calls that wait for one."""
    painter = Painter()
    with anyio.fail_after(DEADLINE_S):
        async with painting(settings, painter, drain_s=30.0) as first:
            task_id = await begin(first)
            await task_of(first, task_id, "input_required")
    async with painting(settings, painter) as second:
        [key] = (await task_of(second, task_id, "input_required"))["inputRequests"]
        await respond(second, task_id, **{key: RED})
        ended = await task_of(second, task_id, "completed")
    assert ended["result"]["content"][0]["text"] == "accept red"


@pytest.mark.parametrize("reason", ["error", "expired", "cancelled"])
async def test_an_end_without_a_report_leaves_no_question(settings: Settings, reason: str) -> None:
    """Sweeps, deadlines and cancellations end calls, too."""
    async with asking(settings) as (journal, questions):
        id_ = await accept_draft(journal, repeatable=False, deadline_s=60.0)
        [delivery] = await claim_calls(journal)
        async with anyio.create_task_group() as group:
            group.start_soon(ask_colour, questions, delivery)
            await until(lambda: open_key(questions, id_))
            group.cancel_scope.cancel()  # its process ends
        if reason != "error":
            await journal.release([delivery.key])
        if reason == "cancelled":
            await journal.cancel(HOST, [id_])
        past = "deadline_ts" if reason == "expired" else "lease_ts"
        async with borrow(journal._pool) as connection:
            await connection.execute(
                sql.SQL("UPDATE invocation_t SET {0} = {0} - interval '1 hour'").format(
                    sql.Identifier(past)
                )
            )
        await upkeep(journal).sweep()
        row = await journal.get(HOST, id_)
        assert row is not None
        assert row.reason == reason
        assert await open_key(questions, id_) is None


async def test_answers_have_a_limit_and_may_have_any_character(settings: Settings) -> None:
    painter = Painter()
    async with painting(settings, painter, payload_bytes=1000) as client:
        task_id = await begin(client)
        [key] = (await task_of(client, task_id, "input_required"))["inputRequests"]
        large = {"action": "accept", "content": {"colour": "r" * 1000}}
        error = (await respond(client, task_id, **{key: large}))["error"]
        assert f"inputResponses.{key}: expected at most 1000 bytes" in error["message"]
        odd = {"action": "accept", "content": {"colour": "r\0d"}}
        assert "error" not in await respond(client, task_id, **{key: odd})
        await task_of(client, task_id, "failed")  # its result repeats NUL, which is not kept
    assert painter.calls == 2


@pytest.mark.parametrize("answer", [{"action": "accept"}, {"action": "accept", "content": [1]}])
def test_an_accepted_form_has_an_object_as_its_content(answer: Any) -> None:
    with pytest.raises(InvalidParams, match=r"inputResponses\.q\.content: expected an object"):
        check_answer("q", {"requestedSchema": {"properties": {}}}, answer)


async def test_a_result_no_longer_asks_for_a_task_that_is_cancelled(settings: Settings) -> None:
    async with painting(settings, Painter()) as client:
        person = await caller(client, LEGACY, ELICITATION)
        call = {"name": "paint", "arguments": {}, "task": {"ttl": 60_000}}
        task = (await person.result("tools/call", call))["result"]["task"]
        named = {"taskId": task["taskId"]}
        async with person.send_request("tasks/result", named) as stream:
            asked = await stream.next()
            assert asked["method"] == "elicitation/create"
            await person.result("tasks/cancel", named)
            cancelled, answer = await stream.all()
        assert cancelled["method"] == "notifications/cancelled"
        assert cancelled["params"]["requestId"] == asked["id"]
        assert "error" in answer


class SlowPainter(Painter):
    async def call(self, turn: Turn) -> None:
        await anyio.sleep(2)
        await super().call(turn)


async def test_a_question_wakes_a_client_in_its_result(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results do not read the task each second to find questions."""
    get, reads = Journal.get, []

    async def note(journal: Journal, host_id: str, invocation_id: str) -> Any:
        reads.append(invocation_id)
        return await get(journal, host_id, invocation_id)

    async with painting(settings, SlowPainter()) as client:
        person = await caller(client, LEGACY, ELICITATION)
        call = {"name": "paint", "arguments": {}, "task": {"ttl": 60_000}}
        task = (await person.result("tools/call", call))["result"]["task"]
        monkeypatch.setattr(Journal, "get", note)
        began = anyio.current_time()
        async with person.send_request("tasks/result", {"taskId": task["taskId"]}) as stream:
            asked = await stream.next()
            assert asked["method"] == "elicitation/create"
            assert anyio.current_time() - began < LOOK_S
            assert len(reads) <= 4
            await person.answer(asked["id"], RED)
            assert "accept red" in str((await stream.all())[-1])


async def open_key(questions: TaskQuestions, id_: str) -> str | None:
    keys = (await questions.open_questions(HOST, [id_])).get(id_)
    return next(iter(keys)) if keys else None
