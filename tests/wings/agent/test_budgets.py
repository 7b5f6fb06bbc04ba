"""Budgets (A19): tokens, money, time and calls of a run, of a conversation, and of a day."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace as with_
from typing import Any
from uuid import uuid4

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace

from config.agent import AgentBudget, AgentBudgets
from gateway.context import Context, Identity, Principal
from gateway.operations.stored_callers import caller_of
from gateway.wings.agent.conversation_and_run_store import Conversation, NewRun, Run
from gateway.wings.agent.run_steps import ModelReplied, Step
from gateway.wings.agent.runner import Runner
from registry.database.postgres import borrow
from schemas.mcp.revisions import V2025_11_25
from tests.fixtures_database import HOST
from tests.polling import until
from tests.servers.provider import Answer, chat, chat_whole, delta, failing, sse
from tests.wings.agent.rig import Rig
from tests.wings.agent.test_loop import call

pytestmark = pytest.mark.anyio

USED = 5_000  # tokens that the provider reports
ASKS = chat_whole("", [call("a1", "getPet", id=1)])


def costly(answer: Answer) -> Answer:
    """An answer that used `USED` tokens."""
    *head, body = answer.pieces
    usage = {"prompt_tokens": USED - 100, "completion_tokens": 100, "total_tokens": USED}
    return with_(answer, pieces=[*head, json.dumps({**json.loads(body), "usage": usage}).encode()])


class Person:
    """A caller and its runs, with a runner that has its own budgets."""

    def __init__(self, runner: Runner, owner: str) -> None:
        self.runner = runner
        self.context = Context(Identity(Principal(owner, HOST)), V2025_11_25, "1")

    @property
    def owner(self) -> str:
        return self.context.principal.id

    async def conversation(self) -> Conversation:
        made = await self.runner.conversations.create(HOST, self.owner, "", strategy="", id_=None)
        assert made is not None
        return made

    async def begin(self, conversation: Conversation) -> Run:
        new = NewRun(self.owner, caller_of(self.context), "Hello", "scripted", streams=False)
        run = await self.runner.begin(self.context, conversation.id, new)
        assert run is not None
        return run

    async def ask(self, conversation: Conversation | None = None) -> Run:
        run = await self.begin(conversation or await self.conversation())
        return await self.runner.wait_for_end(run, 60)

    async def day(self) -> tuple[int, float, float, int]:
        async with borrow(self.runner.pool) as connection:
            found = await connection.execute(
                "SELECT tokens, money, seconds, calls FROM agent_usage_t"
                " WHERE host_id = %s AND owner = %s",
                [HOST, self.owner],
            )
            [(tokens, money, seconds, calls)] = await found.fetchall()
        return tokens, round(money, 6), seconds, calls


@asynccontextmanager
async def person(rig: Rig, **budgets: dict[str, Any]) -> AsyncIterator[Person]:
    parts = await rig.parts()
    none = {"tokens": 0, "money": 0.0, "seconds": 0, "calls": 0}
    limits = AgentBudgets(
        **{one: AgentBudget(**{**none, **budgets.get(one, {})}) for one in
           ("run", "conversation", "day")}
    )  # fmt: skip
    runner = Runner(with_(parts, settings=replace(parts.settings, budgets=limits)), parts.pool)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runner.run)
        await until(lambda: runner._group is not None)
        yield Person(runner, f"owner-{uuid4()}")
        tasks.cancel_scope.cancel()


async def test_a_run_without_room_for_its_worst_case_sends_nothing(rig: Rig) -> None:
    rig.script(chat_whole("Yes."))
    for budget in ({"tokens": 2_100}, {"money": 0.0021}):
        async with person(rig, run=budget) as one:
            run = await one.ask()
        assert (run.state, run.stopped, run.tokens) == ("exhausted", "budget", 0)
    assert rig.provider.requests == []


@pytest.mark.parametrize(
    ("budget", "answers", "stopped"),
    [
        ({"tokens": USED + 2_100}, [costly(ASKS), chat_whole("Yes.")], "budget"),
        ({"money": (USED + 2_100) / 1e6}, [costly(ASKS), chat_whole("Yes.")], "budget"),
        ({"calls": 1}, [ASKS, ASKS, chat_whole("I give up.")], "budget"),
        ({"seconds": 1}, [Answer(silent=True)], "time"),
    ],
    ids=["tokens", "money", "calls", "time"],
)
async def test_a_run_ends_with_its_budget(
    rig: Rig, budget: dict[str, Any], answers: list[Answer], stopped: str
) -> None:
    rig.script(*answers)
    async with person(rig, run=budget) as one:
        run = await one.ask()
    assert (run.state, run.stopped) == ("exhausted", stopped)
    assert rig.service_calls == ([] if stopped == "time" else ["GET /pets/1"])
    if "calls" in budget:  # the model may still answer with what it has
        assert run.answer == "I give up."
        assert rig.provider.requests[-1].body["tool_choice"] == "none"


@pytest.mark.parametrize(
    ("budget", "first", "stopped"),
    [
        ({"tokens": USED + 2_100}, [costly(chat_whole("Yes."))], "budget"),
        ({"money": (USED + 2_100) / 1e6}, [costly(chat_whole("Yes."))], "budget"),
        ({"calls": 1}, [ASKS, chat_whole("Yes.")], "budget"),
        ({"seconds": 1}, [Answer(silent=True)], "time"),
    ],
    ids=["tokens", "money", "calls", "time"],
)
@pytest.mark.parametrize("scope", ["conversation", "day"])
async def test_a_budget_counts_former_and_deleted_runs(
    rig: Rig, scope: str, budget: dict[str, Any], first: list[Answer], stopped: str
) -> None:
    async with person(rig, **{scope: budget}) as one:
        rig.script(*first)
        conversation = await one.conversation()
        await one.ask(conversation)
        if scope == "day":
            assert await one.runner.conversations.delete(HOST, one.owner, conversation.id)
            conversation = await one.conversation()
        rig.script(*([ASKS, chat_whole("I give up.")] if "calls" in budget else [chat_whole("No")]))
        run = await one.ask(conversation)
        assert (run.state, run.stopped) == ("exhausted", stopped)
        assert rig.service_calls == []
        assert bool(rig.provider.requests) is ("calls" in budget)
        rig.script(chat_whole("Fine."))
        if scope == "conversation":
            run = await one.ask()
        else:  # of another caller
            run = await Person(one.runner, f"other-{uuid4()}").ask()
        assert run.answer == "Fine."


async def test_a_budget_of_money_needs_a_price(rig: Rig) -> None:
    parts = await rig.parts()
    async with person(rig, run={"money": 1.0}) as one:
        one.runner._settings = replace(one.runner._settings, currency="EUR")
        run = await one.ask()
    assert (run.state, run.error) == ("failed", "provider_price")
    assert "models.strategies.scripted.price" in run.stopped
    assert parts.settings.currency == "USD"


async def test_failed_requests_count_their_received_tokens(rig: Rig) -> None:
    rig.script(Answer(pieces=[sse(delta(content="x" * 400))], end="cut"))
    async with person(rig) as one:
        conversation = await one.conversation()
        new = NewRun(one.owner, caller_of(one.context), "Hello", "scripted", streams=True)
        begun = await one.runner.begin(one.context, conversation.id, new)
        assert begun is not None
        run = await one.runner.wait_for_end(begun, 60)
        assert run.state == "failed"
        tokens, money, _, _ = await one.day()
        assert run.tokens == tokens > 100 + 300
        assert money == round(tokens / 1e6, 6)
        rig.script(failing(400))  # what a provider refuses costs nothing
        assert (await one.ask()).tokens == 0


async def test_cancelled_requests_count(rig: Rig) -> None:
    rig.script(Answer(silent=True))
    async with person(rig) as one:
        run = await one.begin(await one.conversation())
        with anyio.fail_after(30):
            await rig.provider.asked.wait()
        await one.runner.cancel(one.context, run.id)
        found = await one.runner.wait_for_end(run, 60)
        assert found.state == "cancelled"
        tokens, _, _, _ = await one.day()
    assert found.tokens == tokens > 300
    assert tokens < 2_000  # what was sent; not the longest answer, which was reserved


async def test_a_request_cancelled_while_counted_counts_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.script(chat_whole("Yes."))
    async with person(rig) as one:
        add = one.runner.runs.add

        async def add_and_cancel(
            run: Run, number: int, steps: Sequence[Step], *rest: Any, **by: Any
        ) -> Any:
            spent = await add(run, number, steps, *rest, **by)
            if any(isinstance(step, ModelReplied) for step in steps):
                assert one.runner.cancel_here(run.id)
                await anyio.lowlevel.checkpoint()
            return spent

        monkeypatch.setattr(one.runner.runs, "add", add_and_cancel)
        run = await one.ask()
        assert run.state == "cancelled"
        tokens, _, _, _ = await one.day()
    assert run.tokens == tokens == 18


async def test_concurrent_requests_share_the_remaining_budget(rig: Rig) -> None:
    rig.script(Answer(silent=True))
    async with person(rig, day={"tokens": 4_000}) as one:
        first = await one.begin(await one.conversation())
        with anyio.fail_after(30):
            await rig.provider.asked.wait()
        second = await one.ask()
        assert (second.state, second.stopped) == ("exhausted", "budget")
        assert len(rig.provider.requests) == 1
        await one.runner.cancel(one.context, first.id)


async def test_a_request_whose_process_was_killed_counts_with_its_worst_case(rig: Rig) -> None:
    rig.script(Answer(silent=True), chat("Yes."))
    async with person(rig) as one:
        run = await one.begin(await one.conversation())
        with anyio.fail_after(30):
            await rig.provider.asked.wait()
        async with borrow(one.runner.pool) as connection:  # as another process takes it up
            await connection.execute(
                "UPDATE agent_run_t SET attempt = attempt + 1, lease_until = clock_timestamp()"
                " WHERE run_id = %s",
                [run.id],
            )
        with anyio.fail_after(60):
            ended = await one.runner.wait_for_end(run, 60)
        assert ended.answer == "Yes."
        tokens, _, _, _ = await one.day()
    assert ended.tokens == tokens > 2_000 + 18
