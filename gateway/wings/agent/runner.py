"""Supervisor of the agent runs of this process: start, take over, renew leases, cancel, release."""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec.structs import replace

from config.agent import AgentSettings
from gateway.context import NO_CALL_HEADERS, Context, Principal, RunMark, new_request_id
from gateway.interfaces import Log
from gateway.operations.problems import ProblemDetails
from gateway.operations.stored_callers import current_caller, later_context, read_caller
from gateway.wings.agent.events import EventWriter, summary
from gateway.wings.agent.loop import Loop
from gateway.wings.agent.run_budget import RunMeter
from gateway.wings.agent.steps import AgentTurn, fold_steps
from gateway.wings.agent.store import (
    NOTHING,
    Conversations,
    Ending,
    NewRun,
    Run,
    Runs,
)
from gateway.wings.agent.tools import Toolbox
from gateway.wings.interface import WingParts
from gateway.wings.models.messages import ChatMessage, ChatModel, LastRequest, ModelFailed
from registry.access.approvals import KEPT_DAYS, ApprovalRefused, Approvals
from registry.database.leases import LeaseLost
from registry.database.postgres import AWAY, Pool
from schemas.errors import Unavailable

log = logging.getLogger("toolgate.agent")

PRUNE_S = 3600.0  # interval of deleting old usage
OVERLAP_S = 60.0  # a decision may take so long to be committed, or a clock be so wrong
AGENT = "toolgate"  # its name in traces
TURNS = 200  # of a conversation that the window is chosen from
BROKEN = Ending(
    state="failed", error="internal", stopped="Internal error; the gateway's log has the story."
)


@dataclass(eq=False)
class HeldRun:
    """A run that this process has."""

    run: Run
    scope: anyio.CancelScope
    cancelled: bool = False  # by its owner


class Runner:
    def __init__(self, parts: WingParts, storage: Pool) -> None:
        """`storage` has the tables of the wing."""
        settings: AgentSettings = parts.settings
        self._parts = parts
        self._settings = settings
        if parts.log is None:
            raise Unavailable("The agent needs a gateway")
        self._log: Log = parts.log
        self.runs = Runs(storage, uuid4().hex, settings.lease_s)
        self.conversations = Conversations(storage)
        self.tools = Toolbox(parts.call, parts.view, settings)
        self._held: dict[str, HeldRun] = {}
        self._contexts: dict[str, Context] = {}  # of callers, of runs that were begun here
        self._ended: dict[str, anyio.Event] = {}
        self._tasks: TaskGroup | None = None
        self._looked = time.monotonic() - KEPT_DAYS * 86400  # at all decisions until then

    @property
    def count(self) -> int:
        return len(self._held)

    @property
    def pool(self) -> Pool:
        return self._parts.pool

    @property
    def stream(self) -> Log:
        return self._log

    def model(self, strategy: str) -> ChatModel:
        """Raises ModelFailed."""
        return self._parts.models.of(strategy)

    def last_request(self, strategy: str) -> LastRequest | None:
        return self._parts.models.last(strategy)

    async def begin(self, context: Context, conversation: str, new: NewRun) -> Run | None:
        """Begin a run; without room for it here it waits until a process has some. None: its owner
        has as many as may be open. Raises ConversationBusy."""
        held = self._tasks is not None and len(self._held) < self._settings.runs
        tenant, limit = context.principal.tenant, self._settings.open_runs
        run = await self.runs.create(tenant, conversation, new, limit, held=held)
        if run is None or not held:
            return run
        # without session: the run may outlive it
        self._contexts[run.id] = replace(context, session=None, peer=None, note=None)
        self._start(run)
        return run

    async def cancel(self, context: Context, run_id: str) -> Run | None:
        principal = context.principal
        run = await self.runs.cancel(principal.tenant, principal.id, run_id)
        if run is None or run.has_ended:
            return run
        if (held := self._held.get(run_id)) is not None:
            held.cancelled = True
            held.scope.cancel()
            await self.wait_for_end(run, 5.0)
        elif run.state == "waiting" and (taken := await self.runs.claim(run.tenant, run_id)):
            await self._let_go(taken, Ending(state="cancelled", answer=run.answer))
        return await self.runs.get(principal.tenant, principal.id, run_id)

    async def get(self, context: Context, run_id: str) -> Run | None:
        """The run of a caller; one of this process as it was when it was taken up."""
        principal = context.principal
        held = self._held.get(run_id)
        if held is not None and (held.run.tenant, held.run.owner) == principal.key:
            return held.run
        return await self.runs.get(principal.tenant, principal.id, run_id)

    async def decide(self, principal: Principal, approval: str, approve: bool) -> bool:
        """Decide on a call; False: it waits no longer. Raises ProblemDetails for a caller who may
        not."""
        approvals = Approvals(self.pool, principal.tenant)
        try:
            decided = await approvals.decide(approval, approve, principal.id, principal.makers)
        except ApprovalRefused as error:
            raise ProblemDetails(403, "forbidden", f"{error}.") from error
        return decided is not None

    async def wait_for_end(self, run: Run, within_s: float) -> Run:
        """The run, once it has ended or waits, or as it is when the time is over."""
        current: Run | None = run
        with anyio.move_on_after(within_s):
            while current is not None and current.state in ("queued", "running"):
                event = self._ended.get(run.id)
                with anyio.move_on_after(self._settings.poll_s):
                    await (event.wait() if event is not None else anyio.sleep_forever())
                current = await self.runs.get(run.tenant, run.owner, run.id)
        return current or run

    async def run(self) -> None:
        """Take up runs that no process has, and renew the leases of ours, until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._renew_regularly)
            tasks.start_soon(self._prune_regularly)
            try:
                while True:
                    with suppress(*AWAY):
                        await self.take_up()
                    await anyio.sleep(self._settings.poll_s)
            finally:
                self._tasks = None

    async def take_up(self) -> None:
        """Take up runs that are due."""
        if (room := self._settings.runs - len(self._held)) <= 0:
            return
        now = time.monotonic()
        due = await self.runs.due(room, now - self._looked + OVERLAP_S)
        for tenant, run_id in due:
            if run_id not in self._held and (run := await self.runs.claim(tenant, run_id)):
                self._start(run)
        if len(due) < room:  # or the rest of the decisions is looked at again
            self._looked = now

    def _start(self, run: Run) -> None:
        if self._tasks is None:
            return  # it is due once its lease is over
        self._held[run.id] = held = HeldRun(run, anyio.CancelScope())
        self._ended.setdefault(run.id, anyio.Event())
        self._tasks.start_soon(self._work, held)

    async def _work(self, held: HeldRun) -> None:
        """One run in this process."""
        run, writer = held.run, EventWriter(self._log, held.run)
        ending: Ending | None = None
        writing = asyncio.create_task(writer.run())
        try:
            with held.scope:
                ending = await self._advance(run, writer)
            if held.cancelled:
                ending = Ending(state="cancelled", stopped="cancelled")
            if ending is not None:
                await writer.flush()
                await self._let_go(run, ending, writer)
        except LeaseLost:
            log.warning("agent_lease_lost", extra={"run": run.id})
        except AWAY as error:  # a process takes it up again when the database is back
            log.warning("agent_run_released", extra={"run": run.id, "reason": type(error).__name__})
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True), suppress(*AWAY):
                await self.runs.release(run)
            raise
        except Exception:  # or the run would stop this process, and then each that takes it up
            log.exception("agent_run_failed", extra={"run": run.id})
            with suppress(LeaseLost, *AWAY):
                await self._let_go(run, BROKEN, writer)
        finally:
            writing.cancel()
            self._held.pop(run.id, None)
            self._contexts.pop(run.id, None)  # a token is not held while a run waits
            self._ended.pop(run.id, anyio.Event()).set()

    async def _advance(self, run: Run, writer: EventWriter) -> Ending:
        if run.cancel:
            return Ending(state="cancelled", stopped="cancelled")
        try:
            model = self.model(run.strategy)
        except ModelFailed as error:
            return Ending(state="failed", error=f"provider_{error.kind}", stopped=str(error))
        try:
            context = await self._context(run)
        except ProblemDetails as problem:
            return Ending(state="failed", error=problem.kind, stopped=problem.detail)
        budgets = self._settings.budgets
        if budgets.of_money and model.currency != self._settings.currency:
            text = f"A budget of money needs a price in {self._settings.currency}"
            where = f"models.strategies.{model.strategy}.price"
            return Ending(state="failed", error="provider_price", stopped=f"{text} ({where}).")
        others = day = NOTHING
        if budgets.of_others:
            others, day = await self.conversations.spending(run)
        loop = Loop(
            run=run,
            turns=await self._turns(run),
            settings=self._settings,
            model=model,
            tools=self.tools,
            runs=self.runs,
            approvals=Approvals(self.pool, run.tenant),
            context=context,
            events=writer,
            meter=RunMeter(self._settings, run, others, day),
            taken_over=run.attempt > 1,
        )
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": AGENT,
            "gen_ai.conversation.id": run.conversation,
            "toolgate.run.id": run.id,
        }
        with self._parts.operate(f"invoke_agent {AGENT}", "internal", attributes):
            ending = await loop.advance()
            attributes["toolgate.run.state"] = ending.state
        if ending.state == "completed":
            await loop.keep(ending.answer)
        return ending

    async def _turns(self, run: Run) -> list[AgentTurn]:
        """The turns of the conversation, up to this run's."""
        if run.turn == 1 and run.attempt == 1:  # nothing is stored yet
            return [fold_steps(run.content, (), msgspec.convert(run.history, list[ChatMessage]))]
        turns = await self.conversations.turns(run.tenant, run.conversation, TURNS)
        return [turn for earlier_run, turn in turns if earlier_run.turn <= run.turn]

    async def _let_go(self, run: Run, ending: Ending, writer: EventWriter | None = None) -> None:
        """Store how a run ends or waits, then tell it."""
        await self.runs.end(run, ending)
        writer = writer or EventWriter(self._log, run)
        if ending.state == "waiting":
            await writer.stir()
            return
        now = await self.runs.get(run.tenant, run.owner, run.id) or run
        if now.state == "failed":
            writer.put("Error", code=now.error, message=now.stopped)
        else:
            writer.put("Completed", **summary(now))
        await writer.flush()

    async def _context(self, run: Run) -> Context:
        """The context of the run's calls: its caller's. Where the run was taken up, that has no
        token, and what its credential still permits. Raises ProblemDetails if that was revoked."""
        kept = self._contexts.get(run.id)
        if kept is not None:
            return replace(kept, request_id=new_request_id(), run=RunMark())
        stored = read_caller(run.caller)
        principal = await current_caller(self.pool, stored.principal)
        context = later_context(
            stored, principal, request_id=new_request_id(), headers=NO_CALL_HEADERS
        )
        return replace(context, run=RunMark())

    async def _prune_regularly(self) -> None:
        while True:
            with suppress(*AWAY):
                await self.runs.prune_usage(self._settings.usage_days)
                if self._settings.conversation_days:
                    await self.runs.prune_conversations(self._settings.conversation_days)
            await anyio.sleep(PRUNE_S)

    async def _renew_regularly(self) -> None:
        while True:
            await anyio.sleep(self._settings.renew_s)
            with suppress(*AWAY):
                await self._renew(list(self._held.values()))

    async def _renew(self, held: Sequence[HeldRun]) -> None:
        ours = await self.runs.renew([held_run.run for held_run in held]) if held else {}
        for held_run in held:
            held_run.cancelled = held_run.cancelled or ours.get(held_run.run.id, False)
            if held_run.cancelled or held_run.run.id not in ours:
                held_run.scope.cancel()
