"""`toolgate models`: the chat models of the settings, checked and asked."""

import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

import click

from config.models import Strategy
from config.settings import Settings
from gateway.app.access_for_commands import stored_in
from gateway.cli.common.database import open_registry
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import USAGE, fail, no_such
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import json_option
from gateway.cli.common.output import print_json, print_rows, remark, stream
from gateway.cli.common.settings import settings_option
from gateway.cli.common.text import harmless
from gateway.wings.models.configured_models import ConfiguredModels
from gateway.wings.models.messages import (
    ChatMessage,
    ContentChunk,
    FinalResponse,
    ModelFailed,
    ReasoningChunk,
    RequestOptions,
    StatusUpdate,
    ToolCallsComplete,
)

COMMANDS = {
    "list": ("gateway.cli.models:list_", "List the strategies."),
    "check": ("gateway.cli.models:check", "Send each configured model a short request."),
    "ask": ("gateway.cli.models:ask", "Ask a model, and print its answer as it comes."),
}
CHECKED_TOKENS = 256  # of an answer to `check`; models that think need some
QUESTION = "Answer with the one word: ready"


@click.group(cls=LazyGroup, lazy=COMMANDS)
def models() -> None:
    """List, check and ask the chat models of the settings (`models.strategies`).

    \b
    A first one, any service that speaks the OpenAI dialect:
      export M=TOOLGATE_MODELS__STRATEGIES__OPENAI_COMPATIBLE__URL
      env $M=http://127.0.0.1:8080/v1 toolgate models ask Hello
    """


@click.command(name="list")
@json_option
@settings_option
def list_(settings: Settings, as_json: bool) -> None:
    """List the strategies: what each is asked for, and whether it is configured."""

    async def work() -> Sequence[str]:
        async with open_models(settings) as models:
            return models.configured_strategies

    configured, default = run(work()), settings.models.default
    rows = [
        (
            name,
            strategy.dialect,
            strategy.model,
            _state(name, strategy, configured),
            name == default,
        )
        for name, strategy in settings.models.strategies.items()
    ]
    if as_json:
        names = ("strategy", "dialect", "model", "state", "default")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    titles = ("strategy", "dialect", "model", "state")
    print_rows(titles, [(f"{row[0]} *" if row[4] else row[0], *row[1:4]) for row in rows])


@click.command()
@click.argument("strategy", required=False)
@json_option
@settings_option
def check(settings: Settings, strategy: str | None, as_json: bool) -> None:
    """Send STRATEGY, or all configured models, a short request. Fails if one does not answer."""
    rows = run(_check_models(settings, strategy))
    if as_json:
        names = ("strategy", "status", "model", "seconds", "tokens", "detail")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        text_rows = [tuple(str(cell) for cell in row) for row in rows]
        print_rows(("strategy", "status", "model", "seconds", "tokens", "detail"), text_rows)
    if any(row[1] != "ok" for row in rows):
        fail("a model does not answer")


@click.command()
@click.argument("text")
@click.option("--strategy", default="", metavar="NAME", help="Strategy [default: the default one].")
@click.option("--system", default="", metavar="TEXT", help="System prompt.")
@click.option("--reasoning", is_flag=True, help="Print the reasoning, too, on standard error.")
@settings_option
def ask(settings: Settings, text: str, *, strategy: str, system: str, reasoning: bool) -> None:
    """Ask a model, and print its answer as it comes. - reads TEXT from standard input.

    \b
    Example:
      toolgate models ask "Name three animals" --strategy deepseek_single
    """
    question = sys.stdin.read() if text == "-" else text
    if not question.strip():
        fail("expected a question", USAGE)
    prompt = [ChatMessage("system", system)] if system else []
    run(_stream_answer(settings, strategy, [*prompt, ChatMessage("user", question)], reasoning))


@asynccontextmanager
async def open_models(settings: Settings) -> AsyncIterator[ConfiguredModels]:
    """The models, with the stored keys where there is a key to decrypt them."""
    if not settings.secrets.key:
        async with ConfiguredModels(settings.models) as models:
            yield models
        return
    async with open_registry(settings) as registry:
        stored = await stored_in(settings, registry.database.pool)
    async with ConfiguredModels(settings.models, lambda: stored) as models:
        yield models


def _state(name: str, strategy: Strategy, configured_names: Sequence[str]) -> str:
    if name in configured_names:
        return "configured"
    return "no key" if strategy.url else "no address"


async def _check_models(settings: Settings, strategy: str | None) -> list[tuple[str, ...]]:
    async with open_models(settings) as models:
        if strategy is not None and strategy not in settings.models.strategies:
            no_such("model", strategy, settings.models.strategies)
        names = [strategy] if strategy else models.configured_strategies
        if not names:
            fail("no strategy is configured: `toolgate models list` says what each one lacks")
        return [await _check_answer(models, name) for name in names]


async def _check_answer(models: ConfiguredModels, name: str) -> tuple[str, ...]:
    begun = time.monotonic()
    try:
        model = models.of(name)
        options = RequestOptions(max_tokens=CHECKED_TOKENS)
        reply = await model.complete([ChatMessage("user", QUESTION)], options=options)
    except ModelFailed as error:
        detail = f"{error}" + (f": {error.detail}" if error.detail else "")
        return name, error.kind, "", _seconds(begun), "", harmless(detail)
    return name, "ok", reply.model, _seconds(begun), str(reply.usage.total), harmless(reply.text)


def _seconds(began: float) -> str:
    return f"{time.monotonic() - began:.2f}"


async def _stream_answer(
    settings: Settings, strategy: str, messages: Sequence[ChatMessage], reasoning: bool
) -> None:
    async with open_models(settings) as models:
        try:
            async with aclosing(models.of(strategy).stream(messages)) as events:
                async for event in events:
                    match event:
                        case ContentChunk(text):
                            stream(text)
                        case ReasoningChunk(text) if reasoning:
                            stream(text, to_err=True)
                        case StatusUpdate(status, phase):
                            remark(f"{status}: {phase}")
                        case FinalResponse() | ToolCallsComplete():
                            stream("\n")
        except ModelFailed as error:
            fail(f"{error}" + (f": {error.detail}" if error.detail else ""))
