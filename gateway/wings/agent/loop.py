"""The loop of a run: ask the model, make its calls, until it answers without calls.

It is a state machine over the step log. Each step is stored before the next begins, so that any
process goes on where another one stopped:

    stopped within        on resume
    a request             it is made again; text that was streamed is not spliced, but announced
    a call that repeats   it is made again, with the same idempotency key
    another call          it is not made again; the model is told that its outcome is unknown
"""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import anyio
from msgspec.structs import replace

from config.agent import AgentSettings
from gateway.context import Context, RunMark
from gateway.wings.agent.context_window import window
from gateway.wings.agent.conversation_and_run_store import (
    NOTHING,
    Ending,
    Run,
    Runs,
    UsageAmounts,
    UsageTotals,
)
from gateway.wings.agent.run_budget import RunMeter
from gateway.wings.agent.run_events import WAITS_FOR_CONNECTION, EventWriter
from gateway.wings.agent.run_steps import (
    AgentTurn,
    FoundContext,
    HistoryCompacted,
    Intent,
    ModelReplied,
    ModelRequested,
    PendingCall,
    Result,
    Step,
)
from gateway.wings.agent.toolbox import FoundTool, PlannedCall, SearchFailed, Toolbox, mark_foreign
from gateway.wings.interface import payer_of
from gateway.wings.models.messages import (
    ChatMessage,
    ChatModel,
    ContentChunk,
    ModelCall,
    ModelExchange,
    ModelFailed,
    ModelReply,
    ReasoningChunk,
    RequestOptions,
    StatusUpdate,
    ToolDefinition,
)
from gateway.wings.models.tool_call_assembly import UnusableArguments
from gateway.wings.models.usage import BudgetExhausted
from registry.access.approvals import Approvals
from registry.database.leases import LeaseLost
from registry.database.postgres import AWAY
from schemas.errors import ConnectionRequired, Unavailable

CONNECTIONS = 3  # times that one call is made, and asks for an account
HINT_AFTER, STOP_AFTER = 3, 5  # equal results of equal calls
LEVELS = 2  # of compaction
QUERY = 2000  # characters of a message that are searched for
HINT = "\n[This is the same result as before. Do something else, or answer with what you have.]"
NO_CALLS = "the budget of calls is used up. It was not made. Answer with what you have."
UNKNOWN = (
    "Outcome unknown: the gateway stopped while this call was made, and the tool does not say that"
    " it may be repeated. It was not made again. Find out whether it had its effect."
)


log = logging.getLogger("toolgate.agent")


@dataclass(kw_only=True)
class Loop:
    """One run in one process."""

    run: Run
    turns: list[AgentTurn]  # of the conversation; the last one is this run's
    settings: AgentSettings
    model: ChatModel
    tools: Toolbox
    runs: Runs
    approvals: Approvals
    context: Context  # of the caller
    events: EventWriter
    meter: RunMeter
    taken_over: bool = False

    @property
    def turn(self) -> AgentTurn:
        return self.turns[-1]

    async def advance(self) -> Ending:
        """Go on until the run ends or waits. Raises LeaseLost and psycopg.OperationalError."""
        try:
            with anyio.fail_after(self.meter.left_s):
                while True:
                    if (ending := await self._next()) is not None:
                        return ending
        except TimeoutError:
            return self._stop("time")
        except BudgetExhausted:
            return self._stop("budget")
        finally:
            with anyio.CancelScope(shield=True), suppress(LeaseLost, *AWAY):
                if self.meter.owes:
                    await self._store(counted=NOTHING)

    async def _next(self) -> Ending | None:
        rounds = self.turn.rounds
        if rounds and rounds[-1].reply.calls and not rounds[-1].last:
            if rounds[-1].open and (ending := await self._execute()) is not None:
                return ending
            if self._repetitions() >= STOP_AFTER:
                return self._stop("no_progress")
        elif rounds and (ending := self._end_by_answer()) is not None:
            return ending
        return await self._ask()

    def _end_by_answer(self) -> Ending | None:
        """How an answer without calls ends the run; None: the model is asked again."""
        last = self.turn.rounds[-1]
        text, finish = last.reply.text, last.reply.finish
        if last.last:
            over = len(self.turn.rounds) > self.settings.max_iterations
            return self._stop("max_iterations" if over else "budget")
        if finish == "paused":
            return None
        if finish in ("length", "filtered", "refused"):
            return Ending(state="completed", stopped=finish, answer=text)
        if text.strip():
            return Ending(state="completed", answer=text)
        if len(self.turn.rounds) > 1 and not self.turn.rounds[-2].reply.calls:
            return Ending(state="failed", error="empty_answer", stopped="The model said nothing.")
        return None

    def _stop(self, why: str) -> Ending:
        return Ending(state="exhausted", stopped=why, answer=self.turn.answer)

    async def _store(
        self, *steps: Step, counted: UsageAmounts | None = None, iteration: int = 0,
        check: Callable[[UsageTotals], None] | None = None,
    ) -> None:  # fmt: skip
        """Store steps; with `counted` also what the meter owes, and that. Raises as `Runs.add`."""
        used = NOTHING if counted is None else self.meter.outstanding().plus(counted)
        with anyio.CancelScope(shield=True):  # what is stored is settled, or it would count twice
            spent = await self.runs.add(
                self.run, self.turn.count, steps, used, iteration=iteration,
                day=self.meter.reserved_on, check=check,
            )  # fmt: skip
        if counted is not None:
            self.meter.settle(spent)
        for step in steps:
            self.turn.take(step)

    # -- what is known before the first request --

    async def _search(self) -> FoundContext:
        async with asyncio.TaskGroup() as tasks:
            searching = tasks.create_task(self._find_tools())
            reading = [tasks.create_task(self._read(name)) for name in self.settings.context_tools]
        tools, texts = searching.result(), [text for task in reading if (text := task.result())]
        lines = "\n".join(f"{tool.name}: {tool.description}" for tool in tools)
        hints = [mark_foreign("search_tools", f"Tools that may help:\n{lines}")] if tools else []
        names = tuple(tool.name for tool in tools)
        tainted = bool(texts) or self.tools.describes_outside(self.context, names)
        return FoundContext("\n".join([*hints, *texts]), names, tainted)

    async def _find_tools(self) -> Sequence[FoundTool]:
        try:
            return await self.tools.find(self.context, self.turn.content)
        except SearchFailed as error:
            self.events.put("StatusUpdate", status="search_failed", phase=str(error)[:200])
            return ()

    async def _read(self, name: str) -> str:
        arguments = {"query": self.turn.content[:QUERY], "session": self.run.conversation}
        try:
            return await self.tools.ask_tool(self._calling(f"read:{name}", 0), name, arguments)
        except SearchFailed as error:
            self.events.put("StatusUpdate", status="read_failed", phase=f"{name}: {error}"[:200])
            return ""

    async def keep(self, answer: str) -> None:
        """Give the message and its answer to the tools that keep them."""
        turns = [
            {"role": role, "content": text, "id": f"{self.run.id}:{role}"}
            for role, text in (("user", self.turn.content), ("assistant", answer))
        ]
        arguments = {"turns": turns, "session": self.run.conversation}
        for name in self.settings.observer_tools if answer.strip() else ():
            try:
                context = self._calling(f"keep:{name}", len(self.turn.rounds))
                await self.tools.ask_tool(context, name, arguments)
            except SearchFailed as error:
                log.warning(
                    "agent_observation_failed", extra={"tool": name, "reason": str(error)[:200]}
                )

    # -- the model --

    async def _ask(self) -> Ending | None:
        iteration = len(self.turn.rounds) + 1
        self.events.iteration = iteration
        last = iteration > self.settings.max_iterations or self.meter.calls_used
        steps: list[Step] = []
        if self.turn.context is None:
            self.turn.context = await self._search()
            steps.append(self.turn.context)
        if self.turn.open_request is None:
            steps.append(ModelRequested(iteration, last))
        elif self.taken_over:
            self.events.put("StatusUpdate", status="restarted", phase="model")
        messages, tools = self._messages(), self._definitions()
        worst = self.meter.worst(*self.model.worst(messages, tools))
        await self._store(*steps, counted=worst, check=self.meter.check)
        options = RequestOptions(
            tool_choice="none" if last else "auto",
            budget=self.meter.request(worst),
            record=self._exchanges.append if self.settings.transcripts else None,
            payer=payer_of(self.context),
        )
        try:
            reply = await self._ask_model(messages, tools, options)
        except ModelFailed as error:
            return await self._handle_failure(error)
        finally:
            await self._keep_transcript()
        calls = UsageAmounts(calls=len(reply.calls))
        await self._store(ModelReplied(iteration, reply), counted=calls, iteration=iteration)
        self.events.put(
            "IterationComplete", tokens=reply.usage.total, should_continue=bool(reply.calls)
        )
        return None

    async def _ask_model(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolDefinition],
        options: RequestOptions,
    ) -> ModelReply:
        if not self.run.streams:
            return await self.model.complete(messages, tools, options)
        async with aclosing(self.model.stream(messages, tools, options)) as events:
            async for event in events:
                match event:
                    case ContentChunk(text):
                        self.events.put("ResponseChunk", text=text)
                    case ReasoningChunk(text):
                        self.events.put("ReasoningTrace", text=text)
                    case StatusUpdate(status, phase):
                        self.events.put("StatusUpdate", status=status, phase=phase)
                    case _ if hasattr(event, "reply"):
                        reply: ModelReply = event.reply
        return reply

    async def _handle_failure(self, error: ModelFailed) -> Ending | None:
        if error.kind == "overflow" and self.turn.level < LEVELS:
            self.events.put("StatusUpdate", status="compacting", phase="model")
            await self._store(HistoryCompacted(self.turn.level + 1))
            return None
        return Ending(
            state="failed", error=f"provider_{error.kind}", stopped=str(error),
            answer=self.turn.answer,
        )  # fmt: skip

    def _messages(self) -> list[ChatMessage]:
        limit = min(self.settings.window_tokens, self.model.context_tokens * 3 // 4)
        return window(
            self.settings.instructions,
            self.turns,
            messages=self.settings.window_messages,
            limit_tokens=limit,
        )

    def _definitions(self) -> list[ToolDefinition]:
        context_tools = self.turn.context.tools if self.turn.context else ()
        before = [name for turn in self.turns for name in turn.names]
        names = [*context_tools, *before]
        return self.tools.definitions(self.context, names, self.model.profile)

    _exchanges: list[ModelExchange] = field(init=False, default_factory=list)

    async def _keep_transcript(self) -> None:
        exchanges, self._exchanges = self._exchanges, []
        for exchange in exchanges:
            await self.runs.keep(self.run, exchange)

    # -- its calls --

    async def _execute(self) -> Ending | None:
        """Make the calls of the last answer that have no result; how the run ends or waits, if it
        does."""
        open_ = self.turn.rounds[-1].open
        planned = [
            planned_call
            for call in open_
            if (planned_call := await self._plan_call(call)) is not None
        ]
        if planned and self.meter.calls_used:
            for planned_call in planned:
                await self._refuse(planned_call.call, NO_CALLS)
            return None
        if all(planned_call.reads_only for planned_call in planned):
            await self._at_once(planned)
        else:
            for planned_call in planned:
                await self._make_call(planned_call)
        waiting = self.turn.rounds[-1].pending.values()
        if not waiting:
            return None
        updates = [
            {"tool_call_id": held.call_id, "approval": held.approval, "expires": held.expires}
            for held in waiting
        ]
        approvals = [held.approval for held in waiting]
        return Ending(state="waiting", approvals=approvals, updates=updates)

    async def _at_once(self, planned_calls: Sequence[PlannedCall]) -> None:
        limit = asyncio.Semaphore(self.settings.parallel)

        async def call_one(planned_call: PlannedCall) -> tuple[PlannedCall, Result | PendingCall]:
            async with limit:
                return planned_call, await self._outcome(planned_call)

        for planned_call in planned_calls:
            self._show_start(planned_call)
        async with asyncio.TaskGroup() as tasks:
            started = [tasks.create_task(call_one(planned_call)) for planned_call in planned_calls]
        outcomes = [task.result() for task in started]
        await self._store(*(self._with_hint(outcome) for _, outcome in outcomes))
        for planned_call, _ in outcomes:
            self._show_result(planned_call.call)

    async def _plan_call(self, call: ModelCall) -> PlannedCall | None:
        """A call to be made; None: its result is known without making it."""
        last = self.turn.rounds[-1]
        cut = last.reply.finish == "length" and call == last.reply.calls[-1]
        try:
            planned = self.tools.plan(self.context, call, cut=cut)
        except UnusableArguments as error:
            await self._refuse(call, str(error))
            return None
        if (pending := last.pending.get(call.id)) is not None:
            return await self._planned_if_approved(planned, pending)
        intent = last.intents.get(call.id)
        if intent is not None and not intent.repeatable:
            await self._refuse(call, UNKNOWN)
            return None
        return planned

    async def _planned_if_approved(
        self, planned_call: PlannedCall, pending: PendingCall
    ) -> PlannedCall | None:
        """A call that waited for an approval, if it was approved."""
        approval = await self.approvals.get(pending.approval)
        if (
            approval is not None
            and approval.state != "denied"
            and approval.expires > datetime.now(UTC)
        ):
            return planned_call
        denied = approval is not None and approval.state == "denied"
        text = "a person refused this call" if denied else "nobody approved this call in time"
        await self._refuse(planned_call.call, f"{text}. It was not made.")
        return None

    async def _make_call(self, planned_call: PlannedCall) -> None:
        """Make one call that may have an effect."""
        call = planned_call.call
        intent = Intent(call.id, call.name, self._key(self._place(call)), planned_call.repeatable)
        if call.id not in self.turn.rounds[-1].intents:
            await self._store(intent)
        self._show_start(planned_call)
        outcome = await self._outcome(planned_call)
        inner = outcome.inner_calls if isinstance(outcome, Result) else 0
        counted = UsageAmounts(calls=inner) if inner else None
        await self._store(self._with_hint(outcome), counted=counted)
        self._show_result(call)

    async def _outcome(self, planned_call: PlannedCall) -> Result | PendingCall:
        left = self.meter.calls_left
        if planned_call.runs_program and left is not None:
            limited = planned_call.limit_calls(left) if left > 0 else None
            if limited is None:
                text = NO_CALLS if left <= 0 else "arguments: expected an object. It was not made."
                return self.tools.refusal(planned_call.call, text)
            planned_call = limited
        context = self._calling(self._place(planned_call.call), len(self.turn.rounds) - 1)
        for _ in range(CONNECTIONS):
            try:
                return await self.tools.make(context, planned_call, self.approvals)
            except ConnectionRequired as fault:
                if not await self._wait_for_connection(planned_call.call, fault):
                    return self.tools.refusal(planned_call.call, fault.message)
        return self.tools.refusal(planned_call.call, "The service refuses the caller's account.")

    async def _wait_for_connection(self, call: ModelCall, fault: ConnectionRequired) -> bool:
        """Tell followers where the caller connects an account, and wait until they have."""
        self.events.put(
            "StatusUpdate", status=WAITS_FOR_CONNECTION, phase="tools", tool_call_id=call.id,
            message=fault.message, **(fault.data or {}),
        )  # fmt: skip
        try:
            return await fault.wait(self.settings.connection_s)
        except Unavailable:
            return False

    def _calling(self, place: str, rounds: int) -> Context:
        """The context of the call at a place of the run, behind `rounds` rounds of its turn."""
        headers = replace(self.context.headers, idempotency_key=self._key(place))
        tainted = any(turn.is_tainted(len(turn.rounds)) for turn in self.turns[:-1])
        tainted = tainted or self.turn.is_tainted(rounds)
        return replace(self.context, headers=headers, note=None, run=RunMark(tainted))

    def _place(self, call: ModelCall) -> str:
        return f"{len(self.turn.rounds)}:{call.id}"

    def _key(self, place: str) -> str:
        """The idempotency key of a call: the same at each attempt, and of no other call."""
        return hmac.new(self.run.id.encode(), place.encode(), hashlib.sha256).hexdigest()[:32]

    async def _refuse(self, call: ModelCall, text: str) -> None:
        await self._store(self._with_hint(self.tools.refusal(call, text)))
        self._show_result(call)

    def _with_hint(self, outcome: Result | PendingCall) -> Result | PendingCall:
        """A result, with a hint if the same call has had it before."""
        if isinstance(outcome, PendingCall) or not outcome.digest:
            return outcome
        if self.turn.digests.count(outcome.digest) + 1 < HINT_AFTER:
            return outcome
        return replace(outcome, text=outcome.text + HINT)

    def _repetitions(self) -> int:
        digests = self.turn.digests
        return max(map(digests.count, digests), default=0)

    def _show_start(self, planned_call: PlannedCall) -> None:
        call = planned_call.call
        self.events.put(
            "ToolCallStart", tool_call_id=call.id, tool=call.name, arguments=planned_call.arguments
        )

    def _show_result(self, call: ModelCall) -> None:
        result = self.turn.rounds[-1].results.get(call.id)
        if result is not None:
            self.events.put(
                "ToolCallResult", tool_call_id=call.id, tool=call.name, text=result.text,
                is_error=result.is_error,
            )  # fmt: skip
