"""Operations of the agent."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace as with_

from config.agent import AgentSettings
from config.value_types import HostId
from gateway.context import Context
from gateway.operations.operation import Line, Operation, OperationInput, OperationOutput
from gateway.operations.problems import ProblemDetails, conflict, invalid, not_found
from gateway.operations.stored_callers import caller_of
from gateway.wings.agent.conversation_and_run_store import (
    Conversation,
    ConversationBusy,
    NewRun,
    Run,
)
from gateway.wings.agent.run_steps import AgentTurn
from gateway.wings.agent.runner import Runner
from gateway.wings.agent.toolbox import OWN, FoundTool, SearchFailed
from gateway.wings.models.messages import ModelFailed, UnknownStrategy

REASONING = "agent:reasoning"  # the scope to see reasoning
APPROVE = "agent:approve"
LARGEST = 2**63 - 1
IDS = {"conversation": HostId, "run": HostId, "approval": HostId}


class NewConversation(Struct, frozen=True, forbid_unknown_fields=True):
    title: Line = ""
    strategy: Line = ""
    id: HostId | None = None
    """Chosen by the client; a conversation of theirs that has it is given. The id in the answer is
    another one, and both lead there."""


class NewMessage(Struct, frozen=True, forbid_unknown_fields=True):
    content: str
    wait: bool = True
    """False: answer at once with the run, which goes on."""
    stream: bool = False
    """Whether the model is asked to stream, so that events show words as they come."""
    strategy: Line = ""


class FormerMessage(Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["user", "assistant"]
    text: str


class AgentQuestion(Struct, frozen=True, forbid_unknown_fields=True):
    message: str
    history: tuple[FormerMessage, ...] = ()
    """What was said before, for a new conversation."""
    conversation: HostId | None = None
    strategy: Line = ""
    wait: bool = True
    stream: bool = False


class ApprovalDecision(Struct, frozen=True, forbid_unknown_fields=True):
    approve: bool


class ConversationQuery(Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    before: Annotated[datetime, Meta(tz=True)] | None = None


class TurnQuery(Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    before: Annotated[int, Meta(ge=1, le=LARGEST)] | None = None
    """A turn: those before it are shown."""


class ExchangeQuery(Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    after: Annotated[int, Meta(ge=0, le=LARGEST)] = 0


class RunFilter(Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    state: Literal[
        "queued", "running", "waiting", "completed", "failed", "cancelled", "exhausted", ""
    ] = ""


class ToolQuery(Struct, frozen=True, forbid_unknown_fields=True):
    query: Line = ""


class ConversationView(Struct, frozen=True):
    id: str
    title: str
    strategy: str
    created: datetime
    updated: datetime


class ConversationPage(Struct, frozen=True):
    conversations: tuple[ConversationView, ...]


class CallView(Struct, frozen=True):
    id: str
    tool: str
    arguments: str
    result: str = ""
    is_error: bool = False


class MessageView(Struct, frozen=True, omit_defaults=True):
    role: Literal["user", "assistant"]
    text: str
    calls: tuple[CallView, ...] = ()
    reasoning: str = ""


class RunView(Struct, frozen=True, omit_defaults=True):
    run: str
    conversation: str
    state: str
    answer: str = ""
    calls: tuple[CallView, ...] = ()
    iterations: int = 0
    tokens: int = 0
    money: float = 0.0
    stopped: str = ""
    error: str = ""
    approvals: tuple[str, ...] = ()
    """Ids of the approvals that it waits for."""


class RunPage(Struct, frozen=True):
    runs: tuple[RunView, ...]


class Transcript(Struct, frozen=True, omit_defaults=True):
    conversation: ConversationView
    messages: tuple[MessageView, ...]
    run: str = ""
    """The run that has not ended."""
    last_run: str = ""
    """The newest one."""
    before: int = 0
    """`before` of the messages that precede; 0: there are none."""


class OfferedTool(Struct, frozen=True):
    name: str
    description: str


class OfferedTools(Struct, frozen=True):
    tools: tuple[OfferedTool, ...]


class TranscriptView(Struct, frozen=True, omit_defaults=True):
    exchanges: tuple[Any, ...]
    after: int = 0
    """`after` of those that follow; 0: there are none."""


class HealthView(Struct, frozen=True, omit_defaults=True):
    strategy: str
    state: Literal["ok", "unconfigured"]
    strategies: tuple[str, ...]
    runs: int
    """In this process."""
    detail: str = ""
    last_outcome: str = ""
    """Of the newest request of this process to the provider: ok, or the kind of its failure."""
    last_s: float = 0.0
    """Seconds since then."""


class ConversationOperations:
    def __init__(self, runner: Runner, settings: AgentSettings, strategies: Sequence[str]) -> None:
        """`strategies`: those that can be asked."""
        self._runner = runner
        self._settings = settings
        self._strategies = strategies

    @property
    def operations(self) -> tuple[Operation, ...]:
        return tuple(map(_outside, (*self._of_conversations, *self._of_runs)))

    @property
    def _of_conversations(self) -> tuple[Operation, ...]:
        read, write, conversation = "agent:read", "agent:write", "/conversations/{conversation}"
        return (
            Operation(
                "agent_ask", "POST", "/ask",
                "Ask an agent, which may call tools for you, and get its answer.", write, self.ask,
                RunView, body=AgentQuestion, waits=True,
                details="Without a conversation a new one begins; its id is in the answer.",
            ),
            Operation(
                "agent_create_conversation", "POST", "/conversations", "Begin a conversation.",
                write, self.create, ConversationView, 201, body=NewConversation, optional_body=True,
            ),
            Operation(
                "agent_list_conversations", "GET", "/conversations",
                "List your conversations, the newest first.", read, self.all, ConversationPage,
                query=ConversationQuery,
            ),
            Operation(
                "agent_get_conversation", "GET", conversation,
                "Show a conversation with its messages.", read, self.get, Transcript,
                query=TurnQuery, types=IDS,
            ),
            Operation(
                "agent_delete_conversation", "DELETE", conversation,
                "Erase a conversation with its messages.", write, self.delete, None, 204, types=IDS,
            ),
            Operation(
                "agent_send", "POST", f"{conversation}/messages",
                "Send a message, and get the answer.", write, self.send, RunView,
                body=NewMessage, types=IDS, problems=(409,), waits=True,
            ),
        )  # fmt: skip

    @property
    def _of_runs(self) -> tuple[Operation, ...]:
        read, write, run = "agent:read", "agent:write", "/runs/{run}"
        return (
            Operation(
                "agent_list_runs", "GET", "/runs", "List your runs, the newest first.", read,
                self.runs, RunPage, query=RunFilter,
            ),
            Operation(
                "agent_get_run", "GET", run, "Show a run.", read, self.run, RunView, types=IDS
            ),
            Operation(
                "agent_cancel_run", "POST", f"{run}/cancel", "Cancel a run.", write, self.cancel,
                RunView, types=IDS,
            ),
            Operation(
                "agent_get_transcript", "GET", f"{run}/transcript",
                "Show the stored traffic of a run with its model.", REASONING, self.transcript,
                TranscriptView, query=ExchangeQuery, types=IDS, no_tool="it holds reasoning",
            ),
            Operation(
                "agent_decide", "POST", "/approvals/{approval}",
                "Approve or deny a call that a run waits for.", APPROVE, self.decide, None,
                204, body=ApprovalDecision, types=IDS, no_tool="people decide, not agents",
            ),
            Operation(
                "agent_list_tools", "GET", "/tools",
                "List the tools that an agent would be offered, or would find for a query.", read,
                self.tools, OfferedTools, query=ToolQuery,
            ),
            Operation(
                "agent_health", "GET", "/health", "Show the model of the agent, and its state.",
                read, self.health, HealthView,
            ),
        )  # fmt: skip

    async def ask(self, request: OperationInput) -> RunView:
        body: AgentQuestion = request.body
        if body.history and body.conversation is not None:
            raise invalid("Expected a conversation or a history, found both.")
        if body.conversation is None:
            conversation = await self._create(request, "", body.strategy)
        else:
            conversation = await self._conversation(request, body.conversation)
        message = NewMessage(body.message, body.wait, body.stream, body.strategy)
        return await self._send(request, conversation, message, body.history)

    async def create(self, request: OperationInput) -> OperationOutput:
        body: NewConversation = request.body or NewConversation()
        conversation = await self._create(request, body.title, body.strategy, body.id)
        return OperationOutput(_view(conversation), location=f"/conversations/{conversation.id}")

    async def all(self, request: OperationInput) -> ConversationPage:
        query: ConversationQuery = request.query
        conversations = await self._runner.conversations.all(
            request.tenant, request.principal.id, query.before, query.limit
        )
        return ConversationPage(tuple(map(_view, conversations)))

    async def get(self, request: OperationInput) -> Transcript:
        conversation = await self._conversation(request, request.names["conversation"])
        query: TurnQuery = request.query
        turns = await self._runner.conversations.turns(
            request.tenant, conversation.id, query.limit, query.before
        )
        shows = REASONING in _context(request).identity.scopes
        messages = [view for run, turn in turns for view in _messages(run, turn, shows)]
        active = next((run.id for run, _ in turns if not run.has_ended), "")
        first = turns[0][0].turn if len(turns) == query.limit else 0
        before = first if first > 1 else 0  # turns count from 1, without gaps
        last = turns[-1][0].id if turns else ""
        return Transcript(_view(conversation), tuple(messages), active, last, before)

    async def delete(self, request: OperationInput) -> None:
        id_ = (await self._conversation(request, request.names["conversation"])).id
        if not await self._runner.erase(_context(request), id_):
            raise not_found("conversation", id_)

    async def send(self, request: OperationInput) -> RunView:
        conversation = await self._conversation(request, request.names["conversation"])
        return await self._send(request, conversation, request.body)

    async def runs(self, request: OperationInput) -> RunPage:
        query: RunFilter = request.query
        runs = await self._runner.runs.all(
            request.tenant, request.principal.id, query.state or None, query.limit
        )
        return RunPage(tuple(run_view(run) for run in runs))

    async def run(self, request: OperationInput) -> RunView:
        return await self._view_of_run(await self._run(request))

    async def cancel(self, request: OperationInput) -> RunView:
        run = await self._runner.cancel(_context(request), request.names["run"])
        if run is None:
            raise not_found("run", request.names["run"])
        return run_view(run)

    async def transcript(self, request: OperationInput) -> TranscriptView:
        run = await self._run(request)
        query: ExchangeQuery = request.query
        exchanges = await self._runner.runs.transcript(run, query.after, query.limit)
        last = exchanges[-1][0] if len(exchanges) == query.limit else 0
        return TranscriptView(
            tuple(Raw(msgspec.json.encode(exchange)) for _, exchange in exchanges), last
        )

    async def decide(self, request: OperationInput) -> None:
        id_ = request.names["approval"]
        waits = await self._runner.runs.waits_for(request.tenant, id_)
        if not waits or not await self._runner.decide(request.principal, id_, request.body.approve):
            raise conflict("No run waits for this approval, or no longer.")

    async def tools(self, request: OperationInput) -> OfferedTools:
        tools: list[FoundTool] = []
        if request.query.query:
            try:
                tools = [*await self._runner.tools.find(_context(request), request.query.query)]
            except SearchFailed as error:
                raise invalid(str(error)) from error
        offered = self._runner.tools.definitions(_context(request), OWN)
        own = [OfferedTool(found_tool.name, found_tool.description) for found_tool in offered]
        return OfferedTools(
            (*own, *(OfferedTool(found_tool.name, found_tool.description) for found_tool in tools))
        )

    async def health(self, _request: OperationInput) -> HealthView:
        try:
            model = self._runner.parts.models.of(self._settings.strategy)
        except ModelFailed as error:
            name = self._settings.strategy
            names = tuple(self._strategies)
            return HealthView(name, "unconfigured", names, self._runner.count, str(error))
        strategies, runs = tuple(self._strategies), self._runner.count
        view = HealthView(model.strategy, "ok", strategies, runs)
        last = self._runner.parts.models.last(model.strategy)
        if last is None:
            return view
        return with_(view, last_outcome=last.outcome, last_s=round(last.seconds, 3))

    async def _create(
        self, request: OperationInput, title: str, strategy: str, id_: str | None = None
    ) -> Conversation:
        self._strategy_name(strategy)
        conversation = await self._runner.conversations.create(
            request.tenant, request.principal.id, title, strategy=strategy, id_=id_
        )
        if conversation is None:
            raise conflict("There is a conversation of this id, of somebody else.")
        return conversation

    async def _conversation(self, request: OperationInput, id_: str) -> Conversation:
        conversation = await self._runner.conversations.get(
            request.tenant, request.principal.id, id_
        )
        if conversation is None:
            raise not_found("conversation", id_)
        return conversation

    async def _run(self, request: OperationInput) -> Run:
        id_ = request.names["run"]
        run = await self._runner.runs.get(request.tenant, request.principal.id, id_)
        if run is None:
            raise not_found("run", id_)
        return run

    async def _send(
        self,
        request: OperationInput,
        conversation: Conversation,
        message: NewMessage,
        history: Sequence[FormerMessage] = (),
    ) -> RunView:
        self._check(message.content)
        for earlier_message in history:
            self._check(earlier_message.text)
        name = self._strategy_name(
            message.strategy, conversation.strategy or self._settings.strategy
        )
        context = _context(request)
        new = NewRun(
            request.principal.id,
            caller_of(context),
            message.content,
            name,
            message.stream,
            msgspec.json.encode(history),
        )
        try:
            run = await self._runner.begin(context, conversation.id, new)
        except ConversationBusy as busy:
            text = f"The conversation has a run that has not ended: {busy.run}."
            raise conflict(text) from busy
        if run is None:
            limit = self._settings.open_runs
            text = f"You have {limit} runs that have not ended, as many as can (agent.open_runs)."
            raise ProblemDetails(429, "too-many-requests", text)
        if not message.wait:
            return run_view(run)
        return await self._view_of_run(await self._runner.wait_for_end(run, self._settings.wait_s))

    async def _view_of_run(self, run: Run) -> RunView:
        return run_view(run, await self._runner.runs.turn(run))

    def _strategy_name(self, named: str, default: str = "") -> str:
        """The name of a strategy that can be asked. Raises ProblemDetails. `named`: by the request;
        "": `default` is meant."""
        try:
            return self._runner.parts.models.of(named or default).strategy
        except ModelFailed as error:
            if named and isinstance(error, UnknownStrategy):
                raise invalid(f"{error}.") from error
            raise ProblemDetails(503, "unavailable", str(error)) from error

    def _check(self, content: str) -> None:
        limit = self._settings.message_characters
        if not content.strip():
            raise invalid("Expected a message that is not empty.")
        if len(content) > limit or "\0" in content:
            text = f"Expected a message of at most {limit:,} characters, without NUL."
            raise invalid(text)


def _context(request: OperationInput) -> Context:
    if request.context is None:
        raise ProblemDetails(503, "unavailable", "The agent needs the context of a call.")
    return request.context


def _outside(operation: Operation) -> Operation:
    """An operation that runs do not reach, whatever calls it for them: they would begin runs
    without end, and what a tool says could read conversations or erase them."""

    async def handle(request: OperationInput) -> Any:
        if request.context is not None and request.context.run is not None:
            raise ProblemDetails(403, "forbidden", "An agent does not call agents.")
        return await operation.handle(request)

    return replace(operation, handle=handle)


def _view(row: Conversation) -> ConversationView:
    return ConversationView(row.id, row.title, row.strategy, row.created, row.updated)


def run_view(run: Run, turn: AgentTurn | None = None) -> RunView:
    return RunView(
        run.id,
        run.conversation,
        run.state,
        run.answer,
        () if turn is None else tuple(_calls(turn)),
        run.iterations,
        run.tokens,
        round(run.money, 9),
        run.stopped,
        run.error,
        tuple(run.approvals) if run.state == "waiting" else (),
    )


def _calls(turn: AgentTurn) -> list[CallView]:
    views = []
    for round_ in turn.rounds:
        for call in round_.reply.calls:
            view = CallView(call.id, call.name, call.arguments)
            if (result := round_.results.get(call.id)) is not None:
                view = with_(view, result=result.text, is_error=result.is_error)
            views.append(view)
    return views


def _messages(run: Run, turn: AgentTurn, shows_reasoning: bool) -> list[MessageView]:
    views = [MessageView("user", run.content)]
    for round_ in turn.rounds:
        calls = _calls(AgentTurn(run.content, rounds=[round_]))
        reasoning = round_.reply.reasoning if shows_reasoning else ""
        views.append(MessageView("assistant", round_.reply.text, tuple(calls), reasoning))
    return views
