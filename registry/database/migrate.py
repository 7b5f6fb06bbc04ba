"""Migrations: `migrations/NNNN_name.sql`, applied in order, each in a transaction of its own.

Several nodes may start at once: an advisory lock lets one migrate while the others wait. A database
that is newer than this code is accepted with a warning, because migrations keep older nodes alive:
they add, and only a later release removes.
"""

import hashlib
import importlib.resources
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

import psycopg
from psycopg import AsyncConnection

from registry.database.embedded import DatabaseError

log = logging.getLogger("toolgate.database")

LOCK = 0x746F6F6C67617465  # "toolgate"


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: bytes
    checksum: str  # SHA-256 of `sql`


@dataclass(frozen=True, slots=True)
class MigrationState:
    """One migration and when it was applied; None: it is pending."""

    version: int
    name: str
    applied: datetime | None


def migrations() -> list[Migration]:
    """Those that this release knows, in order."""
    folder = importlib.resources.files("registry").joinpath("migrations")
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".sql")),
        key=lambda file: file.name,
    )
    return [_migration(file.name.removesuffix(".sql"), file.read_bytes()) for file in files]


async def migrate(connection: AsyncConnection) -> list[str]:
    """Apply what is pending; the names of what was applied. `connection` must autocommit."""
    done: list[str] = []
    try:
        async with _locked(connection):
            for migration in pending(migrations(), await _applied(connection)):
                await _apply(connection, migration)
                done.append(migration.name)
    except psycopg.errors.InsufficientPrivilege as error:
        raise DatabaseError(
            f"the database user may not create what Toolgate needs: {error}. Let an administrator "
            "run CREATE EXTENSION vector and GRANT CREATE ON the database and its schema"
        ) from error
    finally:
        if done:
            log.info("migrations_applied", extra={"count": len(done), "last": done[-1]})
    return done


async def status(connection: AsyncConnection) -> list[MigrationState]:
    """All migrations of this release and of the database, in order."""
    applied = await _applied(connection)
    states = {
        known.version: MigrationState(known.version, known.name, None) for known in migrations()
    }
    for version, (name, _, moment) in applied.items():
        states[version] = MigrationState(version, name, moment)
    return [states[version] for version in sorted(states)]


def pending(
    known: list[Migration], applied: Mapping[int, tuple[str, str, datetime]]
) -> list[Migration]:
    """What is left to apply. Raises if something applied has been changed since."""
    if newer := sorted(applied.keys() - {migration.version for migration in known}):
        log.warning("database_newer", extra={"migrations": [applied[v][0] for v in newer]})
    for migration in known:
        if migration.version in applied and applied[migration.version][1] != migration.checksum:
            raise DatabaseError(
                f"migration {migration.name} was changed after it was applied to this database; "
                "use the release that applied it, or restore the file"
            )
    return [migration for migration in known if migration.version not in applied]


_CREATE_VERSIONS = """
CREATE TABLE IF NOT EXISTS schema_version_t (
    version     integer PRIMARY KEY,
    name        text NOT NULL,
    checksum    char(64) NOT NULL,
    applied_ts  timestamptz NOT NULL DEFAULT current_timestamp
)
"""


async def _apply(connection: AsyncConnection, migration: Migration) -> None:
    async with connection.transaction():
        # Not on every start: afterwards a user without the right to create tables is enough.
        await connection.execute(_CREATE_VERSIONS)
        await connection.execute(migration.sql)
        await connection.execute(
            "INSERT INTO schema_version_t (version, name, checksum) VALUES (%s, %s, %s)",
            [migration.version, migration.name, migration.checksum],
        )


async def _applied(connection: AsyncConnection) -> dict[int, tuple[str, str, datetime]]:
    found = await connection.execute("SELECT to_regclass('schema_version_t') IS NOT NULL")
    if await found.fetchone() == (False,):
        return {}
    rows = await connection.execute(
        "SELECT version, name, checksum, applied_ts FROM schema_version_t"
    )
    return {version: (name, checksum, moment) async for version, name, checksum, moment in rows}


@asynccontextmanager
async def _locked(connection: AsyncConnection) -> AsyncIterator[None]:
    await connection.execute("SELECT pg_advisory_lock(%s)", [LOCK])
    try:
        yield
    finally:
        if not connection.broken:  # a lost connection has lost its locks
            await connection.execute("SELECT pg_advisory_unlock(%s)", [LOCK])


def _migration(name: str, sql: bytes) -> Migration:
    sql = sql.replace(b"\r\n", b"\n")  # a checkout with other line ends is the same migration
    version = int(name.partition("_")[0])
    return Migration(version, name, sql, hashlib.sha256(sql).hexdigest())
