"""Tables of the registry: imports are written, tools and sources are read.

The comment on table `tool_param_t`, in `migrations/0002_tools.sql`, states which of
`tool_t.input_schema` and `tool_param_t` is authoritative.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from anyio import to_thread
from psycopg import AsyncCursor

from registry.database.postgres import Pool, autocommit, borrow
from registry.database.tables import Tables
from registry.database.tenants import list_tenants, lock_tenant
from registry.database.tool_and_source_rows import RawLoader, StoredSource, readable, source_of
from registry.embedding.texts import readable as storable_text
from registry.skills.rows import load_skills
from registry.skills.snapshot import SkillSnapshot
from registry.sources.import_plan import Changes, SavedTools, SourceDraft
from registry.sources.import_writer import Check, ImportWriter, RollbackTarget, StoredDocument
from registry.sources.name_reclaiming import log_renamed, reclaim_names
from schemas.mcp.snapshot import SnapshotItem
from schemas.source import STDIO, CredentialName, Source
from schemas.tool import Tool, ToolDraft


@dataclass(frozen=True, slots=True)
class ServedOperation:
    """An operation of the current description, and its tool."""

    endpoint_id: str
    key: str
    tool: Tool


async def served_tools(
    cursor: AsyncCursor[Any], host_id: str, source: str
) -> list[ServedOperation]:
    """Operations by key, including tools held back or deactivated by hand."""
    for json_type in ("json", "jsonb"):
        cursor.adapters.register_loader(json_type, RawLoader)
    await cursor.execute(
        """
        SELECT endpoint.endpoint_id::text, endpoint.endpoint, tool.tool_id::text, tool.name,
            tool.title, tool.description, tool.input_schema, tool.output_schema, tool.annotations,
            tool.binding, api.name, tool.digest, tool.definition, tool.toolsets, ARRAY[]::text[],
            tool.sensitivity_tier, tool.tags, tool.routing_domain
        FROM api_t AS api
        JOIN api_endpoint_t AS endpoint USING (host_id, api_id)
        JOIN tool_t AS tool USING (host_id, endpoint_id)
        WHERE host_id = %s AND api.name = %s AND endpoint.active
        ORDER BY endpoint.endpoint COLLATE "C"
        """,
        [host_id, source],
    )
    rows = await cursor.fetchall()
    return await to_thread.run_sync(_read, rows)


def _read(rows: list[tuple[Any, ...]]) -> list[ServedOperation]:
    ids = {row[2]: (row[0], row[1]) for row in rows}
    return [ServedOperation(*ids[tool.id], tool) for tool in readable([row[2:] for row in rows])]


__all__ = ["SavedTools", "SourceDraft", "ToolStore"]


REASON_CHARACTERS = 2000  # of an error, which may quote a service
_END_FAILURE: LiteralString = "DELETE FROM import_failure_t WHERE (host_id, source) = (%s, %s)"


@dataclass(frozen=True, slots=True)
class ImportFailure:
    """The reason why a source has no newer tools, or none."""

    source: str
    reason: str
    failed: str  # ISO 8601
    runs_process: bool | None  # the stored source; None: there is none


class ToolStore(Tables):
    """Tools and sources of all tenants. All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def save(
        self,
        host_id: str,
        source: SourceDraft,
        drafts: Sequence[ToolDraft],
        document: bytes | None = None,
        *,
        progress: Callable[[int, int], None] | None = None,
        versions_kept: int = 10,
        rollback: RollbackTarget | None = None,
        check: Check | None = None,
    ) -> SavedTools:
        """Replace the tools of `source` by these, in one transaction.

        A tool missing from `drafts` is deactivated, not deleted: if it comes back it is the same
        tool. If the import changes no tool, it writes no row and sends no notification. `progress`
        is called with the number of drafts done and their total. `rollback`: the version that
        `drafts` were made of, again. `check` runs before the first write.
        """
        stored = await StoredDocument.of(document) if document is not None else None
        async with borrow(self._pool) as connection, connection.transaction():
            saving = ImportWriter(
                connection, host_id, source, versions_kept, rollback=rollback, check=check
            )
            saved = await saving.run(drafts, stored, progress)
            await connection.execute(_END_FAILURE, [host_id, source.name])
            return saved

    async def reclaim_names(self, host_id: str) -> None:
        """Rename the tools of others that have names of the gateway's own tools, as those that were
        stored before a name was reserved, and log it."""
        async with borrow(self._pool) as connection, connection.transaction():
            renamed = await reclaim_names(connection, host_id)
        log_renamed(host_id, renamed)

    async def compare(
        self, host_id: str, source: SourceDraft, drafts: Sequence[ToolDraft]
    ) -> tuple[Changes, list[ServedOperation]]:
        """The changes that `save` would make, and the current tools."""
        async with borrow(self._pool) as connection, connection.transaction():
            changes = await ImportWriter(connection, host_id, source, 0).compare(drafts)
            async with connection.cursor() as cursor:
                return changes, await served_tools(cursor, host_id, source.name)

    async def tools(
        self, host_id: str, *, held: bool = False, source: str | None = None
    ) -> list[Tool]:
        """The active tools, ordered by name, or those of one source; with `held` instead those that
        wait to be accepted and are not served."""
        async with borrow(self._pool) as connection, connection.cursor() as cursor:
            for json_type in ("json", "jsonb"):
                cursor.adapters.register_loader(json_type, RawLoader)
            await cursor.execute(
                """
                SELECT tool.tool_id::text, tool.name, tool.title, tool.description,
                    tool.input_schema, tool.output_schema, tool.annotations, tool.binding,
                    coalesce(api.name, ''), tool.digest, tool.definition, tool.toolsets,
                    ARRAY(SELECT alias.name::text FROM tool_alias_t AS alias
                        WHERE (alias.host_id, alias.tool_id) = (tool.host_id, tool.tool_id)
                        ORDER BY alias.since, alias.name),
                    tool.sensitivity_tier, tool.tags, tool.routing_domain
                FROM tool_t AS tool
                LEFT JOIN api_endpoint_t AS endpoint USING (host_id, endpoint_id)
                LEFT JOIN api_t AS api ON (api.host_id, api.api_id)
                    = (tool.host_id, coalesce(endpoint.api_id, tool.source_api_id))
                WHERE tool.host_id = %(host)s AND tool.active
                    AND (tool.held IS NOT NULL) = %(held)s
                    AND (%(source)s::text IS NULL OR api.name = %(source)s)
                ORDER BY tool.name COLLATE "C"
                """,
                {"host": host_id, "held": held, "source": source},
            )
            rows = await cursor.fetchall()
        # In a thread: 10,000 of them would block requests for a tenth of a second.
        return await to_thread.run_sync(lambda: list(readable(rows)))

    async def count(self, host_id: str) -> int:
        """Number of the active tools that are served."""
        statement = "SELECT count(*) FROM tool_t WHERE host_id = %s AND active AND held IS NULL"
        async with autocommit(self._pool) as connection:
            (count,) = await (await connection.execute(statement, [host_id])).fetchone() or (0,)
        return int(count)

    async def items(self, host_id: str) -> list[SnapshotItem]:
        """The active prompts, resources and templates of other MCP servers."""
        async with borrow(self._pool) as connection, connection.cursor() as cursor:
            cursor.adapters.register_loader("json", RawLoader)
            await cursor.execute(
                """
                SELECT item.kind, item.key, item.name, item.definition, api.name, item.eras,
                    extract(epoch FROM item.created_ts)::float8
                FROM mcp_item_t AS item JOIN api_t AS api USING (host_id, api_id)
                WHERE host_id = %s AND item.active
                ORDER BY item.name COLLATE "C"
                """,
                [host_id],
            )
            return [SnapshotItem(*row) for row in await cursor.fetchall()]

    async def skills(self, host_id: str) -> SkillSnapshot:
        """The active skills, and the agents that have them."""
        return await load_skills(self._pool, host_id)

    async def sources(
        self, host_id: str, name: str | None = None, *, after: str = "", limit: int | None = None
    ) -> list[Source]:
        """The sources with names after `after`, ordered by name; or that of one name, if it is
        there."""
        rows = await self._fetch(
            """
            SELECT api.api_id::text, api.name, api.kind, api.location, api.base_url,
                api.base_url_trusted, version.title, version.api_version, version.digest,
                api.include, api.exclude, api.options, api.server, api.logins,
                api.update_ts, (
                    -- no join: of tables that were never analysed it looks at all pairs
                    SELECT count(*) FILTER (WHERE EXISTS (
                        SELECT FROM tool_t AS tool
                        WHERE (tool.host_id, tool.endpoint_id)
                            = (endpoint.host_id, endpoint.endpoint_id)
                            AND tool.active AND tool.held IS NULL))
                    FROM api_endpoint_t AS endpoint
                    WHERE (endpoint.host_id, endpoint.api_id) = (api.host_id, api.api_id)
                ) + (
                    SELECT count(*) FROM tool_t AS tool
                    WHERE (tool.host_id, tool.source_api_id) = (api.host_id, api.api_id)
                        AND tool.active),
                version.number, api.rolled_back, api.origin
            FROM api_t AS api
            LEFT JOIN api_version_t AS version ON version.current
                AND (version.host_id, version.api_id) = (api.host_id, api.api_id)
            WHERE api.host_id = %(host)s
                AND (%(name)s::text IS NULL OR api.name = %(name)s)
                AND api.name COLLATE "C" > %(after)s
            ORDER BY api.name COLLATE "C" LIMIT %(limit)s
            """,
            {"host": host_id, "name": name, "after": after, "limit": limit},
        )
        return [source_of(StoredSource(*row)) for row in rows]

    async def source(self, host_id: str, name: str) -> Source | None:
        sources = await self.sources(host_id, name)
        return sources[0] if sources else None

    async def failures(
        self, host_id: str, *, after: str = "", limit: int | None = None
    ) -> list[ImportFailure]:
        """The sources whose last import failed, ordered by name."""
        rows = await self._fetch(
            "SELECT source, reason, failed_ts, (SELECT starts_with(api.location, %s)"
            " FROM api_t AS api WHERE (api.host_id, api.name) = (failure.host_id, failure.source))"
            " FROM import_failure_t AS failure"
            """ WHERE host_id = %s AND source COLLATE "C" > %s"""
            """ ORDER BY source COLLATE "C" LIMIT %s""",
            [STDIO, host_id, after, limit],
        )
        return [
            ImportFailure(source, reason, at.isoformat(), runs_process)
            for source, reason, at, runs_process in rows
        ]

    async def record_failure(self, host_id: str, source: str, reason: str) -> None:
        await self._execute(
            "INSERT INTO import_failure_t (host_id, source, reason) VALUES (%s, %s, %s)"
            " ON CONFLICT (host_id, source)"
            " DO UPDATE SET reason = excluded.reason, failed_ts = now()",
            [host_id, source, storable_text(reason, REASON_CHARACTERS)],
        )

    async def end_failure(self, host_id: str, source: str) -> None:
        await self._execute(_END_FAILURE, [host_id, source])

    async def end_failures_except(self, host_id: str, sources: Sequence[str]) -> None:
        """Forget the failures of sources that are neither stored nor in the settings any longer."""
        await self._execute(
            "DELETE FROM import_failure_t WHERE host_id = %s AND source <> ALL(%s)",
            [host_id, sources],
        )

    async def credential_names(self, host_id: str, source: str) -> list[CredentialName]:
        """Names of the stored secrets of a source that are sent as they stand."""
        rows = await self._fetch(
            "SELECT kind, scheme FROM secret_t"
            " WHERE (host_id, source) = (%s, %s) AND kind IN ('token', 'value')"
            " ORDER BY scheme",
            [host_id, source],
        )
        return [CredentialName(kind, scheme, stored=True) for kind, scheme in rows]

    async def remove(
        self, host_id: str, name: str, expected_number: int | None = None
    ) -> int | None:
        """Delete a source, all that was imported from it, and the tools made by hand that call it;
        returns how many tools it had. None: there is no such source, or, with `expected_number`,
        none that serves this version.

        Imported again, its tools are new ones.
        """
        async with borrow(self._pool) as connection, connection.transaction():
            await lock_tenant(connection, host_id)
            # Tools first and in one statement: cascading takes one for each endpoint.
            deleted = await connection.execute(
                """
                WITH api AS (
                    SELECT host_id, api_id FROM api_t AS api
                    WHERE host_id = %(host)s AND name = %(name)s AND (%(number)s::int IS NULL
                        OR EXISTS (SELECT FROM api_version_t AS version
                            WHERE version.current AND version.number = %(number)s
                            AND (version.host_id, version.api_id) = (api.host_id, api.api_id)))
                    FOR UPDATE
                ), deleted AS (
                    DELETE FROM tool_t AS tool USING api
                    WHERE tool.host_id = api.host_id AND (tool.source_api_id = api.api_id
                        OR tool.endpoint_id IN (SELECT endpoint.endpoint_id
                            FROM api_endpoint_t AS endpoint
                            WHERE (endpoint.host_id, endpoint.api_id) = (api.host_id, api.api_id)))
                    RETURNING tool.active
                )
                SELECT api_id, (SELECT count(*) FROM deleted WHERE active) FROM api
                """,
                {"host": host_id, "name": name, "number": expected_number},
            )
            if (row := await deleted.fetchone()) is None:
                return None
            await connection.execute(_END_FAILURE, [host_id, name])
            await connection.execute(
                "DELETE FROM api_t WHERE host_id = %s AND api_id = %s", [host_id, row[0]]
            )
        return int(row[1])

    async def document(self, host_id: str, name: str) -> tuple[bytes, str] | None:
        """The description that a source was last imported from, and its digest."""
        async with borrow(self._pool) as connection:
            rows = await connection.execute(
                "SELECT version.document, version.digest FROM api_t AS api"
                " JOIN api_version_t AS version USING (host_id, api_id)"
                " WHERE host_id = %s AND api.name = %s AND version.current",
                [host_id, name],
                binary=True,
            )
            row = await rows.fetchone()
        return (zlib.decompress(row[0]), row[1]) if row and row[0] else None

    async def tenants(self) -> list[str]:
        return await list_tenants(self._pool)
