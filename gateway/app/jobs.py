"""Wiring of jobs: the queue of a process, its worker, and their metrics.

Imported only where operations run as jobs.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import cast

from msgspec.structs import replace
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from config.settings import Settings
from gateway.app.admin import job_operations
from gateway.context import Principal
from gateway.operations.job_declarations import (
    END_STATES,
    RESPOND_ASYNC,
    SCHEDULE,
    JobAct,
    JobView,
    OnJobAct,
)
from gateway.operations.job_requests import REVOCABLE, Acceptance, draft_of, view_of
from gateway.operations.job_runner import JobRunner, NotOpen
from gateway.operations.operation import ALL, Operation, OperationInput
from gateway.operations.operation_server import IdempotentRunner, OperationServer
from gateway.operations.problems import ProblemDetails, not_found, sentence, unavailable
from gateway.operations.request_parsing import Headers
from gateway.operations.stored_callers import current_caller
from gateway.operations.tool_calls import arguments_of
from gateway.policy.visibility import PolicyView
from gateway.state.idempotency import IdempotencyKeys
from gateway.wings.table import with_jobs
from registry.database.postgres import DatabaseHandle, Pool
from registry.jobs.queue import JobQueue, JobWorker, TooManyJobs
from registry.jobs.store import JobStore
from registry.sources.tool_store import ToolStore
from schemas.binding import WingBinding
from schemas.errors import InvalidParams
from schemas.jsonrpc import encode
from schemas.schedules import Schedule

log = logging.getLogger("toolgate.jobs")


def removal_alone(settings: Settings, handle: DatabaseHandle) -> OperationServer:
    """The operations on jobs of a gateway without an admin API, where wings have jobs."""
    repeats = IdempotentRunner(IdempotencyKeys(handle.pool, settings.admin.idempotency_ttl_s))
    return OperationServer(job_operations(settings, handle.pool), repeats, settings.admin.path)


def _as_jobs(server: OperationServer) -> list[str]:
    """The ids of the operations that run as jobs."""
    return [operation.id for operation in server.by_id.values() if operation.job is not None]


def _schedules(server: OperationServer) -> Mapping[str, Schedule]:
    """The schedules of operations by their ids."""
    jobs = (
        (operation.id, operation.job)
        for operation in server.by_id.values()
        if operation.job is not None
    )
    return {id_: Schedule(job.schedule, job.timezone) for id_, job in jobs if job.schedule}


class JobRules:
    """Rules on the calls of wings' tools that become jobs: a rule that was stored, or caller's
    rights that were taken, after such a call was accepted."""

    def __init__(self, view: PolicyView, wings: Sequence[str], *, loads: bool) -> None:
        """`wings` have jobs. `loads`: nothing else loads the stored rules in this process."""
        self._view = view
        self._wings = wings
        self._loads = loads

    def acceptance(self, request: OperationInput) -> Acceptance | None:
        """How the rules of now judged the call; None: it was no call of a tool."""
        if request.context is None:
            return None
        return Acceptance(self._view.version(request.tenant).hex(), request.context.toolset)

    def claims(self, caller: Principal) -> Iterable[str]:
        """The claims of a caller that have to be stored with a job: those of revocations, or all
        where a rule may look at them."""
        reads = self._view.engine(caller.tenant).reads_principal
        return caller.claims if reads else REVOCABLE

    async def judge(
        self, pool: Pool, operation: Operation, request: OperationInput, acceptance: Acceptance
    ) -> None:
        """Judge a call again, if the rules have changed. An approval is not asked for again. Raises
        ProblemDetails if a rule denies it, and psycopg.OperationalError."""
        if self._loads:
            await self._view.load(pool)
        if request.context is None or self._view.version(request.tenant).hex() == acceptance.rules:
            return
        source = next((wing for wing in self._wings if operation.id.startswith(f"{wing}_")), "")
        wing_tools = await ToolStore(pool).tools(request.tenant, source=source)
        tools = {cast("WingBinding", tool.binding).operation: tool for tool in wing_tools}
        if (tool := tools.get(operation.id)) is None:
            return
        body = b"" if request.body is None else encode(request.body)
        arguments = arguments_of(operation, request, body, {"prefer": RESPOND_ASYNC})
        context = replace(request.context, toolset=acceptance.toolset)
        try:
            decision = self._view.decide(context, tool, arguments)
        except InvalidParams as fault:
            raise ProblemDetails(403, "denied", fault.message) from fault
        if decision.effect == "deny":
            raise ProblemDetails(403, "denied", "A rule denies this call since it was accepted.")


class Jobs(Collector):
    def __init__(
        self,
        settings: Settings,
        handle: DatabaseHandle,
        server: Callable[[], OperationServer],
        *,
        on_act: OnJobAct,
        rules: JobRules,
    ) -> None:
        """A queue and its worker. `server` has the operations but those of wings; `on_act` is
        called with every start and end."""
        self._settings = settings
        self._handle = handle
        self._server = server
        self._on_act = on_act
        self._rules = rules
        self._queue: JobQueue | None = None
        self._worker: JobWorker | None = None
        self._stopped = False
        self._wings = with_jobs(settings)
        self._of_wings: list[OperationServer] = []
        self._ended: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()  # by operation

    async def defer(
        self, operation: Operation, request: OperationInput, headers: Headers
    ) -> JobView:
        """Store the request as a job. Raises ProblemDetails."""
        return await self.store(operation, request, headers)

    async def store(
        self,
        operation: Operation,
        request: OperationInput,
        headers: Headers,
        *,
        scheduled: bool = False,
    ) -> JobView:
        """Raises ProblemDetails. `scheduled`: by the gateway's own schedule."""
        pool = self._handle.pool()
        if pool is None:
            raise unavailable("The database does not answer yet.")
        if self._queue is None:
            self._queue = JobQueue(pool, self._settings.jobs.tenant_waiting)
        try:
            accepted, claims = (
                self._rules.acceptance(request),
                self._rules.claims(request.principal),
            )
            draft = draft_of(
                operation, request, headers, accepted, claims=claims, scheduled=scheduled
            )
            job = await self._queue.put(draft)
        except TooManyJobs as error:
            raise ProblemDetails(
                429, "too-many-requests", sentence(error), headers={"Retry-After": "60"}
            ) from error
        row = await JobStore(pool).get(request.tenant, job)
        if row is None:
            raise not_found("job", job)
        return view_of(row)

    @contextmanager
    def offering(self, server: OperationServer) -> Iterator[None]:
        """Run the operations of a wing, too, while it is open."""
        self._of_wings.append(server)
        if self._worker is not None:
            self._worker.schedule(_schedules(server))
        try:
            yield
        finally:
            self._of_wings.remove(server)

    def of_wings(self) -> Collection[str]:
        """The operations of open wings that run as jobs."""
        return [name for server in self._of_wings for name in _as_jobs(server)]

    async def run(self) -> None:
        """Run jobs until stopped or cancelled."""
        await self._handle.settled.wait()
        pool, settings = self._handle.pool(), self._settings.jobs
        if pool is None or not settings.concurrency or self._stopped:
            return
        runner = JobRunner(
            JobStore(pool),
            self._find,
            settings,
            on_act=self._forward_act,
            caller=partial(current_caller, pool),
            judge=partial(self._rules.judge, pool),
        )
        self._worker = JobWorker(
            pool, settings, runner.perform, schedules=_schedules(self._server()), tick=self._tick
        )
        for server in self._of_wings:
            self._worker.schedule(_schedules(server))
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
        for state in END_STATES:
            ended.add_metric((state,), self._ended[state])
        yield ended
        failed = CounterMetricFamily(
            "toolgate_jobs_failed",
            "Jobs that failed in this process, schedules among them.",
            labels=("operation",),
        )
        # Also those that never failed: the first failure is an increase only from 0.
        for operation in sorted({*self._failed, *_as_jobs(self._server()), *self.of_wings()}):
            failed.add_metric((operation,), self._failed[operation])
        yield failed
        gauge = GaugeMetricFamily(
            "toolgate_jobs", "Jobs of all gateways that have not ended.", labels=("state",)
        )
        if self._worker is not None:
            health = self._worker.health
            for name in ("waiting", "running", "stalled"):
                gauge.add_metric((name,), getattr(health, name))
        yield gauge

    def _find(self, name: str) -> OperationServer | None:
        """The server of an operation. Raises NotOpen for that of a wing that is not open."""
        for server in (self._server(), *self._of_wings):
            if name in server.by_id:
                return server
        if any(name.startswith(f"{wing}_") for wing in self._wings):
            raise NotOpen(name)
        return None

    def _forward_act(self, act: JobAct) -> None:
        if act.event != "started":
            self._ended[act.event] += 1
        if act.event == "failed":
            self._failed[act.operation] += 1
        # Of a schedule every minute, 2,880 records a day would hide those of people; jobs and
        # metrics have its runs.
        if not act.scheduled or act.event not in {"started", "succeeded"}:
            self._on_act(act)

    async def _tick(self, name: str) -> None:
        """Store the job of a scheduled operation."""
        try:
            server = self._find(name)
        except NotOpen:
            self._failed[name] += 1
            reason = "its wing is not open"
            log.warning("schedule_missed", extra={"operation": name, "reason": reason})
            return
        if server is None:
            return
        operation = server.by_id[name]
        tenant, roles = self._settings.tenant.host_id, {self._settings.admin.operator_role}
        principal = Principal(SCHEDULE, tenant, frozenset({ALL}), roles=frozenset(roles))
        request = OperationInput(principal, {}, query=operation.query(), body=None)
        try:
            await self.store(operation, request, {}, scheduled=True)
        except ProblemDetails as problem:
            self._failed[name] += 1
            log.warning("schedule_missed", extra={"operation": name, "reason": problem.detail})
