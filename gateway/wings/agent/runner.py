"""Agent runs in this process: begin, decide, cancel, and work on them."""

import asyncio
import time
from uuid import uuid4

import anyio
import msgspec
from msgspec.structs import replace

from config.agent import AgentSettings
from gateway.context import Context, Principal, RunMark
from gateway.interfaces import Log
from gateway.operations.problems import ProblemDetails
from gateway.wings.agent.conversation_and_run_store import (
    NOTHING,
    Conversations,
    Ending,
    NewRun,
    Run,
    Runs,
)
from gateway.wings.agent.loop import Loop
from gateway.wings.agent.run_budget import RunMeter
from gateway.wings.agent.run_events import WAITS, EventWriter, summary
from gateway.wings.agent.run_steps import AgentTurn, fold_steps
from gateway.wings.agent.toolbox import Toolbox
from gateway.wings.interface import WingParts
from gateway.wings.models.messages import ChatMessage, ModelFailed
from gateway.wings.run_streams import stir, stream_of
from gateway.wings.run_supervisor import HeldRun, RunSupervisor
from registry.access.approvals import KEPT_DAYS, ApprovalRefused, Approvals
from registry.database.fair_limiter import FairLimiter
from registry.database.postgres import Pool
from schemas.errors import Unavailable

OVERLAP_S = 60.0  # a decision may take so long to be committed, or a clock be so wrong
CANCEL_S = 5.0  # that a request waits for the end of a cancelled run
AGENT = "toolgate"  # its name in traces
TURNS = 200  # of a conversation that the window is chosen from
BROKEN_RUN = Ending(
    state="failed", error="internal", stopped="Internal error; the gateway's log has the story."
)


class Runner(RunSupervisor[Run]):
    def __init__(self, parts: WingParts, storage: Pool) -> None:
        """`storage` has the tables of the wing."""
        settings: AgentSettings = parts.settings
        self._settings = settings
        if parts.log is None:
            raise Unavailable("The agent needs a gateway")
        self._log: Log = parts.log
        self.writers: dict[str, EventWriter] = {}  # of the runs in this process
        self.runs = Runs(storage, uuid4().hex, settings.lease_s)
        self.conversations = Conversations(storage)
        self.tools = Toolbox(parts.call, parts.view, settings)
        self._looked = time.monotonic() - KEPT_DAYS * 86400  # at all decisions until then
        places = FairLimiter(
            settings.runs, of_tenant=settings.runs_per_tenant, of_owner=settings.runs_per_principal
        )
        super().__init__("agent", parts, self.runs, places, renew_s=settings.renew_s)

    @property
    def pool(self) -> Pool:
        return self.parts.pool

    @property
    def stream(self) -> Log:
        return self._log

    async def begin(self, context: Context, conversation: str, new: NewRun) -> Run | None:
        """Begin a run; without room for it here it waits until a process has some. None: its owner
        has as many as may be open. Raises ConversationBusy."""
        principal, limit = context.principal, self._settings.open_runs
        with self.take_place(principal.tenant, new.owner) as place:
            here = place is not None
            run = await self.runs.create(principal.tenant, conversation, new, limit, here=here)
            if run is not None and place is not None:
                self.start(run, place, context)
        return run

    async def cancel(self, context: Context, run_id: str) -> Run | None:
        """The run, once it has ended, or as it is when the time is over; that of another process
        ends with its next renewal."""
        tenant, owner = context.principal.key
        until = anyio.current_time() + CANCEL_S
        while (run := await self.runs.cancel(tenant, owner, run_id)) is not None:
            if run.has_ended:
                await self._withdraw_requests(run)
                await self.stir(run)
                return run
            if not self.cancel_here(run_id) or anyio.current_time() > until:
                return run
            await self.wait_here(run_id)
        return await self.runs.get(tenant, owner, run_id)

    async def erase(self, context: Context, conversation: str) -> bool:
        """Erase a conversation, and cancel its run; whether it existed."""
        tenant, owner = context.principal.key
        turns = await self.conversations.turns(tenant, conversation, 1)
        open_runs = [run for run, _ in turns if not run.has_ended and run.owner == owner]
        for run in open_runs:
            await self.cancel(context, run.id)
        is_erased = await self.conversations.delete(tenant, owner, conversation)
        for run in open_runs:
            await self.stir(run)
        return is_erased

    async def stir(self, run: Run) -> None:
        await stir(self._log, stream_of("agent", run.id))

    async def get(self, context: Context, run_id: str) -> Run | None:
        """The run of a caller; one of this process as it was when it was taken up."""
        principal = context.principal
        active = self._held.get(run_id)
        if active is not None and (active.row.tenant, active.row.owner) == principal.key:
            return active.row
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
                await self.wait_here(run.id)
                current = await self.runs.get(run.tenant, run.owner, run.id)
        return current or run

    async def take_up(self) -> None:
        now = time.monotonic()
        await self.runs.wake_decided(now - self._looked + OVERLAP_S)
        self._looked = now
        await super().take_up()

    async def work(self, active: HeldRun[Run]) -> None:
        run, writer = active.row, EventWriter(self._log, active.row)
        ending: Ending | None = None
        writing = asyncio.create_task(writer.run())
        try:
            with writer.open_to(self.writers, run.id):
                with active.scope:
                    ending = await self._advance(active, writer)
                if active.is_cancelled:
                    ending = Ending(state="cancelled", stopped="cancelled")
                if ending is not None:
                    await writer.flush()
                    await self._let_go(run, ending, writer)
        finally:
            writing.cancel()

    async def fail(self, run: Run) -> None:
        await self._let_go(run, BROKEN_RUN)

    async def _advance(self, active: HeldRun[Run], writer: EventWriter) -> Ending:
        run = active.row
        if run.cancel:
            return Ending(state="cancelled", stopped="cancelled")
        try:
            model = self.parts.models.of(run.strategy)
        except ModelFailed as error:
            return Ending(state="failed", error=f"provider_{error.kind}", stopped=str(error))
        try:
            context = replace(await self.context_of(active), run=RunMark())
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
        with self.parts.operate(f"invoke_agent {AGENT}", "internal", attributes):
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
        stored = await self.runs.end(run, ending)
        if stored.state == "cancelled":
            await self._withdraw_requests(run)
        if writer is not None and ending.updates:  # a person may decide as soon as they are told
            for update in ending.updates:
                writer.put("StatusUpdate", status=WAITS, phase="tools", **update)
            await writer.flush()
        if writer is None or ending.state == "waiting":
            await self.stir(run)
            return
        if stored.state == "failed":
            writer.put("Error", code=stored.error, message=stored.stopped)
        else:
            writer.put("Completed", **summary(stored))
        await writer.flush()

    async def _withdraw_requests(self, run: Run) -> None:
        """Withdraw the requests of approvals of a run that was cancelled."""
        turn = await self.runs.turn(run)
        pending = [call.approval for round_ in turn.rounds for call in round_.pending.values()]
        await Approvals(self.pool, run.tenant).withdraw(pending)

    async def prune(self) -> None:
        await self.runs.prune_usage(self._settings.usage_days)
        if self._settings.conversation_days:
            await self.runs.prune_conversations(self._settings.conversation_days)
