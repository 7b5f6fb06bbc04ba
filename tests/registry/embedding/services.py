"""Embedding settings, and small services that make vectors of texts as real ones do."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from config.load import load
from config.settings import EmbeddingSettings
from tests.servers.rest import JSON, Seen, read_seen, respond

DIMENSION = 384


def settings(**changes: Any) -> EmbeddingSettings:
    """The default settings, changed."""
    return replace(load(None, {}).embedding, **changes)


def vector(text: str) -> list[float]:
    """384 numbers that belong to `text` alone, not of length 1."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
    found: list[float] = np.random.default_rng(seed).normal(0, 3, DIMENSION).tolist()
    return found


@dataclass
class Service:
    """Answers in one of the dialects: "openai", "local" or "wrapped"."""

    dialect: str
    seen: list[Seen] = field(default_factory=list)
    reverse: bool = False  # the vectors, which then tell by `index` whose they are

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        seen = await read_seen(scope, receive)
        self.seen.append(seen)
        body = msgspec.json.decode(seen.body)
        answer = self.answer(body["input"] if self.dialect == "openai" else body["inputs"])
        await respond(send, 200, msgspec.json.encode(answer), [("content-type", JSON)])

    def answer(self, texts: list[str]) -> Any:
        vectors = [vector(text) for text in texts]
        if self.dialect == "local":
            return vectors
        if self.dialect == "wrapped":
            return {"embeddings": vectors, "model": "served"}
        items = [
            {"object": "embedding", "index": index, "embedding": one}
            for index, one in enumerate(vectors)
        ]
        ordered = items[::-1] if self.reverse else items
        return {"object": "list", "data": ordered, "model": "m", "usage": {"total_tokens": 1}}

    @property
    def bodies(self) -> list[Any]:
        return [msgspec.json.decode(seen.body) for seen in self.seen]
