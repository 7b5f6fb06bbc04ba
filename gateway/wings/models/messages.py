"""Chat models as their callers see them: messages, tools, events, replies. No vendor's type.

    models = parts.models                       # of a wing
    model = models.of("")                       # the default strategy; raises ModelFailed
    reply = await model.complete([ChatMessage("user", "Say hi.")])
    reply.text, reply.usage.total, reply.cost

    async with aclosing(model.stream(messages, tools)) as events:
        async for event in events: ...

A stream ends with `ToolCallsComplete` or `FinalResponse`, then `IterationComplete`; or it raises.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import Raw, Struct

from gateway.wings.models.usage import Budget, ModelCost, TokenUsage
from schemas.errors import ToolgateError

Role = Literal["system", "user", "assistant", "tool"]
Finish = Literal["stop", "calls", "length", "filtered", "refused", "paused"]
"""Why an answer ended. "paused": the provider wants to be asked again with this answer added."""
ToolChoice = Literal["auto", "none", "required"]


class ModelCall(Struct, frozen=True):
    """A call that a model asks for. `arguments` is text as the model wrote it, which may not be
    JSON: see `call_arguments`."""

    id: str
    name: str
    arguments: str


class ProviderState(Struct, frozen=True):
    """Verbatim part of its own answer that a provider needs back. Opaque; other strategies
    ignore it. It holds reasoning."""

    strategy: str
    data: Raw  # JSON


class ChatMessage(Struct, frozen=True, omit_defaults=True):
    role: Role
    text: str = ""
    calls: tuple[ModelCall, ...] = ()  # of an assistant
    call_id: str = ""  # of a tool's result
    is_error: bool = False  # a tool that failed
    provider_state: ProviderState | None = None  # of an assistant


class ToolDefinition(Struct, frozen=True):
    name: str
    description: str
    parameters: Raw  # JSON Schema of an object


class ModelReply(Struct, frozen=True):
    """A whole answer."""

    text: str
    calls: tuple[ModelCall, ...]
    reasoning: str  # to be shown, with permission; not to be sent back
    finish: Finish
    usage: TokenUsage
    cost: ModelCost | None  # None: the strategy has no price
    model: str  # as the provider names it
    provider_state: ProviderState | None = None
    cached: bool = False  # of the cache: it cost nothing

    @property
    def message(self) -> ChatMessage:
        """The answer as a message of the conversation."""
        return ChatMessage("assistant", self.text, self.calls, provider_state=self.provider_state)


class ContentChunk(Struct, frozen=True, tag=True):
    text: str


class ReasoningChunk(Struct, frozen=True, tag=True):
    text: str
    metadata: dict[str, Any] = {}


class ToolCallDetected(Struct, frozen=True, tag=True):
    """A call has begun; its arguments follow with ToolCallsComplete."""

    id: str
    name: str


class StatusUpdate(Struct, frozen=True, tag=True):
    status: str
    phase: str = ""


class ToolCallsComplete(Struct, frozen=True, tag=True):
    calls: tuple[ModelCall, ...]
    text: str
    reply: ModelReply


class FinalResponse(Struct, frozen=True, tag=True):
    text: str
    tokens: int
    reply: ModelReply


class IterationComplete(Struct, frozen=True, tag=True):
    tokens: int
    should_continue: bool


ModelEvent = (
    ContentChunk
    | ReasoningChunk
    | ToolCallDetected
    | StatusUpdate
    | ToolCallsComplete
    | FinalResponse
    | IterationComplete
)


class ModelExchange(Struct, frozen=True):
    """One request to a provider and its answer, to be replayed; without credentials."""

    strategy: str
    path: str
    request: Raw
    status: int
    content_type: str
    answer: bytes  # as it came; incomplete if it was cut


Failure = Literal[
    "unconfigured", "auth", "busy", "overflow", "refused", "unreachable", "late", "malformed",
    "cut", "price", "budget",
]  # fmt: skip
"""Why there is no answer. overflow: the conversation exceeds the window. refused: the provider does
not accept the request. cut: its stream ended early. budget, price: nothing was sent."""


class ModelFailed(ToolgateError):
    """There is no answer. `str()` names the strategy and is safe to show; `detail` is what the
    provider said, without the key, for operators."""

    def __init__(
        self,
        text: str,
        kind: Failure,
        *,
        detail: str = "",
        retryable: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.detail = detail
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class UnknownStrategy(ModelFailed):
    """The settings have no strategy of this name."""


class Payer(NamedTuple):
    """Caller that requests to models are counted for."""

    tenant: str = ""  # "": that of the gateway
    caller: str = ""  # id of the principal; "": work in the background
    toolset: str = ""  # of the endpoint; "": all tools


NO_PAYER = Payer()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """Options of one request."""

    max_tokens: int | None = None  # None: the strategy's
    tool_choice: ToolChoice = "auto"
    json: bool = False  # the answer is a JSON object, as far as the provider can be told
    budget: Budget | None = None
    record: Callable[[ModelExchange], None] | None = None
    payer: Payer = NO_PAYER


OnModelUsed = Callable[[Payer, str, TokenUsage, ModelCost | None], None]
"""Takes what a request used, with its retries, and the model as STRATEGY/MODEL. It must not
wait."""

NO_OPTIONS = RequestOptions()


class LastRequest(NamedTuple):
    """The newest request to a provider by this process that was not cancelled."""

    outcome: str  # "ok", or the kind of ModelFailed
    seconds: float  # since then


class ChatModel(Protocol):
    """A model behind a strategy. Stateless: equal requests have equal bytes."""

    strategy: str
    context_tokens: int  # its window
    max_tokens: int  # longest answer
    currency: str  # of its price; "": it has none
    profile: str  # client profile of the tools that its provider accepts

    async def model(self) -> str:
        """The provider's name of the model. Raises ModelFailed."""

    def worst(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolDefinition] = (),
        options: RequestOptions = NO_OPTIONS,
    ) -> tuple[TokenUsage, ModelCost | None]:
        """The most that a request may use, as budgets reserve it."""

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolDefinition] = (),
        options: RequestOptions = NO_OPTIONS,
    ) -> ModelReply:
        """The whole answer. Raises ModelFailed."""

    def stream(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolDefinition] = (),
        options: RequestOptions = NO_OPTIONS,
    ) -> AsyncGenerator[ModelEvent]:
        """The answer while it comes; to be closed with `aclosing`, which closes the provider's
        connection. Raises ModelFailed."""


class ChatModels(Protocol):
    """The strategies of the settings."""

    @property
    def configured_strategies(self) -> Sequence[str]:
        """Names of the strategies that can be asked."""

    def last(self, strategy: str) -> LastRequest | None:
        """How the provider answered last; None: this process has not asked it."""

    def of(self, strategy: str = "") -> ChatModel:
        """The model of a strategy; "": the default one. Raises ModelFailed for one that is not
        configured."""
