"""Runs invocations of tools in this process: claims, leases, ends, and upkeep of the journal."""

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import anyio
import msgspec
import psycopg
from anyio import CancelScope

from config.events import EventsSettings
from gateway.wings.events.delivery_execution import Execution, Pause, failed_end
from gateway.wings.events.invocation_journal import Delivery, End, Journal
from gateway.wings.events.operator_hook import Hooks
from gateway.wings.events.sweeper import JournalSweeper
from gateway.wings.events.task_questions import TaskQuestions
from gateway.wings.events.wakeups import CANCEL, DATABASE_ERRORS, ENDED, WORK
from registry.database.group_commit import GroupCommit
from registry.database.postgres import AWAY, RESYNC, Notice, is_uuid
from schemas.errors import Unavailable

log = logging.getLogger("toolgate.events")

MOVE_S = 30.0  # from the end of an invocation until it moves to those that have ended
RETAIN_S = 3600.0  # interval of deleting old ones
TRIM_S = 60.0  # interval of measuring those that have ended
TRIM_COST = 20  # times as long as the measuring took
NOT_KEPT = "The call was made, and its result cannot be stored"
Why = Literal["", "lost", "cancelled", "drained"]


@dataclass(slots=True, eq=False)
class RunningDelivery:
    """A delivery that runs in this process."""

    delivery: Delivery
    scope: CancelScope = field(default_factory=CancelScope)
    why: Why = ""  # it was cancelled

    def stop(self, why: Why) -> None:
        self.why = self.why or why
        self.scope.cancel()


class Dispatch:
    """Runs invocations, at most `settings.concurrency` at a time, until cancelled; tenants with
    invocations that are due take turns."""

    def __init__(
        self,
        journal: Journal,
        sweeper: JournalSweeper,
        execution: Execution,
        settings: EventsSettings,
        *,
        worker: str,
        hooks: Hooks,
        questions: TaskQuestions,
        say: Callable[[str], None],
        ended: Callable[[Sequence[tuple[str, str]]], None],
    ) -> None:
        """`worker` is the name of this process in the journal; `say` wakes others; `ended` is
        called with invocations, of (tenant, id), that have."""
        self._journal = journal
        self._sweeper = sweeper
        self._execution = execution
        self.settings = settings
        self._worker = worker
        self._hooks = hooks
        self._questions = questions
        self._say = say
        self._ended = ended
        self._ends = GroupCommit(self._store, most=100)
        self._due: dict[str, None] = {}  # tenants that may have invocations that are due, by turn
        self._looked = -math.inf
        self._wake = anyio.Event()
        self._beat = anyio.Event()
        self._fed = anyio.Event()
        self._idle = anyio.Event()
        self._running: dict[tuple[str, str, int], RunningDelivery] = {}
        self.draining = False
        self.outcomes: Counter[tuple[str, str]] = Counter()  # by tenant and kind
        self.swept: Counter[tuple[str, str]] = Counter()
        self.ended_shares: dict[str, float] = {}  # by setting: the largest, as last counted here

    @property
    def running(self) -> int:
        return len(self._running)

    def running_of(self, tenant: str) -> int:
        return sum(run.delivery.host_id == tenant for run in self._running.values())

    @property
    def room(self) -> int:
        """How many more invocations may start: those that wait for an answer take no place, and
        take it again when they have one."""
        if self.draining:
            return 0
        busy = len(self._running) - self._questions.count_waiting()
        return max(0, self.settings.concurrency - busy)

    def hear(self, notice: Notice) -> None:
        if notice is RESYNC:
            self._looked = -math.inf
        elif notice.startswith(WORK):
            if is_uuid(host_id := notice.removeprefix(WORK)):  # anybody may send notices
                self._due[host_id] = None
        elif notice == CANCEL:
            self._beat.set()
        self._wake.set()

    def wake(self) -> None:
        """Look for room, and what is due."""
        self._wake.set()

    def drain(self) -> None:
        """Claim nothing more."""
        self.draining = True
        self._wake.set()

    async def run(self) -> None:
        """Run invocations; cancelled, those that run have `drain_s` to end, and are then given
        back."""
        stopping = anyio.Event()
        async with anyio.create_task_group() as outside:
            outside.start_soon(self._work, stopping)
            try:
                await anyio.sleep_forever()
            finally:
                stopping.set()

    async def _work(self, stopping: anyio.Event) -> None:
        with CancelScope(shield=True):
            async with anyio.create_task_group() as ends, anyio.create_task_group() as work:
                ends.start_soon(self._ends.run)
                work.start_soon(self._keep_up)
                work.start_soon(self._heartbeats)
                work.start_soon(self._feed, work)
                await stopping.wait()
                await self._drain_and_wait()
                work.cancel_scope.cancel()
                ends.cancel_scope.cancel()

    async def _drain_and_wait(self) -> None:
        self.drain()
        await self._fed.wait()
        with anyio.move_on_after(self.settings.drain_s):
            while self._running:
                self._wake = anyio.Event()
                self._stop_waiting()
                await self._wake.wait()
        for running in list(self._running.values()):
            running.stop("drained")
        await self._until_idle()

    def _stop_waiting(self) -> None:
        """Give up calls that wait for an answer, and can be made again: a person may take longer
        than a shutdown. Their answers are stored for the next attempt."""
        for running in list(self._running.values()):
            if running.delivery.repeatable and self._questions.is_waiting(running.delivery):
                running.stop("drained")

    async def _until_idle(self) -> None:
        if self._running:
            self._idle = anyio.Event()
            await self._idle.wait()

    async def _feed(self, work: anyio.abc.TaskGroup) -> None:
        """Claim what is due, whenever there is room, until drained."""
        while not self.draining:
            self._wake = anyio.Event()
            try:
                busy = await self._claim(work)
            except DATABASE_ERRORS:
                busy = False
                log.warning("journal_unavailable", exc_info=True)
            if not busy:
                with anyio.move_on_after(self.settings.poll_s):
                    await self._wake.wait()
        self._fed.set()

    async def _claim(self, work: anyio.abc.TaskGroup) -> bool:
        """Claim for the tenants in turn; whether there may be more, and room for it."""
        await self._look()
        for host_id in list(self._due):
            room = self._room(host_id)
            if not room:
                continue
            deliveries = await self._journal.claim(
                host_id, self._worker, limit=room, lease_s=self.settings.lease_s
            )
            del self._due[host_id]
            if len(deliveries) == room:
                self._due[host_id] = None  # behind the others
            for delivery in deliveries:
                running = RunningDelivery(delivery)
                self._running[delivery.key] = running
                work.start_soon(self._perform, running)
        return any(self._room(host_id) for host_id in self._due)

    async def _look(self) -> None:
        """Look for tenants with invocations, each `poll_s`."""
        now = anyio.current_time()
        if now - self._looked >= self.settings.poll_s and self.settings.concurrency:
            self._looked = now
            for host_id in await self._journal.tenants():
                self._due.setdefault(host_id)

    def _room(self, host_id: str) -> int:
        """Invocations of the tenant that may start now: its share of what is free."""
        running = self.running_of(host_id) - self._questions.count_waiting(host_id)
        share = math.ceil(self.room / max(1, len(self._due)))
        return max(0, min(share, self.settings.tenant_running - running))

    async def _perform(self, running: RunningDelivery) -> None:
        delivery, report = running.delivery, None
        try:
            with running.scope:
                report = await self._outcome_of(delivery)
            self._questions.end_waits(delivery)
            if running.why != "lost":
                await self._settle(running, report)
            if delivery.order_key is not None:  # the next one of its key may run now
                self._say(WORK + delivery.host_id)
        finally:
            del self._running[delivery.key]
            self._wake.set()
            if not self._running:
                self._idle.set()

    async def _outcome_of(self, delivery: Delivery) -> End | Pause:
        try:
            if (refused := await self._hooks.before(delivery)) is not None:
                return failed_end(delivery, refused, "rejected")
            return await self._execution.outcome(delivery)
        except AWAY:
            return Pause(self.settings.poll_s)
        except Exception:
            log.exception("invocation_crashed", extra={"invocation": delivery.invocation_id})
            return failed_end(delivery, "Internal error; the log has the story")

    async def _settle(self, running: RunningDelivery, report: End | Pause | None) -> None:
        """Store the report; None: the call was cancelled."""
        delivery = running.delivery
        if report is None and running.why == "cancelled":
            report = failed_end(delivery, "Cancelled", "cancelled")
        elif report is None:
            report = self._after_interruption(delivery)
        with CancelScope(shield=True), anyio.move_on_after(self.settings.lease_s):
            while True:
                try:
                    if await self._is_stored(delivery, report):
                        return
                except psycopg.Error:  # it has what the database refuses, as NUL
                    log.exception("report_refused", extra={"invocation": delivery.invocation_id})
                    report = failed_end(delivery, NOT_KEPT)
                await anyio.sleep(self.settings.poll_s)

    def _after_interruption(self, delivery: Delivery) -> End | Pause:
        """Outcome of a call that a shutdown ended."""
        if delivery.repeatable:
            return Pause(0.0)
        return failed_end(delivery, "The outcome is unknown: the gateway was shut down")

    async def _is_stored(self, delivery: Delivery, report: End | Pause) -> bool:
        """False while the database is away."""
        try:
            if isinstance(report, Pause):
                await self._journal.release(
                    [delivery.key], delay_s=report.delay_s, approval=report.approval
                )
                self.outcomes[delivery.host_id, "released"] += 1
                if not report.delay_s:
                    self._say(WORK + delivery.host_id)
            elif await self._ends.put(report):
                self.outcomes[delivery.host_id, _outcome(report)] += 1
                await self._hooks.after(delivery, report)
        except (*AWAY, Unavailable):
            return False
        return True

    async def _store(self, ends: Sequence[End]) -> Sequence[bool]:
        counted = await self._journal.end(ends)
        stored = [(end.invocation_id, end.fence) in counted for end in ends]
        over = [
            (end.host_id, end.invocation_id)
            for end, counts in zip(ends, stored, strict=True)
            if counts and end.retry_s is None
        ]
        for end, counts in zip(ends, stored, strict=True):
            if counts and end.retry_s is None and end.error and end.reason != "cancelled":
                extra = {"invocation": end.invocation_id, "reason": end.reason}
                log.warning("invocation_failed", extra=extra)
        if over:
            self._ended(over)
            self._say(ENDED)
        return stored

    async def end(self, end: End) -> bool:
        """Store the report of a worker elsewhere; whether it counts."""
        return await self._ends.put(end)

    async def _heartbeats(self) -> None:
        """Renew the leases of what runs, and end what was cancelled or taken away."""
        while True:
            with anyio.move_on_after(self.settings.lease_s / 3):
                await self._beat.wait()
            self._beat = anyio.Event()
            running = dict(self._running)
            if not running:
                continue
            try:
                extended = await self._journal.extend(running, self.settings.lease_s)
            except DATABASE_ERRORS:
                log.warning("journal_unavailable", exc_info=True)
                continue
            for (_, id_, fence), running_call in running.items():
                cancelling = extended.get((id_, fence))
                if cancelling is None:
                    running_call.stop("lost")
                elif cancelling:
                    running_call.stop("cancelled")

    async def _keep_up(self) -> None:
        """Sweep the journal, move what has ended, and delete what is old."""
        retained, trim_at = -math.inf, -math.inf
        while True:
            try:
                swept = await self._sweeper.sweep()
                if swept:
                    for tenant, kinds in swept.items():
                        self.swept.update({(tenant, kind): n for kind, n in _facts(kinds).items()})
                    sums = sum((Counter(_facts(kinds)) for kinds in swept.values()), Counter())
                    log.warning("invocations_swept", extra=dict(sums))
                    self._looked = -math.inf
                    self._wake.set()
                    self._say(ENDED)
                while await self._sweeper.move_ended(MOVE_S):
                    pass
                if anyio.current_time() - retained >= RETAIN_S:
                    await self._sweeper.retain(self.settings.retention_s)
                    while await self._sweeper.prune(self.settings.retention_s):
                        pass
                    retained = anyio.current_time()
                if (began := anyio.current_time()) >= trim_at:
                    try:
                        await self._trim()
                    finally:  # one that ran into a timeout costs as much
                        now = anyio.current_time()
                        trim_at = now + max(TRIM_S, TRIM_COST * (now - began))
            except DATABASE_ERRORS:
                log.warning("journal_unavailable", exc_info=True)
            await anyio.sleep(self.settings.sweep_s)

    async def _trim(self) -> None:
        """Delete the oldest of what has ended where it has more bytes than it may."""
        usage = await self._sweeper.ended_usage()
        if usage is None:
            return
        most_of_principal = self.settings.principal_ended_bytes
        most_of_tenant = self.settings.tenant_ended_bytes
        tenants: Counter[str] = Counter()
        for (tenant, _), bytes_ in usage.items():
            tenants[tenant] += bytes_
        self.ended_shares = {
            "events.principal_ended_bytes": max(usage.values(), default=0) / most_of_principal,
            "events.tenant_ended_bytes": max(tenants.values(), default=0) / most_of_tenant,
        }
        full = {tenant for (tenant, _), bytes_ in usage.items() if bytes_ > most_of_principal}
        full |= {tenant for tenant, bytes_ in tenants.items() if bytes_ > most_of_tenant}
        for tenant in sorted(full):
            removed = await self._sweeper.trim(tenant, most_of_principal, most_of_tenant)
            if removed:
                extra = {"tenant": tenant, "count": removed}
                log.warning("ended_invocations_removed", extra=extra)


def kinds_of(counts: Mapping[tuple[str, str], int], tenant: str) -> dict[str, int]:
    """The counts of a tenant by kind."""
    return {kind: count for (owner, kind), count in counts.items() if owner == tenant}


def _outcome(end: End) -> str:
    if end.error is None:
        return "acked"
    return end.reason if end.retry_s is None else "retried"


def _facts(swept: object) -> dict[str, int]:
    return {name: value for name, value in msgspec.to_builtins(swept).items() if value}
