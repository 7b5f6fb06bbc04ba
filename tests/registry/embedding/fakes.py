"""Embedders without a model: what is tested is the queue, and it wants to be fast."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from registry.embedding.embedder import EmbeddingFailed, Vectors


def vector(text: str, dimension: int = 384) -> Vectors:
    """Always the same for the same text, and another for another."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    found = np.random.default_rng(seed).standard_normal(dimension).astype(np.float32)
    return found / np.linalg.norm(found)


@dataclass
class HashEmbedder:
    model: str = "fake/hash"
    dimension: int = 384
    given: int = 384  # numbers that its vectors really have
    poison: str | None = None  # texts with this word fail, and their batch with them
    retryable: bool = False
    down: bool = False
    meanwhile: Callable[[], Awaitable[None]] | None = None  # done while it works, once
    batches: list[list[str]] = field(default_factory=list)

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        self.batches.append(list(texts))
        if self.down:
            raise EmbeddingFailed("nobody answers", retryable=True)
        if self.poison and any(self.poison in text for text in texts):
            raise EmbeddingFailed("cannot read that", retryable=self.retryable)
        if self.meanwhile is not None:
            todo, self.meanwhile = self.meanwhile, None
            await todo()
        return np.stack([vector(text, self.given) for text in texts])

    async def close(self) -> None:
        pass
