"""Migrations: `NNNN_name.sql` files in the folder of a component, each applied in a transaction of
its own.

Components are migrated sequentially, in the order given: the registry first, whose tables the
others may refer to. The key of a migration is its component and its number. A component that is not
given creates no tables, and its existing tables stay as they are.

Several nodes may start at once: an advisory lock lets one migrate while the others wait. A database
that is newer than this code is accepted with a warning, because migrations keep older nodes alive:
they add, and only a later release removes.
"""

import hashlib
import importlib.resources
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources.abc import Traversable
from typing import TypeAlias

import psycopg
from msgspec import Struct
from psycopg import AsyncConnection

from registry.database.embedded_server import DatabaseError

log = logging.getLogger("toolgate.database")

LOCK = 0x746F6F6C67617465  # "toolgate"
BEFORE_BASELINE = (
    "this database was made by a development version of Toolgate, before the baseline of its "
    "tables, and cannot be brought to this release. Start with an empty one: name another database "
    "in database.url, or with the embedded one another directory in database.data_dir. Sources and "
    "skills can be imported again"
)


class ChangedMigration(DatabaseError):
    """A database has tables that are not those of this release, and cannot be changed to them."""


class Component(Struct, frozen=True):
    """A part of the product with its own tables, and the folder of its migrations."""

    name: str
    folder: Traversable


REGISTRY = Component("registry", importlib.resources.files("registry").joinpath("migrations"))


@dataclass(frozen=True, slots=True)
class Migration:
    component: str
    version: int
    name: str
    sql: bytes
    checksum: str  # SHA-256 of `sql`

    @property
    def key(self) -> tuple[str, int]:
        return self.component, self.version

    @property
    def label(self) -> str:
        return f"{self.component}/{self.name}"


class MigrationState(Struct, frozen=True):
    """One migration and when it was applied; None: it is pending."""

    component: str
    version: int
    name: str
    applied: datetime | None


MigrationsApplied: TypeAlias = Mapping[tuple[str, int], tuple[str, str, datetime]]
"""Name, checksum and time of the migrations of a database, by component and version."""


def migrations(components: Iterable[Component] = (REGISTRY,)) -> list[Migration]:
    """The migrations that this release knows, in the order in which they are applied."""
    return [migration for component in components for migration in _of(component)]


async def migrate(
    connection: AsyncConnection, components: Sequence[Component] = (REGISTRY,)
) -> list[str]:
    """Apply pending migrations; returns their labels. `connection` must autocommit."""
    done: list[str] = []
    try:
        async with _migration_lock(connection):
            for migration in pending(migrations(components), await _applied_rows(connection)):
                await _apply(connection, migration)
                done.append(migration.label)
    except psycopg.errors.InsufficientPrivilege as error:
        raise DatabaseError(
            f"the database user may not create what Toolgate needs: {error}. Let an administrator "
            "run CREATE EXTENSION vector and GRANT CREATE ON the database and its schema"
        ) from error
    finally:
        if done:
            log.info("migrations_applied", extra={"count": len(done), "last": done[-1]})
    return done


async def status(
    connection: AsyncConnection, components: Sequence[Component] = (REGISTRY,)
) -> list[MigrationState]:
    """The migrations of these components in order, then unknown ones applied to the database."""
    applied = await _applied_rows(connection)
    names = {migration.key: migration.name for migration in migrations(components)}
    others = {key: applied[key][0] for key in sorted(applied.keys() - names.keys())}
    return [
        MigrationState(*key, name, applied[key][2] if key in applied else None)
        for key, name in (names | others).items()
    ]


def pending(
    all_migrations: Sequence[Migration], applied_rows: MigrationsApplied
) -> list[Migration]:
    """The pending migrations. Raises if an applied one has been changed since."""
    keys = {migration.key for migration in all_migrations}
    components = {migration.component for migration in all_migrations}
    if newer := sorted(key for key in applied_rows.keys() - keys if key[0] in components):
        log.warning(
            "database_newer",
            extra={"migrations": [f"{key[0]}/{applied_rows[key][0]}" for key in newer]},
        )
    for migration in all_migrations:
        if migration.key in applied_rows and applied_rows[migration.key][1] != migration.checksum:
            raise ChangedMigration(
                f"migration {migration.label} was changed after it was applied to this database, "
                "as happens between development versions; use the version that applied it. Or "
                "start with an empty database, and import sources and skills again"
            )
    return [migration for migration in all_migrations if migration.key not in applied_rows]


_CREATE_VERSIONS = """
CREATE TABLE IF NOT EXISTS schema_version_t (
    component   text NOT NULL,
    version     integer NOT NULL,
    name        text NOT NULL,
    checksum    char(64) NOT NULL,
    applied_ts  timestamptz NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (component, version)
);
COMMENT ON TABLE schema_version_t IS 'Migrations that were applied. Written by `migrate`.'
"""


async def _apply(connection: AsyncConnection, migration: Migration) -> None:
    async with connection.transaction():
        # Not on every start: afterwards a user without the right to create tables suffices.
        await connection.execute(_CREATE_VERSIONS)
        await connection.execute(migration.sql)
        await connection.execute(
            "INSERT INTO schema_version_t (component, version, name, checksum)"
            " VALUES (%s, %s, %s, %s)",
            [*migration.key, migration.name, migration.checksum],
        )


async def _applied_rows(connection: AsyncConnection) -> MigrationsApplied:
    result = await connection.execute(
        "SELECT bool_or(attname = 'component') FROM pg_attribute"
        " WHERE attrelid = to_regclass('schema_version_t')"
    )
    match await result.fetchone():
        case (None,):
            return {}
        case (False,):
            raise ChangedMigration(BEFORE_BASELINE)
    rows = await connection.execute(
        "SELECT component, version, name, checksum, applied_ts FROM schema_version_t"
    )
    return {
        (component, version): (name, checksum, moment)
        async for component, version, name, checksum, moment in rows
    }


@asynccontextmanager
async def _migration_lock(connection: AsyncConnection) -> AsyncIterator[None]:
    await connection.execute("SELECT pg_advisory_lock(%s)", [LOCK])
    try:
        yield
    finally:
        if not connection.broken:  # a lost connection has lost its locks
            await connection.execute("SELECT pg_advisory_unlock(%s)", [LOCK])


@cache  # `Database.open` asks for them each time
def _of(component: Component) -> tuple[Migration, ...]:
    files = sorted(
        (file for file in component.folder.iterdir() if file.name.endswith(".sql")),
        key=lambda file: file.name,
    )
    return tuple(
        _migration(component.name, file.name.removesuffix(".sql"), file.read_bytes())
        for file in files
    )


def _migration(component: str, name: str, sql: bytes) -> Migration:
    sql = sql.replace(b"\r\n", b"\n")  # line endings of a checkout do not change the migration
    version = int(name.partition("_")[0])
    return Migration(component, version, name, sql, checksum=hashlib.sha256(sql).hexdigest())
