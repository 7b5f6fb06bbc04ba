"""Writes of one import: source, version, endpoints, tools, items, in the caller's transaction.

A version is a document and how it was read. Read by a later importer, found elsewhere, or called at
another address, it is the same version.
"""

import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, LiteralString

import msgspec
from anyio import to_thread
from psycopg import AsyncConnection, sql
from psycopg.errors import LockNotAvailable
from psycopg.types.json import Json, Jsonb

from registry.database.tenants import lock_tenant
from registry.names.tool_names import Naming, TakenNames
from registry.sources.import_plan import (
    Changes,
    KnownOperation,
    Row,
    SavedTools,
    SourceDraft,
    changes,
    storable,
)
from registry.sources.mcp_items import ItemSaving, ItemsSaved
from registry.sources.name_reclaiming import log_renamed, reclaim_names
from registry.sources.pins import SourcePins, document
from schemas.errors import ImportRejected
from schemas.source import RolledBack, Source, facts_of
from schemas.tool import ToolDraft

ADDRESS_FIELDS = ("location", "base_url", "base_url_trusted")  # do not affect the tools

ROWS_PER_STATEMENT = 250  # progress is reported after each
BYTES_PER_STATEMENT = 4 << 20  # schemas of 250 tools can have 60 MB, which hold up all callers


@dataclass(frozen=True, slots=True)
class StoredDocument:
    digest: str  # SHA-256 of the bytes as they were read
    packed: bytes  # zlib

    @classmethod
    async def of(cls, data: bytes) -> "StoredDocument":
        """The document, compressed in a thread: 10 MB take about 0.1 s."""
        return await to_thread.run_sync(
            lambda: cls(hashlib.sha256(data).hexdigest(), zlib.compress(data, 1))
        )


@dataclass(frozen=True, slots=True)
class PreviousImport:
    """The state of a source at its last import."""

    id: str
    kind: str
    options: dict[str, Any]  # as stored
    version: int | None  # the number of the one served
    rolled_back: int | None  # the number of the one that it replaces

    @property
    def is_pinned(self) -> bool:
        """Whether its tools were pinned."""
        return bool(self.options.get("pin", facts_of(self.kind).options().pin))


class SourceSaving:
    """Writes the source of one import."""

    def __init__(self, connection: AsyncConnection, host_id: str, source: SourceDraft) -> None:
        self._connection = connection
        self._host_id = host_id
        self._source = source

    async def before(self) -> PreviousImport | None:
        row = await self._one(
            "SELECT api_id::text, kind, options,"
            " (SELECT number FROM api_version_t AS version WHERE version.current"
            " AND (version.host_id, version.api_id) = (api.host_id, api.api_id)),"
            " (rolled_back ->> 'version')::int FROM api_t AS api WHERE host_id = %s AND name = %s",
            [self._host_id, self._source.name],
        )
        return PreviousImport(*row) if row else None

    async def save(self, rolled_back: RolledBack | None = None) -> str:
        """Save the source; returns its id. `rolled_back`: the version replaced by an older one;
        None ends that."""
        await self._connection.execute(
            """
            INSERT INTO api_t AS old (host_id, name, kind, location, base_url, base_url_trusted,
                include, exclude, options, server, logins, rolled_back, origin)
            VALUES (%(host)s, %(name)s, %(kind)s, %(location)s, %(base_url)s, %(trusted)s,
                %(include)s, %(exclude)s, %(options)s, %(server)s, %(logins)s, %(rolled_back)s,
                %(origin)s)
            ON CONFLICT (host_id, name) DO UPDATE SET
                kind = excluded.kind, location = excluded.location, base_url = excluded.base_url,
                base_url_trusted = excluded.base_url_trusted, include = excluded.include,
                exclude = excluded.exclude, options = excluded.options, server = excluded.server,
                logins = excluded.logins, rolled_back = excluded.rolled_back,
                origin = excluded.origin, aggregate_version = old.aggregate_version + 1,
                update_ts = current_timestamp, update_user = session_user
            WHERE (old.kind, old.location, old.base_url, old.base_url_trusted,
                   old.include, old.exclude, old.options, old.server, old.logins,
                   old.rolled_back, old.origin)
                IS DISTINCT FROM (excluded.kind, excluded.location, excluded.base_url,
                   excluded.base_url_trusted, excluded.include, excluded.exclude,
                   excluded.options, excluded.server, excluded.logins, excluded.rolled_back,
                   excluded.origin)
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
                "server": _jsonb(self._source.server),
                "logins": _jsonb(self._source.logins or None),
                "origin": self._source.origin,
                "rolled_back": rolled_back and Jsonb(rolled_back, dumps=msgspec.json.encode),
            },
        )
        row = await self._one(
            "SELECT api_id::text FROM api_t WHERE host_id = %s AND name = %s",
            [self._host_id, self._source.name],
        )
        return str(row[0])

    async def _one(self, query: LiteralString, values: Sequence[object]) -> tuple[Any, ...]:
        """The first row, empty when there is none."""
        rows = await self._connection.execute(query, values)
        return await rows.fetchone() or ()


def _jsonb(facts: object) -> Jsonb | None:
    return None if facts is None else Jsonb(storable(facts)[0], dumps=msgspec.json.encode)


@dataclass(frozen=True, slots=True)
class RollbackTarget:
    """A version that is to be served again."""

    version: int  # its number
    held: RolledBack | None  # the version not to import meanwhile; None: this is the newest


@dataclass(frozen=True, slots=True)
class _Row:
    id: str
    title: str | None
    version: str | None
    digest: str | None
    document_digest: str | None
    spec: dict[str, Any]
    outcomes: dict[str, int] | None
    current: bool
    has_document: bool


def stored_spec(source: SourceDraft | Source) -> dict[str, Any]:
    """The spec of an import, as `api_version_t.spec` stores it."""
    spec = {
        "kind": source.kind,
        "location": source.location,
        "base_url": source.base_url,
        "base_url_trusted": source.base_url_trusted,
        "include": source.include,
        "exclude": source.exclude,
        "options": source.options,
    }
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(spec))
    return document


def same_stored_spec(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether both specs read a document alike."""
    return _parsing_fields(first) == _parsing_fields(second)


def _parsing_fields(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name not in ADDRESS_FIELDS}


class VersionSaving:
    """Writes the versions of one source."""

    def __init__(
        self, connection: AsyncConnection, host_id: str, api_id: str, source: SourceDraft
    ) -> None:
        self._connection = connection
        self._values: dict[str, Any] = {"host": host_id, "api": api_id}
        self._source = source
        self._spec = stored_spec(source)

    async def run(self, document: StoredDocument | None, versions_to_keep: int) -> str:
        """The id of the version of `document`: the current one, the newest one, or a new one.
        Of the others the last `versions_to_keep` keep their documents."""
        for row in await self._candidates():
            if self._matches(row, document):
                await self._make_current(row, document)
                return row.id
        version_id = await self._add(document)
        await self._prune(versions_to_keep)
        return version_id

    async def restore(self, number: int) -> str:
        """Make this version the current one again. Raises ImportRejected when its document is not
        stored."""
        rows = await self._rows(sql.SQL("number = %(number)s"), number=number)
        if not rows or not rows[0].has_document:
            raise ImportRejected(f"Version {number} of {self._source.name} is no longer kept.")
        await self._make_current(rows[0], None)
        return rows[0].id

    async def _candidates(self) -> list[_Row]:
        """The current version, and the newest one if its document is stored."""
        rows = await self._rows(
            sql.SQL(
                "(current OR number = (SELECT max(number) FROM api_version_t"
                " WHERE host_id = %(host)s AND api_id = %(api)s))"
            )
        )
        return sorted(
            (row for row in rows if row.current or row.has_document),
            key=lambda row: not row.current,
        )

    def _matches(self, row: _Row, document: StoredDocument | None) -> bool:
        if (row.title, row.version) != (self._source.title, self._source.version):
            return False
        if not same_stored_spec(row.spec, self._spec):
            return False
        if document is None or not row.has_document:
            return row.digest == self._digest(document)
        return row.document_digest == document.digest

    async def _make_current(self, row: _Row, document: StoredDocument | None) -> None:
        """Serve this version, as this importer reads it."""
        digest = self._digest(document) or row.digest
        document_digest = document.digest if document else row.document_digest
        outcomes = dict(self._source.outcomes) or row.outcomes
        now = (True, digest, document_digest, self._spec, outcomes)
        if (row.current, row.digest, row.document_digest, row.spec, row.outcomes) == now:
            return
        if not row.current:
            await self._supersede()
        await self._connection.execute(
            """
            UPDATE api_version_t SET current = true, digest = %(digest)s,
                document_digest = %(document_digest)s, spec = %(spec)s, outcomes = %(outcomes)s,
                aggregate_version = aggregate_version + 1, update_ts = current_timestamp
            WHERE host_id = %(host)s AND api_version_id = %(version)s
            """,
            self._values
            | {
                "version": row.id,
                "digest": digest,
                "document_digest": document_digest,
                "spec": Jsonb(self._spec),
                "outcomes": Jsonb(outcomes) if outcomes else None,
            },
        )

    async def _add(self, document: StoredDocument | None) -> str:
        await self._supersede()
        rows = await self._connection.execute(
            """
            INSERT INTO api_version_t (host_id, api_id, title, api_version, digest, document_digest,
                document, spec, outcomes)
            VALUES (%(host)s, %(api)s, %(title)s, %(version)s, %(digest)s, %(document_digest)s,
                %(document)b, %(spec)s, %(outcomes)s)
            RETURNING api_version_id::text
            """,
            self._values
            | {
                "title": self._source.title,
                "version": self._source.version,
                "digest": self._digest(document),
                "document_digest": document.digest if document else None,
                "document": document.packed if document else None,
                "spec": Jsonb(self._spec),
                "outcomes": Jsonb(dict(self._source.outcomes)) if self._source.outcomes else None,
            },
        )
        (version_id,) = await rows.fetchone() or ("",)
        return str(version_id)

    async def _supersede(self) -> None:
        """Mark the source as changed: its version is another one."""
        done = await self._connection.execute(
            "UPDATE api_version_t SET current = false, update_ts = current_timestamp"
            " WHERE host_id = %(host)s AND api_id = %(api)s AND current",
            self._values,
        )
        if done.rowcount:
            await self._connection.execute(
                "UPDATE api_t SET aggregate_version = aggregate_version + 1,"
                " update_ts = current_timestamp WHERE host_id = %(host)s AND api_id = %(api)s",
                self._values,
            )

    async def _prune(self, versions_to_keep: int) -> None:
        await self._connection.execute(
            """
            UPDATE api_version_t SET document = NULL, update_ts = current_timestamp
            WHERE host_id = %(host)s AND api_id = %(api)s AND NOT current
                AND document IS NOT NULL AND number <= (
                    SELECT max(number) FROM api_version_t
                    WHERE host_id = %(host)s AND api_id = %(api)s) - %(kept)s
            """,
            self._values | {"kept": versions_to_keep},
        )

    def _digest(self, document: StoredDocument | None) -> str | None:
        return self._source.digest or (document.digest if document else None)

    async def _rows(self, condition: sql.SQL, **values: object) -> list[_Row]:
        rows = await self._connection.execute(
            sql.SQL(
                "SELECT api_version_id::text, title, api_version, digest, document_digest, spec,"
                " outcomes, current, document IS NOT NULL FROM api_version_t"
                " WHERE host_id = %(host)s AND api_id = %(api)s AND {condition}"
            ).format(condition=condition),
            self._values | values,
        )
        return [_Row(*row) async for row in rows]


Progress = Callable[[int, int], None]
Check = Callable[[PreviousImport | None], None]
"""Raises ImportRejected when the source has changed since the decision to write it."""


class ImportWriter:
    """Writes one import of one source."""

    def __init__(
        self,
        connection: AsyncConnection,
        host_id: str,
        source: SourceDraft,
        versions_kept: int,
        *,
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
        await self._connection.execute("SET LOCAL lock_timeout = 0")  # another import may take long
        await lock_tenant(self._connection, self._host_id)
        source = SourceSaving(self._connection, self._host_id, self._source)
        before = await source.before()
        if self._check:
            self._check(before)
        if self._source.facts.own:
            draft_names = [draft.name for draft in drafts]
            log_renamed(
                self._host_id, await reclaim_names(self._connection, self._host_id, draft_names)
            )
        api_id = await source.save(self._rollback.held if self._rollback else None)
        version_id = await self._save_version(api_id, document)
        naming = self._naming(before)
        operations, taken_names = (
            await self._known_operations(api_id),
            await self._taken_names(api_id),
        )
        # In a thread: comparing 10,000 tools would block the requests of other callers.
        plan = await to_thread.run_sync(changes, naming, drafts, operations, taken_names)
        await self._retire(plan)
        unchanged, written = len(drafts) - len(plan.rows), 0
        while written < len(plan.rows):
            count, batch = await to_thread.run_sync(_encode_batch, plan.rows, written)
            await self._write(api_id, version_id, batch)
            written += count
            if written < len(plan.rows):
                await self._inform_planner(written, len(plan.rows))
            if progress:
                progress(unchanged + written, len(drafts))
        if plan.rows:
            await AliasSaving(self._connection, self._host_id).run(plan.aliases)
        kinds = (self._source.kind, before.kind if before else "")
        if not (self._source.options.pin or any(facts_of(kind).has_items for kind in kinds)):
            return plan.saved
        items = await self._save_items(api_id, naming)
        held_tools = await self._pin(api_id, drafts, plan.saved, before)
        return replace(plan.saved, items=items, held=held_tools)

    async def compare(self, drafts: Sequence[ToolDraft]) -> Changes:
        """The changes that `run` would make; for a source not imported yet, all its tools are
        new."""
        source = SourceSaving(self._connection, self._host_id, self._source)
        before = await source.before()
        operations = await self._known_operations(before.id) if before else {}
        taken_names = await self._taken_names(before.id if before else None)
        return await to_thread.run_sync(
            changes, self._naming(before), drafts, operations, taken_names
        )

    async def _save_version(self, api_id: str, document: StoredDocument | None) -> str:
        saving = VersionSaving(self._connection, self._host_id, api_id, self._source)
        if self._rollback:
            return await saving.restore(self._rollback.version)
        return await saving.run(document, self._versions_kept)

    def _naming(self, before: PreviousImport | None) -> Naming:
        options = self._source.options
        prefix = options.prefix
        return Naming(
            self._source.name,
            prefix,
            before is not None and before.options.get("prefix", "conditional") != prefix,
            self._source.facts.own,
        )

    async def _save_items(self, api_id: str, naming: Naming) -> ItemsSaved:
        saving = ItemSaving(self._connection, self._host_id, api_id)
        items = self._source.items
        drafts = await to_thread.run_sync(lambda: [storable(item)[0] for item in items])
        return await saving.run(naming, drafts)

    async def _pin(
        self,
        api_id: str,
        drafts: Sequence[ToolDraft],
        saved_tools: SavedTools,
        before: PreviousImport | None,
    ) -> dict[str, str]:
        """Hold back changed tools; reasons by name of tool."""
        pinning = SourcePins(self._connection, self._host_id, api_id)
        if not self._source.options.pin:
            await pinning.forget()
            return {}
        saved_drafts = [draft for draft in drafts if draft.key in saved_tools.names]
        documents = await to_thread.run_sync(_documents, saved_drafts)
        if before is None or not before.is_pinned:
            await pinning.trust(documents)
        else:
            await pinning.extend(documents)
        return await pinning.hold_back(documents)

    async def _known_operations(self, api_id: str) -> dict[str, KnownOperation]:
        """The operations of earlier imports, by key."""
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

    async def _taken_names(self, api_id: str | None) -> TakenNames:
        """Names of the active tools of other sources."""
        rows = await self._connection.execute(
            """
            SELECT tool.name FROM tool_t AS tool
            LEFT JOIN api_endpoint_t AS endpoint USING (host_id, endpoint_id)
            WHERE host_id = %s AND tool.active AND endpoint.api_id IS DISTINCT FROM %s
            """,
            [self._host_id, api_id],
        )
        names = [name async for (name,) in rows]
        return await to_thread.run_sync(TakenNames, names)

    async def _retire(self, plan: Changes) -> None:
        """Deactivate removed tools, and free names and keys that other tools get."""
        if plan.renamed:
            await self._connection.execute(
                "UPDATE tool_t SET active = false WHERE host_id = %s AND tool_id = ANY(%s::uuid[])",
                [self._host_id, list(plan.renamed)],
            )
        if plan.removed:
            for table in ("api_endpoint_t", "tool_t"):
                await self._connection.execute(
                    sql.SQL(
                        "UPDATE {table} SET active = false,"
                        " aggregate_version = aggregate_version + 1, update_ts = current_timestamp,"
                        " update_user = session_user"
                        " WHERE host_id = %s AND endpoint_id = ANY(%s::uuid[])"
                    ).format(table=sql.Identifier(table)),
                    [self._host_id, list(plan.removed)],
                )
        if plan.moved:
            await self._connection.execute(
                "UPDATE api_endpoint_t AS endpoint SET endpoint = moved.key"
                " FROM unnest(%s::uuid[], %s::text[]) AS moved (endpoint_id, key)"
                " WHERE host_id = %s AND endpoint.endpoint_id = moved.endpoint_id",
                [list(plan.moved), list(plan.moved.values()), self._host_id],
            )

    async def _inform_planner(self, written: int, count: int) -> None:
        """Update planner statistics: `count` rows are about to be written to tables that the
        planner may take for empty. It would read all rows of the tenant for each of them: any index
        that begins with the tenant seems as good as the right one.

        Called again after each batch: the autovacuum may hold the lock, without seeing these rows.
        """
        rows = await self._connection.execute(
            "SELECT min(reltuples) FROM pg_class"
            " WHERE oid IN ('api_endpoint_t'::regclass, 'tool_t'::regclass)"
        )
        row = await rows.fetchone()
        if row is None or row[0] * 2 >= written or row[0] * 10 >= count:
            return
        with suppress(LockNotAvailable):  # another import or the autovacuum holds the lock
            async with self._connection.transaction():
                await self._connection.execute("SET LOCAL lock_timeout = '100ms'")
                await self._connection.execute("ANALYZE api_endpoint_t, tool_t")
                await self._connection.execute("SET LOCAL lock_timeout = 0")

    async def _write(self, api_id: str, version_id: str, rows: bytes) -> None:
        await self._connection.execute(
            _WRITE,
            {
                "host": self._host_id,
                "api": api_id,
                "version": version_id,
                "rows": Json(rows, dumps=bytes),
            },
        )


def _documents(drafts: Sequence[ToolDraft]) -> dict[str, bytes]:
    """The definitions to accept, by key."""
    return {draft.key: document(draft, draft.binding.peer_name or draft.name) for draft in drafts}


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


def _encode_batch(rows: Sequence[Row], start: int) -> tuple[int, bytes]:
    """The next rows of one statement as a JSON array, and their number: of a row at least, and
    as many as the limits leave room for."""
    encoded: list[bytes] = []
    size = 0
    for row in rows[start : start + ROWS_PER_STATEMENT]:
        encoded.append(msgspec.json.encode(row))
        size += len(encoded[-1])
        if size >= BYTES_PER_STATEMENT:
            break
    return len(encoded), b"[" + b",".join(encoded) + b"]"


class AliasSaving:
    """Saves and ends aliases during one import, in its transaction."""

    def __init__(self, connection: AsyncConnection, host_id: str) -> None:
        self._connection = connection
        self._host_id = host_id

    async def run(self, aliases: Mapping[str, str]) -> None:
        """Make these names aliases of these tools, by id; end the aliases whose name a tool now
        has."""
        if aliases:
            await self._connection.execute(
                """
                INSERT INTO tool_alias_t AS old (host_id, name, tool_id)
                SELECT %s, name, tool_id FROM unnest(%s::text[], %s::uuid[]) AS one (name, tool_id)
                ON CONFLICT (host_id, name) DO UPDATE SET
                    tool_id = excluded.tool_id, since = current_timestamp
                """,
                [self._host_id, list(aliases), list(aliases.values())],
            )
        await self._connection.execute(
            """
            DELETE FROM tool_alias_t AS alias USING tool_t AS tool
            WHERE alias.host_id = %s AND tool.host_id = alias.host_id AND tool.active
                AND tool.name = alias.name
            """,
            [self._host_id],
        )
