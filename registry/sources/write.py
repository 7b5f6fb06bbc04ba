"""Writing one import: source, version, endpoints and tools, in the caller's transaction."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import msgspec
from anyio import to_thread
from psycopg import AsyncConnection
from psycopg.errors import LockNotAvailable
from psycopg.types.json import Json

from registry.database.tenants import lock
from registry.names.unique_names import Naming
from registry.sources.aliases import AliasSaving
from registry.sources.items import ItemSaving, ItemsSaved
from registry.sources.pins import Pinning, document
from registry.sources.plan import (
    Changes,
    KnownOperation,
    Row,
    SavedTools,
    SourceDraft,
    changes,
    storable,
)
from registry.sources.write_source import Before, SourceSaving, StoredDocument
from registry.sources.write_version import RollbackTarget, VersionSaving
from schemas.binding import McpBinding
from schemas.source import McpOptions
from schemas.tool import ToolDraft

ROWS_PER_STATEMENT = 250  # the caller hears of progress after each

Progress = Callable[[int, int], None]
Check = Callable[[Before | None], None]
"""Raises when a source is no longer what it was when somebody decided to write it."""


class ImportWriter:
    """One import of one source."""

    def __init__(
        self,
        connection: AsyncConnection,
        host_id: str,
        source: SourceDraft,
        versions_kept: int,
        rollback: RollbackTarget | None = None,
        check: Check | None = None,
    ) -> None:
        self._connection = connection
        self._host_id = host_id
        self._source = source
        self._versions_kept = versions_kept
        self._rollback = rollback
        self._check = check

    async def run(
        self,
        drafts: Sequence[ToolDraft],
        document: StoredDocument | None,
        progress: Progress | None,
    ) -> SavedTools:
        """See `ToolStore.save`."""
        await lock(self._connection, self._host_id)
        source = SourceSaving(self._connection, self._host_id, self._source)
        before = await source.before()
        if self._check:
            self._check(before)
        api_id = await source.save(self._rollback.held if self._rollback else None)
        version_id = await self._save_version(api_id, document)
        naming = self._naming(before)
        known, taken = await self._known(api_id), await self._taken(api_id)
        # In a thread: comparing 10,000 tools would hold up the requests of other callers.
        todo = await to_thread.run_sync(changes, naming, drafts, known, taken)
        await self._retire(todo)
        unchanged, written = len(drafts) - len(todo.rows), 0
        for batch in _batches(todo.rows):
            await self._write(api_id, version_id, batch)
            written += len(batch)
            if written < len(todo.rows):
                await self._inform_planner(written, len(todo.rows))
            if progress:
                progress(unchanged + written, len(drafts))
        if todo.rows:
            await AliasSaving(self._connection, self._host_id).run(todo.aliases)
        if not any(kind == "mcp" for kind in (self._source.kind, before and before.kind)):
            return todo.saved
        items = await self._save_items(api_id, naming)
        held = await self._pin(api_id, drafts, todo.saved, before)
        return replace(todo.saved, items=items, held=held)

    async def compare(self, drafts: Sequence[ToolDraft]) -> Changes:
        """What `run` would change; of a source that nobody has imported yet, all."""
        source = SourceSaving(self._connection, self._host_id, self._source)
        before = await source.before()
        known = await self._known(before.id) if before else {}
        taken = await self._taken(before.id if before else None)
        return await to_thread.run_sync(changes, self._naming(before), drafts, known, taken)

    async def _save_version(self, api_id: str, document: StoredDocument | None) -> str:
        saving = VersionSaving(self._connection, self._host_id, api_id, self._source)
        if self._rollback:
            return await saving.restore(self._rollback.version)
        return await saving.run(document, self._versions_kept)

    def _naming(self, before: Before | None) -> Naming:
        options = self._source.options
        prefix = options.prefix if isinstance(options, McpOptions) else "conditional"
        return Naming(
            self._source.name,
            prefix,
            before is not None and before.options.get("prefix", "conditional") != prefix,
        )

    async def _save_items(self, api_id: str, naming: Naming) -> ItemsSaved:
        saving = ItemSaving(self._connection, self._host_id, api_id)
        items = self._source.items
        drafts = await to_thread.run_sync(lambda: [storable(item)[0] for item in items])
        return await saving.run(naming, drafts)

    async def _pin(
        self, api_id: str, drafts: Sequence[ToolDraft], saved: SavedTools, before: Before | None
    ) -> dict[str, str]:
        """Hold back what nobody has approved; reasons by name of tool."""
        pinning = Pinning(self._connection, self._host_id, api_id)
        options = self._source.options
        if not (isinstance(options, McpOptions) and options.pin):
            await pinning.forget()
            return {}
        kept = [draft for draft in drafts if draft.key in saved.names]
        documents = await to_thread.run_sync(_documents, kept)
        if before is None or not before.options.get("pin"):
            await pinning.trust(documents)
        else:
            await pinning.extend(documents)
        return await pinning.hold_back(documents)

    async def _known(self, api_id: str) -> dict[str, KnownOperation]:
        """What was imported before, by key."""
        rows = await self._connection.execute(
            """
            SELECT endpoint.endpoint, endpoint.endpoint_id::text,
                coalesce(tool.tool_id, gen_random_uuid())::text, coalesce(tool.name, ''),
                endpoint.digest, endpoint.active, coalesce(tool.active, true), endpoint.operation
            FROM api_endpoint_t AS endpoint
            LEFT JOIN tool_t AS tool USING (host_id, endpoint_id)
            WHERE host_id = %s AND endpoint.api_id = %s
            """,
            [self._host_id, api_id],
        )
        return {key: KnownOperation(*rest) async for key, *rest in rows}

    async def _taken(self, api_id: str | None) -> set[str]:
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
        """Take what is gone out of service, and free names and keys that are to change hands."""
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
        if todo.moved:
            await self._connection.execute(
                "UPDATE api_endpoint_t AS endpoint SET endpoint = moved.key"
                " FROM unnest(%s::uuid[], %s::text[]) AS moved (endpoint_id, key)"
                " WHERE host_id = %s AND endpoint.endpoint_id = moved.endpoint_id",
                [list(todo.moved), list(todo.moved.values()), self._host_id],
            )

    async def _inform_planner(self, written: int, count: int) -> None:
        """`count` rows are on their way into tables that the planner may take for empty. It would
        read all rows of the tenant for each of them: any index that begins with the tenant seems
        as good as the right one.

        Asked again after each batch: the autovacuum may be at it now, and not see what is written.
        """
        known = await self._connection.execute(
            "SELECT min(reltuples) FROM pg_class"
            " WHERE oid IN ('api_endpoint_t'::regclass, 'tool_t'::regclass)"
        )
        row = await known.fetchone()
        if row is None or row[0] * 2 >= written or row[0] * 10 >= count:
            return
        with suppress(LockNotAvailable):  # another import or the autovacuum is at it
            async with self._connection.transaction():
                await self._connection.execute("SET LOCAL lock_timeout = '100ms'")
                await self._connection.execute("ANALYZE api_endpoint_t, tool_t")
                await self._connection.execute("SET LOCAL lock_timeout TO DEFAULT")

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


def _documents(drafts: Sequence[ToolDraft]) -> dict[str, bytes]:
    """What has to be approved, by key."""
    return {
        draft.key: document(draft, draft.binding.name)
        for draft in drafts
        if isinstance(draft.binding, McpBinding)
    }


# One statement for many rows: the statement triggers run once, and json keeps schemas verbatim.
_WRITE = """
WITH draft AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(rows)s) AS draft (
        endpoint_id uuid, tool_id uuid, endpoint text, endpoint_name text, operation text,
        digest text, active boolean, name text, title text, description text, input_schema json,
        output_schema json, annotations jsonb, tags text[], toolsets text[], binding jsonb,
        definition json)
), endpoint AS (
    INSERT INTO api_endpoint_t AS old (host_id, api_id, api_version_id, endpoint_id, endpoint,
        endpoint_name, endpoint_desc, operation, digest)
    SELECT %(host)s, %(api)s, %(version)s, endpoint_id, endpoint, endpoint_name, description,
        operation, digest
    FROM draft
    ON CONFLICT (host_id, endpoint_id) DO UPDATE SET
        api_version_id = excluded.api_version_id, endpoint_name = excluded.endpoint_name,
        endpoint_desc = excluded.endpoint_desc, operation = excluded.operation,
        digest = excluded.digest, active = true,
        aggregate_version = old.aggregate_version + 1, update_ts = current_timestamp,
        update_user = session_user
)
INSERT INTO tool_t AS old (host_id, tool_id, endpoint_id, name, title, description,
    description_source, input_schema, output_schema, annotations, tags, toolsets, binding,
    definition, active)
SELECT %(host)s, tool_id, endpoint_id, name, title, description, 'endpoint_sync', input_schema,
    output_schema, annotations, tags, toolsets, binding, definition, active
FROM draft
ON CONFLICT (host_id, tool_id) DO UPDATE SET
    name = excluded.name, title = excluded.title,
    description = CASE WHEN old.description_manual_override THEN old.description
        ELSE excluded.description END,
    input_schema = excluded.input_schema, output_schema = excluded.output_schema,
    annotations = excluded.annotations, tags = excluded.tags, toolsets = excluded.toolsets,
    binding = excluded.binding, definition = excluded.definition,
    active = excluded.active, aggregate_version = old.aggregate_version + 1,
    update_ts = current_timestamp, update_user = session_user
"""


def _batches(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        yield rows[start : start + ROWS_PER_STATEMENT]
