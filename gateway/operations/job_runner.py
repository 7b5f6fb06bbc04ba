"""Runs jobs: the operation of each, under the identity of its caller, with progress, cancellation
and retries.

Knows no queue: `JobRunner.perform` is called with the id of a job, by whatever starts it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from time import monotonic
from typing import TypeVar

import anyio
from anyio import CancelScope

from config.settings import JobsSettings
from gateway.context import Principal
from gateway.operations.job_declarations import AsJob, JobAct, JobEvent, OnJobAct
from gateway.operations.job_requests import Acceptance, asked_by, asked_of, unknown_operation
from gateway.operations.operation import Operation, OperationInput
from gateway.operations.operation_server import OperationResponse, OperationServer, problem_response
from gateway.operations.problems import ProblemDetails, lacks_scope, unavailable
from gateway.operations.request_parsing import Headers
from gateway.operations.rest_api import again_later
from registry.database.postgres import AWAY, unavailability
from registry.jobs.store import Claim, JobEnd, JobProgress, JobStore
from schemas.errors import TooManyRequests

log = logging.getLogger("toolgate.jobs")

CallerOf = Callable[[Principal], Awaitable[Principal]]
"""The caller of a job with what it may do now. Raises ProblemDetails if it is revoked."""
Judge = Callable[[Operation, OperationInput, Acceptance], Awaitable[None]]
"""Judges the call that became a job again. Raises ProblemDetails if rules deny it now."""
PROCESS_DIED = "The process that ran it ended each time."
T = TypeVar("T")

Find = Callable[[str], OperationServer | None]
"""The server of the operation with this id; None: it is unknown. Raises NotOpen."""


class NotOpen(Exception):
    """The wing of an operation is not open in this process: its jobs wait."""


@dataclass(frozen=True, slots=True)
class _Pause:
    """The job is to be started again."""

    delay_s: float
    failed: bool  # this start counts


class _Watched:
    """Implements `Job`. Stores the progress of a running job, and ends it once it was cancelled or
    another worker has taken it over."""

    def __init__(self, store: JobStore, claim: Claim, settings: JobsSettings) -> None:
        self._store = store
        self._claim = claim
        self._settings = settings
        self.now = JobProgress()

    def progress(self, done: int, total: int | None = None, note: str = "") -> None:
        self.now = JobProgress(done, total, note)

    async def run(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """The result of the work; None if it was ended."""
        result: T | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch, group.cancel_scope)
            result = await work()
            group.cancel_scope.cancel()
        return result

    async def _watch(self, scope: CancelScope) -> None:
        stored, beat = JobProgress(), monotonic()  # as `claim` stores it
        while True:
            await anyio.sleep(self._settings.poll_s)
            now, due = self.now, monotonic() - beat > self._settings.stalled_s / 3
            try:
                if now == stored and not due:
                    goes_on = await self._store.goes_on(self._claim)
                else:
                    goes_on = await self._store.advance(self._claim, now)
                    stored, beat = now, monotonic()
            except AWAY:
                continue
            if not goes_on:
                scope.cancel()
                return


@dataclass(eq=False)
class JobRunner:
    store: JobStore
    find: Find  # finds the operations
    settings: JobsSettings
    _: KW_ONLY
    on_act: OnJobAct  # is called with every start and end
    caller: CallerOf
    judge: Judge

    async def perform(self, job_id: str) -> float | None:
        """Run the job. Seconds until it is to be started again; None: it has ended, or is another
        worker's."""
        claim = await self.store.claim(job_id)
        if claim is None:
            return None
        watched = _Watched(self.store, claim, self.settings)
        try:
            return await self._settle(claim, watched)
        except asyncio.CancelledError:  # the worker stops
            with CancelScope(shield=True), anyio.move_on_after(self.settings.grace_s):
                await self._store_report(lambda: self.store.wait_again(claim, failed=False))
            raise

    async def _settle(self, claim: Claim, job: _Watched) -> float | None:
        run = _Run(
            claim,
            self.find,
            watched=job,
            settings=self.settings,
            on_act=self.on_act,
            caller=self.caller,
            judge=self.judge,
        )
        outcome = await job.run(run.outcome)
        if isinstance(outcome, _Pause):
            is_stored = await self._store_report(
                lambda: self.store.wait_again(claim, failed=outcome.failed)
            )
            return outcome.delay_s if is_stored else None
        end = outcome or JobEnd("cancelled")
        if await self._store_report(lambda: self.store.end(claim, end, job.now)):
            run.tell(end)
        return None

    async def _store_report(self, write: Callable[[], Awaitable[bool]]) -> bool:
        """Whether it was stored. Tried until another worker takes the job over."""
        with anyio.move_on_after(self.settings.stalled_s):
            while True:
                try:
                    return await write()
                except AWAY:
                    await anyio.sleep(self.settings.poll_s)
        return False


class _Run:
    """One start of a job."""

    def __init__(
        self,
        claim: Claim,
        find: Find,
        *,
        watched: _Watched,
        settings: JobsSettings,
        on_act: OnJobAct,
        caller: CallerOf,
        judge: Judge,
    ) -> None:
        self._caller = caller
        self._judge = judge
        self._claim = claim
        self._find = find
        self._watched = watched
        self._settings = settings
        self._on_act = on_act
        self._principal = Principal("", claim.host_id)
        self._names: tuple[str, ...] = ()
        self._status = 0
        self._scheduled = False

    async def outcome(self) -> JobEnd | _Pause:
        as_job = AsJob()
        try:
            server = self._find(self._claim.operation)
            operation = None if server is None else server.by_id[self._claim.operation]
            if server is None or operation is None or operation.job is None:
                raise unknown_operation(self._claim.operation)
            as_job = operation.job
            response = await self._response(server, operation, as_job)
        except NotOpen:
            return _Pause(self._settings.retry_s, failed=False)
        except ProblemDetails as problem:
            response = problem_response(problem, self._claim.job_id)
        except TooManyRequests as fault:
            response = problem_response(again_later(fault), self._claim.job_id)
        except AWAY as error:
            away = unavailable(f"{unavailability(error)}.")
            response = problem_response(away, self._claim.job_id)
        except Exception:
            log.exception("job_crashed", extra={"job": self._claim.job_id})
            crash = ProblemDetails(500, "internal", "Internal error; the log has the story.")
            response = problem_response(crash, self._claim.job_id)
        self._status = response.status
        if response.status < 400:
            location = response.headers.get("Location", "")
            return JobEnd("succeeded", response.body or None, location=location)
        return self._pause(response, as_job) or JobEnd("failed", problem=response.body)

    async def _response(
        self, server: OperationServer, operation: Operation, as_job: AsJob
    ) -> OperationResponse:
        """Raises ProblemDetails."""
        if self._claim.failures >= as_job.attempts:
            raise ProblemDetails(500, "internal", PROCESS_DIED)
        request = asked_of(operation, self._claim, self._watched)
        operation_input = request.operation_input
        self._principal, self._names = (
            operation_input.principal,
            tuple(operation_input.names.values()),
        )
        self._scheduled = request.scheduled
        self._tell("started")
        operation_input = asked_by(await self._caller(operation_input.principal), operation_input)
        if not server.admits(operation_input, operation):
            raise lacks_scope(operation.scope)
        if request.accepted is not None:
            await self._judge(operation, operation_input, request.accepted)
        return await self._perform(server, operation, operation_input, request.conditions)

    async def _perform(
        self,
        server: OperationServer,
        operation: Operation,
        request: OperationInput,
        headers: Headers,
    ) -> OperationResponse:
        """Raises ProblemDetails."""
        most_s = self._settings.timeout_s
        with anyio.move_on_after(most_s):
            return await server.perform(operation, request, headers)
        raise ProblemDetails(504, "timeout", f"It took more than {most_s:g} s (jobs.timeout_s).")

    def _pause(self, response: OperationResponse, as_job: AsJob) -> _Pause | None:
        """Until the next start; None if the failure is final."""
        if response.status == 429:  # others run; nothing has failed
            return _Pause(float(response.headers.get("Retry-After", "1")), failed=False)
        failures = self._claim.failures + 1
        if response.status != 503 or failures >= as_job.attempts:
            return None
        return _Pause(self._settings.retry_s * 2 ** (failures - 1), failed=True)

    def tell(self, end: JobEnd) -> None:
        """Report the end; a failure also in the log, since nobody may wait for it."""
        if end.state == "failed":
            claim, status = self._claim, self._status
            extra = {"operation": claim.operation, "job": claim.job_id, "status": status}
            log.warning("job_failed", extra=extra)
        self._tell(end.state, self._status)

    def _tell(self, event: JobEvent, status: int = 0) -> None:
        claim = self._claim
        self._on_act(
            JobAct(
                self._principal,
                claim.operation,
                self._names,
                claim.job_id,
                event,
                status,
                scheduled=self._scheduled,
            )
        )
