"""Runs of programs: from their beginning, over pauses and the deaths of their processes, to an end.

A run that may change something is stored before it does; any process takes it over when its lease
is over. One that waits goes on after the decision, at any process. See `journal` for what is
repeated.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TypeVar
from uuid import uuid4

import anyio
import msgspec
from msgspec.structs import replace

from config.code import CodeSettings
from gateway.context import Context
from gateway.http_client.deadline import Deadline
from gateway.operations.job_declarations import NO_JOB, Job
from gateway.operations.operation import OperationInput
from gateway.operations.problems import ProblemDetails, not_found, unavailable
from gateway.operations.stored_callers import caller_of
from gateway.policy.approval_gate import write_time
from gateway.sandbox.jailed_process import SessionEnded
from gateway.sandbox.program_process import AnswerAsk, Program, ProgramEnd
from gateway.wings.code.call_journal import Ask, Journal, NotRepeatable, Steps
from gateway.wings.code.learned_results import LearnedResults
from gateway.wings.code.requests_and_views import ProgramView, decode_view, failure_view
from gateway.wings.code.run_calls import RunCalls
from gateway.wings.code.stored_runs import PendingCall, ProgramRun, StoredProgram, StoredRuns
from gateway.wings.interface import WingParts
from gateway.wings.run_supervisor import HeldRun, RunSupervisor
from registry.access.approvals import Approvals, HeldProgram, TooManyWaiting
from registry.database.fair_limiter import FairLimiter
from registry.database.leases import LeaseLost
from registry.database.postgres import AWAY, is_uuid
from schemas.errors import TooManyRequests

log = logging.getLogger("toolgate.code")

T = TypeVar("T")

CLOCK = 946_684_800.0  # the time inside, 2000-01-01: the same in each run
SHORTAGES = {
    "owner": ("runs_per_principal", "yours"),
    "tenant": ("runs_per_tenant", "your tenant"),
    "all": ("runs", "this gateway"),
}
STARTS = 3  # of a program whose process is killed, while the gateway lives
DEATHS = 3  # of gateways, behind which a run is given up
APPROVAL_POLL_S = 5.0  # between two looks of a job at its run that waits for people
CANCELLED_TEXT = "the run was cancelled"
REJECTED_TEXT = "A person has rejected this call."
EMPTY: Mapping[int, str] = {}
UNDECIDED_TEXT = "Nobody has decided on this call in time."

OpenProgram = Callable[[], AbstractAsyncContextManager[Program]]
"""A process that is ready for a program. Raises SessionEnded."""


class Runner(RunSupervisor[ProgramRun]):
    def __init__(self, parts: WingParts, open_program: OpenProgram) -> None:
        self._settings: CodeSettings = parts.settings
        self._open = open_program
        settings = self._settings
        self.learned = LearnedResults(parts.pool, settings.learned_results)
        self.stored = StoredRuns(
            parts.pool,
            keep_s=settings.paused_s,
            lease_s=settings.lease_s,
            most=settings.paused_runs,
        )
        places = FairLimiter(
            settings.runs, of_tenant=settings.runs_per_tenant, of_owner=settings.runs_per_principal
        )
        super().__init__("code", parts, self.stored, places, renew_s=settings.poll_s)

    async def begin(
        self, request: OperationInput, context: Context, program: StoredProgram
    ) -> ProgramView:
        """Run a program. Raises ProblemDetails, and TooManyRequests for a job that waits."""
        driven, tenant, principal = is_driven(context), *request.principal.key
        run_id = context.request_id if driven else str(uuid4())
        if driven and await self.stored.get(tenant, principal, run_id) is not None:
            # another start of the same job, or of an invocation
            return await self.follow(request, context, run_id, writes=program.writes)
        caller = None if driven else caller_of(context)
        run = ProgramRun(tenant, principal, run_id, program, caller, is_kept=driven)
        async with self._turn(request.principal.key, self._settings.turn_s):
            return await self._advance_for(request, context, run)

    async def follow(
        self, request: OperationInput, context: Context, run_id: str, *, writes: bool
    ) -> ProgramView:
        """How a run ended, or waits; this process goes on with it, if it can. Raises
        ProblemDetails, and TooManyRequests for a job that waits."""
        tenant, principal = request.principal.key
        until = anyio.current_time() + self._longest_s(context)
        while anyio.current_time() < until:
            row = await self.stored.get(tenant, principal, run_id)
            if row is None or row.writes != writes:
                raise not_found("run", run_id)
            if row.state == "ended":
                return decode_view(row.result)
            if row.state == "waiting" and not row.is_due:
                return check_wait(decode_view(row.result), context)
            if row.is_due and run_id not in self._held:
                with self.take_place(tenant, principal, waited=True) as place:
                    if place is not None and (run := await self.stored.claim(tenant, run_id)):
                        return await self._advance_for(request, context, run)
            await self.wait_here(run_id)
        return ProgramView("running", run=run_id)

    async def _advance_for(
        self, request: OperationInput, context: Context, run: ProgramRun
    ) -> ProgramView:
        """Go on with a run whose caller waits. Raises ProblemDetails."""
        active = HeldRun(run)
        try:
            with self.hold(active):
                view = await self._go_on(active, context, request.job)
            return check_wait(view, context)
        except LeaseLost:
            return await self.follow(request, context, run.id, writes=run.program.writes)
        except BaseException:  # its caller has gone, or no program can be run here
            with anyio.CancelScope(shield=True), suppress(LeaseLost, *AWAY):
                await self._leave(run)
            raise

    async def _leave(self, run: ProgramRun) -> None:
        """Give up a run. A job, or an invocation, may go on with it. Raises LeaseLost."""
        if run.claim is None:
            return
        if run.caller is None:
            await self.stored.release(run)
            return
        await self._withdraw(run)
        if run.is_kept:
            await self._end(run, failure_view(CANCELLED_TEXT))
        else:
            await self.stored.remove(run)

    async def cancel(
        self, request: OperationInput, context: Context, run_id: str, *, writes: bool
    ) -> ProgramView:
        """End a run, and its open calls. Raises ProblemDetails."""
        tenant, principal = request.principal.key
        row = await self.stored.get(tenant, principal, run_id)
        if row is None or row.writes != writes:
            raise not_found("run", run_id)
        await self.stored.cancel(tenant, run_id)
        self.cancel_here(run_id)
        await Approvals(self.parts.pool, tenant).withdraw(run=run_id)
        return await self.follow(request, context, run_id, writes=writes)

    async def work(self, active: HeldRun[ProgramRun]) -> None:
        """Go on with a run whose caller does not wait."""
        try:
            await self._go_on(active, await self.context_of(active), NO_JOB)
        except ProblemDetails as problem:
            if problem.status in (429, 503):
                await self.stored.release(active.row)
            else:
                await self._end(active.row, failure_view(problem.detail))

    async def fail(self, row: ProgramRun) -> None:
        await self._end(row, failure_view("internal error"))

    async def prune(self) -> None:
        await self.stored.prune()

    async def _go_on(self, active: HeldRun[ProgramRun], context: Context, job: Job) -> ProgramView:
        """Run a program to its end or its next pause, and store how. Raises ProblemDetails and
        LeaseLost."""
        run, refusal, denied = active.row, "", EMPTY
        if run.is_taken_up:
            denied, refusal = await self._read_decision(run)
        program, settings = run.program, self._settings
        save = partial(self._save, run) if program.writes else None
        journal = Journal(run.steps, settings.journal_bytes, save)
        calls = RunCalls(
            self.parts, context, job, run_id=run.id, program=program, journal=journal,
            denied=denied, learned=self.learned,
        )  # fmt: skip
        job.progress(len(journal.calls))
        view: ProgramView | None = failure_view(refusal, journal.calls) if refusal else None
        with active.scope:
            view = view or await self._execute(run, calls.answer, journal, self._longest_s(context))
        if view is None:
            if not active.is_cancelled:
                raise LeaseLost("another process has taken the run over")
            await self._withdraw(run)
            view = failure_view(CANCELLED_TEXT, journal.calls)
        if view.state != "paused" and run.claim is not None:
            if run.is_kept:
                view = replace(view, run=run.id)
                await self._end(run, view)
            else:
                await self.stored.remove(run)
        return view

    async def _read_decision(self, run: ProgramRun) -> tuple[Mapping[int, str], str]:
        """Why calls are denied, by their numbers, and why the run cannot go on; "": it can."""
        approvals, id_ = Approvals(self.parts.pool, run.tenant), run.approval
        if run.cancel:
            await self._withdraw(run)
            return {}, CANCELLED_TEXT
        if run.failures >= DEATHS:
            return {}, f"the process that ran it ended {run.failures} times"
        if run.steps.is_cut:
            text = "its process ended, and its answers are too large to go on (code.journal_bytes)"
            return {}, text
        approval = None if id_ is None else await approvals.get(id_)
        if approval is not None:
            decided_on, _ = await approvals.program(approval.id)
            if decided_on != run.program.digest:
                return {}, "the program is not the one that people have decided on"
            if approval.state == "approved":
                return {}, ""
        is_rejected = approval is not None and approval.state == "denied"
        reason = REJECTED_TEXT if is_rejected else UNDECIDED_TEXT
        return {call.seq: reason for call in run.pending}, ""

    async def _execute(
        self, run: ProgramRun, ask: Ask, journal: Journal, wall_s: float
    ) -> ProgramView:
        """Raises ProblemDetails where no program can be run, and LeaseLost."""
        wall_s, program = min(run.program.time_s, wall_s), run.program
        try:
            with Deadline(wall_s):
                end = await self._run_process(program, journal.over(ask), journal)
        except TimeoutError:
            return failure_view(f"the program took more than {wall_s:g} s", journal.calls)
        except NotRepeatable as error:
            return failure_view(f"the program cannot go on: {error}", journal.calls)
        except SessionEnded as ended:
            if ended.reason == "refused":
                raise unavailable(f"Programs cannot be run here: {ended}.") from ended
            return failure_view(f"the program was ended: {ended}", journal.calls)
        if end is None:
            return await self._pause(run, journal)
        return ProgramView.of(
            end.end, journal.calls, result=end.encoded_result, output=end.output, error=end.error
        )

    async def _run_process(
        self, program_run: StoredProgram, answer: AnswerAsk, journal: Journal
    ) -> ProgramEnd | None:
        """None: it waits for approvals. A process that was killed is started again, with the
        answers so far. Raises SessionEnded."""
        for start in range(1, STARTS + 1):
            try:
                async with self._open() as program:
                    running = program.run(
                        program_run.code,
                        answer,
                        seed=0,
                        clock=CLOCK,
                        language=program_run.language,
                        files=program_run.files,
                    )
                    return await first_of(running, journal.pause())
            except SessionEnded as ended:
                if ended.reason != "crashed" or start == STARTS:
                    raise
                journal.open()
        raise AssertionError  # the last start returns or raises

    async def _pause(self, run: ProgramRun, journal: Journal) -> ProgramView:
        """Ask for an approval of the held calls, and let the run wait. Raises LeaseLost."""
        tenant, program, held_calls = run.tenant, run.program, journal.held
        waiting = await self.stored.count_waiting(tenant, run.owner)
        if waiting >= self._settings.paused_runs:
            text = f"{waiting} runs wait for approvals (code.paused_runs)"
            return failure_view(f"the run cannot wait for an approval: {text}", journal.calls)
        await journal.save(partial(self._save, run))
        paused = ProgramView.of("paused", journal.calls, run=run.id)
        view = {"code": program.code, "language": program.language, "calls": paused.calls}
        asks = HeldProgram(run.id, program.digest, program.tool, msgspec.json.encode(view))
        calls = {
            number: (call.request, call.hold.arguments)
            for number, call in sorted(held_calls.items())
        }
        first = next(iter(held_calls.values())).hold
        try:
            id_, until = await Approvals(self.parts.pool, tenant).request_together(
                asks, calls, first.waits_s, first.limit
            )
        except TooManyWaiting as error:
            return failure_view(f"the run cannot wait for an approval: {error}", journal.calls)
        pending = [
            PendingCall(number, call.tool, held_calls[number].arguments, id_, write_time(until))
            for number, (call, _) in calls.items()
        ]
        paused = replace(paused, pending=tuple(pending))
        if run.claim is not None:
            await self.stored.wait(run, id_, pending, msgspec.json.encode(paused))
        return paused

    async def _withdraw(self, run: ProgramRun) -> None:
        """Withdraw what a cancelled run asked for just before."""
        await Approvals(self.parts.pool, run.tenant).withdraw(run=run.id)

    async def _save(self, run: ProgramRun, steps: Steps) -> None:
        """Raises LeaseLost."""
        if run.claim is None:
            await self.stored.begin(run)
        await self.stored.add(run, steps)

    async def _end(self, run: ProgramRun, view: ProgramView) -> None:
        """Raises LeaseLost."""
        await self.stored.end(run, msgspec.json.encode(view), view.state, sum(view.made.values()))

    def _longest_s(self, context: Context) -> float:
        return self._settings.job_s if context.absent else self._settings.wall_s

    @asynccontextmanager
    async def _turn(self, key: tuple[str, str], wait_s: float = 0.0) -> AsyncIterator[None]:
        """A place among the runs of this process, behind those that go on. Raises ProblemDetails if
        there is none within `wait_s`."""
        async with AsyncExitStack() as stack:
            try:
                with anyio.fail_after(wait_s):
                    # or new runs would hand each place on to the next
                    while self._is_crowded:  # noqa: ASYNC110 - judged at this interval
                        await anyio.sleep(self._settings.poll_s)
                    await stack.enter_async_context(self._places.turn(*key))
            except TimeoutError:
                setting, whose = SHORTAGES[self._places.shortage(*key)]
                most = getattr(self._settings, setting)
                text = (
                    f"Waited {wait_s:g} s for a turn (code.turn_s) behind other programs of "
                    f"{whose}, of which {most} run at a time (code.{setting})."
                )
                raise ProblemDetails(429, "too-many-requests", text) from None
            yield


def is_driven(context: Context) -> bool:
    """Whether a job, or an invocation, makes the call, which makes it again where it was cut off:
    their ids are those of its requests."""
    return context.absent and is_uuid(context.request_id)


def check_wait(view: ProgramView, context: Context) -> ProgramView:
    """Raises TooManyRequests for a job or an invocation whose run waits for people."""
    if view.state == "paused" and is_driven(context):
        raise TooManyRequests(f"The run {view.run} waits for approvals.", APPROVAL_POLL_S)
    return view


async def first_of(running: Awaitable[T], pausing: Awaitable[None]) -> T | None:
    """The result of `running`, if it ends first; else None. The other task is cancelled."""
    tasks = asyncio.ensure_future(running), asyncio.ensure_future(pausing)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return tasks[0].result() if tasks[0].done() else None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
