"""Settings of chat models: how requests are sent, and the strategies that callers choose from."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from config.value_types import (
    END,
    VERBATIM,
    Amount,
    Bytes,
    Count,
    OptionalUrl,
    ProfileName,
    Retries,
    Seconds,
)

Dialect = Literal["chat-completions", "anthropic", "openai-responses"]
AUTO = "auto"
# Services that speak chat completions check tools as OpenAI does, or less.
DIALECT_PROFILES: Mapping[Dialect, str] = {
    "chat-completions": "openai",
    "anthropic": "claude",
    "openai-responses": "openai",
}
StrategyName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z][a-z0-9_]{0,62}" + END,
        description='a name of at most 63 characters out of a-z, 0-9 and "_"',
    ),
]
JsonObject = Annotated[
    str,
    Meta(
        pattern=r"^\s*\{[\s\S]*\}\s*" + END,
        description="a JSON object as text",
        extra=VERBATIM,
        extra_json_schema=VERBATIM,
    ),
]
Rate = Annotated[float, Meta(ge=0, le=1e6, description="an amount of money from 0 to 1,000,000")]
Currency = Annotated[str, Meta(pattern=r"^[A-Z]{3}" + END, description="a currency such as USD")]


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    """Price of a model per million tokens."""

    input: Rate
    output: Rate  # reasoning included
    cached: Rate | None = None  # input that the provider had cached; None: as other input
    currency: Currency = "USD"
    since: str = ""  # a date, for people


class Endpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `models.endpoints`: a service that several models share."""

    url: OptionalUrl
    api_key: str = ""
    connections: Amount = 0


class Strategy(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `models.strategies`: a model and how it is asked."""

    dialect: Dialect = "chat-completions"
    endpoint: str = ""
    url: OptionalUrl = ""
    api_key: str = ""
    needs_key: bool = True
    model: str = ""
    options: JsonObject = "{}"
    returns_reasoning: Literal["never", "calls", "always"] = "never"
    max_tokens: Count = 8192
    max_tokens_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    context_tokens: Count = 128_000
    price: Price | None = None
    recording: str = ""
    connections: Amount = 0
    profile: ProfileName = AUTO

    @property
    def tool_profile(self) -> str:
        """Name of the client profile that tools are written for."""
        return DIALECT_PROFILES[self.dialect] if self.profile == AUTO else self.profile

    def with_key(self, stored: str) -> "Strategy":
        """The strategy with a stored key, unless it has one of its own."""
        return self if self.api_key or not stored else replace(self, api_key=stored)

    @property
    def is_configured(self) -> bool:
        """Whether requests can be sent."""
        reachable = bool(self.url) and (bool(self.api_key) or not self.needs_key)
        return reachable or bool(self.recording)


class ModelsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    strategy: Annotated[str, Meta(description='"auto" or the name of a strategy')]
    timeout_s: Seconds
    silence_s: Seconds
    connect_timeout_s: Seconds
    connections: Amount
    retries: Retries
    backoff_s: Seconds
    backoff_max_s: Seconds
    response_limit_bytes: Bytes
    arguments_limit_bytes: Bytes
    cache_entries: Amount
    cache_s: Seconds
    endpoints: Mapping[StrategyName, Endpoint]
    strategies: Mapping[StrategyName, Strategy]

    @property
    def default(self) -> str:
        """The strategy of callers that name none."""
        if self.strategy != AUTO:
            return self.strategy
        compatible = self.strategies.get(COMPATIBLE)
        return COMPATIBLE if compatible is not None and compatible.url else DEFAULT


COMPATIBLE = "openai_compatible"
DEFAULT = "deepseek_single"
