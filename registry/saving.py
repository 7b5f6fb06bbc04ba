"""Writing one import: source, version, endpoints and tools, in the caller's transaction."""

import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from anyio import to_thread
from psycopg import AsyncConnection
from psycopg.types.json import Json, Jsonb

from registry.changes import Changes, Known, Row, Saved, SourceDraft, changes
from schemas.tool import ToolDraft

ROWS_PER_STATEMENT = 250  # the caller hears of progress after each

Progress = Callable[[int, int], None]


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


class Saving:
    """One import of one source."""

    def __init__(self, connection: AsyncConnection, host_id: str, source: SourceDraft) -> None:
        self._connection = connection
        self._host_id = host_id
        self._source = source

    async def run(
        self, drafts: Sequence[ToolDraft], document: Document | None, progress: Progress | None
    ) -> Saved:
        """See `ToolStore.save`."""
        await self._lock_host()
        api_id = await self._save_source()
        version_id = await self._save_version(api_id, document)
        known, taken = await self._known(api_id), await self._taken(api_id)
        # In a thread: comparing 10,000 tools would hold up the requests of other callers.
        todo = await to_thread.run_sync(changes, self._source.name, drafts, known, taken)
        await self._retire(todo)
        done = len(drafts) - len(todo.rows)
        for batch in _batches(todo.rows):
            await self._write(api_id, version_id, batch)
            done += len(batch)
            if progress:
                progress(done, len(drafts))
        return todo.saved

    async def _lock_host(self) -> None:
        """Imports of one tenant go one after the other: each has to see the others' names."""
        await self._connection.execute(
            "INSERT INTO host_t (host_id, name) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            [self._host_id, self._host_id],
        )
        await self._connection.execute(
            "SELECT FROM host_t WHERE host_id = %s FOR NO KEY UPDATE", [self._host_id]
        )

    async def _save_source(self) -> str:
        await self._connection.execute(
            """
            INSERT INTO api_t AS old (host_id, name, kind, location, base_url, base_url_trusted,
                include, exclude, options)
            VALUES (%(host)s, %(name)s, %(kind)s, %(location)s, %(base_url)s, %(trusted)s,
                %(include)s, %(exclude)s, %(options)s)
            ON CONFLICT (host_id, name) DO UPDATE SET
                kind = excluded.kind, location = excluded.location, base_url = excluded.base_url,
                base_url_trusted = excluded.base_url_trusted, include = excluded.include,
                exclude = excluded.exclude, options = excluded.options,
                aggregate_version = old.aggregate_version + 1,
                update_ts = current_timestamp, update_user = session_user
            WHERE (old.kind, old.location, old.base_url, old.base_url_trusted,
                   old.include, old.exclude, old.options)
                IS DISTINCT FROM (excluded.kind, excluded.location, excluded.base_url,
                   excluded.base_url_trusted, excluded.include, excluded.exclude,
                   excluded.options)
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
            },
        )
        row = await self._one(
            "SELECT api_id::text FROM api_t WHERE host_id = %s AND name = %s",
            [self._host_id, self._source.name],
        )
        return str(row[0])

    async def _save_version(self, api_id: str, document: Document | None) -> str:
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

    async def _known(self, api_id: str) -> dict[str, Known]:
        rows = await self._connection.execute(
            """
            SELECT endpoint.endpoint, endpoint.endpoint_id::text,
                coalesce(tool.tool_id, gen_random_uuid())::text, coalesce(tool.name, ''),
                endpoint.digest, endpoint.active, coalesce(tool.active, true)
            FROM api_endpoint_t AS endpoint
            LEFT JOIN tool_t AS tool USING (host_id, endpoint_id)
            WHERE host_id = %s AND endpoint.api_id = %s
            """,
            [self._host_id, api_id],
        )
        return {key: Known(*rest) async for key, *rest in rows}

    async def _taken(self, api_id: str) -> set[str]:
        """Case-folded names of the active tools that are not of this source."""
        rows = await self._connection.execute(
            """
            SELECT lower(tool.name) FROM tool_t AS tool
            LEFT JOIN api_endpoint_t AS endpoint USING (host_id, endpoint_id)
            WHERE host_id = %s AND tool.active AND endpoint.api_id IS DISTINCT FROM %s
            """,
            [self._host_id, api_id],
        )
        return {name async for (name,) in rows}

    async def _retire(self, todo: Changes) -> None:
        """Take what is gone out of service, and free the names that are to change hands."""
        if todo.renamed:
            await self._connection.execute(
                "UPDATE tool_t SET active = false WHERE host_id = %s AND tool_id = ANY(%s::uuid[])",
                [self._host_id, list(todo.renamed)],
            )
        if todo.gone:
            for table in ("api_endpoint_t", "tool_t"):
                await self._connection.execute(
                    f"UPDATE {table} SET active = false,"  # noqa: S608 - the names above
                    " aggregate_version = aggregate_version + 1, update_ts = current_timestamp,"
                    " update_user = session_user"
                    " WHERE host_id = %s AND endpoint_id = ANY(%s::uuid[])",
                    [self._host_id, list(todo.gone)],
                )

    async def _write(self, api_id: str, version_id: str, rows: Sequence[Row]) -> None:
        await self._connection.execute(
            _WRITE,
            {
                "host": self._host_id,
                "api": api_id,
                "version": version_id,
                "rows": Json(rows, dumps=msgspec.json.encode),
            },
        )

    async def _one(self, query: str, values: Sequence[object]) -> tuple[Any, ...]:
        """The first row, empty when there is none."""
        found = await self._connection.execute(query.encode(), values)
        return await found.fetchone() or ()


# One statement for many rows: the statement triggers run once, and json keeps schemas verbatim.
_WRITE = """
WITH draft AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(rows)s) AS draft (
        endpoint_id uuid, tool_id uuid, endpoint text, endpoint_name text, digest text,
        active boolean, name text, title text, description text, input_schema json,
        output_schema json, annotations jsonb, tags text[], binding jsonb)
), endpoint AS (
    INSERT INTO api_endpoint_t AS old (host_id, api_id, api_version_id, endpoint_id, endpoint,
        endpoint_name, endpoint_desc, digest)
    SELECT %(host)s, %(api)s, %(version)s, endpoint_id, endpoint, endpoint_name, description, digest
    FROM draft
    ON CONFLICT (host_id, endpoint_id) DO UPDATE SET
        api_version_id = excluded.api_version_id, endpoint_name = excluded.endpoint_name,
        endpoint_desc = excluded.endpoint_desc, digest = excluded.digest, active = true,
        aggregate_version = old.aggregate_version + 1, update_ts = current_timestamp,
        update_user = session_user
)
INSERT INTO tool_t AS old (host_id, tool_id, endpoint_id, name, title, description,
    description_source, input_schema, output_schema, annotations, tags, binding, active)
SELECT %(host)s, tool_id, endpoint_id, name, title, description, 'endpoint_sync', input_schema,
    output_schema, annotations, tags, binding, active
FROM draft
ON CONFLICT (host_id, tool_id) DO UPDATE SET
    name = excluded.name, title = excluded.title,
    description = CASE WHEN old.description_manual_override THEN old.description
        ELSE excluded.description END,
    input_schema = excluded.input_schema, output_schema = excluded.output_schema,
    annotations = excluded.annotations, tags = excluded.tags, binding = excluded.binding,
    active = excluded.active, aggregate_version = old.aggregate_version + 1,
    update_ts = current_timestamp, update_user = session_user
"""


def _batches(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        yield rows[start : start + ROWS_PER_STATEMENT]
