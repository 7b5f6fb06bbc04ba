"""Wiring of jobs: the queue of a process, its worker, and their metrics.

Imported only where operations run as jobs.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace as replaced
from functools import partial

import anyio
from msgspec.structs import replace
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from config.settings import Settings
from gateway.app.access import job_entry, spool_dir
from gateway.app.admin import operations_as_jobs
from gateway.audit.writer import AuditWriter, is_recorded
from gateway.context import KEY_MARK, Principal
from gateway.operations.job_requests import draft_of, view_of
from gateway.operations.job_runner import JobRunner
from gateway.operations.jobs import Heard, JobAct, JobView
from gateway.operations.operation import (
    ALL,
    Operation,
    OperationInput,
    ProblemDetails,
    not_found,
    sentence,
    unavailable,
)
from gateway.operations.requests import Headers
from gateway.operations.serving import OperationServer, Repeats
from gateway.state.idempotency import IdempotencyKeys
from registry.access.keys import ApiKeys
from registry.access.revocations import revoked
from registry.database.postgres import Database, DatabaseHandle, Pool
from registry.jobs.queue import JobQueue, JobWorker, TooManyJobs
from registry.jobs.store import JobStore
from registry.sources.source_reader import Lister

SCHEDULE = "schedule"  # the principal of scheduled jobs


@asynccontextmanager
async def jobs_of_worker(
    settings: Settings, database: Database, lister: Lister
) -> AsyncIterator["Jobs"]:
    """The jobs of a process that serves nothing; `run` them before the block ends."""
    handle = DatabaseHandle()
    handle.opened = database
    handle.settled.set()
    operations = operations_as_jobs(settings, handle.pool, lister)
    repeats = Repeats(IdempotencyKeys(handle.pool, settings.admin.idempotency_ttl_s))
    server = OperationServer(operations, repeats, settings.admin.path)
    own = replace(settings.jobs, concurrency=max(settings.jobs.concurrency, 1))
    async with _recording(settings, handle) as heard:
        yield Jobs(replace(settings, jobs=own), handle, lambda: server, heard)


@asynccontextmanager
async def _recording(settings: Settings, handle: DatabaseHandle) -> AsyncIterator[Heard]:
    """Writes starts and ends to the audit log, if there is one."""
    pool = handle.pool()
    if not is_recorded(settings) or pool is None:
        yield lambda _act: None
        return
    writer = AuditWriter(settings.audit, spool_dir(settings), settings.tenant.host_id, handle.pool)
    await writer.begin(pool)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(writer.run)
            yield lambda act: writer.add(job_entry(act, writer.now()))
            await writer.settle()
            group.cancel_scope.cancel()
    finally:
        await writer.close()


async def current_caller(pool: Pool, caller: Principal) -> Principal:
    """The caller of a job with what its credential still permits. Raises ProblemDetails if that was
    revoked; one that has only expired meanwhile is good. Without a mark there was none."""
    if caller.mark.startswith(KEY_MARK):
        key = await ApiKeys(pool, caller.tenant).get(caller.mark.removeprefix(KEY_MARK))
        if key is None or key.revoked is not None:
            raise withdrawn()
        scopes, roles = caller.scopes.intersection(key.scopes), caller.roles.intersection(key.roles)
        return replaced(caller, scopes=scopes, roles=roles)
    if caller.mark and (await revoked(pool)).has(caller.tenant, caller.id, caller.claims):
        raise withdrawn()
    return caller


def withdrawn() -> ProblemDetails:
    text = "The credential of its caller was revoked before the job started."
    return ProblemDetails(403, "revoked", text)


class Jobs(Collector):
    def __init__(
        self,
        settings: Settings,
        handle: DatabaseHandle,
        server: Callable[[], OperationServer],
        heard: Heard,
    ) -> None:
        """A queue and its worker. `server` has the operations; `heard` is called with every start
        and end."""
        self._settings = settings
        self._handle = handle
        self._server = server
        self._heard = heard
        self._queue: JobQueue | None = None
        self._worker: JobWorker | None = None
        self._stopped = False
        self._ended: Counter[str] = Counter()

    async def defer(self, operation: Operation, asked: OperationInput, headers: Headers) -> JobView:
        """Store the request as a job. Raises ProblemDetails."""
        pool = self._handle.pool()
        if pool is None:
            raise unavailable("The database does not answer yet.")
        if self._queue is None:
            self._queue = JobQueue(pool, self._settings.jobs.tenant_waiting)
        try:
            job = await self._queue.put(draft_of(operation, asked, headers))
        except TooManyJobs as error:
            raise ProblemDetails(
                429, "too-many-requests", sentence(error), headers={"Retry-After": "60"}
            ) from error
        row = await JobStore(pool).get(asked.tenant, job)
        if row is None:
            raise not_found("job", job)
        return view_of(row)

    async def run(self) -> None:
        """Run jobs until stopped or cancelled."""
        await self._handle.settled.wait()
        pool, settings = self._handle.pool(), self._settings.jobs
        if pool is None or not settings.concurrency or self._stopped:
            return
        runner = JobRunner(
            JobStore(pool),
            self._server,
            settings,
            heard=self._hear,
            caller=partial(current_caller, pool),
        )
        schedules = {
            one.id: one.job.schedule
            for one in self._server().by_id.values()
            if one.job is not None and one.job.schedule
        }
        self._worker = JobWorker(
            pool, settings, runner.perform, schedules=schedules, tick=self._tick
        )
        await self._worker.run()

    def stop(self) -> None:
        """Begin a graceful shutdown: no more jobs are started."""
        self._stopped = True
        if self._worker is not None:
            self._worker.stop()

    async def settle(self) -> None:
        """Stop, and wait until the running jobs have ended, or wait for another start."""
        self.stop()
        if self._worker is not None:
            await self._worker.settle()

    def collect(self) -> Iterator[Metric]:
        ended = CounterMetricFamily(
            "toolgate_jobs_ended", "Jobs that ended in this process.", labels=("state",)
        )
        for state in ("succeeded", "failed", "cancelled"):
            ended.add_metric((state,), self._ended[state])
        yield ended
        gauge = GaugeMetricFamily(
            "toolgate_jobs", "Jobs of all gateways that have not ended.", labels=("state",)
        )
        if self._worker is not None:
            health = self._worker.health
            for state in ("waiting", "running", "stalled"):
                gauge.add_metric((state,), getattr(health, state))
        yield gauge

    def _hear(self, act: JobAct) -> None:
        if act.event != "started":
            self._ended[act.event] += 1
        self._heard(act)

    async def _tick(self, name: str) -> None:
        """Store the job of a scheduled operation."""
        operation = self._server().by_id.get(name)
        if operation is None:
            return
        tenant, roles = self._settings.tenant.host_id, {self._settings.admin.operator_role}
        principal = Principal(SCHEDULE, tenant, frozenset({ALL}), roles=frozenset(roles))
        asked = OperationInput(principal, {}, query=operation.query(), body=None)
        await self.defer(operation, asked, {})
