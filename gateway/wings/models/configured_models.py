"""Chat models of the settings: one per strategy, over one pool of connections."""

import asyncio
import hashlib
import logging
import math
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import InvalidURL
from msgspec import Raw
from msgspec.structs import replace
from yarl import URL

from config.models import ModelsSettings, Strategy
from config.sources import SchemeSettings
from gateway.http_client.http1 import Site
from gateway.http_client.pool import Pool
from gateway.http_client.sse_parser import SseParser
from gateway.telemetry.traces import Operate, no_trace
from gateway.wings.models.anthropic import Anthropic
from gateway.wings.models.chat_completions import ChatCompletions
from gateway.wings.models.dialect import (
    AnswerReader,
    Dialect,
    ModelAnswer,
    Prompt,
    ProviderError,
    cut,
    decode_answer,
    malformed_error,
    provider_error,
)
from gateway.wings.models.messages import (
    NO_OPTIONS,
    ChatMessage,
    ContentChunk,
    FinalResponse,
    IterationComplete,
    LastRequest,
    ModelEvent,
    ModelExchange,
    ModelFailed,
    ModelReply,
    OnModelUsed,
    ProviderState,
    ReasoningChunk,
    RequestOptions,
    StatusUpdate,
    ToolCallDetected,
    ToolCallsComplete,
    ToolDefinition,
    UnknownStrategy,
)
from gateway.wings.models.model_metrics import ModelUse
from gateway.wings.models.provider_http import (
    ModelTransport,
    ProviderHttp,
    ProviderRequest,
    ProviderResponse,
    Replay,
)
from gateway.wings.models.responses import OpenAIResponses
from gateway.wings.models.usage import BudgetExhausted, ModelCost, TokenUsage, cost_of
from registry.display.token_budgets import CHARACTERS, tokens
from schemas.jsonrpc import decode_strict
from schemas.retry_after import retry_after_s

log = logging.getLogger("toolgate.models")

DIALECTS: Mapping[str, Dialect] = {
    "chat-completions": ChatCompletions(),
    "anthropic": Anthropic(),
    "openai-responses": OpenAIResponses(),
}
SECRETS = "models"  # the source of stored keys; their scheme is the strategy
TAIL_S = 5.0  # for usage behind the end of an answer
STREAM, JSON = "text/event-stream", "application/json"

StoredKeys = Callable[[], Mapping[str, Mapping[str, SchemeSettings]]]
"""Stored secrets by source and scheme."""


class ConfiguredModels:
    """The strategies of the settings. Connects with the first request."""

    def __init__(
        self,
        settings: ModelsSettings,
        secrets: StoredKeys = dict,
        operate: Operate = no_trace,
        on_used: OnModelUsed | None = None,
    ) -> None:
        self.use = ModelUse(operate)
        self._settings = settings
        self._secrets = secrets
        self._on_used = on_used
        self._pools: dict[str, Pool] = {}  # by endpoint; "": of all strategies without a limit
        self._replays: dict[str, Replay] = {}  # by strategy
        self._cache = ReplyCache(settings.cache_entries, settings.cache_s)
        self._names: dict[str, str] = {}  # of models, by strategy, where the service was asked

    @property
    def configured_strategies(self) -> Sequence[str]:
        return [name for name in self._settings.strategies if self._strategy(name).is_configured]

    def last(self, strategy: str) -> LastRequest | None:
        return self.use.last(strategy)

    def of(self, strategy: str = "") -> "Model":
        """Raises ModelFailed, UnknownStrategy among them."""
        name = strategy or self._settings.default
        if name not in self._settings.strategies:
            strategies = ", ".join(self._settings.strategies)
            raise UnknownStrategy(
                f"There is no strategy {name!r}, only {strategies}", "unconfigured"
            )
        chosen = self._strategy(name)
        if not chosen.is_configured:
            raise ModelFailed(_missing(name, chosen), "unconfigured")
        if chosen.recording:
            replay = self._replay(name, chosen)
            return Model(
                name,
                chosen,
                self._settings,
                replay,
                names=self._names,
                use=self.use,
                on_used=self._on_used,
            )
        try:
            site = Site(URL(chosen.url.rstrip("/"), encoded=True))
        except (InvalidURL, ValueError) as error:
            text = f"models.strategies.{name}.url is not one that can be called"
            raise ModelFailed(text, "unconfigured") from error
        limit = self._settings.response_limit_bytes
        transport = ProviderHttp(partial(self._pool, name, chosen), site, limit)
        return Model(
            name,
            chosen,
            self._settings,
            transport,
            cache=self._cache,
            names=self._names,
            use=self.use,
            on_used=self._on_used,
        )

    async def __aenter__(self) -> "ConfiguredModels":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections, also those of requests that still run."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.close()

    def _strategy(self, name: str) -> Strategy:
        entry = self._secrets().get(SECRETS, {}).get(name)
        stored = (entry.value or entry.token or "") if entry is not None else ""
        return self._settings.strategies[name].with_key(stored.strip())

    def _pool(self, name: str, strategy: Strategy) -> Pool:
        shared = strategy.endpoint or name if strategy.connections else ""
        if shared not in self._pools:
            self._pools[shared] = Pool(
                True,  # the usual TLS context
                None,  # any address: it is the operator's
                limit=strategy.connections or self._settings.connections,
                connect_timeout_s=self._settings.connect_timeout_s,
            )
        return self._pools[shared]

    def _replay(self, name: str, strategy: Strategy) -> Replay:
        """Raises ModelFailed."""
        if name not in self._replays:
            try:
                lines = Path(strategy.recording).read_bytes().splitlines()
                exchanges = [msgspec.json.decode(line, type=ModelExchange) for line in lines]
            except (OSError, msgspec.DecodeError) as error:
                text = f"models.strategies.{name}.recording cannot be read: {error}"
                raise ModelFailed(text, "unconfigured") from error
            self._replays[name] = Replay(exchanges)
            for exchange in exchanges:
                request = msgspec.json.decode(exchange.request)
                self._names.setdefault(name, str(request.get("model", "")))
        return self._replays[name]


def _missing(name: str, strategy: Strategy) -> str:
    if not strategy.url:
        return f"The strategy {name} has no address: set models.strategies.{name}.url"
    return (
        f"The strategy {name} has no key: set models.strategies.{name}.api_key, or store it with "
        f"`toolgate secrets set {SECRETS} {name} --value -`"
    )


class ReplyCache:
    """Replies to equal requests, for a limited time; the one unused for longest makes room."""

    def __init__(self, entries: int, keep_s: float) -> None:
        self._entries = entries
        self._keep_s = keep_s
        self._replies: OrderedDict[bytes, tuple[float, ModelReply]] = OrderedDict()

    def get(self, key: bytes) -> ModelReply | None:
        until, reply = self._replies.get(key, (0.0, None))
        if reply is None or until < time.monotonic():
            self._replies.pop(key, None)
            return None
        self._replies.move_to_end(key)
        return replace(reply, cached=True, cost=None, usage=TokenUsage())

    def put(self, key: bytes, reply: ModelReply) -> None:
        if self._entries and reply.finish in ("stop", "calls"):
            self._replies[key] = time.monotonic() + self._keep_s, reply
            while len(self._replies) > self._entries:
                self._replies.popitem(last=False)


@dataclass(slots=True, kw_only=True)
class _Ask:
    """One request with its attempts."""

    prompt: Prompt
    body: bytes
    until: float  # deadline, time of the event loop
    worst: TokenUsage
    used: TokenUsage = field(default_factory=TokenUsage)
    seen: int = 0  # characters of this attempt
    counted: bool = False  # what this attempt used
    has_output: bool = False  # something was passed on
    answer: bytearray | None = None  # of this attempt, as it came; None: not recorded

    @property
    def id_prefix(self) -> str:
        """The beginning of ids of calls that come without: equal requests have equal ones."""
        return f"call_{hashlib.sha256(self.body).hexdigest()[:12]}"

    def count(self) -> None:
        """Estimate what an attempt without a whole answer used."""
        if not self.counted:
            self.counted = True
            usage = TokenUsage(self.worst.input, self.seen // CHARACTERS, estimated=True)
            self.used = self.used.plus(usage)


class Model:
    """A model behind a strategy."""

    def __init__(
        self,
        strategy: str,
        settings: Strategy,
        limits: ModelsSettings,
        transport: ModelTransport,
        *,
        cache: ReplyCache | None = None,
        names: dict[str, str] | None = None,
        use: ModelUse | None = None,
        on_used: OnModelUsed | None = None,
    ) -> None:
        self.strategy = strategy
        self.context_tokens = settings.context_tokens
        self.max_tokens = settings.max_tokens
        self.currency = "" if settings.price is None else settings.price.currency
        self.profile = settings.tool_profile
        self._settings = settings
        self._limits = limits
        self._transport = transport
        self._dialect = DIALECTS[settings.dialect]
        self._options: dict[str, Any] = decode_strict(settings.options.encode())
        self._cache = cache or ReplyCache(0, 1)
        self._names = {} if names is None else names
        self._use = use or ModelUse()
        self._on_used = on_used

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolDefinition] = (),
        options: RequestOptions = NO_OPTIONS,
    ) -> ModelReply:
        async with aclosing(self._ask(messages, tools, options, stream=False)) as events:
            async for event in events:
                if isinstance(event, ToolCallsComplete | FinalResponse):
                    reply = event.reply
        return reply

    def stream(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolDefinition] = (),
        options: RequestOptions = NO_OPTIONS,
    ) -> AsyncGenerator[ModelEvent]:
        return self._ask(messages, tools, options, stream=True)

    def worst(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolDefinition] = (),
        options: RequestOptions = NO_OPTIONS,
    ) -> tuple[TokenUsage, ModelCost | None]:
        name = self._settings.model
        prompt = self._prompt(name, messages, tools, options, stream=True)
        usage = _worst(prompt, self._body(prompt))
        return usage, cost_of(usage, self._settings.price)

    async def model(self) -> str:
        """The provider's name of the model. Raises ModelFailed."""
        name = self._settings.model or self._names.get(self.strategy)
        if name is None or not name:
            name = self._names[self.strategy] = await self._first_listed()
        return name

    async def _ask(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolDefinition],
        options: RequestOptions,
        *,
        stream: bool,
    ) -> AsyncGenerator[ModelEvent]:
        prompt = self._prompt(await self.model(), messages, tools, options, stream=stream)
        body = self._body(prompt)
        key = hashlib.sha256(self.strategy.encode() + body).digest()
        if (reply := self._cache.get(key)) is not None:
            for event in _whole(reply):
                yield event
            return
        until = asyncio.get_running_loop().time() + self._limits.timeout_s
        ask = _Ask(prompt=prompt, body=body, until=until, worst=_worst(prompt, body))
        observing = self._use.observing(self.strategy, prompt.model)
        with _Reserved(self, ask), observing as times:
            async with aclosing(self._attempts(ask)) as events:
                async for event in events:
                    times.observe(event)
                    yield event
                    if isinstance(event, ToolCallsComplete | FinalResponse):
                        self._cache.put(key, event.reply)

    def _prompt(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolDefinition],
        options: RequestOptions,
        *,
        stream: bool,
    ) -> Prompt:
        return Prompt(
            strategy=self.strategy,
            settings=self._settings,
            model=model,
            messages=messages,
            tools=tools,
            options=options,
            stream=stream,
        )

    def _body(self, prompt: Prompt) -> bytes:
        return msgspec.json.encode({**self._dialect.body(prompt), **self._options})

    async def _attempts(self, ask: _Ask) -> AsyncGenerator[ModelEvent]:
        pause_s, retries_left = self._limits.backoff_s, self._limits.retries
        while True:
            try:
                async with aclosing(self._attempt(ask)) as events:
                    async for event in events:
                        yield event
                return
            except ModelFailed as error:
                wait_s = max(pause_s, error.retry_after_s or 0.0)
                now = asyncio.get_running_loop().time()
                late = wait_s > self._limits.backoff_max_s or now + wait_s > ask.until
                if ask.has_output or not error.retryable or not retries_left or late:
                    raise
                retries_left -= 1
                yield StatusUpdate("retrying", error.kind)
            await asyncio.sleep(wait_s)
            pause_s = min(pause_s * 2, self._limits.backoff_max_s)

    async def _attempt(self, ask: _Ask) -> AsyncGenerator[ModelEvent]:
        """One request. Raises ModelFailed."""
        record = ask.prompt.options.record
        ask.answer = bytearray() if record is not None else None
        ask.seen, ask.counted = 0, False
        status, content_type = 0, ""
        try:
            async with self._transport.send(self._request(ask)) as response:
                status, content_type = response.status, response.content_type
                events = self._events(ask, response)
                async with aclosing(events):
                    async for event in events:
                        yield event
        except ProviderError as error:
            if status == 200 or error.kind == "late":
                ask.count()
            raise self._failure(error) from error
        except BaseException:  # its caller has left
            ask.count()
            raise
        finally:
            if record is not None and status:
                path, answer = self._dialect.path, bytes(ask.answer or b"")
                record(
                    ModelExchange(self.strategy, path, Raw(ask.body), status, content_type, answer)
                )

    async def _events(self, ask: _Ask, response: ProviderResponse) -> AsyncGenerator[ModelEvent]:
        if response.status != 200:
            body = await _whole_body(ask, response)
            raise _refusal(response, body)
        if response.content_type == JSON or response.content_type.endswith("+json"):
            body = await _whole_body(ask, response)
            answer = self._dialect.answer(body, ask.id_prefix)
            for event in _whole(self._reply(ask, answer)):
                yield event
            return
        if response.content_type != STREAM:
            raise malformed_error(f"a body of type {response.content_type}")
        reader = self._dialect.reader(ask.id_prefix)
        async with aclosing(_read_stream(ask, response, reader)) as events:
            async for event in events:
                if isinstance(event, ContentChunk | ReasoningChunk):
                    ask.seen += len(event.text)
                ask.has_output = True
                yield event
        for event in _ending(self._reply(ask, reader.answer())):
            yield event

    def _reply(self, ask: _Ask, answer: ModelAnswer) -> ModelReply:
        usage = answer.usage
        if usage is None or not usage.total:
            written = answer.text + answer.reasoning + "".join(c.arguments for c in answer.calls)
            usage = TokenUsage(ask.worst.input, tokens(written), estimated=True)
        ask.used, ask.counted = ask.used.plus(usage), True
        provider_state = answer.provider_state
        return ModelReply(
            answer.text,
            answer.calls,
            answer.reasoning,
            answer.finish,
            usage,
            cost_of(usage, self._settings.price),
            answer.model or ask.prompt.model,
            None
            if provider_state is None
            else ProviderState(self.strategy, Raw(msgspec.json.encode(provider_state))),
        )

    def _request(self, ask: _Ask) -> ProviderRequest:
        stream = ask.prompt.stream
        silence_s = self._limits.silence_s if stream else self._limits.timeout_s
        accept = f"{STREAM}, {JSON}" if stream else JSON
        headers = {"Accept": accept, "Accept-Encoding": "identity", "Content-Type": JSON}
        return ProviderRequest(
            "POST",
            self._dialect.path,
            {**headers, **self._dialect.headers(self._settings.api_key.strip())},
            ask.body,
            ask.until,
            silence_s,
        )

    async def _first_listed(self) -> str:
        """The first model that the service lists. Raises ModelFailed."""
        until = asyncio.get_running_loop().time() + self._limits.silence_s
        headers = {"Accept": JSON, **self._dialect.headers(self._settings.api_key.strip())}
        request = ProviderRequest("GET", "/models", headers, None, until, self._limits.silence_s)
        try:
            async with self._transport.send(request) as response:
                body = await response.read()
                if response.status != 200:
                    raise _refusal(response, body)
            models = decode_answer(body, dict[str, Any]).get("data")
            listed = models[0] if isinstance(models, list) and models else None
            first = listed.get("id") if isinstance(listed, dict) else None
            if not isinstance(first, str):
                text = f"lists no models; set models.strategies.{self.strategy}.model"
                raise ProviderError(text, "unconfigured")
        except ProviderError as error:
            raise self._failure(error) from error
        return first

    def _failure(self, error: ProviderError) -> ModelFailed:
        key = self._settings.api_key.strip()
        detail = error.detail.replace(key, "***") if key else error.detail
        log.warning("model_failed", extra={"strategy": self.strategy, "reason": error.kind})
        return ModelFailed(
            f"The model {self.strategy} {error}",
            error.kind,
            detail=detail,
            retryable=error.retryable,
            retry_after_s=error.retry_after_s,
        )


class _Reserved:
    """Reserves the worst case of a request in its budget, and settles it in the end."""

    def __init__(self, model: Model, ask: _Ask) -> None:
        self._ask = ask
        self._model = model
        self._price = model._settings.price  # noqa: SLF001 - of this module
        self._budget = ask.prompt.options.budget

    def __enter__(self) -> None:
        if self._budget is None:
            return
        try:
            self._budget.reserve(self._ask.worst, self._price)
        except BudgetExhausted as error:
            raise ModelFailed(f"Not sent: {error}", "budget") from error

    def __exit__(self, *_: object) -> None:
        if self._budget is not None:
            self._budget.settle(self._ask.worst, self._ask.used, self._price)
        used, on_used = self._ask.used, self._model._on_used  # noqa: SLF001 - as above
        if on_used is not None and used.total:
            prompt = self._ask.prompt
            name = f"{prompt.strategy}/{prompt.model}"
            on_used(prompt.options.payer, name, used, cost_of(used, self._price))


def _worst(prompt: Prompt, body: bytes) -> TokenUsage:
    return TokenUsage(tokens(body), prompt.max_tokens, estimated=True)


async def _whole_body(ask: _Ask, response: ProviderResponse) -> bytes:
    body = await response.read()
    if ask.answer is not None:
        ask.answer += body
    return body


async def _read_stream(
    ask: _Ask, response: ProviderResponse, reader: AnswerReader
) -> AsyncGenerator[ModelEvent]:
    """Model events of a stream, up to its end. Raises ProviderError."""
    limit = 1 << 30  # the transport bounds all of it
    stream = SseParser(limit)
    while chunk := await _next_chunk(response.chunks, reader):
        if ask.answer is not None:
            ask.answer += chunk
        for event in stream.feed(chunk):
            for model_event in reader.feed(event):
                yield model_event
            if reader.closed:
                return
    for event in stream.feed(b"\n\n"):  # the last one, where no empty line follows
        try:
            for model_event in reader.feed(event):
                yield model_event
        except ProviderError as error:
            raise (cut() if error.kind == "malformed" else error) from error


async def _next_chunk(chunks: AsyncIterator[bytes], reader: AnswerReader) -> bytes:
    """The next chunk of a stream; empty at its end. Behind the end of the answer it is not waited
    for long, and failures do not matter."""
    if not reader.ended:
        return await anext(chunks, b"")
    try:
        async with asyncio.timeout(TAIL_S):
            return await anext(chunks, b"")
    except (TimeoutError, ProviderError):
        return b""


def _whole(reply: ModelReply) -> list[ModelEvent]:
    """The events of a reply that came at once."""
    thought: list[ModelEvent] = [ReasoningChunk(reply.reasoning)] if reply.reasoning else []
    events: list[ModelEvent] = [ContentChunk(reply.text)] if reply.text else []
    calls = [ToolCallDetected(call.id, call.name) for call in reply.calls]
    return [*thought, *events, *calls, *_ending(reply)]


def _ending(reply: ModelReply) -> list[ModelEvent]:
    total = reply.usage.total
    again = bool(reply.calls)
    last: ModelEvent = (
        ToolCallsComplete(reply.calls, reply.text, reply)
        if again
        else FinalResponse(reply.text, total, reply)
    )
    return [last, IterationComplete(total, again or reply.finish == "paused")]


def _refusal(response: ProviderResponse, body: bytes) -> ProviderError:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        document = {"message": body[:500].decode("utf-8", "replace")}
    error = provider_error(document, response.status)
    error.retry_after_s = retry_after_s(response.retry_after, math.inf)
    return error
