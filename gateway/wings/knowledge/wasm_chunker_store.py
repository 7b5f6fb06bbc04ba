"""Chunkers in WebAssembly that administrators add to their collections.

A module is stored once for a tenant, by its hash, with the report of its trial; a collection names
those that it uses, and the paths that each cuts.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from psycopg.types.json import Jsonb

from gateway.operations.problems import ProblemDetails, not_found
from gateway.wings.documents.reading.source_files import matches
from gateway.wings.documents.reading.wasm_limits import ChunkerReport
from gateway.wings.knowledge.caller_access import READABLE, KnowledgeReader
from gateway.wings.knowledge.collections import CollectionStore
from registry.database.postgres import Pool, borrow
from registry.database.sql_fragments import compose
from registry.database.tables import Tables

CACHE_ENTRIES = 8  # modules in memory


class ChunkerRule(Struct, frozen=True):
    """A chunker of a collection. `paths`: as in .gitignore; empty: all."""

    name: str
    sha256: str
    paths: tuple[str, ...] = ()


class StoredChunker(Struct, frozen=True):
    """A chunker of a collection with its trial."""

    name: str
    sha256: str
    paths: tuple[str, ...]
    bytes: int
    report: ChunkerReport
    tried: datetime


def chosen_chunker(rules: Sequence[Mapping[str, Any]], path: str) -> str:
    """The hash of the first chunker, by name, for a path; empty: there is none."""
    hashes = (
        rule["sha256"] for rule in rules if not rule["paths"] or matches(tuple(rule["paths"]), path)
    )
    return next(hashes, "")


class ChunkerStore(Tables):
    def __init__(self, pool: Pool, collections: CollectionStore, limit: int) -> None:
        """`limit`: of chunkers of one collection."""
        self._pool = pool
        self._collections = collections
        self._limit = limit
        self._kept: dict[tuple[str, str], bytes] = {}

    async def module(self, tenant: str, sha256: str) -> bytes | None:
        """A module by its hash; None: it was deleted a moment ago."""
        key = (tenant, sha256)
        if key not in self._kept:
            row = await self._fetch_first(
                "SELECT module FROM knowledge_chunker_t WHERE (host_id, sha256) = (%s, %s)",
                [tenant, bytes.fromhex(sha256)],
            )
            if row is None:
                return None
            while len(self._kept) >= CACHE_ENTRIES:
                self._kept.pop(next(iter(self._kept)), None)
            self._kept[key] = bytes(row[0])
        return self._kept[key]

    async def list(self, reader: KnowledgeReader, collection: str) -> list[StoredChunker]:
        """By name. Raises ProblemDetails."""
        await self._collections.get(reader, collection)
        values = {**reader.values(), "name": collection}
        rows = await self._fetch(_LIST, values)
        return [_stored_chunker(row) for row in rows]

    async def check(self, reader: KnowledgeReader, collection: str) -> None:
        """Raises ProblemDetails for who may not change chunkers of a collection."""
        await self._collections.get(reader, collection, "admin")

    async def put(
        self,
        reader: KnowledgeReader,
        collection: str,
        rule: ChunkerRule,
        *,
        module: bytes,
        report: ChunkerReport,
    ) -> StoredChunker:
        """Raises ProblemDetails."""
        values = {
            **reader.values("admin"),
            "name": collection,
            "chunker": rule.name,
            "rule": Jsonb(msgspec.to_builtins(rule)),
            "sha256": bytes.fromhex(rule.sha256),
            "module": module,
            "report": Jsonb(msgspec.to_builtins(report)),
            "limit": self._limit,
        }
        async with borrow(self._pool) as connection:
            await connection.execute(_LOCK, values)
            await connection.execute(_STORE, values)
            changed = await connection.execute(_PUT, values)
            if not changed.rowcount:
                raise ProblemDetails(
                    429,
                    "quota",
                    f"The collection has {self._limit} chunkers, the most that are allowed"
                    " (knowledge.chunkers.count).",
                )
            await connection.execute(_DELETE_UNUSED, values)
        stored = await self.list(reader, collection)
        return next(chunker for chunker in stored if chunker.name == rule.name)

    async def delete(self, reader: KnowledgeReader, collection: str, name: str) -> None:
        """Raises ProblemDetails."""
        await self._collections.get(reader, collection, "admin")
        values = {**reader.values("admin"), "name": collection, "chunker": name}
        async with borrow(self._pool) as connection:
            await connection.execute(_LOCK, values)
            if not (await connection.execute(_DELETE, values)).rowcount:
                raise not_found("chunker", name)
            await connection.execute(_DELETE_UNUSED, values)


def module_hash(module: bytes) -> str:
    return hashlib.sha256(module).hexdigest()


def _stored_chunker(row: Sequence[Any]) -> StoredChunker:
    name, sha256, paths, size, report, tried = row
    return StoredChunker(
        name, sha256, tuple(paths), size, msgspec.convert(report, ChunkerReport), tried
    )


# Chunkers of a tenant are changed one after the other, so that none loses its module.
_LOCK = b"SELECT pg_advisory_xact_lock(hashtextextended(%(host)s, 22))"
_STORE = b"""
    INSERT INTO knowledge_chunker_t (host_id, sha256, module, report)
    VALUES (%(host)s, %(sha256)s, %(module)s, %(report)s)
    ON CONFLICT (host_id, sha256) DO UPDATE SET report = excluded.report, tried_ts = now()
"""
_PUT = compose(
    """
    UPDATE knowledge_collection_t AS collection
    SET chunkers = (SELECT jsonb_agg(one ORDER BY one ->> 'name' COLLATE "C")
        FROM (SELECT one FROM jsonb_array_elements(chunkers) AS one
                WHERE one ->> 'name' <> %(chunker)s
            UNION ALL SELECT %(rule)s::jsonb) AS kept)
    WHERE {allowed} AND name = %(name)s AND (SELECT count(*) FROM jsonb_array_elements(chunkers)
        AS one WHERE one ->> 'name' <> %(chunker)s) < %(limit)s
""",
    allowed=READABLE,
)
_DELETE = compose(
    """
    UPDATE knowledge_collection_t AS collection
    SET chunkers = (SELECT coalesce(jsonb_agg(one ORDER BY one ->> 'name' COLLATE "C"), '[]')
        FROM jsonb_array_elements(chunkers) AS one WHERE one ->> 'name' <> %(chunker)s)
    WHERE {allowed} AND name = %(name)s
        AND EXISTS (SELECT FROM jsonb_array_elements(chunkers) AS one
            WHERE one ->> 'name' = %(chunker)s)
""",
    allowed=READABLE,
)
_DELETE_UNUSED = b"""
    DELETE FROM knowledge_chunker_t AS chunker WHERE host_id = %(host)s AND NOT EXISTS (
        SELECT FROM knowledge_collection_t AS collection, jsonb_array_elements(chunkers) AS one
        WHERE collection.host_id = %(host)s AND one ->> 'sha256' = encode(chunker.sha256, 'hex'))
"""
_LIST = compose(
    """
    SELECT one ->> 'name', one ->> 'sha256', one -> 'paths', length(module), report, tried_ts
    FROM knowledge_collection_t AS collection, jsonb_array_elements(chunkers) AS one
    JOIN knowledge_chunker_t AS chunker
        ON (chunker.host_id, chunker.sha256) = (%(host)s, decode(one ->> 'sha256', 'hex'))
    WHERE {allowed} AND name = %(name)s ORDER BY one ->> 'name' COLLATE "C"
""",
    allowed=READABLE,
)
