"""Answers of models to parts of questions: asked within the limits of a run, and kept by content.

The key of a kept answer has the model, what it was told, and the texts that it read, as guardrails
left them. Another caller gets it only while it may read all collections that it comes from.
"""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

import anyio
import msgspec
from msgspec import Struct

from config.librarian import AnswerCacheSettings
from gateway.wings.document_library import Passage
from gateway.wings.librarian.run_budget import RunLedger
from gateway.wings.models.messages import NO_PAYER, ChatMessage, ChatModel, Payer, RequestOptions
from gateway.wings.models.usage import ModelCost, TokenUsage
from registry.database.postgres import Pool
from registry.database.tables import Tables

T = TypeVar("T")


class PartAnswer(Struct, frozen=True):
    text: str
    usage: TokenUsage = TokenUsage()
    cost: ModelCost | None = None
    cached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartQuestion:
    messages: Sequence[ChatMessage]
    key: Sequence[str]  # what it says, without markers that differ from run to run
    max_tokens: int
    json: bool = False
    passages: Sequence[Passage] = ()  # that it shows


class AnswerCache(Tables):
    """Answers of a tenant. The least recently used make room."""

    def __init__(self, pool: Pool, settings: AnswerCacheSettings) -> None:
        self._pool = pool
        self._settings = settings

    async def get(self, host_id: str, key: bytes, collections: Sequence[str]) -> str | None:
        """The answer, if it is from these collections alone."""
        row = await self._fetch_first(
            "UPDATE librarian_answer_t SET used_ts = clock_timestamp()"
            " WHERE host_id = %s AND key = %s AND collections <@ %s::text[]"
            " AND created_ts > clock_timestamp() - %s * interval '1 s' RETURNING answer",
            [host_id, key, list(collections), self._settings.ttl_s],
        )
        return None if row is None else str(row[0])

    async def put(self, host_id: str, key: bytes, collections: Sequence[str], text: str) -> None:
        if not self._settings.answers:
            return
        await self._execute(
            "INSERT INTO librarian_answer_t (host_id, key, collections, answer)"
            " VALUES (%s, %s, %s, %s) ON CONFLICT (host_id, key) DO UPDATE SET"
            " collections = excluded.collections, answer = excluded.answer,"
            " created_ts = clock_timestamp(), used_ts = clock_timestamp()",
            [host_id, key, sorted(collections), text.replace("\0", "")],
        )

    async def sweep(self, host_id: str) -> None:
        """Delete what is too old, and what exceeds the limit."""
        await self._execute(
            "DELETE FROM librarian_answer_t WHERE host_id = %(host)s"
            " AND (created_ts < clock_timestamp() - %(keep)s * interval '1 s' OR key IN ("
            "   SELECT key FROM librarian_answer_t WHERE host_id = %(host)s"
            "   ORDER BY used_ts DESC, key OFFSET %(most)s))",
            {
                "host": host_id,
                "keep": self._settings.ttl_s,
                "most": self._settings.answers,
            },
        )


def key_of(model: ChatModel, question: PartQuestion) -> bytes:
    """Key of an answer: model, parameters, prompt and texts."""
    texts = [hashlib.sha256(passage.text.encode()).hexdigest() for passage in question.passages]
    places = [(passage.collection, passage.path) for passage in question.passages]
    key = [model.strategy, question.max_tokens, question.json, list(question.key), texts, places]
    return hashlib.sha256(msgspec.json.encode(key)).digest()


def options_of(question: PartQuestion) -> RequestOptions:
    return RequestOptions(max_tokens=question.max_tokens, json=question.json)


async def together(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """The results of calls that are made at once, in their order. Raises what the first one to fail
    raises; the others are cancelled."""
    results: list[T | None] = [None] * len(calls)

    async def collect(place: int) -> None:
        results[place] = await calls[place]()

    try:
        async with anyio.create_task_group() as group:
            for place in range(len(calls)):
                group.start_soon(collect, place)
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed
    return cast("list[T]", results)


@dataclass(kw_only=True)
class Asker:
    """Asks a model for one query or run."""

    host_id: str
    model: ChatModel
    ledger: RunLedger
    cache: AnswerCache
    collections: Sequence[str]  # that the caller may read, of those asked for
    places: dict[tuple[str, str, int, int, int], None] = field(default_factory=dict)
    """Places that a model was shown: collection, path, version and lines."""
    screen: Callable[[str], str] = str
    """A text as guardrails let it leave to a model."""
    payer: Payer = NO_PAYER

    async def ask(self, question: PartQuestion) -> PartAnswer:
        """Raises LimitReached and ModelFailed."""
        self.ledger.count("calls")
        question = self._screen_question(question)
        key, among = key_of(self.model, question), self._among(question)
        cached_answer = await self.cache.get(self.host_id, key, self.collections)
        if cached_answer is not None:
            self.ledger.count_cached()
            return PartAnswer(cached_answer, cached=True)
        answer = await self._send(question)
        await self.cache.put(self.host_id, key, among, answer.text)
        return answer

    async def send(self, question: PartQuestion) -> PartAnswer:
        """Ask without the cache. Raises LimitReached and ModelFailed."""
        return await self._send(self._screen_question(question))

    async def _send(self, question: PartQuestion) -> PartAnswer:
        async with self.ledger.request(self.worst(question)[0]) as budget:
            self.show(question.passages)
            options = replace(options_of(question), budget=budget, payer=self.payer)
            reply = await self.model.complete(question.messages, (), options)
        return PartAnswer(reply.text, reply.usage, reply.cost)

    def _screen_question(self, question: PartQuestion) -> PartQuestion:
        """The question as guardrails leave it. What they leave otherwise to another caller has
        another key."""
        messages = [
            message
            if message.role == "system"
            else ChatMessage(message.role, self.screen(message.text))
            for message in question.messages
        ]
        if messages == list(question.messages):
            return question
        return replace(question, messages=messages, key=["", *map(self.screen, question.key)])

    def worst(self, question: PartQuestion) -> tuple[TokenUsage, ModelCost | None]:
        """The most that a question may take."""
        return self.model.worst(question.messages, (), options_of(question))

    def show(self, passages: Sequence[Passage]) -> None:
        for passage in passages:
            self.places[passage.collection, passage.path, passage.version, *passage.lines] = None

    def _among(self, question: PartQuestion) -> Sequence[str]:
        """The collections that an answer comes from: those of its passages, or else all."""
        return sorted({passage.collection for passage in question.passages}) or self.collections
