"""Operations as jobs: under whose identity they run, what they store, and when they start again."""

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from msgspec import Struct
from msgspec.structs import replace

from config.load import load
from gateway.context import KEY_MARK, Context, Identity, Principal
from gateway.operations.job_declarations import AsJob, JobAct
from gateway.operations.job_requests import draft_of
from gateway.operations.job_runner import JobRunner
from gateway.operations.operation import Operation, OperationInput, OperationOutput
from gateway.operations.operation_server import IdempotentRunner, OperationServer
from gateway.operations.problems import ProblemDetails, changed_problem, invalid, unavailable
from gateway.operations.stored_callers import current_caller
from gateway.state.idempotency import IdempotencyKeys
from registry.access.api_keys import ApiKeys
from registry.access.revocations import Revocation, Revocations
from registry.database.postgres import Database
from registry.jobs.queue import JobQueue
from registry.jobs.store import JobRow, JobStore
from schemas.errors import Fault, Forbidden
from schemas.mcp.revisions import V2025_11_25
from tests.fixtures_database import HOST
from tests.fixtures_gateway import DEADLINE_S

pytestmark = pytest.mark.anyio

JOBS = replace(load(None, {}).jobs, poll_s=0.01, retry_s=3)
ADA = Principal("ada", HOST, frozenset({"toys:write"}), {"email": "ada@example.com"}, mark="ab")


class Toy(Struct, frozen=True, forbid_unknown_fields=True):
    size: int
    name: str = "\0\ud83d"[:1]  # json takes what jsonb refuses


class Made(Struct, frozen=True):
    name: str
    by: str


@dataclass
class Toys:
    """Operations of a toy wing. `next` is what the handler does."""

    next: Callable[[OperationInput], Awaitable[Any]]
    asked: list[OperationInput] = field(default_factory=list)
    running: anyio.Event = field(default_factory=anyio.Event)

    @property
    def operations(self) -> tuple[Operation, ...]:
        job = AsJob(lock="toy:{source}:{body.size}", attempts=2)
        return (
            Operation(
                "makeToy", "POST", "/toys/{source}", "Make a toy.", "toys:write", self.make, Made,
                201, body=Toy, job=job,
            ),
            Operation(
                "changeToy", "PUT", "/toys/{source}", "Change a toy.", "toys:write", self.make,
                Made, body=Toy, match="optional", job=job,
            ),
            Operation("getToy", "GET", "/toys/{source}", "Show it.", "toys:write", self.get, Made),
        )  # fmt: skip

    async def make(self, request: OperationInput) -> Any:
        self.asked.append(request)
        self.running.set()
        return await self.next(request)

    async def get(self, request: OperationInput) -> Made:
        return Made("old", "ada")


async def make_toy(request: OperationInput) -> OperationOutput:
    request.job.progress(1, 2, "parts")
    value = Made(f"{request.names['source']}-{request.body.size}", request.principal.id)
    return OperationOutput(value, location="/toys/bear", untold=Made("***", "ada"))


@dataclass
class Bench:
    database: Database
    toys: Toys
    acts: list[JobAct]
    runner: JobRunner

    @property
    def store(self) -> JobStore:
        return JobStore(self.database.pool)

    async def put(
        self, operation: str = "makeToy", size: int = 3, who: Principal = ADA, **headers: str
    ) -> str:
        (one,) = [each for each in self.toys.operations if each.id == operation]
        asked = OperationInput(who, {"source": "bear"}, query=one.query(), body=Toy(size))
        return await JobQueue(self.database.pool, 100).put(draft_of(one, asked, headers))

    async def put_by(self, identity: Identity) -> str:
        operation = self.toys.operations[0]
        asked = OperationInput(
            identity.principal,
            {"source": "bear"},
            query=operation.query(),
            body=Toy(3),
            context=Context(identity, V2025_11_25, "1"),
        )
        return await JobQueue(self.database.pool, 100).put(draft_of(operation, asked, {}))

    async def row(self, job_id: str) -> JobRow:
        row = await self.store.get(HOST, job_id)
        assert row is not None
        return row

    @property
    def events(self) -> list[tuple[str, int]]:
        return [(one.event, one.status) for one in self.acts]


async def permits(*_request: object) -> None:
    """No rule denies a call."""


@pytest.fixture
async def bench(database: Database) -> AsyncIterator[Bench]:
    toys, acts = Toys(make_toy), []  # type: ignore[var-annotated]
    repeats = IdempotentRunner(IdempotencyKeys(lambda: database.pool, 60))
    server = OperationServer(toys.operations, repeats, "/toys/v1")
    runner = JobRunner(
        JobStore(database.pool),
        lambda name: server if name in server.by_id else None,
        JOBS,
        on_act=acts.append,
        caller=partial(current_caller, database.pool),
        judge=permits,
    )
    with anyio.fail_after(DEADLINE_S):
        yield Bench(database, toys, acts, runner)


async def test_an_operation_runs_as_its_caller_and_its_answer_is_kept(bench: Bench) -> None:
    job = await bench.put()
    assert await bench.runner.perform(job) is None
    row = await bench.row(job)
    assert (row.state, row.result) == ("succeeded", '{"name":"***","by":"ada"}')  # without secrets
    assert (row.location, row.done, row.total, row.note) == ("/toys/v1/toys/bear", 1, 2, "parts")
    (asked,) = bench.toys.asked
    assert asked.principal == Principal("ada", HOST, frozenset({"toys:write"}), mark="ab")
    assert (asked.names, asked.body) == ({"source": "bear"}, Toy(3))
    assert bench.events == [("started", 0), ("succeeded", 201)]
    assert {(one.principal.id, one.operation, one.names) for one in bench.acts} == {
        ("ada", "makeToy", ("bear",))
    }
    assert await bench.runner.perform(job) is None  # it has ended
    assert len(bench.toys.asked) == 1


@pytest.mark.parametrize("refusal", [None, Forbidden("The token has expired")])
async def test_a_caller_that_was_refused_is_no_other_later(
    bench: Bench, refusal: Fault | None
) -> None:
    assert await bench.runner.perform(await bench.put_by(Identity(ADA, refusal))) is None
    [asked] = bench.toys.asked
    assert asked.context is not None
    assert (asked.context.identity.refusal is None) == (refusal is None)
    assert not asked.context.identity.verified


async def test_a_refusal_is_final_and_told_as_by_the_operation(bench: Bench) -> None:
    async def refuse(_asked: OperationInput) -> None:
        raise invalid("No such toy.")

    bench.toys.next = refuse
    job = await bench.put()
    assert await bench.runner.perform(job) is None
    row = await bench.row(job)
    assert (row.state, row.result) == ("failed", None)
    assert '"status":422,"detail":"No such toy."' in (row.problem or "")
    assert bench.events == [("started", 0), ("failed", 422)]


async def test_preconditions_are_checked_when_the_job_starts(bench: Bench) -> None:
    job = await bench.put("changeToy", **{"if-match": '"other"'})
    assert await bench.runner.perform(job) is None
    assert '"status":412' in ((await bench.row(job)).problem or "")
    assert changed_problem().status == 412
    assert not bench.toys.asked


async def test_unavailable_dependencies_are_retried_up_to_the_attempts(bench: Bench) -> None:
    async def away(_asked: OperationInput) -> None:
        raise unavailable("It does not answer.")

    bench.toys.next = away
    job = await bench.put()
    assert await bench.runner.perform(job) == JOBS.retry_s
    assert (await bench.row(job)).state == "waiting"
    assert await bench.runner.perform(job) is None
    row = await bench.row(job)
    assert (row.state, row.attempt) == ("failed", 2)
    assert [event for event, _ in bench.events] == ["started", "started", "failed"]


async def test_waiting_for_running_jobs_is_no_failure(bench: Bench) -> None:
    async def refuse_crowd(_asked: OperationInput) -> None:
        raise ProblemDetails(429, "too-many-requests", "Others run.", headers={"Retry-After": "7"})

    bench.toys.next = refuse_crowd
    job = await bench.put()
    for _ in range(5):
        assert await bench.runner.perform(job) == 7
    bench.toys.next = make_toy
    assert await bench.runner.perform(job) is None
    assert (await bench.row(job)).state == "succeeded"


async def test_a_crash_fails_the_job_without_its_message(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async def crash(_asked: OperationInput) -> None:
        raise RuntimeError("the secret of the crash")

    bench.toys.next = crash
    job = await bench.put()
    assert await bench.runner.perform(job) is None
    row = await bench.row(job)
    assert row.state == "failed"
    assert '"status":500' in (row.problem or "")
    assert "secret" not in (row.problem or "")
    assert "job_crashed" in caplog.text


async def test_a_job_that_kills_its_process_each_time_has_failed(bench: Bench) -> None:
    job = await bench.put()
    for _ in range(2):
        claim = await bench.store.claim(job)
        assert claim is not None
        await bench.store.wait_again(claim, failed=True)
    assert await bench.runner.perform(job) is None
    row = await bench.row(job)
    assert (row.state, bench.toys.asked) == ("failed", [])
    assert "process" in (row.problem or "")


@pytest.mark.parametrize("change", ["scope", "operation", "body"])
async def test_a_job_that_is_not_to_run_here_does_not(bench: Bench, change: str) -> None:
    who = Principal("eve", HOST) if change == "scope" else ADA
    job = await bench.put(who=who)
    async with bench.database.connect() as connection:
        if change == "operation":
            await connection.execute("UPDATE job_t SET operation = 'other'")
        if change == "body":
            await connection.execute(
                "UPDATE job_t SET request = replace(request::text, '3', '[]')::json"
            )
    delay_s = await bench.runner.perform(job)
    row = await bench.row(job)
    assert not bench.toys.asked
    if change == "operation":  # another process may know it
        assert (delay_s, row.state) == (JOBS.retry_s, "waiting")
    else:
        assert row.state == "failed"
        assert f'"status":{403 if change == "scope" else 422}' in (row.problem or "")


@pytest.mark.parametrize("of", ["key", "jti", "subject"])
async def test_a_job_of_a_revoked_caller_does_not_run(bench: Bench, of: str) -> None:
    pool, later = bench.database.pool, datetime.now(UTC) + timedelta(days=1)
    keys, who, other = ApiKeys(pool, HOST), ADA, ADA
    if of == "key":
        key, _ = await keys.create("ci", scopes=["toys:write"])
        who = dataclasses.replace(ADA, id=key.principal, mark=f"{KEY_MARK}{key.id}")
    else:
        who = dataclasses.replace(ADA, claims={"jti": "j", "iat": 1_700_000_000})
        other = dataclasses.replace(ADA, claims={"jti": "k", "iat": 4_000_000_000})
    jobs = [await bench.put(who=who), await bench.put(who=other)]
    if of == "key":
        await keys.revoke(key.id)
    else:
        named = (None, "ada") if of == "subject" else ("j", None)
        before = datetime.now(UTC) if of == "subject" else None
        one = Revocation(*named, issued_before=before, expires=later)
        await Revocations(pool, HOST).add(one)
    for job in jobs:
        assert await bench.runner.perform(job) is None
    refused, done = [await bench.row(one) for one in jobs]
    assert (refused.state, done.state) == ("failed", "succeeded")
    assert '"type":"problems/revoked"' in (refused.problem or "")
    assert [one.principal.claims for one in bench.toys.asked] == (
        [{}] if of == "key" else [{"jti": "k", "iat": 4_000_000_000}]
    )


async def test_a_job_has_the_current_scopes_of_its_key(bench: Bench) -> None:
    key, _ = await ApiKeys(bench.database.pool, HOST).create("ci", scopes=["toys:write"])
    who = dataclasses.replace(
        ADA,
        id=key.principal,
        mark=f"{KEY_MARK}{key.id}",
        scopes=frozenset({"toys:write", "admin"}),
        roles=frozenset({"operator"}),
    )
    jobs = [await bench.put(who=who), await bench.put(who=who, size=4)]
    assert await bench.runner.perform(jobs[0]) is None
    (asked,) = bench.toys.asked
    assert (asked.principal.scopes, asked.principal.roles) == ({"toys:write"}, frozenset())
    async with bench.database.connect() as connection:
        await connection.execute("UPDATE api_key_t SET scopes = '{other}'")
    assert await bench.runner.perform(jobs[1]) is None
    assert '"status":403' in ((await bench.row(jobs[1])).problem or "")


async def test_a_job_that_takes_too_long_has_failed(bench: Bench) -> None:
    bench.toys.next = sleeping
    bench.runner.settings = replace(JOBS, timeout_s=0.05)
    job = await bench.put()
    assert await bench.runner.perform(job) is None
    row = await bench.row(job)
    assert (row.state, '"status":504' in (row.problem or "")) == ("failed", True)
    assert bench.events == [("started", 0), ("failed", 504)]


@pytest.mark.parametrize("how", ["succeeded", "failed", "cancelled", "cancelled late"])
async def test_the_request_of_a_job_that_has_ended_is_forgotten(bench: Bench, how: str) -> None:
    if how == "failed":
        bench.toys.next = crashing
    job = await bench.put()
    if how == "cancelled late":
        claim = await bench.store.claim(job)
        assert claim is not None
        await bench.store.cancel(HOST, job)
        await bench.store.wait_again(claim, failed=False)
    elif how == "cancelled":
        await bench.store.cancel(HOST, job)
    else:
        await bench.runner.perform(job)
    assert (await bench.row(job)).state == how.split()[0]
    async with bench.database.connect() as connection:
        rows = await connection.execute("SELECT request::text FROM job_t")
        assert await rows.fetchall() == [("null",)]


async def crashing(_asked: OperationInput) -> None:
    raise RuntimeError


async def test_cancelling_ends_a_running_job(bench: Bench) -> None:
    bench.toys.next = sleeping
    job = await bench.put()
    async with anyio.create_task_group() as group:
        group.start_soon(bench.runner.perform, job)
        await bench.toys.running.wait()
        await bench.store.cancel(HOST, job)
        assert (await bench.row(job)).cancelling
    row = await bench.row(job)
    assert (row.state, row.result, row.problem, row.cancelling) == ("cancelled", None, None, False)
    assert bench.events == [("started", 0), ("cancelled", 0)]


async def test_progress_is_stored_during_a_run(bench: Bench) -> None:
    async def slow(request: OperationInput) -> None:
        request.job.progress(4, 9, "tools")
        await sleeping(request)

    bench.toys.next = slow
    job = await bench.put()
    async with anyio.create_task_group() as group:
        group.start_soon(bench.runner.perform, job)
        while (row := await bench.row(job)).done != 4:
            await checkpoint()
        assert (row.state, row.total, row.note) == ("running", 9, "tools")
        await bench.store.cancel(HOST, job)
    assert (await bench.row(job)).done == 4


async def test_an_overtaken_worker_stops_and_changes_nothing(bench: Bench) -> None:
    bench.toys.next = sleeping
    job = await bench.put()
    async with anyio.create_task_group() as group:
        group.start_soon(bench.runner.perform, job)
        await bench.toys.running.wait()
        async with bench.database.connect() as connection:
            await connection.execute("UPDATE job_t SET state = 'waiting'")
        claim = await bench.store.claim(job)
        assert claim is not None
    row = await bench.row(job)
    assert (row.state, row.attempt) == ("running", 2)
    assert bench.events == [("started", 0)]


async def sleeping(_asked: OperationInput) -> None:
    await anyio.sleep_forever()


def test_secrets_and_parameters_do_not_go_with_jobs() -> None:
    async def handle(request: OperationInput) -> None: ...

    with pytest.raises(ValueError, match="secret"):
        Operation("a", "POST", "/a", "A.", "", handle, body=Toy, secret=True, job=AsJob())
    with pytest.raises(ValueError, match="schedule"):
        Operation("a", "POST", "/a", "A.", "", handle, body=Toy, job=AsJob(schedule="* * * * *"))
