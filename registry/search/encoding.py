"""The vectors of a query, or why there are none.

Whoever asks waits for them, so a model that fails or does not answer in time is left alone for some
seconds: a dead service costs one query its patience, not each of them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from registry.embedding.abc import Embedder, EmbeddingFailed
from registry.embedding.texts import sentences

if TYPE_CHECKING:
    from registry.embedding.abc import Vectors

PAUSE_S = 10.0  # after a failure

DISABLED = "searched by words only: embeddings are disabled"
DOWN = "searched by words only: the embedding model gives no vectors at the moment"


@dataclass(frozen=True, slots=True)
class Encoded:
    """`vectors`: of the whole query, then of its sentences where it has several; shape (n, 384)."""

    vectors: "Vectors | None" = None
    model: str | None = None
    note: str | None = None  # why there are none
    took_ms: float = 0.0

    @property
    def whole(self) -> "Vectors | None":
        """The vector of the whole query, shape (384,)."""
        return None if self.vectors is None else self.vectors[0]


@dataclass(frozen=True, slots=True)
class Ready:
    """Who makes vectors at the moment, or why nobody does."""

    embedder: Embedder | None = None
    note: str | None = None


class Encoding:
    def __init__(
        self,
        embedder: Callable[[], Embedder | None],
        timeout_s: float,
        most_sentences: int,
        why: Callable[[], str | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`why` says, for people, why there is no embedder."""
        self._embedder = embedder
        self._timeout_s = timeout_s
        self._most_sentences = most_sentences
        self._why = why
        self._clock = clock
        self._paused_until = 0.0

    def ready(self) -> Ready:
        embedder = self._embedder()
        if embedder is None:
            why = self._why()
            return Ready(None, f"searched by words only: {why}" if why else DISABLED)
        if self._clock() < self._paused_until:
            return Ready(None, DOWN)
        return Ready(embedder)

    async def encode(self, embedder: Embedder, text: str) -> Encoded:
        """All texts in one call of the model."""
        started = time.perf_counter()
        texts = [text, *sentences(text, self._most_sentences)]
        try:
            with anyio.fail_after(self._timeout_s):
                vectors = await embedder.embed(texts, query=True)
        except (EmbeddingFailed, TimeoutError):
            self._paused_until = self._clock() + PAUSE_S
            return Encoded(note=DOWN, took_ms=_since(started))
        return Encoded(vectors, embedder.model, took_ms=_since(started))


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
