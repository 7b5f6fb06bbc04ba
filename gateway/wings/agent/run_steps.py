"""The step log of a run, and its fold: the state of a run is what its steps say. Pure.

FoundContext     what was found before the first request
ModelRequested   a request to the model begins
ModelReplied     its answer
Intent           a call of a tool begins, which may have an effect
PendingCall      the call was not made: it waits for an approval
Result           its result, as the model is told
HistoryCompacted the context was too long for the model
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct

from gateway.wings.models.messages import ChatMessage, ModelCall, ModelReply


class FoundContext(Struct, frozen=True, tag="context"):
    text: str
    tools: tuple[str, ...] = ()  # names of those found, best first
    tainted: bool = False  # it holds text from outside


class ModelRequested(Struct, frozen=True, tag="asked"):
    iteration: int
    last: bool = False  # tools were forbidden


class ModelReplied(Struct, frozen=True, tag="replied"):
    iteration: int
    reply: ModelReply


class Intent(Struct, frozen=True, tag="intent"):
    call_id: str
    name: str
    key: str  # idempotency key
    repeatable: bool


class PendingCall(Struct, frozen=True, tag="held"):
    call_id: str
    approval: str
    expires: str


class Result(Struct, frozen=True, tag="result"):
    call_id: str
    text: str
    is_error: bool = False
    digest: str = ""  # of tool, arguments and result, to notice repetitions
    made: bool = True  # False: nothing was executed
    outside: bool = True  # it holds text from outside
    inner_calls: int = 0  # of a program


class HistoryCompacted(Struct, frozen=True, tag="compacted"):
    level: int


Step = (
    FoundContext | ModelRequested | ModelReplied | Intent | PendingCall | Result | HistoryCompacted
)
STEP_DECODER: msgspec.json.Decoder[Step] = msgspec.json.Decoder(Step)


@dataclass
class Round:
    """One iteration: an answer, and the results of its calls."""

    reply: ModelReply
    last: bool = False  # tools were forbidden
    results: dict[str, Result] = field(default_factory=dict)
    intents: dict[str, Intent] = field(default_factory=dict)
    pending: dict[str, PendingCall] = field(default_factory=dict)

    @property
    def open(self) -> Sequence[ModelCall]:
        """Calls without a result."""
        return [call for call in self.reply.calls if call.id not in self.results]

    def messages(self) -> list[ChatMessage]:
        """The answer and all results, in the order of the calls. A call that has none is answered,
        too: providers refuse conversations in which one is not."""
        return [
            self.reply.message,
            *(
                ChatMessage(
                    "tool",
                    self.results[call.id].text if call.id in self.results else NOT_MADE,
                    call_id=call.id,
                    is_error=call.id not in self.results or self.results[call.id].is_error,
                )
                for call in self.reply.calls
            ),
        ]


NOT_MADE = "The call was not made: the run ended before."


@dataclass
class AgentTurn:
    """A message of a user and what followed: the fold of the steps of a run."""

    content: str
    history: Sequence[ChatMessage] = ()  # what a client says that came before
    context: FoundContext | None = None
    rounds: list[Round] = field(default_factory=list)
    open_request: ModelRequested | None = None  # a request without an answer
    level: int = 0  # of compaction
    count: int = 0  # steps

    def take(self, step: Step) -> None:
        self.count += 1
        match step:
            case FoundContext():
                self.context = step
            case ModelRequested():
                self.open_request = step
            case ModelReplied():
                self.rounds.append(
                    Round(step.reply, self.open_request is not None and self.open_request.last)
                )
                self.open_request = None
            case Intent():
                self.rounds[-1].intents[step.call_id] = step
                self.rounds[-1].pending.pop(step.call_id, None)
            case PendingCall():
                self.rounds[-1].pending[step.call_id] = step
                self.rounds[-1].intents.pop(step.call_id, None)
            case Result():
                self.rounds[-1].results[step.call_id] = step
                self.rounds[-1].pending.pop(step.call_id, None)
            case HistoryCompacted():
                self.level = step.level

    def is_tainted(self, rounds: int) -> bool:
        """Whether the context or the first `rounds` rounds hold text from outside."""
        context = self.context is not None and self.context.tainted
        return context or bool(self.history) or any(map(_taints, self.rounds[:rounds]))

    @property
    def messages(self) -> list[ChatMessage]:
        context = self.context
        context_messages = [ChatMessage("user", context.text)] if context and context.text else []
        history = [message for round_ in self.rounds for message in round_.messages()]
        return [*self.history, *context_messages, ChatMessage("user", self.content), *history]

    @property
    def digests(self) -> list[str]:
        """Digests of the results, in the order in which they came."""
        return [r.digest for round_ in self.rounds for r in round_.results.values() if r.digest]

    @property
    def names(self) -> list[str]:
        """Names of the tools that were called."""
        return [call.name for round_ in self.rounds for call in round_.reply.calls]

    @property
    def answer(self) -> str:
        return self.rounds[-1].reply.text if self.rounds else ""


def _taints(round_: Round) -> bool:
    return any(result.made and result.outside for result in round_.results.values())


def fold_steps(
    content: str, steps: Iterable[Step], history: Sequence[ChatMessage] = ()
) -> AgentTurn:
    turn = AgentTurn(content, history)
    for step in steps:
        turn.take(step)
    return turn
