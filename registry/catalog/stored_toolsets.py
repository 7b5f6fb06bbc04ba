"""Toolsets in the database, besides those of the settings."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
from psycopg import sql
from psycopg.types.json import Jsonb

from config.settings import ToolsetDefinition
from registry.catalog.catalogs import Catalogs
from registry.database.postgres import Pool, borrow
from registry.database.tables import Tables, fetch_row
from registry.database.tenants import lock_tenant
from schemas.errors import ToolgateError

log = logging.getLogger("toolgate.catalog")

ToolsetsByTenant: TypeAlias = Mapping[str, Mapping[str, ToolsetDefinition]]
_COLUMNS = sql.SQL(
    "name, definition, aggregate_version AS version, create_ts AS created,"
    " create_principal AS created_by, update_ts AS updated, update_principal AS updated_by"
)


class ToolsetChanged(ToolgateError):
    """Version conflict: the toolset has another version than the caller expected."""


class TooManyToolsets(ToolgateError):
    """A tenant has reached the limit of stored toolsets."""


@dataclass(frozen=True, slots=True)
class StoredToolset:
    name: str
    definition: ToolsetDefinition
    version: int  # number of its writes, from 1
    created: datetime
    created_by: str
    updated: datetime
    updated_by: str


class StoredToolsets(Tables):
    """Stored toolsets of one tenant. All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool, host_id: str) -> None:
        super().__init__(pool)
        self._host_id = host_id

    async def all(self) -> list[StoredToolset]:
        """All readable toolsets, ordered by name."""
        rows: list[dict[str, Any]] = await self._fetch_rows(
            dict,
            sql.SQL('SELECT {} FROM toolset_t WHERE host_id = %s ORDER BY name COLLATE "C"').format(
                _COLUMNS
            ),
            [self._host_id],
        )
        return [toolset for toolset in map(_stored_toolset, rows) if toolset is not None]

    async def get(self, name: str) -> StoredToolset | None:
        row: dict[str, Any] | None = await self._fetch_row(
            dict,
            sql.SQL("SELECT {} FROM toolset_t WHERE (host_id, name) = (%s, %s)").format(_COLUMNS),
            [self._host_id, name],
        )
        return None if row is None else _stored_toolset(row)

    async def names(self) -> list[str]:
        rows = await self._fetch("SELECT name FROM toolset_t WHERE host_id = %s", [self._host_id])
        return [name for (name,) in rows]

    async def put(
        self,
        name: str,
        definition: ToolsetDefinition,
        expected_version: int,
        *,
        principal: str,
        limit: int,
    ) -> StoredToolset:
        """Write a toolset, already validated. `expected_version` is its current version; 0: it
        must not exist. Raises ToolsetChanged, and TooManyToolsets for a new one beyond `limit`."""
        async with borrow(self._pool) as connection, connection.transaction():
            await lock_tenant(connection, self._host_id)
            _check(name, await self._version(connection, name), expected_version)
            if not expected_version:
                await self._check_count(connection, limit)
            row: dict[str, Any] | None = await fetch_row(
                connection,
                dict,
                sql.SQL("""
                INSERT INTO toolset_t AS old
                    (host_id, name, definition, create_principal, update_principal)
                VALUES (%(host_id)s, %(name)s, %(definition)s, %(principal)s, %(principal)s)
                ON CONFLICT (host_id, name) DO UPDATE SET definition = excluded.definition,
                    aggregate_version = old.aggregate_version + 1,
                    update_ts = current_timestamp, update_user = session_user,
                    update_principal = excluded.update_principal
                RETURNING {}
                """).format(_COLUMNS),
                {
                    "host_id": self._host_id,
                    "name": name,
                    "definition": Jsonb(toolset_members(definition)),
                    "principal": principal,
                },
            )
        written = _stored_toolset(row or {})
        if written is None:
            raise AssertionError("the row was written from a definition")
        return written

    async def delete(self, name: str, expected_version: int) -> bool:
        """Delete a toolset; returns whether it existed. Raises ToolsetChanged where it has another
        version."""
        async with borrow(self._pool) as connection, connection.transaction():
            await lock_tenant(connection, self._host_id)
            version = await self._version(connection, name)
            if not version:
                return False
            _check(name, version, expected_version)
            await connection.execute(
                "DELETE FROM toolset_t WHERE (host_id, name) = (%s, %s)", [self._host_id, name]
            )
        return True

    async def _check_count(self, connection: Any, limit: int) -> None:
        rows = await connection.execute(
            "SELECT count(*) FROM toolset_t WHERE host_id = %s", [self._host_id]
        )
        (count,) = await rows.fetchone()
        if count >= limit:
            raise TooManyToolsets(
                f"there are {count:,} stored toolsets, and at most {limit:,} may be stored "
                "(admin.stored_toolsets): delete one"
            )

    async def _version(self, connection: Any, name: str) -> int:
        rows = await connection.execute(
            "SELECT aggregate_version FROM toolset_t WHERE (host_id, name) = (%s, %s)",
            [self._host_id, name],
        )
        row = await rows.fetchone()
        return 0 if row is None else int(row[0])


class ToolsetFeed:
    """Keeps the stored toolsets of `catalogs` current; see `AccessFeed`."""

    def __init__(self, catalogs: Catalogs) -> None:
        self._catalogs = catalogs
        self._edition: Any = None  # of the table, as it was loaded

    async def load(self, pool: Pool) -> None:
        """Load all toolsets of all tenants, if one has changed since the last load."""
        async with borrow(pool) as connection:
            rows = await connection.execute(
                "SELECT count(*), sum(aggregate_version), max(update_ts) FROM toolset_t"
            )
            edition = await rows.fetchone()
        if edition != self._edition:
            self._catalogs.store(await read_toolsets(pool))
            self._edition = edition


async def read_toolsets(pool: Pool) -> ToolsetsByTenant:
    """The readable toolsets of all tenants, by host_id and name."""
    by_tenant: dict[str, dict[str, ToolsetDefinition]] = {}
    async with borrow(pool) as connection:
        rows = await connection.execute("SELECT host_id::text, name, definition FROM toolset_t")
        async for host_id, name, members in rows:
            if (definition := _read(name, members)) is not None:
                by_tenant.setdefault(host_id, {})[name] = definition
    return by_tenant


def toolset_members(definition: ToolsetDefinition) -> dict[str, Any]:
    """The members of a toolset that differ from their defaults: other releases know others."""
    defaults = msgspec.to_builtins(ToolsetDefinition())
    members = msgspec.to_builtins(definition)
    return {name: value for name, value in members.items() if value != defaults.get(name)}


def _check(name: str, version: int, expected_version: int) -> None:
    if version != expected_version:
        state = f"has version {version}" if version else "is not there"
        raise ToolsetChanged(f"the toolset {name} {state}, not version {expected_version}")


def _stored_toolset(row: dict[str, Any]) -> StoredToolset | None:
    definition = _read(row["name"], row["definition"])
    return None if definition is None else StoredToolset(**{**row, "definition": definition})


def _read(name: str, members: dict[str, Any]) -> ToolsetDefinition | None:
    """None for a toolset with members of a newer release, which may leave out tools that it has
    here: its endpoint is unknown at this node."""
    try:
        return msgspec.convert(members, ToolsetDefinition)
    except msgspec.ValidationError as error:
        log.error("toolset_not_readable", extra={"toolset": name, "reason": str(error)})
        return None
