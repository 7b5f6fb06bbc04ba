"""Writing the row of a source, in the caller's transaction."""

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from anyio import to_thread
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from registry.sources.plan import SourceDraft, storable
from schemas.source import RolledBack


@dataclass(frozen=True, slots=True)
class StoredDocument:
    digest: str  # SHA-256 of the bytes as they were read
    packed: bytes  # zlib

    @classmethod
    async def of(cls, data: bytes) -> "StoredDocument":
        """In a thread: 10 MB take about 0.1 s."""
        return await to_thread.run_sync(
            lambda: cls(hashlib.sha256(data).hexdigest(), zlib.compress(data, 1))
        )


@dataclass(frozen=True, slots=True)
class Before:
    """What a source was when it was last imported."""

    id: str
    kind: str
    options: dict[str, Any]  # as they are stored
    version: int | None  # the number of the one that is served
    rolled_back: int | None  # the number of the one that it takes the place of


class SourceSaving:
    """The source of one import."""

    def __init__(self, connection: AsyncConnection, host_id: str, source: SourceDraft) -> None:
        self._connection = connection
        self._host_id = host_id
        self._source = source

    async def before(self) -> Before | None:
        row = await self._one(
            "SELECT api_id::text, kind, options,"
            " (SELECT number FROM api_version_t AS version WHERE version.current"
            " AND (version.host_id, version.api_id) = (api.host_id, api.api_id)),"
            " (rolled_back ->> 'version')::int FROM api_t AS api WHERE host_id = %s AND name = %s",
            [self._host_id, self._source.name],
        )
        return Before(*row) if row else None

    async def save(self, rolled_back: RolledBack | None = None) -> str:
        """Its id. `rolled_back`: what an older version takes the place of; None ends that."""
        await self._connection.execute(
            """
            INSERT INTO api_t AS old (host_id, name, kind, location, base_url, base_url_trusted,
                include, exclude, options, server, rolled_back, origin)
            VALUES (%(host)s, %(name)s, %(kind)s, %(location)s, %(base_url)s, %(trusted)s,
                %(include)s, %(exclude)s, %(options)s, %(server)s, %(rolled_back)s, %(origin)s)
            ON CONFLICT (host_id, name) DO UPDATE SET
                kind = excluded.kind, location = excluded.location, base_url = excluded.base_url,
                base_url_trusted = excluded.base_url_trusted, include = excluded.include,
                exclude = excluded.exclude, options = excluded.options, server = excluded.server,
                rolled_back = excluded.rolled_back, origin = excluded.origin,
                aggregate_version = old.aggregate_version + 1,
                update_ts = current_timestamp, update_user = session_user
            WHERE (old.kind, old.location, old.base_url, old.base_url_trusted,
                   old.include, old.exclude, old.options, old.server, old.rolled_back,
                   old.origin)
                IS DISTINCT FROM (excluded.kind, excluded.location, excluded.base_url,
                   excluded.base_url_trusted, excluded.include, excluded.exclude,
                   excluded.options, excluded.server, excluded.rolled_back, excluded.origin)
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
                "origin": self._source.origin,
                "rolled_back": rolled_back and Jsonb(rolled_back, dumps=msgspec.json.encode),
            },
        )
        row = await self._one(
            "SELECT api_id::text FROM api_t WHERE host_id = %s AND name = %s",
            [self._host_id, self._source.name],
        )
        return str(row[0])

    def _server(self) -> Jsonb | None:
        if self._source.server is None:
            return None
        return Jsonb(storable(self._source.server)[0], dumps=msgspec.json.encode)

    async def _one(self, query: str, values: Sequence[object]) -> tuple[Any, ...]:
        """The first row, empty when there is none."""
        found = await self._connection.execute(query.encode(), values)
        return await found.fetchone() or ()
