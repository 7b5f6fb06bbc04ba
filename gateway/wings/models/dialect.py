"""Dialect interface: requests and answers of one wire format. Dialects are pure: no I/O, no clock.

`provider_error` reads the errors that providers send, which resemble each other in all dialects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import decode, encode

from config.models import Strategy
from gateway.http_client.sse_parser import ServerEvent
from gateway.wings.models.messages import (
    ChatMessage,
    Failure,
    Finish,
    ModelCall,
    ModelEvent,
    RequestOptions,
    ToolDefinition,
)
from gateway.wings.models.tool_call_assembly import plain_arguments
from gateway.wings.models.usage import TokenUsage
from schemas.errors import ToolgateError


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request, in no dialect."""

    strategy: str  # its name
    settings: Strategy
    model: str
    messages: Sequence[ChatMessage]
    tools: Sequence[ToolDefinition]
    options: RequestOptions
    stream: bool

    @property
    def max_tokens(self) -> int:
        return self.options.max_tokens or self.settings.max_tokens

    def kept_answer(self, message: ChatMessage) -> Any:
        """State that this strategy stored with its own message; None for another's."""
        provider_state = message.provider_state
        return (
            decode(provider_state.data)
            if provider_state is not None and provider_state.strategy == self.strategy
            else None
        )


class ModelAnswer(Struct, frozen=True):
    """A whole answer as its dialect reads it."""

    text: str
    calls: tuple[ModelCall, ...]
    reasoning: str
    finish: Finish
    usage: TokenUsage | None  # None: not told
    model: str
    provider_state: Any = None  # JSON


class AnswerReader(Protocol):
    """Reads one streamed answer."""

    ended: bool  # the provider has said that the answer is complete; usage may follow
    closed: bool  # nothing follows

    def feed(self, event: ServerEvent) -> Sequence[ModelEvent]:
        """Model events in one server-sent event. Raises ProviderError."""

    def answer(self) -> ModelAnswer:
        """The whole answer, once it has ended. Raises ProviderError."""


class Dialect(Protocol):
    path: str  # that follows the strategy's URL

    def headers(self, key: str) -> Mapping[str, str]:
        """Headers of authentication; `key` may be empty."""

    def body(self, prompt: Prompt) -> dict[str, Any]:
        """The members of the request, in a constant order."""

    def reader(self, id_prefix: str) -> AnswerReader:
        """Reader of a streamed answer; `id_prefix` begins the ids of calls that come without."""

    def answer(self, body: bytes, id_prefix: str) -> ModelAnswer:
        """An answer that was not streamed. Raises ProviderError."""


class ProviderError(ToolgateError):
    """An error of a provider, or an answer that is none. `str()` follows the name of the strategy;
    `detail` is in the provider's words."""

    def __init__(
        self, text: str, kind: Failure, *, detail: str = "", retryable: bool = False
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.detail = detail
        self.retryable = retryable
        self.retry_after_s: float | None = None


MALFORMED_TEXT = "sent an answer that cannot be read"
DETAIL = 500  # characters


def malformed_error(detail: str) -> ProviderError:
    return ProviderError(MALFORMED_TEXT, "malformed", detail=detail[:DETAIL], retryable=True)


def cut() -> ProviderError:
    text = "ended its answer before it was complete"
    return ProviderError(text, "cut", retryable=True)


def decode_answer(body: bytes, kind: type[Any]) -> Any:
    """Raises ProviderError."""
    try:
        return decode(body, type=kind)
    except (DecodeError, ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise malformed_error(f"{error}: {body[:200].decode('utf-8', 'replace')}") from error


def provider_error(answer: Any, status: int = 0) -> ProviderError:
    """An error as providers send it: {"type", "code", "message"} below "error", or a text."""
    if isinstance(answer, list) and answer:  # Gemini's endpoint
        answer = answer[0]
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    members = error if isinstance(error, dict) else {"message": error}
    status = status if status not in (0, 200) else _named_status(members)
    kinds = f"{members.get('type', '')} {members.get('code', '')}".lower()
    message = members.get("message") or encode(answer).decode()
    detail = str(message)[:DETAIL]
    for kind, words, text, retryable in _ERRORS:
        if any(word in kinds for word in words) and status in (0, 400, 413):
            return ProviderError(text, kind, detail=detail, retryable=retryable)
    if status in (0, 400, 413) and any(sign in detail.lower() for sign in _OVERFLOW):
        return ProviderError(_TOO_LONG, "overflow", detail=detail)
    return _of_status(status, detail)


def _named_status(error: Mapping[str, Any]) -> int:
    """The HTTP status that an error inside of an answer names; 0 for none."""
    for value in (error.get("code"), error.get("status")):
        text = str(value)
        if not isinstance(value, bool) and text.isdecimal() and 400 <= int(text[:9]) < 600:
            return int(text)
    return 0


def _of_status(status: int, detail: str) -> ProviderError:
    if status in BUSY:
        text = f"is busy or unavailable (status {status})"
        return ProviderError(text, "busy", detail=detail, retryable=True)
    if status in (401, 403):
        text = f"does not accept the key of the strategy (status {status})"
        return ProviderError(text, "auth", detail=detail)
    if status == 413:
        return ProviderError(_TOO_LONG, "overflow", detail=detail)
    if 300 <= status < 400:
        text = f"redirects, which is not followed (status {status}); set the url of the strategy"
        return ProviderError(text, "refused", detail=detail)
    if status >= 500:
        return ProviderError(f"failed (status {status})", "busy", detail=detail, retryable=True)
    status_text = f" (status {status})" if status else ""
    return ProviderError(f"refused the request{status_text}", "refused", detail=detail)


BUSY = frozenset({408, 425, 429, 502, 503, 504, 529})
_TOO_LONG = "cannot take a conversation of this length"
_ERRORS: tuple[tuple[Failure, tuple[str, ...], str, bool], ...] = (
    (
        "overflow",
        ("context_length", "context_window", "request_too_large", "exceed_context"),
        _TOO_LONG,
        False,
    ),
    ("auth", ("authentication", "permission", "invalid_api_key"), "does not accept the key", False),
    (
        "busy",
        ("overloaded", "rate_limit", "server_error", "api_error", "unavailable", "timeout"),
        "is busy or unavailable",
        True,
    ),
)
_OVERFLOW = ("context length", "context window", "prompt is too long", "too many tokens")


def arguments_sent(call: ModelCall) -> str:
    """The arguments of a former call. Templates of models parse them, so that what is no object
    must not go back; the result of such a call says what was wrong."""
    try:
        fine = isinstance(decode(call.arguments.encode("utf-8", "replace")), dict)
    except (DecodeError, ValidationError, RecursionError):
        fine = False
    return call.arguments if fine else "{}"


def settle_finish(
    finish: Finish, calls: tuple[ModelCall, ...]
) -> tuple[Finish, tuple[ModelCall, ...]]:
    """Finish and calls that fit each other: some vendors stop with calls, or announce none. Calls
    of an answer that was filtered are dropped."""
    if finish in ("filtered", "refused"):
        return finish, ()
    calls = tuple(map(plain_arguments, calls))
    if finish == "stop" and calls:
        return "calls", calls
    return ("stop" if finish == "calls" and not calls else finish), calls
