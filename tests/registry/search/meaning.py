"""Vectors for tests: known beforehand, and made in no time.

What the bundled model finds is measured elsewhere; here it matters which vectors are compared.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from registry.database.postgres import Database
from registry.embedding.embedder import EmbeddingFailed, Vectors
from registry.search.transaction import HalfVector, VectorDumper
from registry.sources.tool_store import SourceDraft, ToolStore
from schemas.binding import OpenAPIBinding
from schemas.tool import ToolDraft
from tests.fixtures_database import HOST

MODEL = "test/vector.100%"  # as awkward in a statement as a name can be
CONCEPTS = {"remove": "delete", "erase": "delete", "money": "invoice", "bill": "invoice"}


@dataclass
class Words:
    """An embedder to which words are directions, and words of one concept the same direction."""

    model: str = MODEL
    dimension: int = 384
    error: Exception | None = None
    asked: list[list[str]] = field(default_factory=list)

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        self.asked.append(list(texts))
        if self.error:
            raise self.error
        return np.array([vector(text) for text in texts], dtype=np.float32)

    async def close(self) -> None:
        pass


DOWN = EmbeddingFailed("it is down", retryable=True)


def vector(text: str) -> NDArray[np.float32]:
    """Of length 1; the sum of random directions, one for each word, and a little of one for all."""
    total = 0.1 * direction("")
    for word in re.findall(r"[a-z]{3,}", text.lower()):
        total = total + direction(CONCEPTS.get(word.rstrip("s"), word.rstrip("s")))
    return (total / np.linalg.norm(total)).astype(np.float32)


def direction(word: str) -> NDArray[np.float64]:
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8])
    found = np.random.default_rng(seed).standard_normal(384)
    return found / np.linalg.norm(found)


async def save_tools(store: ToolStore, database: Database, tools: Mapping[str, str]) -> None:
    """Save tools of a source `shop` by name and description, and give them their vectors."""
    drafts = [
        ToolDraft(f"/{name}@get", name, text, {"type": "object"}, OpenAPIBinding("GET", "/x"))
        for name, text in tools.items()
    ]
    await store.save(HOST, SourceDraft("shop", "openapi", "shop.json"), drafts)
    await embed_tools(database)


async def embed_tools(database: Database, host_id: str = HOST, model: str = MODEL) -> None:
    """Give each active tool the vector of its name and description, as the worker would."""
    async with database.connect() as connection:
        rows = await connection.execute(
            "SELECT tool_id::text, name || ' ' || description FROM tool_t"
            " WHERE host_id = %s AND active",
            [host_id],
        )
        vectors = {id_: vector(text) for id_, text in await rows.fetchall()}
    await store_vectors(database, vectors, host_id, model)


async def store_vectors(
    database: Database,
    vectors: dict[str, NDArray[np.float32]],
    host_id: str = HOST,
    model: str = MODEL,
    kind: str = "tool",
) -> None:
    """Ready, of a model that serves, with nothing left to do."""
    async with database.connect() as connection, connection.cursor() as cursor:
        cursor.adapters.register_dumper(HalfVector, VectorDumper)
        await cursor.execute(
            "INSERT INTO embedding_model_t (purpose, model, provider, dimension, target, serving)"
            " SELECT 'tools', %s, 'test', 384, NOT EXISTS (SELECT FROM embedding_model_t),"
            " NOT EXISTS (SELECT FROM embedding_model_t) ON CONFLICT DO NOTHING",
            [model],
        )
        await cursor.executemany(
            "INSERT INTO entity_embedding_t AS old (host_id, entity_type, entity_id, model,"
            " dimension, source_hash, status, embedding, embedded_ts)"
            " VALUES (%s, %s, %s, %s, 384, '', 'ready', %s::vector, now())"
            " ON CONFLICT (host_id, entity_type, entity_id, model) DO UPDATE SET"
            " dimension = 384, status = 'ready', embedding = excluded.embedding",
            [(host_id, kind, id_, model, HalfVector.of(row)) for id_, row in vectors.items()],
        )
        await cursor.execute("DELETE FROM embedding_task_t")
