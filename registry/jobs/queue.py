"""The queue of jobs: its entries, each with the id of a job alone, and the worker that runs them.

The only module that imports procrastinate; docs/decisions/0001-jobs-on-procrastinate.md has the
reasons for how it is used.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import procrastinate
from anyio import CancelScope
from procrastinate import BaseRetryStrategy, RetryDecision
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job as Entry
from procrastinate.manager import JobManager
from procrastinate.periodic import PeriodicTask
from procrastinate.worker import Worker
from psycopg import AsyncConnection

from config.settings import JobsSettings
from registry.database.postgres import AWAY, Pool, borrow
from registry.jobs.store import JobDraft, JobHealth, add, health, store_queue_id, take_over, turn
from schemas.errors import ToolgateError
from schemas.schedules import Schedule

log = logging.getLogger("toolgate.jobs")

JOB, TICK = "toolgate:job", "toolgate:tick"
RESTART_S = 1.0  # after the database was away
TAKE_OVER_S = 10.0  # interval of looking for stalled jobs

Perform = Callable[[str], Awaitable[float | None]]
"""Runs the job with this id. Seconds until it is to be started again; None: it has ended."""


class TooManyJobs(ToolgateError):
    """The tenant has as many waiting jobs as it may have."""


class JobQueue:
    def __init__(self, pool: Pool, tenant_waiting: int) -> None:
        """`tenant_waiting`: most jobs of a tenant that wait."""
        self._pool = pool
        self._tenant_waiting = tenant_waiting
        self._app = procrastinate.App(connector=procrastinate.PsycopgConnector())

    async def put(self, draft: JobDraft) -> str:
        """Store a job and queue it, both or neither; the id of the job. Raises TooManyJobs."""
        async with borrow(self._pool) as connection:
            job_id, new = await add(connection, draft)
            if new:
                waiting, priority = await turn(connection, draft.host_id)
                if waiting >= self._tenant_waiting:
                    text = f"{waiting} jobs wait already (jobs.tenant_waiting); try again later"
                    raise TooManyJobs(text)
                await self._enqueue(
                    connection, draft.host_id, job_id, draft.lock, priority=priority
                )
        return job_id

    async def take_over(self, after_s: float) -> int:
        """Queue again what no worker runs any longer; the number of these jobs."""
        async with borrow(self._pool) as connection:
            stalled = await take_over(connection, after_s)
            for job in stalled:
                # Its old worker may live, and end the entry that it knows.
                await connection.execute(
                    "DELETE FROM procrastinate_jobs WHERE id = %s", [job.queue_id]
                )
                if job.waiting:
                    await self._enqueue(connection, job.host_id, job.job_id, job.lock)
        return len(stalled)

    async def health(self, after_s: float) -> JobHealth:
        async with borrow(self._pool) as connection:
            return await health(connection, after_s)

    async def _enqueue(
        self,
        connection: AsyncConnection,
        host_id: str,
        job_id: str,
        lock: str,
        *,
        priority: int = 0,
    ) -> None:
        within_tenant = f"{host_id}:{lock}" if lock else None
        entry = self._app.configure_task(
            JOB, lock=within_tenant, priority=priority, connection=connection
        )
        await store_queue_id(connection, host_id, job_id, await entry.defer_async(job=job_id))


class _Entries(JobManager):
    """The entries of the queue. One may be gone when its job ends: it was taken over, by a worker
    that goes by the table of jobs. If the database is away, that happens later."""

    async def finish_job_by_id_async(self, *args: Any, **kwargs: Any) -> None:
        with _connection_failure_logged("job_entry_not_removed"):
            await super().finish_job_by_id_async(*args, **kwargs)

    async def retry_job_by_id_async(self, *args: Any, **kwargs: Any) -> None:
        with _connection_failure_logged("job_entry_not_retried"):
            await super().retry_job_by_id_async(*args, **kwargs)


@contextmanager
def _connection_failure_logged(event: str) -> Iterator[None]:
    try:
        yield
    except ConnectorException:
        log.warning(event)


class _Again(Exception):
    """The job is to be started again, after `delay_s`."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(f"again in {delay_s:g} s")
        self.delay_s = delay_s


class _Retries(BaseRetryStrategy):
    """Retry immediately after a shutdown, otherwise after the delay that the job names."""

    def get_retry_decision(
        self,
        *,
        exception: BaseException,
        job: Entry,  # noqa: ARG002 - the signature is theirs
    ) -> RetryDecision | None:
        if isinstance(exception, asyncio.CancelledError):
            return RetryDecision()
        if isinstance(exception, _Again):
            return RetryDecision(retry_at=datetime.now(UTC) + timedelta(seconds=exception.delay_s))
        return None


class _Periodic(PeriodicTask[Any, Any, Any]):
    """A task at the times of a schedule, which procrastinate reads in UTC."""

    def __init__(self, *args: Any) -> None:
        *connector_arguments, schedule = args
        super().__init__(*connector_arguments)
        self.__dict__["croniter"] = schedule.times  # in place of its cached property


class JobWorker:
    """Runs jobs in this process, `settings.concurrency` at a time."""

    def __init__(
        self,
        pool: Pool,
        settings: JobsSettings,
        perform: Perform,
        *,
        schedules: Mapping[str, Schedule],
        tick: Callable[[str], Awaitable[object]],
    ) -> None:
        """`schedules` by the name that `tick` is called with, at one of all workers."""
        self._settings = settings
        self._queue = JobQueue(pool, settings.tenant_waiting)
        self._pool = pool
        self._perform = perform
        self._tick = tick
        self._app = procrastinate.App(connector=procrastinate.PsycopgConnector())
        self._ticking = self._declare_tasks()
        self._schedules: dict[str, Schedule] = {}
        self._stopping = asyncio.Event()
        self._worker: Any = None  # its methods have no types
        self.schedule(schedules)
        self._task: asyncio.Task[None] | None = None
        self.health = JobHealth(0, 0, 0, 0)

    async def run(self) -> None:
        """Run jobs until stopped or cancelled; then those that run have ended, or wait again."""
        # Not in the task group of the caller, whose cancellation procrastinate does not take: its
        # jobs would go on without an owner.
        self._task = asyncio.create_task(self._work())
        try:
            await asyncio.wait([self._task])
        finally:
            await self.settle()

    def schedule(self, schedules: Mapping[str, Schedule]) -> None:
        """Tick for these, too. Those that are new take a restart, which running jobs have `grace_s`
        to end for."""
        new = {
            name: schedule for name, schedule in schedules.items() if name not in self._schedules
        }
        for name, schedule in new.items():
            if mistake := schedule.mistake:  # the worker would end of it
                extra = {"operation": name, "cron": schedule.cron, "reason": mistake}
                log.error("schedule_never_due", extra=extra)
                continue
            self._app.periodic_registry.periodic_tasks[TICK, name] = _Periodic(
                self._ticking, schedule.cron, name, {"task_kwargs": {"name": name}}, schedule
            )
        self._schedules |= new
        if new and self._worker is not None:
            self._worker.stop()

    def stop(self) -> None:
        """Start no more jobs. Those that run have `grace_s`."""
        self._stopping.set()
        if self._worker is not None:
            self._worker.stop()

    async def settle(self) -> None:
        """Stop, and wait until the jobs that run have ended."""
        self.stop()
        if self._task is not None:
            with CancelScope(shield=True):
                await asyncio.wait([self._task])

    async def _work(self) -> None:
        beside = asyncio.create_task(self._take_over_stalled())
        while not self._stopping.is_set():
            await self._work_once()
            await self._pause(RESTART_S)
        await beside

    async def _work_once(self) -> None:
        """Run jobs until stopped, or the database is away."""
        settings = self._settings
        try:
            await self._app.open_async(self._pool)
            self._worker = Worker(
                self._app,
                concurrency=settings.concurrency,
                # It misses notices, of new jobs as of the end of a lock.
                fetch_job_polling_interval=settings.poll_s,
                abort_job_polling_interval=settings.poll_s,
                shutdown_graceful_timeout=settings.grace_s,
                update_heartbeat_interval=settings.stalled_s / 3,
                stalled_worker_timeout=settings.stalled_s,
                delete_jobs="always",
                install_signal_handlers=False,
            )
            await self._worker.run()
        except (ConnectorException, *AWAY) as error:
            log.warning("jobs_interrupted", extra={"reason": type(error).__name__})
        except Exception:
            log.exception("job_worker_crashed")

    async def _take_over_stalled(self) -> None:
        """Take over stalled jobs, until stopped."""
        after_s = self._settings.stalled_s
        while not self._stopping.is_set():
            try:
                if count := await self._queue.take_over(after_s):
                    log.warning("jobs_taken_over", extra={"jobs": count})
                for entry in await self._app.job_manager.get_stalled_jobs(
                    task_name=TICK, seconds_since_heartbeat=after_s
                ):
                    await self._app.job_manager.retry_job(entry)
                self.health = await self._queue.health(after_s)
            except (ConnectorException, *AWAY):
                pass  # `_work_once` has logged it
            await self._pause(min(TAKE_OVER_S, after_s))

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    def _declare_tasks(self) -> Any:
        """Declare the tasks; the one that ticks."""
        app = self._app
        app.job_manager = _Entries(app.connector)

        async def run(job: str) -> None:
            if (delay_s := await self._perform(job)) is not None:
                raise _Again(delay_s)

        async def tick(timestamp: int, name: str) -> None:  # noqa: ARG001 - of the schedule
            await self._tick(name)

        app.task(name=JOB, retry=_Retries())(run)
        return app.task(name=TICK)(tick)
