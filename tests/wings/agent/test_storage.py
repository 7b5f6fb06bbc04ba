"""Storage of conversations in the database and in memory (A12): one contract."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

import anyio
import pytest
from msgspec import Raw

from config.settings import DatabaseSettings
from gateway.wings.agent.conversation_and_run_store import (
    _STATEMENTS,
    _WAKE_DECIDED,
    NOTHING,
    Conversation,
    ConversationBusy,
    Conversations,
    Ending,
    NewRun,
    Run,
    Runs,
    UsageAmounts,
    UsageTotals,
)
from gateway.wings.agent.run_budget import RunMeter
from gateway.wings.agent.run_steps import FoundContext, ModelReplied, ModelRequested, Result
from gateway.wings.agent.runner import Runner
from gateway.wings.agent.wing import TABLES
from gateway.wings.models.messages import ModelCall, ModelExchange, ModelReply
from gateway.wings.models.usage import BudgetExhausted, TokenUsage
from registry.access.approvals import ApprovalRequest, Approvals
from registry.database.leases import LeaseLost
from registry.database.migrate import REGISTRY
from registry.database.postgres import Database, Pool, borrow
from tests.fixtures_database import HOST, TEMPLATE, Cluster, own_database
from tests.fixtures_gateway import wordless
from tests.polling import until
from tests.servers.provider import chat_whole
from tests.wings.agent.rig import Rig
from tests.wings.agent.test_budgets import Person

pytestmark = pytest.mark.anyio

REPLY = ModelReply(
    "Hm.", (ModelCall("a1", "getPet", "{}"),), "", "calls", TokenUsage(1, 2), None, "m"
)


@pytest.fixture(scope="module")
def own(cluster: Cluster) -> Iterator[DatabaseSettings]:
    """A database without a gateway, which would take runs up."""
    yield from own_database(cluster, TEMPLATE)


@pytest.fixture(params=["database", "memory"], scope="module")
async def storage(own: DatabaseSettings, request: pytest.FixtureRequest) -> AsyncIterator[Pool]:
    async with Database.open(own, components=(REGISTRY, TABLES)) as database:
        if request.param == "database":
            yield database.pool
        else:
            async with database.temporary(TABLES) as pool:
                yield pool


class Store:
    """The storage as one process uses it, with an owner of its own."""

    def __init__(self, pool: Pool) -> None:
        self.owner = f"owner-{uuid4()}"
        self.conversations = Conversations(pool)
        self.runs = Runs(pool, "here", 60.0)
        self.others = Runs(pool, "elsewhere", 60.0)

    async def conversation(self, title: str = "") -> Conversation:
        made = await self.conversations.create(HOST, self.owner, title, strategy="s", id_=None)
        assert made is not None
        return made

    async def run(self, conversation: str, content: str = "Hi", *, held: bool = True) -> Run:
        new = NewRun(self.owner, b"{}", content, "s", streams=False)
        made = await self.runs.create(HOST, conversation, new, 2, here=held)
        assert made is not None
        return made

    async def is_due(self, run: str, since_s: float = 0.0) -> bool:
        """Whether a process may take up a run."""
        await self.runs.wake_decided(since_s)
        due = await self.runs.due(1000, {}, of_tenant=1000, of_owner=1000)
        return (HOST, run, self.owner) in due


@pytest.fixture
def store(storage: Pool) -> Store:
    return Store(storage)


async def test_conversations_belong_to_their_owner(store: Store) -> None:
    first, second = await store.conversation("First"), await store.conversation()
    found = await store.conversations.all(HOST, store.owner, None, 10)
    assert [one.id for one in found] == [second.id, first.id]
    assert await store.conversations.get(HOST, store.owner, first.id) == first
    assert await store.conversations.get(HOST, "other", first.id) is None
    others = await store.conversations.create(HOST, "other", "", strategy="", id_=first.id)
    assert others is not None
    assert others.id != first.id
    assert await store.conversations.get(HOST, "other", first.id) == others
    assert await store.conversations.get(HOST, store.owner, first.id) == first
    assert await store.conversations.delete(HOST, "other", others.id)
    assert not await store.conversations.delete(HOST, "other", first.id)
    assert await store.conversations.delete(HOST, store.owner, first.id)
    assert await store.conversations.get(HOST, store.owner, first.id) is None


async def test_a_conversation_has_one_run_at_a_time_and_an_owner_so_many(store: Store) -> None:
    one, other = await store.conversation(), await store.conversation()
    run = await store.run(one.id)
    assert (run.turn, run.state, run.attempt) == (1, "running", 1)
    with pytest.raises(ConversationBusy, match=run.id):
        await store.run(one.id)
    await store.run(other.id, held=False)
    third = await store.conversation()
    new = NewRun(store.owner, b"{}", "More", "s", streams=False)
    assert await store.runs.create(HOST, third.id, new, 2, here=True) is None
    await store.runs.end(run, Ending(state="completed", answer="Yes."))
    assert (await store.run(one.id, "Again")).turn == 2
    titled = await store.conversations.get(HOST, store.owner, one.id)
    assert titled is not None
    assert titled.title == "Hi"


async def test_runs_that_are_begun_at_once_share_the_limit(store: Store) -> None:
    made: list[Run | None] = []

    async def begin(conversation: Conversation) -> None:
        new = NewRun(store.owner, b"{}", "Hi", "s", streams=False)
        made.append(await store.runs.create(HOST, conversation.id, new, 2, here=True))

    conversations = [await store.conversation() for _ in range(8)]
    async with anyio.create_task_group() as tasks:
        for conversation in conversations:
            tasks.start_soon(begin, conversation)
    assert sum(run is not None for run in made) == 2


async def test_steps_are_folded_and_counted(store: Store) -> None:
    run = await store.run((await store.conversation()).id)
    await store.runs.add(
        run, 0, [FoundContext("found", ("getPet",)), ModelRequested(1)], UsageAmounts(100, 0.5)
    )
    spent = await store.runs.add(
        run, 2, [ModelReplied(1, REPLY)], UsageAmounts(-97, -0.25, 2.0, 1), iteration=1
    )
    used = UsageAmounts(3, 0.25, 2.0, 1)
    assert spent == UsageTotals(used, used)
    await store.runs.add(run, 3, [Result("a1", "Tom")])
    turn = await store.runs.turn(run)
    assert turn.context is not None
    assert (turn.context.tools, turn.count, turn.rounds[0].open) == (("getPet",), 4, [])
    [(again, same)] = await store.conversations.turns(HOST, run.conversation, 10)
    assert (again.usage, again.iterations, same) == (used, 1, turn)

    def refuse(_: UsageTotals) -> None:
        raise BudgetExhausted("used up")

    with pytest.raises(BudgetExhausted):
        await store.runs.add(run, 4, [ModelRequested(2)], UsageAmounts(9), check=refuse)
    assert (await store.runs.turn(run)).count == 4
    kept = ModelExchange("s", "/p", Raw(b"{}"), 200, "text/plain", b"\0\xff")
    await store.runs.keep(run, kept)
    [(number, found)] = await store.runs.transcript(run, 0, 10)
    assert (found, await store.runs.transcript(run, number, 10)) == (kept, [])


async def test_a_request_counts_on_the_day_of_its_reservation(store: Store, storage: Pool) -> None:
    run = await store.run((await store.conversation()).id)
    meter = RunMeter(wordless().agent, run, NOTHING, NOTHING)
    before = date(2026, 1, 1)  # midnight passes behind it
    meter.settle(await store.runs.add(run, 0, [ModelRequested(1)], UsageAmounts(100), day=before))
    assert meter.reserved_on is None
    meter.request(UsageAmounts(100))
    assert meter.reserved_on == before
    meter.settle(await store.runs.add(run, 1, [], meter.outstanding(), day=meter.reserved_on))
    assert meter.reserved_on is None
    async with borrow(storage) as connection:
        found = await connection.execute(
            "SELECT day, tokens FROM agent_usage_t WHERE host_id = %s AND owner = %s",
            [HOST, store.owner],
        )
        assert await found.fetchall() == [(before, 0)]


async def test_a_run_is_taken_up_by_one_process(store: Store) -> None:
    run = await store.run((await store.conversation()).id)
    assert await store.others.claim(HOST, run.id) is None
    assert await store.runs.renew([run]) == {run.id: False}
    await store.runs.release(run)
    assert await store.is_due(run.id)
    taken = await store.others.claim(HOST, run.id)
    assert taken is not None
    assert taken.attempt == 2
    assert await store.runs.renew([run]) == {}
    with pytest.raises(LeaseLost):
        await store.runs.add(run, 0, [ModelRequested(1)])
    with pytest.raises(LeaseLost):
        await store.runs.end(run, Ending(state="completed"))
    await store.runs.cancel(HOST, store.owner, run.id)
    assert await store.others.renew([taken]) == {run.id: True}
    waits = str(uuid4())
    await store.others.end(taken, Ending(state="waiting", approvals=[waits]))
    assert await store.runs.waits_for(HOST, waits)
    assert await store.is_due(run.id)


async def waiting(store: Store, *approvals: str) -> str:
    """A run that waits for approvals."""
    run = await store.run((await store.conversation()).id)
    await store.runs.end(run, Ending(state="waiting", approvals=approvals))
    return run.id


async def test_a_run_is_due_when_the_last_of_its_approvals_is_decided(
    store: Store, storage: Pool
) -> None:
    approvals = Approvals(storage, HOST)
    call = ApprovalRequest(store.owner, str(uuid4()), "pay", "bank", "d" * 64, "large", "")
    requests = [call, replace(call, digest="e" * 64)]
    first, second = [(await approvals.request(one, "{}", 900.0, 9))[0] for one in requests]
    run = await waiting(store, first, second)
    assert not await store.is_due(run, 60.0)
    assert await approvals.decide(first, True, "ops") is not None
    assert not await store.is_due(run, 60.0)
    assert await store.runs.claim(HOST, run) is None
    assert await approvals.decide(second, False, "ops") is not None
    assert await store.is_due(run, 3600.0)
    assert await store.runs.claim(HOST, run) is not None
    assert await store.is_due(await waiting(store, first))  # decided before


async def test_a_run_is_due_when_its_approvals_have_expired(store: Store, storage: Pool) -> None:
    approvals = Approvals(storage, HOST)
    call = ApprovalRequest(store.owner, str(uuid4()), "pay", "bank", "d" * 64, "large", "")
    approval, _ = await approvals.request(call, "{}", 0.01, 9)
    run = await waiting(store, approval)

    async def is_due() -> bool:
        return await store.is_due(run)

    await until(is_due)


async def test_runs_that_are_due_are_found_by_indexes(storage: Pool) -> None:
    async with borrow(storage) as connection, connection.transaction(force_rollback=True):
        await connection.execute("SET LOCAL enable_seqscan = off")
        shares: dict[str, Any] = {"hosts": [], "owners": [], "counts": [], "limit": 10}
        shares |= {"of_tenant": 10, "of_owner": 10}
        plan = ""
        for statement, values in ((_STATEMENTS.due, shares), (_WAKE_DECIDED, [60.0])):
            rows = await connection.execute(b"EXPLAIN " + statement, values)
            plan += "\n".join([line async for (line,) in rows])
    for part in ("lease_until <", "approval_decide_ix"):
        assert part in plan
    assert "Seq Scan" not in plan


async def test_deleted_conversations_keep_only_their_usage(store: Store) -> None:
    conversation = await store.conversation()
    run = await store.run(conversation.id)
    await store.runs.add(run, 0, [ModelRequested(1)], UsageAmounts(7, 0.0, 1.0, 2))
    others, day = await store.conversations.spending(run)
    assert (others, day) == (UsageAmounts(), UsageAmounts(7, 0.0, 1.0, 2))
    assert await store.conversations.delete(HOST, store.owner, conversation.id)
    assert await store.runs.all(HOST, store.owner, None, 10) == []
    assert (await store.conversations.spending(run))[1] == day


async def test_old_usage_is_deleted(store: Store, storage: Pool) -> None:
    conversation = await store.conversation()
    run = await store.run(conversation.id)
    for age in (0, 9, 11):
        day = datetime.now(UTC).date() - timedelta(days=age)
        await store.runs.add(run, 0, [], UsageAmounts(7, 0.0, 1.0, 2), day=day)
    await store.runs.prune_usage(10)
    async with borrow(storage) as connection:
        found = await connection.execute(
            "SELECT count(*) FROM agent_usage_t WHERE host_id = %s AND owner = %s",
            [HOST, store.owner],
        )
        assert await found.fetchall() == [(2,)]


async def test_conversations_without_an_open_run_are_deleted_when_idle(
    store: Store, storage: Pool
) -> None:
    idle, open_, fresh = [await store.conversation() for _ in range(3)]
    run = await store.run(open_.id)
    async with borrow(storage) as connection:
        await connection.execute(
            "UPDATE agent_conversation_t SET update_ts = update_ts - interval '11 days'"
            " WHERE host_id = %s AND conversation_id = ANY(%s::uuid[])",
            [HOST, [idle.id, open_.id]],
        )
        await connection.execute(
            "UPDATE agent_run_t SET update_ts = update_ts - interval '11 days'"
            " WHERE host_id = %s AND run_id = %s",
            [HOST, run.id],
        )
    await store.runs.prune_conversations(12)
    assert await store.conversations.get(HOST, store.owner, idle.id)
    await store.runs.prune_conversations(10)
    kept = await store.conversations.all(HOST, store.owner, None, 10)
    assert {one.id for one in kept} == {open_.id, fresh.id}


async def test_a_run_in_memory_leaves_nothing_in_the_database(rig: Rig) -> None:
    rig.script(chat_whole("Yes."))
    parts = await rig.parts()
    async with parts.database.temporary(TABLES) as pool, anyio.create_task_group() as tasks:
        runner = Runner(parts, pool)
        tasks.start_soon(runner.run)
        await until(lambda: runner._group is not None)
        one = Person(runner, f"owner-{uuid4()}")
        run = await one.ask()
        assert run.answer == "Yes."
        tasks.cancel_scope.cancel()
    async with borrow(parts.pool) as connection:
        for table in ("agent_conversation_t", "agent_run_t", "agent_usage_t"):
            found = await connection.execute(
                f"SELECT FROM {table} WHERE host_id = %s AND owner = %s",
                [HOST, one.owner],
            )
            assert await found.fetchall() == []
