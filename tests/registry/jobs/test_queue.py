"""The queue of jobs: what starts, when, how often, and what a stop or a crash leaves."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files

import anyio
import pytest
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from config.load import load
from gateway.app.erasers import rows_of_gateway
from registry.database.person_rows import ErasedPerson
from registry.database.postgres import Database, borrow
from registry.jobs.queue import JobQueue, JobWorker, TooManyJobs
from registry.jobs.store import Claim, JobDraft, JobEnd, JobProgress, JobRow, JobStore
from schemas.schedules import Schedule
from tests.fixtures_database import HOST
from tests.fixtures_gateway import DEADLINE_S
from tests.polling import until

pytestmark = pytest.mark.anyio

JOBS = replace(load(None, {}).jobs, poll_s=0.02, grace_s=5, stalled_s=60, concurrency=4)
DONE = JobEnd("succeeded", b'"done"')


def draft(lock: str = "", once: bytes | None = None, operation: str = "work") -> JobDraft:
    key = None if once is None else once * 32
    return JobDraft(HOST, operation, "ada", b"{}", b"{}", lock, key)


async def nothing(_name: str) -> None:
    pass


@dataclass
class Hands:
    """Claims each job, holds it until released, and ends it."""

    store: JobStore
    release: anyio.Event = field(default_factory=anyio.Event)
    running: set[str] = field(default_factory=set)
    most: int = 0
    starts: list[Claim] = field(default_factory=list)
    ends: list[bool] = field(default_factory=list)

    async def perform(self, job_id: str) -> float | None:
        claim = await self.store.claim(job_id)
        if claim is None:
            return None
        self.starts.append(claim)
        self.running.add(job_id)
        self.most = max(self.most, len(self.running))
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            await self.store.wait_again(claim, failed=False)
            raise
        finally:
            self.running.discard(job_id)
        self.ends.append(await self.store.end(claim, DONE, JobProgress()))
        return None


@pytest.fixture
def hands(database: Database) -> Hands:
    return Hands(JobStore(database.pool))


@pytest.fixture
def queue(database: Database) -> JobQueue:
    return JobQueue(database.pool, 100)


@asynccontextmanager
async def working(
    database: Database,
    perform: Callable[[str], Awaitable[float | None]],
    settings: object = JOBS,
    schedules: Mapping[str, Schedule] | None = None,
    tick: Callable[[str], Awaitable[object]] = nothing,
) -> AsyncIterator[JobWorker]:
    worker = JobWorker(database.pool, settings, perform, schedules=schedules or {}, tick=tick)  # type: ignore[arg-type]
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        yield worker
        with anyio.fail_after(DEADLINE_S):
            await worker.settle()
        group.cancel_scope.cancel()


async def job(database: Database, job_id: str) -> JobRow:
    row = await JobStore(database.pool).get(HOST, job_id)
    assert row is not None
    return row


async def entries(database: Database) -> int:
    async with borrow(database.pool) as connection:
        found = await connection.execute("SELECT FROM procrastinate_jobs")
        return found.rowcount


def test_the_migration_is_the_schema_of_the_installed_package() -> None:
    ours = files("registry.jobs") / "migrations" / "0001_procrastinate.sql"
    theirs = files("procrastinate.sql") / "schema.sql"
    assert ours.read_text() == theirs.read_text(), (
        "procrastinate has another schema now: add its migrations as files of our own"
    )


async def test_a_job_is_run_and_leaves_no_entry(
    database: Database, queue: JobQueue, hands: Hands
) -> None:
    hands.release.set()
    job_id = await queue.put(draft())
    assert (await job(database, job_id)).state == "waiting"
    async with working(database, hands.perform):
        await until(lambda: hands.ends)
    row = await job(database, job_id)
    assert (row.state, row.result, row.attempt, row.note) == ("succeeded", '"done"', 1, "")
    assert await entries(database) == 0


async def test_an_equal_waiting_job_is_not_queued_twice(
    database: Database, queue: JobQueue, hands: Hands
) -> None:
    first = await queue.put(draft(once=b"x"))
    assert await queue.put(draft(once=b"x")) == first
    assert await queue.put(draft(once=b"y")) != first
    assert await hands.store.claim(first) is not None
    assert await queue.put(draft(once=b"x")) != first
    assert await entries(database) == 3


async def test_jobs_of_one_lock_run_singly(
    database: Database, queue: JobQueue, hands: Hands
) -> None:
    jobs = [await queue.put(draft(lock="one")) for _ in range(3)]
    other = await queue.put(replace_host(draft(lock="one")))
    async with working(database, hands.perform):
        await until(lambda: len(hands.running) == 2)
        assert hands.running == {jobs[0], other}  # locks are those of a tenant
        hands.release.set()
        await until(lambda: len(hands.ends) == 4)
    assert hands.most == 2
    assert [one.job_id for one in hands.starts if one.host_id == HOST] == jobs


def replace_host(one: JobDraft) -> JobDraft:
    return JobDraft("00000000-0000-4000-8000-00000000beef", one.operation, "eve", b"{}", b"{}",
                    one.lock)  # fmt: skip


THIRD = "00000000-0000-4000-8000-00000000cafe"


async def test_tenants_take_turns_and_keep_their_order(
    database: Database, queue: JobQueue, hands: Hands
) -> None:
    """A tenant that has always had jobs waiting does not yield to a flood of another either."""
    hands.release.set()
    many = [await queue.put(draft("one")) for _ in range(20)]
    few = [await queue.put(replace_host(draft("one"))) for _ in range(2)]
    async with borrow(database.pool) as connection:  # as after thousands of jobs of the first
        await connection.execute("UPDATE procrastinate_jobs SET priority = priority - 5000")
    flood = [await queue.put(dataclasses.replace(draft("one"), host_id=THIRD)) for _ in range(20)]
    async with working(database, hands.perform, replace(JOBS, concurrency=1)):
        await until(lambda: len(hands.ends) == 42)
    order = [one.job_id for one in hands.starts]
    for jobs in (many, few, flood):
        assert [one for one in order if one in jobs] == jobs
    assert order.index(few[1]) < 8
    assert abs(order.index(flood[9]) - order.index(many[9])) < 8


async def test_a_tenant_has_a_bounded_number_of_jobs_that_wait(
    database: Database, hands: Hands
) -> None:
    queue, once = JobQueue(database.pool, 3), draft(once=b"1")
    known = await queue.put(once)
    for _ in range(2):
        await queue.put(draft())
    with pytest.raises(TooManyJobs, match="3 jobs wait already"):
        await queue.put(draft())
    assert await queue.put(once) == known
    await queue.put(replace_host(draft()))
    assert await entries(database) == 4
    await JobStore(database.pool).cancel(HOST, known)
    await queue.put(draft())


async def test_a_cancelled_job_is_not_started(
    database: Database, queue: JobQueue, hands: Hands
) -> None:
    cancelled, other = await queue.put(draft()), await queue.put(draft())
    await hands.store.cancel(HOST, cancelled)
    await hands.store.cancel("00000000-0000-4000-8000-00000000beef", other)  # another tenant's
    hands.release.set()
    async with working(database, hands.perform):
        await until(lambda: hands.ends)
    assert [one.job_id for one in hands.starts] == [other]
    row = await job(database, cancelled)
    assert (row.state, row.attempt, row.cancelling) == ("cancelled", 0, False)
    await hands.store.cancel(HOST, other)  # it has ended
    assert (await job(database, other)).state == "succeeded"


async def test_a_job_is_started_again_after_its_delay(
    database: Database, queue: JobQueue, hands: Hands
) -> None:
    hands.release.set()

    async def twice(job_id: str) -> float | None:
        if hands.starts:
            return await hands.perform(job_id)
        claim = await hands.store.claim(job_id)
        assert claim is not None
        hands.starts.append(claim)
        await hands.store.wait_again(claim, failed=True)
        return 0.01

    job_id = await queue.put(draft())
    async with working(database, twice):
        await until(lambda: hands.ends)
    assert [(one.attempt, one.failures) for one in hands.starts] == [(1, 0), (2, 1)]
    assert (await job(database, job_id)).state == "succeeded"


async def test_a_stop_lets_jobs_end(database: Database, queue: JobQueue, hands: Hands) -> None:
    job_id = await queue.put(draft())
    async with working(database, hands.perform) as worker:
        await until(lambda: hands.running)
        worker.stop()
        await checkpoint()
        hands.release.set()
    assert (await job(database, job_id)).state == "succeeded"


async def test_a_job_that_outlives_the_grace_waits_for_another_worker(
    database: Database, queue: JobQueue, hands: Hands
) -> None:
    job_id = await queue.put(draft())
    async with working(database, hands.perform, replace(JOBS, grace_s=0.05)):
        await until(lambda: hands.running)
    row = await job(database, job_id)
    assert (row.state, row.attempt) == ("waiting", 1)
    hands.release.set()
    async with working(database, hands.perform):
        await until(lambda: hands.ends)
    assert [(one.attempt, one.failures) for one in hands.starts] == [(1, 0), (2, 0)]


async def test_cancelling_the_scope_of_a_worker_leaves_no_job_behind(
    database: Database, queue: JobQueue, hands: Hands
) -> None:
    job_id = await queue.put(draft())
    worker = JobWorker(
        database.pool, replace(JOBS, grace_s=0.05), hands.perform, schedules={}, tick=nothing
    )
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await until(lambda: hands.running)
            group.cancel_scope.cancel()
    assert (await job(database, job_id)).state == "waiting"
    assert not hands.running


async def test_a_worker_stopped_before_its_start_ends(database: Database, hands: Hands) -> None:
    worker = JobWorker(database.pool, JOBS, hands.perform, schedules={}, tick=nothing)
    worker.stop()
    with anyio.fail_after(DEADLINE_S):
        await worker.run()


async def test_a_job_without_a_sign_of_life_is_taken_over_and_its_old_worker_fenced_off(
    database: Database, queue: JobQueue, hands: Hands
) -> None:
    job_id = await queue.put(draft())
    async with working(database, hands.perform):
        await until(lambda: hands.running)
        assert await queue.take_over(60) == 0
        await age(database, job_id)
        assert await queue.take_over(60) == 1
        assert await queue.take_over(60) == 0
        await until(lambda: len(hands.starts) == 2)  # the same process may take it, as any other
        old, new = hands.starts
        assert (new.attempt, new.failures) == (2, 1)
        assert not await hands.store.advance(old, JobProgress(5, 10))
        assert not await hands.store.goes_on(old)
        assert not await hands.store.end(old, JobEnd("failed"), JobProgress())
        assert not await hands.store.wait_again(old, failed=True)
        assert await hands.store.advance(new, JobProgress(1, 10, "tools"))
        row = await job(database, job_id)
        assert (row.state, row.done, row.total, row.note) == ("running", 1, 10, "tools")
        hands.release.set()
        await until(lambda: len(hands.ends) == 2)
    assert sorted(hands.ends) == [False, True]
    assert (await job(database, job_id)).state == "succeeded"
    assert await entries(database) == 0


async def test_a_job_whose_entry_is_gone_is_queued_again(
    database: Database, queue: JobQueue, hands: Hands
) -> None:
    job_id = await queue.put(draft())
    await age(database, job_id)
    assert await queue.take_over(60) == 0  # its entry waits
    async with borrow(database.pool) as connection:
        await connection.execute("DELETE FROM procrastinate_jobs")
    hands.release.set()
    async with working(database, hands.perform):
        await until(lambda: hands.ends)
    assert [one.failures for one in hands.starts] == [0]


async def test_a_running_job_that_was_cancelled_is_not_taken_over(
    database: Database, queue: JobQueue, hands: Hands
) -> None:
    job_id = await queue.put(draft())
    assert await hands.store.claim(job_id) is not None
    await hands.store.cancel(HOST, job_id)
    assert (await job(database, job_id)).cancelling
    await age(database, job_id)
    async with borrow(database.pool) as connection:
        await connection.execute("UPDATE procrastinate_jobs SET status = 'doing'")
    assert await queue.take_over(60) == 1
    assert (await job(database, job_id)).state == "cancelled"
    assert await entries(database) == 0


async def test_a_schedule_ticks_at_a_single_worker(database: Database, hands: Hands) -> None:
    ticks: list[str] = []

    async def tick(name: str) -> None:
        ticks.append(name)

    each_second = {"removal": Schedule("* * * * * *")}
    async with (
        working(database, hands.perform, JOBS, each_second, tick),
        working(database, hands.perform, JOBS, each_second, tick),
    ):
        await until(lambda: len(ticks) >= 2)
    assert set(ticks) == {"removal"}


async def test_impossible_schedules_do_not_affect_other_schedules(
    database: Database, hands: Hands, caplog: pytest.LogCaptureFixture
) -> None:
    ticks: list[str] = []

    async def tick(name: str) -> None:
        ticks.append(name)

    crons = {"february": "0 0 30 2 *", "hour": "0 99 * * *", "each second": "* * * * * *"}
    schedules = {name: Schedule(cron) for name, cron in crons.items()}
    async with working(database, hands.perform, JOBS, schedules, tick):
        await until(lambda: len(ticks) >= 3)
    assert set(ticks) == {"each second"}
    told = [one.name for one in caplog.records if one.levelname == "ERROR"]
    assert told == ["toolgate.jobs", "toolgate.jobs"]


async def test_ended_jobs_are_removed_after_their_time(
    database: Database, queue: JobQueue, hands: Hands
) -> None:
    old, new, waiting = [await queue.put(draft()) for _ in range(3)]
    await hands.store.cancel(HOST, old)
    await hands.store.cancel(HOST, new)
    async with borrow(database.pool) as connection:
        await connection.execute(
            "UPDATE job_t SET ended_ts = ended_ts - interval '31 days' WHERE job_id = %s", [old]
        )
    assert await hands.store.remove_ended(30) == 1
    found = await hands.store.page(HOST, ["work"], limit=10)
    assert [one.job_id for one in found] == [waiting, new]


async def age(database: Database, job_id: str) -> None:
    async with borrow(database.pool) as connection:
        await connection.execute(
            "UPDATE job_t SET beat_ts = beat_ts - interval '1 hour' WHERE job_id = %s", [job_id]
        )


async def test_a_job_running_during_an_erasure_stores_nothing_afterwards(
    database: Database,
) -> None:
    """A worker that ends a job of an erased person after the erasure has lost it; a job of another
    person goes on."""
    store, queue = JobStore(database.pool), JobQueue(database.pool, 100)
    erased = await queue.put(JobDraft(HOST, "work", "ada", b'{"q": "mine"}', b"{}"))
    kept = await queue.put(JobDraft(HOST, "work", "eve", b"{}", b"{}"))
    claim, other = await store.claim(erased), await store.claim(kept)
    assert claim is not None
    assert other is not None
    rows = rows_of_gateway(load(None, {"TOOLGATE_AUTH__MODE": "keys"}), lambda: database.pool)
    [jobs] = [held for held in rows if held.place == "jobs"]
    assert await jobs.erase_person(ErasedPerson(HOST, "ada", "erased")) == 1
    assert (await store.goes_on(claim), await store.goes_on(other)) == (False, True)
    assert not await store.end(claim, JobEnd("succeeded", b'{"a": "mine"}'), JobProgress(1, 1, "x"))
    assert await store.end(other, DONE, JobProgress())
    row = await job(database, erased)
    assert (row.state, row.result, row.note) == ("cancelled", None, "")
    async with borrow(database.pool) as connection:
        rows = await connection.execute("SELECT job_t::text FROM job_t WHERE job_id = %s", [erased])
        assert "mine" not in str(await rows.fetchone())
