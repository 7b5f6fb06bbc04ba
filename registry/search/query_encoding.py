"""Query vectors, or the reason that there are none.

Callers wait for them, so a circuit breaker pauses a model that fails or times out for some seconds:
a dead service costs one query its timeout, not each of them.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from registry.embedding.embedder import Embedder, EmbeddingFailed
from registry.embedding.texts import query_text, sentences
from registry.embedding.vectors import with_whole
from schemas.memo import Memo

if TYPE_CHECKING:
    from registry.embedding.embedder import Vectors

log = logging.getLogger("toolgate.search")

PAUSE_S = 10.0  # after a failure
CACHED_QUERIES = 256  # cached queries, some 4 MB: many agents send the same

DISABLED_TEXT = "embeddings are disabled"
DOWN = "the embedding model gives no vectors at the moment"


@dataclass(frozen=True, slots=True)
class EncodedQuery:
    """An encoded query. `vectors`: of the whole query, then of its sentences where it has several;
    shape (texts, dimension)."""

    vectors: "Vectors | None" = None
    model: str | None = None
    why: str | None = None  # the reason when there are none
    took_ms: float = 0.0

    @property
    def whole(self) -> "Vectors | None":
        """The vector of the whole query, shape (dimension,)."""
        return None if self.vectors is None else self.vectors[0]


@dataclass(frozen=True, slots=True)
class CurrentEmbedder:
    """The current embedder, or the reason that there is none."""

    embedder: Embedder | None = None
    why: str | None = None


class QueryEncoder:
    """Encodes queries, with the model of their purpose."""

    def __init__(
        self,
        embedder: Callable[[str], Embedder | None],
        *,
        timeout_s: float,
        sentences_limit: int,
        why: Callable[[str], str | None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        cached_queries: int = CACHED_QUERIES,
    ) -> None:
        """Query encoder. `embedder` returns that of a purpose, `why` the readable reason that there
        is none."""
        self._embedder = embedder
        self._timeout_s = timeout_s
        self._sentences_limit = sentences_limit
        self._why = why
        self._clock = clock
        self._paused_until: dict[str, float] = {}  # by model
        self._cache: Memo[tuple[str, str], Vectors] = Memo(cached_queries)

    @property
    def is_paused(self) -> bool:
        """Whether the circuit breaker of a model is open: it failed a moment ago."""
        return any(map(self._is_paused, self._paused_until))

    def ready(self, purpose: str) -> CurrentEmbedder:
        embedder = self._embedder(purpose)
        if embedder is None:
            return CurrentEmbedder(None, self._why(purpose) or DISABLED_TEXT)
        if self._paused_until and self._is_paused(embedder.model):
            return CurrentEmbedder(None, DOWN)
        return CurrentEmbedder(embedder)

    def _is_paused(self, model: str) -> bool:
        return self._clock() < self._paused_until.get(model, 0.0)

    async def of(self, purpose: str, text: str) -> EncodedQuery:
        """The text by the model of a purpose, or why there is none."""
        ready = self.ready(purpose)
        if ready.embedder is None:
            return EncodedQuery(why=ready.why)
        return await self.encode(ready.embedder, text)

    async def encode(self, embedder: Embedder, text: str) -> EncodedQuery:
        """Encode all texts in one call of the model.

        Of several sentences only these are encoded, and the vector of the whole query is their mean
        weighted by length: that finds nearly the same as the vector of the whole text would, in
        half the time, and no model truncates it.
        """
        # spaces mean nothing to a model, but ends of lines separate sentences
        text = "\n".join(" ".join(line.split()) for line in text.split("\n"))
        key = (embedder.model, text)
        if (vector := self._cache.use(key)) is not None:
            return EncodedQuery(vector, embedder.model)
        started = time.perf_counter()
        try:
            with anyio.fail_after(self._timeout_s):
                vectors = self._cache.put(key, await self._encode_text(embedder, text))
        except (EmbeddingFailed, TimeoutError) as error:
            self._paused_until[embedder.model] = self._clock() + PAUSE_S
            reason = str(error) or f"no answer in {self._timeout_s:g} s"
            log.warning("search_model_failed", extra={"reason": reason, "pause_s": PAUSE_S})
            return EncodedQuery(why=DOWN, took_ms=_since(started))
        return EncodedQuery(vectors, embedder.model, took_ms=_since(started))

    async def _encode_text(self, embedder: Embedder, text: str) -> "Vectors":
        text = query_text(text)
        parts = sentences(text, self._sentences_limit)
        vectors = await embedder.embed(parts or [text], query=True)
        return with_whole(vectors, [len(part) for part in parts]) if parts else vectors


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
