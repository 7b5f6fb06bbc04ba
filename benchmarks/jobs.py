"""`make bench-jobs`: procrastinate compared with a plain loop over one table, as job queues.

Both run in this process on uvloop, with the product's pool, on an embedded PostgreSQL with default
settings (fsync on). `Loop` below is what we would write ourselves over `registry.database.leases`:
one statement that claims a job, a lease renewed by a heartbeat, NOTIFY to wake, retries with
backoff. The effects of a stop, a kill and an abort are measured with a worker in a separate
process, procrastinate's alone. The results are in docs/decisions/0001-jobs-on-procrastinate.md and
docs/decisions/0007-jobs-stay-on-procrastinate.md.
"""

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

import anyio
import click
import msgspec
import procrastinate
import uvloop
from procrastinate.worker import Worker
from psycopg import AsyncConnection, sql
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool
from rich.console import Console

from benchmarks.table import Row, render
from config.load import load
from registry.database.leases import Leases
from registry.database.postgres import Database, Notice, Pool, borrow
from registry.database.sql_fragments import compose

CONCURRENCIES = (1, 8, 32)
ROUNDS = 3
LIMIT_S = 120.0  # of any one measurement
HEARTBEAT_S, STALLED_S = 0.5, 2.0  # of the child; procrastinate's own are 10 and 30
CHILD = (sys.executable, "-m", "benchmarks.jobs", "--child")

Handler: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None]]
Defer: TypeAlias = Callable[[int], Awaitable[None]]  # the number that the job gets


@click.command()
@click.option("--jobs", "count", type=click.IntRange(10), default=2000, show_default=True)
@click.option("--child", help="URL: be the worker that is stopped and killed.", hidden=True)
@click.option("--grace", type=float, help="Seconds that the child's jobs may still run.")
def main(count: int, child: str | None, grace: float | None) -> None:
    """Latency, throughput, cost, and what a stop leaves behind."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if child is not None:
            runner.run(_serve(child, grace))
            return
        rows = runner.run(_measure(count))
    Console(width=None if sys.stdout.isatty() else 140).print(
        render(rows, "Jobs", f"procrastinate {procrastinate.__version__}, {count:,} jobs")
    )


async def _measure(count: int) -> list[Row]:
    async with _database() as database:
        app = _app()
        async with borrow(database.pool) as connection:
            await connection.execute(SCHEMA)
        await app.open_async(database.pool)
        await app.schema_manager.apply_schema_async()
        return [
            *await _latencies(database, app, min(count, 500)),
            *await _throughputs(database, app, count),
            *_cost(),
            *await _endings(database, app),
        ]


@asynccontextmanager
async def _database() -> AsyncIterator[Database]:
    with tempfile.TemporaryDirectory(prefix="toolgate-jobs-", ignore_cleanup_errors=True) as name:
        os.chmod(name, 0o755)  # noqa: PTH101 - as root the server runs as another user
        settings = load(None, {}).database
        settings = msgspec.structs.replace(settings, data_dir=str(Path(name) / "data"))
        async with Database.open(settings, wait=False) as database:
            yield database


# The plain loop

SCHEMA = """
CREATE TABLE plain_job_t (
    host_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    job_id bigint GENERATED ALWAYS AS IDENTITY,
    kind text NOT NULL,
    args jsonb NOT NULL,
    state text NOT NULL DEFAULT 'waiting',  -- running, done, failed
    attempts integer NOT NULL DEFAULT 0,
    run_after timestamptz NOT NULL DEFAULT now(),
    leased_until timestamptz,
    PRIMARY KEY (host_id, job_id)
);
CREATE INDEX ON plain_job_t (host_id, job_id) WHERE state IN ('waiting', 'running')
"""
CHANNEL = "plain_jobs"
LEASE_S, POLL_S, ATTEMPTS = 30, 5.0, 3
HOST = str(UUID(int=0))
LEASES = Leases(
    "plain_job_t", "job_id", "r.state = 'running'", fence="attempts", until="leased_until"
)
TAKE = LEASES.claim_due(
    "state = 'running'",
    sql.SQL(
        "(state = 'waiting' AND run_after <= now() OR state = 'running' AND leased_until < now())"
    ),
    "job_id",
    sql.SQL("job_id, kind, args, attempts"),
)
RENEW = compose(
    "UPDATE plain_job_t AS r SET leased_until = now() + make_interval(secs => %(lease)s)"
    " WHERE {mine}",
    mine=LEASES.of_one,
)
FINISH = compose(
    "UPDATE plain_job_t AS r SET state = %(state)s, leased_until = NULL,"
    " run_after = now() + attempts ^ 2 * interval '1 s' WHERE {mine}",
    mine=LEASES.of_one,
)


class Loop:
    """Runs the jobs of `plain_job_t`, until cancelled, or until none is left when it drains."""

    def __init__(
        self, database: Database, handlers: Mapping[str, Handler], concurrency: int, drain: bool
    ) -> None:
        self._database = database
        self._handlers = handlers
        self._free = anyio.Semaphore(concurrency)
        self._drain = drain
        self._arrived = anyio.Event()

    async def run(self) -> None:
        async with anyio.create_task_group() as listener, anyio.create_task_group() as jobs:
            listener.start_soon(self._database.listen, CHANNEL, self._wake)
            while True:
                await self._free.acquire()
                arrived = self._arrived  # before looking: a notice in between is not lost
                if job := await self._take():
                    jobs.start_soon(self._perform, *job)
                    continue
                self._free.release()
                if self._drain:
                    break
                with anyio.move_on_after(POLL_S):
                    await arrived.wait()
            listener.cancel_scope.cancel()

    async def _wake(self, _notice: Notice) -> None:
        self._arrived.set()
        self._arrived = anyio.Event()

    async def _take(self) -> tuple[Any, ...] | None:
        async with borrow(self._database.pool) as connection:
            values = {"host": HOST, "limit": 1, "lease": LEASE_S}
            return await (await connection.execute(TAKE, values)).fetchone()

    async def _perform(self, job: int, kind: str, args: Mapping[str, Any], attempt: int) -> None:
        state = "done"
        lease = {"host": HOST, "id": job, "fence": attempt, "lease": LEASE_S}
        async with anyio.create_task_group() as group:
            group.start_soon(self._renew, lease)
            try:
                await self._handlers[kind](args)
            except Exception:
                state = "waiting" if attempt < ATTEMPTS else "failed"
            group.cancel_scope.cancel()
        async with borrow(self._database.pool) as connection:
            await connection.execute(FINISH, {**lease, "state": state})
        self._free.release()

    async def _renew(self, lease: Mapping[str, Any]) -> None:
        while True:
            await anyio.sleep(LEASE_S / 3)
            async with borrow(self._database.pool) as connection:
                await connection.execute(RENEW, lease)


async def _add(pool: Pool, count: int) -> None:
    async with borrow(pool) as connection:
        await connection.execute(
            "INSERT INTO plain_job_t (kind, args) SELECT 'note', jsonb_build_object('number', n)"
            " FROM generate_series(0, %s) AS n",
            [count - 1],
        )
        await connection.execute(f"NOTIFY {CHANNEL}")


# procrastinate

noted: dict[int, float] = {}  # number of the job -> when it started
started = asyncio.Event()  # by whichever job comes next


async def _note(number: int) -> None:
    noted[number] = time.perf_counter()
    started.set()


ticks: list[int] = []  # when each was due


async def _tick(timestamp: int) -> None:
    ticks.append(timestamp)


async def _nap(seconds: float) -> None:
    await asyncio.sleep(seconds)


def _app() -> procrastinate.App:
    """With the tasks of all measurements; its pool comes with `open_async`."""
    app = procrastinate.App(connector=procrastinate.PsycopgConnector())
    app.task(name="note")(_note)
    app.task(name="nap")(_nap)
    app.task(name="stubborn", retry=3)(_nap)
    return app


def _worker(app: procrastinate.App, concurrency: int, **options: Any) -> Any:
    """`App.run_worker_async` without its signal handlers, and with something to stop: a `Worker`,
    whose methods have no types."""
    return Worker(app, concurrency=concurrency, install_signal_handlers=False, **options)


@asynccontextmanager
async def _running(app: procrastinate.App, **options: Any) -> AsyncIterator[None]:
    """A worker in a task of asyncio's own, which no scope cancels (see `_scoped`); it is asked to
    stop, and waited for."""
    worker = _worker(app, 8, **options)
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        with anyio.CancelScope(shield=True):
            await task


@asynccontextmanager
async def _looping(database: Database) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:
        group.start_soon(Loop(database, {"note": _noted}, 8, drain=False).run)
        yield
        group.cancel_scope.cancel()


async def _noted(args: Mapping[str, Any]) -> None:
    await _note(args["number"])


# Latency and throughput


async def _latencies(database: Database, app: procrastinate.App, count: int) -> list[Row]:
    """From the call that defers a job to its first line; the worker is idle and in this process."""

    async def defer(number: int) -> None:
        await app.configure_task("note").defer_async(number=number)

    async def insert(number: int) -> None:
        async with borrow(database.pool) as connection:
            await connection.execute(
                "INSERT INTO plain_job_t (kind, args) VALUES ('note', %s)",
                [Jsonb({"number": number})],
            )
            await connection.execute(f"NOTIFY {CHANNEL}")

    async with _running(app):
        theirs = await _latency("procrastinate", defer, count)
    async with _looping(database):
        ours = await _latency("plain loop", insert, count)
    return [*theirs, *ours]


async def _latency(name: str, defer: Defer, count: int) -> list[Row]:
    await asyncio.sleep(0.5)  # it listens
    spent: list[float] = []
    for number in range(count):
        started.clear()
        begin = time.perf_counter()
        await defer(number)
        with anyio.fail_after(LIMIT_S):
            await started.wait()
        spent.append((noted[number] - begin) * 1000)
        await asyncio.sleep(0.005)
    spent.sort()
    late = sum(ms > 1000 for ms in spent)
    note = f"p50 {spent[count // 2]:.1f} ms, longest {spent[-1]:.0f} ms; {late} of {count} over 1 s"
    return [Row(f"{name}: defer to start, p95", spent[int(count * 0.95)], "ms", note=note)]


async def _throughputs(database: Database, app: procrastinate.App, count: int) -> list[Row]:
    """Medians of rounds in turn, so that a loaded machine hits both alike."""
    rows = []
    for concurrency in CONCURRENCIES:
        theirs, ours = [], []
        for _ in range(ROUNDS):
            theirs.append(count / await _theirs(app, count, concurrency))
            ours.append(count / await _ours(database, count, concurrency))
        for name, rates in (("procrastinate", theirs), ("plain loop", ours)):
            note = " ".join(f"{rate:,.0f}" for rate in rates)
            scenario = f"{name}: no-ops, {concurrency} at once"
            rows.append(Row(scenario, statistics.median(rates), "jobs/s", note=note))
    return rows


async def _theirs(app: procrastinate.App, count: int, concurrency: int) -> float:
    numbered: list[dict[str, Any]] = [{"number": number} for number in range(count)]
    await app.configure_task("note").batch_defer_async(*numbered)
    return await _timed(_worker(app, concurrency, wait=False).run())


async def _ours(database: Database, count: int, concurrency: int) -> float:
    await _add(database.pool, count)
    return await _timed(Loop(database, {"note": _noted}, concurrency, drain=True).run())


async def _timed(running: Awaitable[None]) -> float:
    begin = time.perf_counter()
    with anyio.fail_after(LIMIT_S):
        await running
    return time.perf_counter() - begin


# What it costs

PROBE = """
import json, sys, time, psutil, gateway.__main__, registry.database.postgres
process, modules = psutil.Process(), set(sys.modules)
memory, begin = process.memory_info().rss, time.perf_counter()
import procrastinate
spent = (time.perf_counter() - begin) * 1000
print(json.dumps([spent, len(set(sys.modules) - modules), process.memory_info().rss - memory]))
"""


def _cost() -> list[Row]:
    """Of the import alone, in a process that has the database's modules already."""
    costs = [
        json.loads(
            subprocess.run([sys.executable, "-c", PROBE], capture_output=True, check=True).stdout
        )
        for _ in range(5)
    ]
    spent, modules, memory = (
        sorted(column)[len(costs) // 2] for column in zip(*costs, strict=True)
    )
    note = f"{modules} modules, {memory / 1e6:.1f} MB"
    return [Row("procrastinate: import", spent, "ms", note=note)]


# How it ends


async def _serve(url: str, grace: float | None) -> None:
    """The child: a worker as the command `procrastinate worker` would run it."""
    async with AsyncConnectionPool(url, open=False) as pool:
        app = _app()
        await app.open_async(pool)
        options: dict[str, Any] = {} if grace is None else {"shutdown_graceful_timeout": grace}
        await app.run_worker_async(
            concurrency=4,
            **options,
            update_heartbeat_interval=HEARTBEAT_S,
            stalled_worker_timeout=STALLED_S,
        )


async def _endings(database: Database, app: procrastinate.App) -> list[Row]:
    url = database.conninfo
    return [
        await _ended(app, url, "SIGTERM, no limit", signal.SIGTERM, "nap", 2.0, None),
        await _ended(app, url, "SIGTERM, grace 1 s", signal.SIGTERM, "nap", 60.0, 1.0),
        await _ended(
            app, url, "SIGTERM, grace 1 s, retry=3", signal.SIGTERM, "stubborn", 60.0, 1.0
        ),
        await _ended(app, url, "kill -9", signal.SIGKILL, "nap", 60.0, None),
        await _recovered(app, url),
        await _aborted(app, "nap"),
        await _aborted(app, "stubborn"),
        await _scoped(app),
        await _shielded(app),
        await _overlooked(app),
        await _overtaken(app),
        *await _locked(app),
        await _rolled_back(app, database.pool),
        await _scheduled(app),
        await _kept_apart(url),
    ]


async def _ended(
    app: procrastinate.App,
    url: str,
    how: str,
    number: signal.Signals,
    task: str,
    seconds: float,
    grace: float | None,
) -> Row:
    """Seconds from the signal to the exit, and the state that the running job is left in."""
    child = _start(url, grace)
    job = await app.configure_task(task).defer_async(seconds=seconds)
    await _until(app, job, "doing")
    begin = time.perf_counter()
    child.send_signal(number)
    code = await asyncio.to_thread(child.wait)
    spent = time.perf_counter() - begin
    status = await app.job_manager.get_job_status_async(job)
    with suppress(procrastinate.exceptions.ProcrastinateException):
        await app.job_manager.cancel_job_by_id_async(job)
    return Row(f"{how}: until it exits", spent, "s", note=f"exit {code}, job: {status.value}")


def _start(url: str, grace: float | None) -> subprocess.Popen[bytes]:
    options = [] if grace is None else ["--grace", str(grace)]
    return subprocess.Popen([*CHILD, url, *options], stderr=subprocess.DEVNULL)


async def _recovered(app: procrastinate.App, url: str) -> Row:
    """A job whose worker was killed, until `get_stalled_jobs` names it; nobody else looks."""
    child = _start(url, None)
    job = await app.configure_task("nap").defer_async(seconds=60.0)
    await _until(app, job, "doing")
    begin = time.perf_counter()
    child.kill()
    child.wait()
    stalled = await _stalled(app, job)
    spent = time.perf_counter() - begin
    await app.job_manager.finish_job(stalled, procrastinate.jobs.Status.FAILED, delete_job=True)
    note = f"heartbeat {HEARTBEAT_S} s, stalled after {STALLED_S} s; still 'doing' until retried"
    return Row("kill -9: until it is known as stalled", spent, "s", note=note)


async def _stalled(app: procrastinate.App, job: int) -> procrastinate.jobs.Job:
    with anyio.fail_after(LIMIT_S):
        while True:
            jobs = await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=STALLED_S)
            if named := [stalled for stalled in jobs if stalled.id == job]:
                return named[0]
            await asyncio.sleep(0.05)


async def _aborted(app: procrastinate.App, task: str) -> Row:
    async with _running(app):
        job = await app.configure_task(task).defer_async(seconds=60.0)
        await _until(app, job, "doing")
        begin = time.perf_counter()
        await app.job_manager.cancel_job_by_id_async(job, abort=True)
        ended = await _until(app, job, "aborted", "failed", "cancelled")
        spent = (time.perf_counter() - begin) * 1000
    which = "with retry=3" if task == "stubborn" else "without retries"
    return Row(f"abort of a running job, {which}", spent, "ms", note=f"job: {ended}")


async def _scoped(app: procrastinate.App) -> Row:
    """Cancel an anyio scope around a worker that has a job: does it end gracefully?"""
    job = 0
    begin = time.perf_counter()
    with anyio.move_on_after(LIMIT_S):
        async with anyio.create_task_group() as group:
            group.start_soon(_worker(app, 4, shutdown_graceful_timeout=10.0).run)
            job = await app.configure_task("nap").defer_async(seconds=2.0)
            await _until(app, job, "doing")
            begin = time.perf_counter()
            group.cancel_scope.cancel()
    spent = time.perf_counter() - begin
    status = await app.job_manager.get_job_status_async(job)
    await _until(app, job, "succeeded")  # its task goes on: nobody waited for it
    note = f"a job of 2 s, grace 10 s; job then: {status.value}, in a task without an owner"
    return Row("cancelled in a task group of anyio: until it ends", spent, "s", note=note)


async def _shielded(app: procrastinate.App) -> Row:
    """The same with a worker that is kept out of the scope and asked to stop."""
    grace = {"shutdown_graceful_timeout": 10.0}
    async with anyio.create_task_group() as group, _running(app, **grace):
        job = await app.configure_task("nap").defer_async(seconds=2.0)
        await _until(app, job, "doing")
        begin = time.perf_counter()
        group.cancel_scope.cancel()
    spent = time.perf_counter() - begin
    status = await app.job_manager.get_job_status_async(job)
    note = f"job then: {status.value}"
    return Row("the same, kept out of the scope and asked to stop", spent, "s", note=note)


async def _overlooked(app: procrastinate.App) -> Row:
    """A job that comes just after the worker looked, with its notice before the worker knows that
    there was none: made certain here by holding the answer back until the notice is there."""
    worker = _worker(app, 1)
    fetch = app.job_manager.fetch_job
    deferred = asyncio.Event()
    begin = 0.0

    async def slow(**filters: Any) -> procrastinate.jobs.Job | None:
        nonlocal begin
        rows = await fetch(**filters)
        if rows is None and not deferred.is_set():
            await asyncio.sleep(1)  # it looks before it listens
            deferred.set()
            started.clear()
            begin = time.perf_counter()
            await app.configure_task("note").defer_async(number=0)
            await worker._new_job_event.wait()  # noqa: SLF001
        return rows

    setattr(app.job_manager, "fetch_job", slow)  # noqa: B010
    task = asyncio.create_task(worker.run())
    with anyio.fail_after(LIMIT_S):
        await deferred.wait()
        await started.wait()
    spent = time.perf_counter() - begin
    setattr(app.job_manager, "fetch_job", fetch)  # noqa: B010
    worker.stop()
    await task
    note = "the worker forgets the notice and polls: fetch_job_polling_interval, 5 s"
    return Row("a job that comes while the worker looks: until it starts", spent, "s", note=note)


async def _overtaken(app: procrastinate.App) -> Row:
    """A worker that lives but was taken for dead: does its end count for the one that took over?"""
    job = await app.configure_task("nap").defer_async(seconds=60.0)
    first, second = [await app.job_manager.register_worker() for _ in range(2)]
    fetched_job = await app.job_manager.fetch_job(queues=None, worker_id=first)
    assert fetched_job is not None
    await app.job_manager.retry_job(fetched_job)
    await app.job_manager.fetch_job(queues=None, worker_id=second)
    await app.job_manager.finish_job(
        fetched_job, procrastinate.jobs.Status.SUCCEEDED, delete_job=False
    )
    status = (await app.job_manager.get_job_status_async(job)).value
    for worker in (first, second):
        await app.job_manager.unregister_worker(worker)
    note = f"the second worker's job, after the first one's end: {status}"
    return Row("fenced off from a job that was taken over", float(status == "doing"), "", note=note)


async def _locked(app: procrastinate.App) -> list[Row]:
    """`lock`: one at a time. `queueing_lock`: one in the queue, besides one that runs."""
    task = app.configure_task("nap", lock="one", queueing_lock="one")
    await task.defer_async(seconds=0.3)
    try:
        refused = 0.0
        await task.defer_async(seconds=0.3)
    except procrastinate.exceptions.AlreadyEnqueued:
        refused = 1.0
    rows = [Row("queueing_lock: refused of 1", refused, "")]
    for interval_s in (5.0, 0.5):
        one_by_one = app.configure_task("nap", lock="one")
        jobs = [await one_by_one.defer_async(seconds=0.3) for _ in range(4)]
        begin = time.perf_counter()
        async with _running(app, fetch_job_polling_interval=interval_s):
            for job in jobs:
                await _until(app, job, "succeeded")
            spent = time.perf_counter() - begin
        name = f"lock: jobs of 0.3 s one by one, polling each {interval_s:g} s"
        rows.append(Row(name, spent, "s", note=f"{4 if rows[1:] else 5} jobs"))
    return rows


async def _rolled_back(app: procrastinate.App, pool: Pool) -> Row:
    """A job that is deferred in a transaction of ours which comes to nothing."""
    before = len(list(await app.job_manager.list_jobs_async()))
    async with borrow(pool) as connection, connection.transaction(force_rollback=True):
        await app.configure_task("nap", connection=connection).defer_async(seconds=0.0)
    after = len(list(await app.job_manager.list_jobs_async()))
    return Row("deferred in a transaction that is rolled back: jobs", float(after - before), "")


async def _scheduled(app: procrastinate.App) -> Row:
    """A job each second of two workers, for some four seconds: none may come twice."""
    app.periodic(cron="* * * * * *")(app.task(name="tick")(_tick))
    ticks.clear()
    async with _running(app), _running(app):
        await asyncio.sleep(4)
    note = f"{len(set(ticks))} of them at times of their own"
    return Row("periodic, each second for 4 s, two workers: jobs", float(len(ticks)), "", note=note)


OWN_SCHEMA = """
SELECT (SELECT count(*) FROM pg_class WHERE relkind = 'r'
           AND relnamespace = 'job_queue'::regnamespace),
       (SELECT count(*) FROM pg_proc WHERE pronamespace = 'job_queue'::regnamespace),
       (SELECT count(*) FROM job_queue.procrastinate_jobs WHERE status = 'succeeded')
"""


async def _kept_apart(url: str) -> Row:
    """Its tables in a schema of their own, which takes a pool with a search path of its own."""
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("CREATE SCHEMA job_queue")
    options = {"options": "-c search_path=job_queue"}
    async with AsyncConnectionPool(url, kwargs=options, open=False) as pool:
        apart = _app()
        await apart.open_async(pool)
        await apart.schema_manager.apply_schema_async()
        async with _running(apart):
            await _latency("in a schema of its own", _deferrer(apart), 20)
        async with pool.connection() as connection:
            schemas = await connection.execute(OWN_SCHEMA)
            tables, functions, done = await schemas.fetchone() or (0, 0, 0)
    note = f"{tables} tables, {functions} functions; its pool has a search_path of its own"
    return Row("in a schema of its own: jobs done of 20", float(done), "", note=note)


def _deferrer(app: procrastinate.App) -> Defer:
    async def defer(number: int) -> None:
        await app.configure_task("note").defer_async(number=number)

    return defer


async def _until(app: procrastinate.App, job: int, *states: str) -> str:
    with anyio.fail_after(LIMIT_S):
        while True:
            status = (await app.job_manager.get_job_status_async(job)).value
            if status in states:
                return status
            await asyncio.sleep(0.005)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.jobs")
