"""ConfiguredModels that ask a scripted provider."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from config.load import load
from config.models import ModelsSettings, Strategy
from gateway.wings.models.configured_models import ConfiguredModels, Model
from gateway.wings.models.messages import (
    ChatMessage,
    ContentChunk,
    FinalResponse,
    ModelEvent,
    ModelReply,
    ToolCallsComplete,
    ToolDefinition,
)

SETTINGS = load(None, {}).models
HELLO = [ChatMessage("user", "Hello")]
PETS = ToolDefinition(
    "find_pets",
    "Find pets.",
    Raw(b'{"type":"object","properties":{"kind":{"type":"string"}}}'),
)
QUICK: Mapping[str, Any] = {"backoff_s": 0.001, "backoff_max_s": 1.0, "timeout_s": 30.0}


def limits(url: str = "", *, strategy: Mapping[str, Any] = {}, **changed: Any) -> ModelsSettings:
    """Settings with one strategy, `tested`."""
    tested = Strategy(url=url, **{"needs_key": False, "model": "m", **strategy})
    own = {"strategies": {"tested": tested}, "strategy": "tested"}
    return replace(SETTINGS, **{**QUICK, **own, **changed})


@asynccontextmanager
async def asking(
    url: str, *, strategy: Mapping[str, Any] = {}, **changed: Any
) -> AsyncIterator[Model]:
    models = ConfiguredModels(limits(url, strategy=strategy, **changed))
    try:
        yield models.of("tested")
    finally:
        await models.close()


async def collect_events(model: Model, *args: Any) -> list[ModelEvent]:
    async with aclosing(model.stream(*args)) as events:
        return [event async for event in events]


def reply_of(events: list[ModelEvent]) -> ModelReply:
    """The reply at the end of a stream."""
    last = events[-2]
    assert isinstance(last, ToolCallsComplete | FinalResponse)
    return last.reply


def text_of(events: list[ModelEvent]) -> str:
    return "".join(one.text for one in events if isinstance(one, ContentChunk))
