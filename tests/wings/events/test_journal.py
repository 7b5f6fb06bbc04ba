"""The journal: states, fences, order, turns of tenants, and what the database refuses."""

import itertools
import json
from datetime import timedelta
from os import urandom
from typing import Any

import anyio
import psycopg
import pytest
from msgspec import Raw

from config.settings import DatabaseSettings
from gateway.wings.events.invocation_journal import AcceptedInvocation, Filter, Journal
from gateway.wings.events.sweeper import LOCK
from registry.database.postgres import borrow
from tests.fixtures_database import HOST
from tests.wings.events.drafts import (
    OTHER,
    accept_draft,
    claim_calls,
    draft,
    end,
    handle,
    refusal_of,
    upkeep,
)

pytestmark = pytest.mark.anyio


async def status_of(journal: Journal, id_: str, host: str = HOST) -> tuple[str, str | None, int]:
    row = await journal.get(host, id_)
    assert row is not None
    return row.status, row.reason, row.attempt


async def test_an_invocation_is_claimed_and_acked_with_its_fence(journal: Journal) -> None:
    """An invocation is claimed and acked with its fence (V07)."""
    id_ = await accept_draft(journal)
    [one] = await claim_calls(journal)
    assert (one.invocation_id, one.fence, one.attempt) == (id_, 1, 1)
    assert await claim_calls(journal) == []
    assert await journal.end([end(one)]) == {(id_, 1)}
    assert await journal.end([end(one)]) == set()
    row = await journal.get(HOST, id_)
    assert row is not None
    assert (row.status, row.result, row.correlation_id) == ("ACKED", '"done"', id_)


async def test_accepting_returns_the_stored_invocation(journal: Journal) -> None:
    [accepted] = await journal.accept([draft(order_key="k", task_id="t", deadline_s=60.0)])
    assert isinstance(accepted, AcceptedInvocation)
    assert accepted.row == await journal.get(HOST, accepted.invocation_id)


async def test_invocations_are_accepted_where_the_database_goes_away_after_their_commit(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next sweep unblocks their keys."""

    async def fail(*_: object) -> None:
        raise psycopg.OperationalError

    monkeypatch.setattr(Journal, "_execute", fail)
    await accept_draft(journal, order_key="k")
    [taken] = await claim_calls(journal)
    assert await journal.end([end(taken)]) == {(taken.invocation_id, taken.fence)}


@pytest.mark.parametrize("ended", [False, True])
async def test_a_correlation_id_names_one_request(journal: Journal, ended: bool) -> None:
    """A correlation id names one request (V05)."""
    first = await accept_draft(journal, correlation_id="order-7", number=1)
    if ended:
        [one] = await claim_calls(journal)
        await journal.end([end(one)])
        assert await upkeep(journal).move_ended(-1) == 1
    [again] = await journal.accept([draft(1, correlation_id="order-7")])
    assert (again.invocation_id, again.is_new) == (first, False)  # type: ignore[union-attr]
    assert "correlationId" in await refusal_of(journal, correlation_id="order-7", number=2)
    assert await accept_draft(journal, correlation_id="order-7", number=2, host_id=OTHER) != first
    found = await journal.find_correlated(HOST, "order-7")
    assert found is not None
    assert found.invocation_id == first


async def test_equal_ids_in_one_batch_are_one_invocation(journal: Journal) -> None:
    one, two, three = await journal.accept(
        [draft(1, correlation_id="x"), draft(1, correlation_id="x"), draft(2, correlation_id="x")]
    )
    assert one.invocation_id == two.invocation_id  # type: ignore[union-attr]
    assert "correlationId" in str(three)


async def test_an_idempotency_key_names_one_request_of_a_caller(journal: Journal) -> None:
    first = await accept_draft(journal, idempotency_key="k")
    [again] = await journal.accept([draft(idempotency_key="k")])
    assert (again.invocation_id, again.is_new) == (first, False)  # type: ignore[union-attr]
    assert "Idempotency-Key" in await refusal_of(journal, idempotency_key="k", number=1)
    assert await accept_draft(journal, idempotency_key="k", principal_id="bob") != first


async def test_invocations_of_an_order_key_run_in_order_and_singly(journal: Journal) -> None:
    """Invocations of an order key run in order and singly (V11)."""
    ids = [
        await accept_draft(journal, number=n, order_key=key)
        for n, key in enumerate([None, "a", "a", "b", "a", None])
    ]
    taken = await claim_calls(journal, 10)
    assert [one.invocation_id for one in taken] == [ids[n] for n in (0, 1, 3, 5)]
    assert await claim_calls(journal, 10) == []
    await journal.end([end(taken[1], error=b"{}")])
    [second] = await claim_calls(journal, 10)
    assert second.invocation_id == ids[2]
    await journal.end([end(second, error=b"{}", retry_s=0)])
    [second] = await claim_calls(journal, 10)
    assert (second.invocation_id, second.attempt) == (ids[2], 2)


async def test_a_key_holds_up_its_own_caller_alone(journal: Journal) -> None:
    for principal in ("ada", "bob"):
        for number in range(2):
            await accept_draft(
                journal,
                number=number,
                principal_id=principal,
                order_key="a",
                on_failure="block" if principal == "ada" else "skip",
            )
    taken = await claim_calls(journal, 10)
    assert [one.arguments for one in taken] == ['{"number":0}'] * 2
    await journal.end([end(one, error=b"{}") for one in taken])
    [next_] = await claim_calls(journal, 10)
    assert next_.arguments == '{"number":1}'
    await journal.end([end(next_)])
    await upkeep(journal).move_ended(-1)
    assert await claim_calls(journal) == []
    await upkeep(journal).prune(-1)
    [last] = await claim_calls(journal)
    assert last.order_key == "a"


async def test_a_failed_invocation_blocks_its_order_key_if_configured(journal: Journal) -> None:
    """A failed invocation blocks its order key if configured (V11)."""
    first = await accept_draft(journal, order_key="a", on_failure="block")
    second = await accept_draft(journal, order_key="a")
    [one] = await claim_calls(journal)
    await journal.end([end(one, error=b"{}")])
    assert await upkeep(journal).move_ended(-1) == 0
    assert await claim_calls(journal, 10) == []
    assert await journal.redrive(HOST, [first]) == [first]
    [one] = await claim_calls(journal, 10)
    assert one.invocation_id == first
    await journal.end([end(one)])
    assert [two.invocation_id for two in await claim_calls(journal, 10)] == [second]


async def test_invocations_left_blocked_by_a_race_are_found_by_the_sweep(journal: Journal) -> None:
    id_ = await accept_draft(journal, order_key="a")
    async with borrow(journal._pool) as connection:
        await connection.execute("UPDATE invocation_t SET blocked = true")
    assert await claim_calls(journal) == []
    assert not await upkeep(journal).sweep()
    assert [one.invocation_id for one in await claim_calls(journal)] == [id_]


async def test_high_priorities_are_claimed_first_and_delayed_invocations_wait(
    journal: Journal,
) -> None:
    """High priorities are claimed first and delayed invocations wait (V08)."""
    low = await accept_draft(journal, priority=1)
    high = await accept_draft(journal, priority=9)
    later = await accept_draft(journal, priority=9, delay_s=3600)
    assert [one.invocation_id for one in await claim_calls(journal, 10)] == [high, low]
    assert (await status_of(journal, later))[0] == "PENDING"


@pytest.mark.parametrize(
    ("repeatable", "attempts", "expected"),
    [
        (True, 3, ("PENDING", None, 1)),
        (True, 1, ("FAILED", "attempts", 1)),
        (False, 3, ("FAILED", "error", 1)),
    ],
)
async def test_a_lease_that_is_over(
    journal: Journal, repeatable: bool, attempts: int, expected: tuple[str, str | None, int]
) -> None:
    id_ = await accept_draft(journal, repeatable=repeatable, max_attempts=attempts)
    [one] = await claim_calls(journal, lease_s=-1)
    assert await upkeep(journal).sweep()
    assert await status_of(journal, id_) == expected
    assert await journal.end([end(one)]) == set()
    assert len(await journal.attempts(HOST, id_)) == 1
    assert not await upkeep(journal).sweep()


async def test_completions_of_a_dead_sender_are_sent_again(
    journal: Journal,
) -> None:
    """Completions of a dead sender are sent again (V13)."""
    await accept_draft(journal, reply_to="webhook:crm")
    await journal.end([end(one) for one in await claim_calls(journal)])
    async with borrow(journal._pool) as connection:
        await connection.execute(
            "UPDATE outbox_t SET status = 'DISPATCHED', attempt = 1, fence = 1,"
            " lease_ts = now() - interval '1 second'"
        )
    assert (await upkeep(journal).sweep())[HOST].outbox == 1
    assert (await journal.counts(HOST)).unsent == 1
    assert not await upkeep(journal).sweep()


async def test_deadlines(journal: Journal) -> None:
    waiting = await accept_draft(journal, deadline_s=-1)
    assert await claim_calls(journal) == []
    assert (await upkeep(journal).sweep())[HOST].expired == 1
    assert await status_of(journal, waiting) == ("FAILED", "expired", 0)


async def test_cancelling_ends_waiting_and_marks_running_invocations(journal: Journal) -> None:
    """Cancelling ends waiting and marks running invocations (V22)."""
    running, waiting = await accept_draft(journal), await accept_draft(journal, number=1)
    [one] = await claim_calls(journal)
    assert await journal.cancel(HOST, [running, waiting]) == (1, 1)
    assert await status_of(journal, waiting) == ("FAILED", "cancelled", 0)
    assert await journal.extend([handle(one)], 60) == {(running, 1): True}
    assert await journal.end([end(one)]) == {(running, 1)}  # an ack that comes first wins
    assert await journal.cancel(HOST, [running]) == (0, 0)
    assert (await status_of(journal, running))[0] == "ACKED"


async def test_a_release_does_not_count(journal: Journal) -> None:
    id_ = await accept_draft(journal)
    [one] = await claim_calls(journal)
    assert await journal.release([handle(one)], delay_s=60, approval=OTHER) == 1
    row = await journal.get(HOST, id_)
    assert row is not None
    assert (row.status, row.attempt, row.approval_id) == ("PENDING", 0, OTHER)
    assert await claim_calls(journal) == []


async def test_failed_invocations_are_redriven_with_their_arguments(journal: Journal) -> None:
    """Failed invocations are redriven with their arguments (V10)."""
    id_ = await accept_draft(journal, reply_to="topic:agent-events")
    for _ in range(2):
        [one] = await claim_calls(journal)
        retry = 0 if one.attempt == 1 else None
        await journal.end([end(one, error=b'{"message":"no"}', retry_s=retry)])
    assert await upkeep(journal).move_ended(-1) == 1
    assert await journal.redrive(HOST, None, skill="else") == []
    assert await journal.redrive(HOST, None, reason="error") == [id_]
    assert await status_of(journal, id_) == ("PENDING", None, 0)
    assert [one.error for one in await journal.attempts(HOST, id_)] == ['{"message":"no"}'] * 2
    [one] = await claim_calls(journal)
    assert (one.attempt, one.fence) == (1, 3)
    assert (await journal.counts(HOST)).unsent == 1


async def test_lists_are_the_newest_first_and_of_one_tenant(journal: Journal) -> None:
    ids = [await accept_draft(journal, number=n) for n in range(3)]
    await accept_draft(journal, host_id=OTHER)
    await journal.end([end(one) for one in await claim_calls(journal)])
    await upkeep(journal).move_ended(-1)
    page = await journal.page(HOST, Filter(), before=None, limit=2)
    rest = await journal.page(HOST, Filter(), before=page[-1].seq, limit=2)
    assert [one.invocation_id for one in [*page, *rest]] == ids[::-1]
    acked = await journal.page(HOST, Filter(status="ACKED"), before=None, limit=9)
    assert [one.invocation_id for one in acked] == [ids[0]]
    assert await journal.page(HOST, Filter(principal="eve"), before=None, limit=9) == []
    assert sorted(await journal.tenants()) == [HOST, OTHER]


async def test_concurrent_claims_share_nothing(journal: Journal) -> None:
    await journal.accept([draft(n, order_key=str(n % 7)) for n in range(70)])
    seen: list[str] = []

    async def work() -> None:
        while taken := await claim_calls(journal, 5):
            seen.extend(one.invocation_id for one in taken)
            await journal.end([end(one) for one in taken])

    with anyio.fail_after(60):
        while len(seen) < 70:
            async with anyio.create_task_group() as group:
                for _ in range(6):
                    group.start_soon(work)
    assert len(set(seen)) == 70


async def test_erasing_a_caller_keeps_state_and_times(journal: Journal) -> None:
    """Erasing a caller keeps state and times (V29)."""
    mine, done = await accept_draft(journal), await accept_draft(journal, number=1)
    other = await accept_draft(journal, principal_id="bob")
    await journal.end([end(one, error=b'{"m":1}') for one in await claim_calls(journal)])
    await upkeep(journal).move_ended(-1)
    assert await journal.erase(HOST, "ada") == 2
    for id_ in (mine, done):
        row = await journal.get(HOST, id_)
        assert row is not None
        assert (row.status, row.arguments, row.result, row.error) == ("FAILED", "null", None, None)
    assert [one.error for one in await journal.attempts(HOST, mine)] == [None]
    kept = await journal.get(HOST, other)
    assert kept is not None
    assert kept.arguments == '{"number":0}'
    assert await journal.redrive(HOST, None) == []


@pytest.mark.parametrize("report", [{"result": b'"late"'}, {"error": b'{"m":"late"}'}])
async def test_an_invocation_erased_while_running_keeps_no_data(
    journal: Journal, report: dict[str, bytes]
) -> None:
    id_ = await accept_draft(journal)
    [taken] = await claim_calls(journal)
    assert await journal.erase(HOST, "ada") == 1
    assert await journal.end([end(taken, **report)])
    row = await journal.get(HOST, id_)
    assert row is not None
    assert (row.has_ended, row.arguments, row.result, row.error) == (True, "null", None, None)
    assert row.principal == '{"principal": {"id": "", "tenant": ""}}'
    assert await journal.attempts(HOST, id_) == []


async def test_retention_drops_old_invocations(journal: Journal) -> None:
    id_ = await accept_draft(journal)
    await journal.end([end(one, error=b"{}") for one in await claim_calls(journal)])
    await upkeep(journal).move_ended(-1)
    assert await upkeep(journal).prune(3600) == 0
    assert await journal.get(HOST, id_) is not None
    assert await upkeep(journal).prune(-1) == 2  # with its attempt
    assert await journal.get(HOST, id_) is None


async def test_old_invocations_are_deleted_in_batches_per_tenant(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for host in (HOST, OTHER):
        for _ in range(3):
            await accept_draft(journal, host_id=host)
        await journal.end([end(one) for one in await claim_calls(journal, 3, host=host)])
    while await upkeep(journal).move_ended(-1):
        pass
    monkeypatch.setattr("gateway.wings.events.sweeper.BATCH", 2)
    deleted: list[int] = []
    while count := await upkeep(journal).prune(-1):
        deleted.append(count)
    assert sum(deleted) == 6
    assert max(deleted) <= 4


async def test_the_oldest_finished_invocations_beyond_the_byte_limit_are_deleted(
    journal: Journal,
) -> None:
    """Results of a principal fill no database, and push out none of another's (mending 6)."""
    keeper = upkeep(journal)

    async def end_call(principal: str, number: int, **fields: Any) -> str:
        id_ = await accept_draft(journal, principal_id=principal, number=number, **fields)
        [taken] = await claim_calls(journal)
        await journal.end([end(taken, result=json.dumps(urandom(2000).hex()).encode())])
        await keeper.move_ended(-1)
        return id_

    unsent = await end_call("ada", 0, reply_to="topic:agent-events")
    first = await end_call("bob", 1)
    ids = [await end_call("ada", number) for number in range(2, 6)]
    usage = await keeper.ended_usage()
    assert usage is not None
    each = usage[HOST, "bob"]
    assert each > 4000
    assert usage[HOST, "ada"] == pytest.approx(5 * each, rel=0.05)

    async def remaining_ids() -> list[str]:
        return [id_ for id_ in (unsent, first, *ids) if await journal.get(HOST, id_)]

    assert await keeper.trim(HOST, 100 * each, 100 * each) == 0
    assert await keeper.trim(OTHER, 1, 1) == 0
    assert await keeper.trim(HOST, 3 * each - each // 2, 100 * each) == 2
    assert await remaining_ids() == [unsent, first, *ids[2:]]
    assert await keeper.trim(HOST, 100 * each, 2 * each + each // 2) == 1
    assert await remaining_ids() == [unsent, *ids[2:]]


async def test_failed_invocations_holding_their_key_count_as_open(journal: Journal) -> None:
    """An invocation that no retention may remove early is in a quota (mending 6)."""
    await accept_draft(journal, order_key="a", on_failure="block")
    await accept_draft(journal, number=1)
    await journal.end([end(taken, error=b"{}") for taken in await claim_calls(journal, 2)])
    [usage] = (await journal.open_usage(HOST, 10)).values()
    assert usage.number == 1


async def test_one_process_changes_the_months_at_a_time(
    journal: Journal, events_database: DatabaseSettings
) -> None:
    async with await psycopg.AsyncConnection.connect(events_database.url) as other:
        await other.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        assert not await upkeep(journal).retain(3600)
    assert await upkeep(journal).retain(3600)


SET = "UPDATE invocation_t SET "
ILLEGAL = {
    "acked unseen": (0, SET + "status = 'ACKED', finished_ts = now()"),
    "failed unseen": (0, SET + "status = 'FAILED', reason = 'error', finished_ts = now()"),
    "dispatched without fence": (0, SET + "status = 'DISPATCHED', lease_ts = now(), attempt = 1"),
    "fence back": (1, SET + "fence = 0"),
    "attempt made up": (0, SET + "attempt = 7"),
    "acked without result time": (1, SET + "status = 'ACKED', lease_ts = NULL"),
    "acked with a lease": (1, SET + "status = 'ACKED', finished_ts = now()"),
    "acked with a reason": (
        1,
        SET + "status = 'ACKED', reason = 'error', lease_ts = NULL, finished_ts = now()",
    ),
    "back from acked": (2, SET + "status = 'PENDING', finished_ts = NULL"),
    "failed after acked": (2, SET + "status = 'FAILED', reason = 'error'"),
    "other result": (2, SET + "result = '1'"),
    "deleted while pending": (0, "DELETE FROM invocation_t"),
    "deleted while dispatched": (1, "DELETE FROM invocation_t"),
    "other id": (0, SET + "correlation_id = 'x'"),
    "unknown state": (0, SET + "status = 'LOST'"),
    "done again": (3, "UPDATE invocation_done_t SET status = 'FAILED', reason = 'error'"),
    "open among done": (
        0,
        "INSERT INTO invocation_done_t SELECT * FROM invocation_t",
    ),
}


@pytest.mark.parametrize("case", ILLEGAL)
async def test_the_database_refuses_illegal_states(
    journal: Journal, events_database: DatabaseSettings, case: str
) -> None:
    """The database refuses illegal states (V04)."""
    steps, statement = ILLEGAL[case]
    await accept_draft(journal)
    taken = await claim_calls(journal) if steps else []
    if steps > 1:
        await journal.end([end(one) for one in taken])
    if steps > 2:
        await upkeep(journal).move_ended(-1)
    async with await psycopg.AsyncConnection.connect(events_database.url) as connection:
        with pytest.raises((psycopg.errors.CheckViolation, psycopg.errors.NotNullViolation)):
            await connection.execute(statement.encode())


STATES = {  # with what belongs to each
    "PENDING": "reason = NULL, lease_ts = NULL, finished_ts = NULL",
    "DISPATCHED": "reason = NULL, lease_ts = now(), finished_ts = NULL",
    "ACKED": "reason = NULL, lease_ts = NULL, finished_ts = now()",
    "FAILED": "reason = 'cancelled', lease_ts = NULL, finished_ts = now()",
}
CHANGES = {
    *(("PENDING", "DISPATCHED"), ("PENDING", "FAILED")),
    *(("DISPATCHED", "PENDING"), ("DISPATCHED", "ACKED"), ("DISPATCHED", "FAILED")),
}


async def test_states_change_only_by_allowed_transitions(journal: Journal) -> None:
    """Each with all that belongs to the new state, so that the state alone is refused (V04)."""
    for old, new in itertools.permutations(STATES, 2):
        id_ = await accept_draft(journal)
        async with borrow(journal._pool) as connection:
            for state in {"PENDING": (), "DISPATCHED": (old,)}.get(old, ("DISPATCHED", old)):
                await connection.execute(_change(state), [id_])
            if (old, new) in CHANGES:
                await connection.execute(_change(new), [id_])
            else:
                with pytest.raises(psycopg.errors.CheckViolation):
                    await connection.execute(_change(new), [id_])
                await connection.rollback()


def _change(state: str) -> bytes:
    more = ", attempt = attempt + 1, fence = fence + 1" if state == "DISPATCHED" else ""
    text = f"UPDATE invocation_t SET status = '{state}', {STATES[state]}{more}"
    return f"{text} WHERE invocation_id = %s".encode()


async def test_a_retry_is_pending_again_and_due_later(journal: Journal) -> None:
    """A retry is pending again and due later (V04)."""
    id_ = await accept_draft(journal)
    [one] = await claim_calls(journal)
    assert await journal.end([end(one, error=b"{}", retry_s=3600)]) == {(id_, 1)}
    row = await journal.get(HOST, id_)
    assert row is not None
    assert (row.status, row.attempt, row.reason, row.finished) == ("PENDING", 1, None, None)
    assert row.due - row.created >= timedelta(hours=1)
    assert await claim_calls(journal) == []
    async with borrow(journal._pool) as connection:
        await connection.execute("UPDATE invocation_t SET due_ts = now()")
    [two] = await claim_calls(journal)
    assert (two.invocation_id, two.attempt, two.fence) == (id_, 2, 2)


async def test_the_database_refuses_two_deliveries_of_one_key(journal: Journal) -> None:
    """The database refuses two deliveries of one key (V11)."""
    for number in range(2):
        await accept_draft(journal, number=number, order_key="a")
    async with borrow(journal._pool) as connection:
        with pytest.raises(psycopg.errors.UniqueViolation):
            await connection.execute(
                "UPDATE invocation_t SET status = 'DISPATCHED', fence = 1, attempt = 1,"
                " lease_ts = now()"
            )
        await connection.rollback()


async def test_bytes_of_open_invocations_are_counted_by_principal(journal: Journal) -> None:
    """Arguments count as the database stores them (mending 6)."""
    await journal.accept([draft(arguments=Raw(b'"%s"' % (b"ab" * 50)))])
    [usage] = (await journal.open_usage(HOST, 10)).values()
    assert (usage.number, 100 <= usage.bytes <= 120) == (1, True)
