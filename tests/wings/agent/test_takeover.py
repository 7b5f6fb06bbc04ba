"""Runs outlive their process, and wait for people without one."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import psycopg
import pytest
from psycopg.types.json import Jsonb

from gateway.context import KEY_MARK
from gateway.wings.agent.conversation_and_run_store import Run, Runs
from gateway.wings.agent.runner import Runner
from registry.access.api_keys import ApiKeys
from registry.access.approvals import Approvals
from registry.database.postgres import borrow
from tests.fixtures_database import HOST
from tests.polling import until
from tests.servers.provider import Answer, chat_whole
from tests.wings.agent.rig import Rig

pytestmark = pytest.mark.anyio

PET = ("p1", "createPet", '{"name": "Tom"}')
GET = ("g1", "getPet", '{"id": 7}')
DELETE = ("d1", "deletePet", '{"id": 7}')


async def begin_run(rig: Rig, *answers: Answer) -> tuple[str, str]:
    """A run that is not waited for: its id, and its conversation's."""
    rig.script(*answers)
    id_ = await rig.conversation()
    status, run = await rig.post(
        f"/conversations/{id_}/messages", {"content": "Do it.", "wait": False}
    )
    assert status == 200, run
    return run["run"], id_


async def expire(rig: Rig, run: str) -> None:
    """The process of a run is gone for longer than the lease."""
    pool = rig.client.gateway._handle.pool()
    assert pool is not None
    async with borrow(pool) as connection:
        await connection.execute(
            "UPDATE agent_run_t SET lease_until = clock_timestamp() WHERE run_id = %s"
            " AND state = 'running'",
            [run],
        )


@asynccontextmanager
async def crashing(
    monkeypatch: pytest.MonkeyPatch, point: int, *, written: bool
) -> AsyncIterator[anyio.Event]:
    """At its `point`-th write the process stops: before the write, or behind it."""
    crashed = anyio.Event()
    writes = [0]

    def wrap_write(real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def write(*args: Any, **kwargs: Any) -> Any:
            writes[0] += 1
            if writes[0] != point:
                return await real(*args, **kwargs)
            if written:
                await real(*args, **kwargs)
            crashed.set()
            raise psycopg.OperationalError("the process is gone")

        return write

    with monkeypatch.context() as patch:
        patch.setattr(Runs, "add", wrap_write(Runs.add))
        patch.setattr(Runs, "end", wrap_write(Runs.end))
        yield crashed


# context with asked, replied, intent, result, asked, replied, end
@pytest.mark.parametrize("written", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("point", range(1, 8))
async def test_a_run_goes_on_wherever_its_process_stopped(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, point: int, written: bool
) -> None:
    def answer_model(asked: Any) -> Answer:
        results = [one for one in asked.body["messages"] if one["role"] == "tool"]
        return chat_whole("Done.") if results else chat_whole("", [PET])

    async with crashing(monkeypatch, point, written=written) as crashed:
        run, _ = await begin_run(rig, answer_model)  # type: ignore[arg-type]
        with anyio.fail_after(60):
            await crashed.wait()
            await expire(rig, run)
            found = await rig.until(run, "completed")
    assert found["answer"] == "Done."
    assert rig.service_calls.count("POST /pets") <= 1
    [call] = found["calls"]
    lost = (point, written) in {(3, True), (4, False)}  # between intent and result
    assert ("Outcome unknown" in call["result"]) is lost
    if not lost:
        assert rig.service_calls.count("POST /pets") == 1
    kinds = await rig.steps(run)
    assert kinds == ["context", "asked", "replied", "intent", "result", "asked", "replied"]


@pytest.mark.parametrize("written", [False, True])
async def test_a_call_that_only_reads_is_made_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    async with crashing(monkeypatch, 3, written=written) as crashed:
        run, _ = await begin_run(rig, chat_whole("", [GET]), chat_whole("Done."))
        with anyio.fail_after(60):
            await crashed.wait()
            await expire(rig, run)
            found = await rig.until(run, "completed")
    assert "Outcome unknown" not in found["calls"][0]["result"]
    assert rig.service_calls.count("GET /pets/7") == (1 if written else 2)


async def test_a_process_that_has_lost_its_lease_writes_nothing(rig: Rig) -> None:
    run, _ = await begin_run(rig, Answer(silent=True), chat_whole("From the other."))
    with anyio.fail_after(60):
        await rig.provider.asked.wait()
        pool = rig.client.gateway._handle.pool()
        assert pool is not None
        async with borrow(pool) as connection:  # as another process takes it up
            await connection.execute(
                "UPDATE agent_run_t SET attempt = attempt + 1, lease_until = clock_timestamp()"
                " WHERE run_id = %s",
                [run],
            )
        await rig.provider.hung_up[0].wait()
        found = await rig.until(run, "completed")
    assert found["answer"] == "From the other."


async def waiting(rig: Rig) -> tuple[str, str]:
    """A run that waits for an approval, and the approval."""
    run, _ = await begin_run(rig, chat_whole("", [DELETE]), chat_whole("Done."))
    found = await rig.until(run, "waiting")
    [approval] = found["approvals"]
    return run, approval


def approvals(rig: Rig) -> Approvals:
    pool = rig.client.gateway._handle.pool()
    assert pool is not None
    return Approvals(pool, HOST)


async def delete_approval(rig: Rig, approval: str) -> None:
    """Or it would serve the next call of another test."""
    pool = rig.client.gateway._handle.pool()
    assert pool is not None
    async with borrow(pool) as connection:
        await connection.execute("DELETE FROM approval_t WHERE approval_id = %s", [approval])


@pytest.mark.parametrize("approve", [True, False])
async def test_a_run_waits_for_a_person_and_goes_on_by_itself(rig: Rig, approve: bool) -> None:
    run, approval = await waiting(rig)
    assert rig.service_calls == []
    decided = await approvals(rig).decide(approval, approve, "ops")
    assert decided is not None
    assert json.loads(decided.arguments) == {"id": 7}
    found = await rig.until(run, "completed")
    assert rig.service_calls == (["DELETE /pets/7"] if approve else [])
    assert ("refused" in found["calls"][0]["result"]) is not approve
    assert found["answer"] == "Done."


async def test_a_run_ends_when_the_key_of_its_caller_is_revoked_meanwhile(rig: Rig) -> None:
    run, approval = await waiting(rig)
    pool = rig.client.gateway._handle.pool()
    assert pool is not None
    key, _ = await ApiKeys(pool, HOST).create("bot")
    async with borrow(pool) as connection:
        await connection.execute(
            "UPDATE agent_run_t SET caller = jsonb_set(caller, '{principal,mark}', %s)"
            " WHERE run_id = %s",
            [Jsonb(KEY_MARK + key.id), run],
        )
    assert await ApiKeys(pool, HOST).revoke(key.id)
    assert await approvals(rig).decide(approval, False, "ops") is not None
    found = await rig.until(run, "failed")
    assert found["error"] == "revoked"
    assert rig.service_calls == []
    await delete_approval(rig, approval)


async def test_an_approval_that_expires_is_a_refusal(rig: Rig) -> None:
    run, approval = await waiting(rig)
    pool = rig.client.gateway._handle.pool()
    assert pool is not None
    async with borrow(pool) as connection:
        await connection.execute(
            "UPDATE approval_t SET expire_ts = clock_timestamp() WHERE approval_id = %s", [approval]
        )
        await connection.execute(
            "UPDATE agent_run_t SET lease_until = clock_timestamp() WHERE run_id = %s", [run]
        )
    found = await rig.until(run, "completed")
    assert "in time" in found["calls"][0]["result"]
    assert rig.service_calls == []


async def test_a_caller_does_not_decide_for_itself(rig: Rig) -> None:
    run, approval = await waiting(rig)
    status, problem = await rig.post(f"/approvals/{approval}", {"approve": True})
    assert (status, problem["type"]) == (403, "problems/forbidden")
    status, _ = await rig.post(f"/approvals/{approval}", {"approve": False})
    assert status == 204
    status, _ = await rig.post(f"/approvals/{approval}", {"approve": False})
    assert status == 409
    await rig.until(run, "completed")


async def test_a_waiting_run_has_no_task_and_can_be_cancelled(rig: Rig) -> None:
    run, _ = await waiting(rig)

    async def has_no_task() -> bool:
        _, health = await rig.get("/health")
        return bool(health["runs"] == 0)

    await until(has_no_task)  # its events are written behind its row
    status, found = await rig.post(f"/runs/{run}/cancel")
    assert (status, found["state"]) == (200, "cancelled")
    assert rig.service_calls == []


@pytest.mark.parametrize("stored", [False, True], ids=["before", "behind"])
async def test_a_run_is_cancelled_while_its_process_stores_the_waiting_state(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    end, cancel = Runs.end, Runs.cancel
    ending, cancelled = anyio.Event(), anyio.Event()

    async def end_late(*given: Any) -> Run:
        if stored:
            run = await end(*given)
        ending.set()
        await cancelled.wait()
        return run if stored else await end(*given)

    async def cancel_once(*given: Any) -> Run | None:
        run = await cancel(*given)
        cancelled.set()
        return run

    with monkeypatch.context() as patch, anyio.fail_after(60):
        patch.setattr(Runs, "end", end_late)
        patch.setattr(Runs, "cancel", cancel_once)
        run, _ = await begin_run(rig, chat_whole("", [DELETE]), chat_whole("Never."))
        await ending.wait()
        status, found = await rig.post(f"/runs/{run}/cancel")
    assert (status, found["state"]) == (200, "cancelled")
    assert len(rig.provider.requests) == 1


async def test_a_run_is_cancelled_while_a_process_claims_the_run(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, approval = await waiting(rig)
    claim, cancel = Runs.claim, Runs.cancel
    claimed, cancelled = anyio.Event(), anyio.Event()

    async def claim_late(*given: Any) -> Run | None:
        row = await claim(*given)
        if row is not None:
            claimed.set()
            await cancelled.wait()
        return row

    async def cancel_once(*given: Any) -> Run | None:
        row = await cancel(*given)
        cancelled.set()
        return row

    with monkeypatch.context() as patch, anyio.fail_after(60):
        patch.setattr(Runs, "claim", claim_late)
        patch.setattr(Runs, "cancel", cancel_once)
        assert await approvals(rig).decide(approval, True, "ops") is not None
        await claimed.wait()
        status, found = await rig.post(f"/runs/{run}/cancel")
    assert (status, found["state"]) == (200, "cancelled")
    assert rig.service_calls == []
    await delete_approval(rig, approval)


async def test_a_waiting_run_that_is_cancelled_is_never_claimed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = await waiting(rig)
    cancel = Runs.cancel

    async def cancel_and_claim(runs: Runs, tenant: str, owner: str, id_: str) -> Run | None:
        row = await cancel(runs, tenant, owner, id_)
        await runs.claim(tenant, id_)  # as a process does that looks for runs
        return row

    with monkeypatch.context() as patch:
        patch.setattr(Runs, "cancel", cancel_and_claim)
        status, found = await rig.post(f"/runs/{run}/cancel")
    assert (status, found["state"]) == (200, "cancelled")


async def test_a_cancelled_run_leaves_no_approval_to_decide(rig: Rig) -> None:
    """It would count against the limit of its caller, and a person would decide for nothing."""
    first, approval = await waiting(rig)
    second, shared = await waiting(rig)
    assert shared == approval  # of the same call
    await rig.post(f"/runs/{first}/cancel")
    found = await approvals(rig).get(approval)
    assert found is not None
    assert found.state == "waiting"
    await rig.post(f"/runs/{second}/cancel")
    assert await approvals(rig).get(approval) is None


async def test_a_run_cancelled_within_a_later_call_leaves_no_approval_to_decide(rig: Rig) -> None:
    slow = ("s1", "slow", "{}")
    run, _ = await begin_run(rig, chat_whole("", [DELETE, slow]))
    with anyio.fail_after(60):
        await rig.service.arrived.wait()
    assert len(await approvals(rig).waiting()) == 1
    status, found = await rig.post(f"/runs/{run}/cancel")
    assert (status, found["state"]) == (200, "cancelled")
    assert not await approvals(rig).waiting()


async def test_a_run_cancelled_within_its_request_leaves_no_approval_to_decide(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, cancel_here = Approvals.request, Runner.cancel_here
    requested, cancelled = anyio.Event(), anyio.Event()

    async def request_slowly(*given: Any) -> Any:
        answer = await request(*given)
        requested.set()
        await cancelled.wait()
        return answer

    def cancel_and_set(runner: Runner, id_: str) -> bool:
        is_here = cancel_here(runner, id_)
        cancelled.set()
        return is_here

    with monkeypatch.context() as patch, anyio.fail_after(60):
        patch.setattr(Approvals, "request", request_slowly)
        patch.setattr(Runner, "cancel_here", cancel_and_set)
        run, _ = await begin_run(rig, chat_whole("", [DELETE]))
        await requested.wait()
        status, found = await rig.post(f"/runs/{run}/cancel")
    assert (status, found["state"]) == (200, "cancelled")
    assert not await approvals(rig).waiting()


async def test_a_defect_fails_its_run_alone(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Runs, "add", lambda *_: 1 / 0)
        run, _ = await begin_run(rig, chat_whole("Never."))
        found = await rig.until(run, "failed")
    assert found["error"] == "internal"
    rig.script(chat_whole("Fine."))
    assert (await rig.ask("Hello?"))["answer"] == "Fine."


async def test_a_gateway_that_stops_lets_its_runs_go(rig: Rig) -> None:
    run, _ = await begin_run(rig, Answer(silent=True), chat_whole("Again."))
    with anyio.fail_after(60):
        await rig.provider.asked.wait()
        [wing] = [one for one in rig.client.gateway.wings._served if one.name == "agent"]  # type: ignore[union-attr]
        await wing.stop()
        pool = rig.client.gateway._handle.pool()
        assert pool is not None
        async with borrow(pool) as connection:
            rows = await connection.execute(
                "SELECT state FROM agent_run_t WHERE run_id = %s", [run]
            )
            assert await rows.fetchall() == [("queued",)]
