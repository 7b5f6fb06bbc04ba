"""Writes tools that people make, change and disable. Each command is atomic.

A tool made by hand has no endpoint. Of an imported one only metadata absent from its description
can be changed here, and the description text, which imports then preserve
(`registry.sources.import_writer`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from anyio import to_thread
from psycopg import AsyncConnection, sql
from psycopg.rows import class_row
from psycopg.types.json import Json, Jsonb

from registry.database.postgres import Pool, borrow
from registry.database.tenants import lock_tenant
from registry.names.tool_names import NameForms, is_reserved, may_be_form
from registry.sources.import_plan import storable
from registry.tools.editable_columns import (
    Address,
    CatalogRow,
    ManualEdit,
    NewTool,
    check_imported,
    check_schema,
    columns_of,
    own_columns,
)
from registry.tools.tool_errors import NoSuchTool, ToolChanged, ToolRefused
from schemas.invisible_characters import without_hidden_fields
from schemas.source import MANUAL, facts_of
from schemas.tool import READ_FIELDS


async def set_description(
    connection: AsyncConnection, host_id: str, tool_id: str, text: str, *, user: str
) -> bool:
    """Describe a tool by hand; later imports keep this description. Returns whether the tool
    exists."""
    done = await connection.execute(
        """
        UPDATE tool_t SET description = %s, description_source = 'manual',
            description_manual_override = endpoint_id IS NOT NULL,
            description_override_ts = CASE WHEN endpoint_id IS NOT NULL
                THEN current_timestamp END,
            description_override_user = CASE WHEN endpoint_id IS NOT NULL THEN %s END,
            aggregate_version = aggregate_version + 1, update_ts = current_timestamp,
            update_user = session_user
        WHERE host_id = %s AND tool_id = %s
        """,
        [text, user, host_id, tool_id],
    )
    return done.rowcount > 0


async def reset_description(connection: AsyncConnection, host_id: str, tool_id: str) -> str | None:
    """Restore an imported tool's description from its source; returns it. None: there is none to
    restore."""
    rows = await connection.execute(
        """
        UPDATE tool_t AS tool SET description = endpoint.endpoint_desc,
            description_source = 'endpoint_sync', description_manual_override = false,
            description_override_ts = NULL, description_override_user = NULL,
            aggregate_version = tool.aggregate_version + 1, update_ts = current_timestamp,
            update_user = session_user
        FROM api_endpoint_t AS endpoint
        WHERE tool.host_id = %s AND tool.tool_id = %s
            AND (endpoint.host_id, endpoint.endpoint_id) = (tool.host_id, tool.endpoint_id)
        RETURNING tool.description
        """,
        [host_id, tool_id],
    )
    row = await rows.fetchone()
    return str(row[0]) if row else None


class ToolEdits:
    """Tools of one tenant. All methods raise `psycopg.OperationalError`; those that change one tool
    raise NoSuchTool."""

    def __init__(self, pool: Pool, host_id: str) -> None:
        self._pool = pool
        self._host_id = host_id

    async def add(self, tools: Sequence[NewTool], *, dry_run: bool = False) -> None:
        """Add all tools, or none. Raises ToolRefused."""
        names = [new.draft.name for new in tools]
        for new in tools:
            await to_thread.run_sync(check_schema, new.draft.name, new.draft.input_schema)
            if names.count(new.draft.name) > 1:
                raise ToolRefused(f"{new.draft.name}: there are two tools of this name here")
        async with borrow(self._pool) as connection, connection.transaction() as transaction:
            await lock_tenant(connection, self._host_id)
            for new in tools:
                check_not_reserved(new.draft.name)
                await self._check_free(connection, new.draft.name)
                await self._insert(connection, new)
            transaction.force_rollback = dry_run

    async def edit(
        self, name: str, change: ManualEdit, user: str, expected_version: int | None = None
    ) -> None:
        """Change a tool. `user` is the author of the description; `expected_version` the tool's
        current version. Raises ToolRefused."""
        change = without_hidden_fields(change, READ_FIELDS)
        async with borrow(self._pool) as connection, connection.transaction():
            await lock_tenant(connection, self._host_id)
            tool_id, catalog_row, schema = await self._row(connection, name)
            await self._check_version(connection, tool_id, expected_version)
            columns = columns_of(change.details)
            if not catalog_row.manual:
                check_imported(catalog_row, change)
            else:
                columns |= await to_thread.run_sync(own_columns, name, schema, change)
            await self._update(connection, tool_id, columns)
            if change.description is not None:
                text = change.description
                await set_description(connection, self._host_id, tool_id, text, user=user)

    async def reset_description(self, name: str, expected_version: int | None = None) -> str:
        """Restore an imported tool's description from its source; returns it. Raises
        ToolRefused."""
        async with borrow(self._pool) as connection, connection.transaction():
            await lock_tenant(connection, self._host_id)
            tool_id, catalog_row, _ = await self._row(connection, name)
            await self._check_version(connection, tool_id, expected_version)
            text = await reset_description(connection, self._host_id, tool_id)
            if text is None:
                raise ToolRefused(
                    f"{catalog_row.name} was made by hand: it has no other description"
                )
            return text

    async def disable(self, names: Sequence[str]) -> list[str]:
        """Deactivate tools until `enable`; returns those that were active."""
        async with borrow(self._pool) as connection, connection.transaction():
            await lock_tenant(connection, self._host_id)
            changed = []
            for name in names:
                tool_id, catalog_row, _ = await self._row(connection, name)
                if not catalog_row.disabled:
                    await self._update(connection, tool_id, {"disabled": True, "active": False})
                    changed.append(catalog_row.name)
            return changed

    async def enable(self, names: Sequence[str]) -> list[str]:
        """Enable tools; returns those that were disabled. Raises ToolRefused when another tool now
        has a name."""
        async with borrow(self._pool) as connection, connection.transaction():
            await lock_tenant(connection, self._host_id)
            changed = []
            for name in names:
                tool_id, catalog_row, _ = await self._row(connection, name, disabled=True)
                if catalog_row.disabled:
                    owner = "" if catalog_row.manual else catalog_row.source
                    if not (catalog_row.kind and facts_of(catalog_row.kind).own):
                        check_not_reserved(catalog_row.name)
                    await self._check_free(connection, catalog_row.name, owner, tool_id)
                    active = catalog_row.manual or await self._is_described(connection, tool_id)
                    await self._update(connection, tool_id, {"disabled": False, "active": active})
                    changed.append(catalog_row.name)
            return changed

    async def remove(self, name: str, expected_version: int | None = None) -> None:
        """Remove a tool made by hand. Raises ToolRefused for an imported one, and ToolChanged."""
        async with borrow(self._pool) as connection, connection.transaction():
            await lock_tenant(connection, self._host_id)
            tool_id, catalog_row, _ = await self._row(connection, name)
            await self._check_version(connection, tool_id, expected_version)
            if not catalog_row.manual:
                raise ToolRefused(
                    f"{catalog_row.name} was imported from {catalog_row.source}, and the next "
                    f"import would restore it. Instead: toolgate tools disable {catalog_row.name}"
                )
            await connection.execute(
                "DELETE FROM tool_t WHERE host_id = %s AND tool_id = %s", [self._host_id, tool_id]
            )
            await connection.execute(
                "DELETE FROM api_t AS api WHERE host_id = %s AND kind = %s AND NOT EXISTS ("
                "SELECT FROM tool_t AS tool WHERE (tool.host_id, tool.source_api_id)"
                " = (api.host_id, api.api_id))",
                [self._host_id, MANUAL],
            )

    async def catalog_row(self, name: str) -> CatalogRow:
        async with borrow(self._pool) as connection:
            return (await self._row(connection, name))[1]

    async def list_disabled(self) -> list[CatalogRow]:
        """The disabled tools, by name."""
        async with (
            borrow(self._pool) as connection,
            connection.cursor(row_factory=class_row(CatalogRow)) as cursor,
        ):
            await cursor.execute(
                _CATALOG_ROW + b" AND tool.disabled ORDER BY tool.name", [self._host_id]
            )
            return await cursor.fetchall()

    async def _row(
        self, connection: AsyncConnection, name: str, *, disabled: bool = False
    ) -> tuple[str, CatalogRow, Any]:
        """Id, row and input schema of the active or disabled tool of this name. There may be one of
        each; `disabled` selects."""
        rows = await connection.execute(
            "SELECT tool_id::text, input_schema FROM tool_t"
            " WHERE host_id = %s AND name = %s AND (active OR disabled)"
            " ORDER BY disabled = %s DESC LIMIT 1",
            [self._host_id, name, disabled],
        )
        row = await rows.fetchone()
        if row is None:
            raise NoSuchTool(name)
        async with connection.cursor(row_factory=class_row(CatalogRow)) as cursor:
            await cursor.execute(_CATALOG_ROW + b" AND tool.tool_id = %s", [self._host_id, row[0]])
            catalog_row = await cursor.fetchone()
        if catalog_row is None:
            raise NoSuchTool(name)
        return row[0], catalog_row, row[1]

    async def _check_version(
        self, connection: AsyncConnection, tool_id: str, expected_version: int | None
    ) -> None:
        """Optimistic concurrency check, in the transaction that writes. Raises ToolChanged."""
        rows = await connection.execute(
            "SELECT name, aggregate_version FROM tool_t WHERE host_id = %s AND tool_id = %s",
            [self._host_id, tool_id],
        )
        name, version = await rows.fetchone() or ("the tool", 0)
        if expected_version not in {None, version}:
            raise ToolChanged(f"{name} has version {version}, not {expected_version}")

    async def _check_free(
        self, connection: AsyncConnection, name: str, owner: str = "", except_id: str | None = None
    ) -> None:
        """Check that the source `owner` ("": tools made by hand) may give a tool this name. Raises
        ToolRefused for one that is taken; a name of another owner's tool is taken in any case of
        its letters, and so are the names by which profiles may show that."""
        async with connection.cursor(row_factory=class_row(CatalogRow)) as cursor:
            await cursor.execute(
                _CATALOG_ROW
                + b" AND lower(tool.name) = lower(%s) AND (tool.active OR tool.disabled)"
                b" AND tool.tool_id IS DISTINCT FROM %s",
                [self._host_id, name, except_id],
            )
            for holder_row in await cursor.fetchall():
                if (
                    holder_row.name != name
                    and ("" if holder_row.manual else holder_row.source) == owner
                ):
                    continue
                holder = (
                    f"is of the source {holder_row.source}"
                    if holder_row.source
                    else "was made by hand"
                )
                state = ", and is disabled" if holder_row.disabled else ""
                raise ToolRefused(
                    f"{name}: there is a tool {holder_row.name} already, which {holder}{state}"
                )
        if may_be_form(name):
            await self._check_forms(connection, name, owner, except_id)

    async def _check_forms(
        self, connection: AsyncConnection, name: str, owner: str, except_id: str | None
    ) -> None:
        """Check that no profile may show another owner's tool by a name. Raises ToolRefused."""
        async with connection.cursor(row_factory=class_row(CatalogRow)) as cursor:
            await cursor.execute(
                _CATALOG_ROW + b" AND (tool.active OR tool.disabled)"
                b" AND tool.tool_id IS DISTINCT FROM %s",
                [self._host_id, except_id],
            )
            rows = await cursor.fetchall()
        names = [row.name for row in rows if ("" if row.manual else row.source) != owner]
        for tool in (await to_thread.run_sync(NameForms, names)).shown_as(name):
            raise ToolRefused(
                f"{name}: clients may see the tool {tool} by this name, shortened; take another"
            )

    async def _is_described(self, connection: AsyncConnection, tool_id: str) -> bool:
        """Whether the current description of an imported tool still has it."""
        rows = await connection.execute(
            "SELECT FROM tool_t AS tool JOIN api_endpoint_t AS endpoint"
            " USING (host_id, endpoint_id) WHERE host_id = %s AND tool_id = %s AND endpoint.active",
            [self._host_id, tool_id],
        )
        return rows.rowcount > 0

    async def _insert(self, connection: AsyncConnection, new: NewTool) -> None:
        source_id = await self._source(connection, new.address) if new.address else None
        draft, _ = storable(new.draft)
        values = {
            "source_api_id": source_id,
            "name": draft.name,
            "title": draft.title,
            "description": draft.description,
            "input_schema": Json(draft.input_schema),
            "output_schema": draft.output_schema and Json(draft.output_schema),
            "annotations": Jsonb(draft.annotations, dumps=msgspec.json.encode),
            "tags": list(draft.tags),
            "toolsets": list(draft.toolsets),
            "binding": Jsonb(draft.binding, dumps=msgspec.json.encode),
            "definition": draft.definition and Json(draft.definition),
            **columns_of(new.details),
        }
        columns = sql.SQL(", ").join(map(sql.Identifier, values))
        places = sql.SQL(", ").join(sql.Placeholder() * len(values))
        await connection.execute(
            sql.SQL("INSERT INTO tool_t (host_id, {columns}) VALUES (%s, {places})").format(
                columns=columns, places=places
            ),
            [self._host_id, *values.values()],
        )

    async def _source(self, connection: AsyncConnection, address: Address) -> str:
        """The id of the source that calls go through."""
        rows = await connection.execute(
            "SELECT api_id::text, base_url_trusted, kind, base_url FROM api_t"
            " WHERE host_id = %s AND name = %s",
            [self._host_id, address.name],
        )
        row = await rows.fetchone()
        if row is not None:
            if address.base_url is not None and row[2:] != (MANUAL, address.base_url):
                raise ToolRefused(
                    f"there is a source {address.name} already, with another address; name another "
                    "one with --source, or leave out the address to use that one"
                )
            if address.guarded and row[1]:
                raise ToolRefused(
                    f"the source {address.name} is an operator's: it may lead to private networks"
                )
            return str(row[0])
        if address.base_url is None:
            raise ToolRefused(f"there is no source {address.name}")
        options = msgspec.structs.replace(address.options, guarded=address.guarded)
        made = await connection.execute(
            "INSERT INTO api_t (host_id, name, kind, location, base_url, base_url_trusted, options)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s) RETURNING api_id::text",
            [
                self._host_id,
                address.name,
                MANUAL,
                address.base_url,
                address.base_url,
                not address.guarded,
                Jsonb(options, dumps=msgspec.json.encode),
            ],
        )
        (api_id,) = await made.fetchone() or ("",)
        return str(api_id)

    async def _update(
        self, connection: AsyncConnection, tool_id: str, values: Mapping[str, Any]
    ) -> None:
        if not values:
            return
        columns = sql.SQL(", ").join(
            sql.SQL("{column} = %s").format(column=sql.Identifier(column)) for column in values
        )
        await connection.execute(
            sql.SQL(
                "UPDATE tool_t SET {columns}, aggregate_version = aggregate_version + 1,"
                " update_ts = current_timestamp, update_user = session_user"
                " WHERE host_id = %s AND tool_id = %s"
            ).format(columns=columns),
            [*values.values(), self._host_id, tool_id],
        )


def check_not_reserved(name: str) -> None:
    """Raises ToolRefused for a name that is kept for the gateway's own tools."""
    if is_reserved(name):
        raise ToolRefused(f"{name}: the name is kept for the gateway's own tools; take another")


_CATALOG_ROW = b"""
    SELECT tool.name, coalesce(api.name, '') AS source, coalesce(api.kind, '') AS kind,
        tool.endpoint_id IS NULL AS manual, tool.disabled, tool.implementation_type,
        tool.description_source,
        tool.description_manual_override AS overridden,
        tool.description_override_ts AS override_ts,
        tool.description_override_user AS override_user, tool.routing_domain,
        tool.semantic_namespace, tool.sensitivity_tier, tool.semantic_weight,
        tool.lifecycle_status, tool.target_personas, tool.cost_tier, tool.tags,
        tool.tool_metadata #> '{routing,semanticKeywords}' AS keywords
    FROM tool_t AS tool
    LEFT JOIN api_endpoint_t AS endpoint USING (host_id, endpoint_id)
    LEFT JOIN api_t AS api ON (api.host_id, api.api_id)
        = (tool.host_id, coalesce(endpoint.api_id, tool.source_api_id))
    WHERE tool.host_id = %s"""
