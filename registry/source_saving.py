"""Writing the row of a source and its version, in the caller's transaction."""

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from anyio import to_thread
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from registry.changes import SourceDraft, storable


@dataclass(frozen=True, slots=True)
class Document:
    digest: str  # SHA-256 of the bytes as they were read
    packed: bytes  # zlib

    @classmethod
    async def of(cls, data: bytes) -> "Document":
        """In a thread: 10 MB take about 0.1 s."""
        return await to_thread.run_sync(
            lambda: cls(hashlib.sha256(data).hexdigest(), zlib.compress(data, 1))
        )


@dataclass(frozen=True, slots=True)
class Before:
    """What a source was when it was last imported."""

    kind: str
    options: dict[str, Any]  # as they are stored


class SourceSaving:
    """The source of one import."""

    def __init__(self, connection: AsyncConnection, host_id: str, source: SourceDraft) -> None:
        self._connection = connection
        self._host_id = host_id
        self._source = source

    async def before(self) -> Before | None:
        row = await self._one(
            "SELECT kind, options FROM api_t WHERE host_id = %s AND name = %s",
            [self._host_id, self._source.name],
        )
        return Before(*row) if row else None

    async def save(self) -> str:
        await self._connection.execute(
            """
            INSERT INTO api_t AS old (host_id, name, kind, location, base_url, base_url_trusted,
                include, exclude, options, server)
            VALUES (%(host)s, %(name)s, %(kind)s, %(location)s, %(base_url)s, %(trusted)s,
                %(include)s, %(exclude)s, %(options)s, %(server)s)
            ON CONFLICT (host_id, name) DO UPDATE SET
                kind = excluded.kind, location = excluded.location, base_url = excluded.base_url,
                base_url_trusted = excluded.base_url_trusted, include = excluded.include,
                exclude = excluded.exclude, options = excluded.options, server = excluded.server,
                aggregate_version = old.aggregate_version + 1,
                update_ts = current_timestamp, update_user = session_user
            WHERE (old.kind, old.location, old.base_url, old.base_url_trusted,
                   old.include, old.exclude, old.options, old.server)
                IS DISTINCT FROM (excluded.kind, excluded.location, excluded.base_url,
                   excluded.base_url_trusted, excluded.include, excluded.exclude,
                   excluded.options, excluded.server)
            """,
            {
                "host": self._host_id,
                "name": self._source.name,
                "kind": self._source.kind,
                "location": self._source.location,
                "base_url": self._source.base_url,
                "trusted": self._source.base_url_trusted,
                "include": list(self._source.include),
                "exclude": list(self._source.exclude),
                "options": Jsonb(self._source.options, dumps=msgspec.json.encode),
                "server": self._server(),
            },
        )
        row = await self._one(
            "SELECT api_id::text FROM api_t WHERE host_id = %s AND name = %s",
            [self._host_id, self._source.name],
        )
        return str(row[0])

    async def save_version(self, api_id: str, document: Document | None) -> str:
        digest = self._source.digest or (document.digest if document else None)
        current = await self._one(
            "SELECT api_version_id::text, title, api_version, digest FROM api_version_t"
            " WHERE host_id = %s AND api_id = %s AND current",
            [self._host_id, api_id],
        )
        if current[1:] == (self._source.title, self._source.version, digest):
            return str(current[0])
        if current:
            await self._supersede(api_id)
        row = await self._one(
            "INSERT INTO api_version_t (host_id, api_id, title, api_version, digest, document)"
            " VALUES (%s, %s, %s, %s, %s, %b) RETURNING api_version_id::text",
            [
                self._host_id,
                api_id,
                self._source.title,
                self._source.version,
                digest,
                document.packed if document else None,
            ],
        )
        return str(row[0])

    async def _supersede(self, api_id: str) -> None:
        await self._connection.execute(
            "UPDATE api_version_t SET current = false, document = NULL,"
            " update_ts = current_timestamp WHERE host_id = %s AND api_id = %s AND current",
            [self._host_id, api_id],
        )
        await self._connection.execute(
            "UPDATE api_t SET aggregate_version = aggregate_version + 1,"
            " update_ts = current_timestamp WHERE host_id = %s AND api_id = %s",
            [self._host_id, api_id],
        )

    def _server(self) -> Jsonb | None:
        if self._source.server is None:
            return None
        return Jsonb(storable(self._source.server)[0], dumps=msgspec.json.encode)

    async def _one(self, query: str, values: Sequence[object]) -> tuple[Any, ...]:
        """The first row, empty when there is none."""
        found = await self._connection.execute(query.encode(), values)
        return await found.fetchone() or ()
