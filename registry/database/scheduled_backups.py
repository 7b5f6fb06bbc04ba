"""Backups with retention: an archive of pg_dump, and a manifest beside it.

The manifest is written last, so that a backup without one is none. It has the size and the digest
of the archive, and the rows of each table in the same snapshot, by which it is verified.
"""

import hashlib
import logging
import re
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

import anyio
import msgspec
import psycopg
from anyio import to_thread
from msgspec import Struct
from psycopg import sql
from psycopg.conninfo import make_conninfo

from registry.database.backup_places import (
    ABANDONED_AFTER_S,
    BackupPlace,
    BackupRefused,
    remove_abandoned,
)
from registry.database.client_programs import (
    SERVICE_PREFIX,
    SNAPSHOT,
    client_program,
    count_in_snapshot,
    count_rows,
    service_file,
)
from registry.database.embedded_server import DatabaseError
from registry.database.postgres import Database

log = logging.getLogger("toolgate.backups")

ARCHIVE, MANIFEST = ".backup", ".json"
_TIME = "toolgate-%Y%m%dT%H%M%SZ"
_NAME = re.compile(r"toolgate-[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}")
_WORK = "toolgate-backup-"  # prefix of temporary folders
_TABLE = re.compile(r"^\d+; \d+ \d+ TABLE DATA (\S+) (\S+) ", re.MULTILINE)
ERROR_CHARACTERS = 500
T = TypeVar("T")


class StoredBackup(Struct, frozen=True):
    """A whole backup. `rows` by table."""

    name: str
    created: datetime
    bytes: int
    sha256: str
    rows: dict[str, int]


class BackupReport(Struct, frozen=True):
    """Outcome of a verification; without `problems` the backup is whole."""

    name: str
    tables: int
    rows: int
    restored: bool
    problems: tuple[str, ...] = ()


class Backups:
    """Backups in a place. All methods raise BackupRefused and DatabaseError."""

    def __init__(self, place: BackupPlace, keep: int) -> None:
        self._place = place
        self._keep = keep

    async def all(self) -> list[StoredBackup]:
        """Whole backups, the newest first; those without a readable manifest are none."""
        stored = await _in_thread(self._place.names)
        names = _names_among(stored, MANIFEST) & _names_among(stored, ARCHIVE)
        backups = []
        with tempfile.TemporaryDirectory(prefix=_WORK) as folder:
            for name in sorted(names, reverse=True):
                try:
                    backups.append(await self._read_manifest(name, Path(folder)))
                except BackupRefused as error:  # or it was deleted meanwhile
                    log.warning("backup_unreadable", extra={"reason": str(error)})
        return backups

    async def make(self, database: Database) -> StoredBackup:
        """A new backup; then those beyond `keep` are deleted, and what is left of others."""
        now = datetime.now(UTC)
        name = f"{now:{_TIME}}-{token_hex(4)}"  # several processes may make one at once
        for prefix in (_WORK, SERVICE_PREFIX):
            await _in_thread(remove_abandoned, Path(tempfile.gettempdir()), f"{prefix}*")
        with tempfile.TemporaryDirectory(prefix=_WORK) as folder:
            archive, manifest = Path(folder, "archive"), Path(folder, "manifest")
            rows = await _dump(database, archive)
            size, digest = await _in_thread(_digest, archive)
            backup = StoredBackup(name, now.replace(microsecond=0), size, digest, rows)
            await _in_thread(manifest.write_bytes, msgspec.json.encode(backup))
            await _in_thread(self._place.put, name + ARCHIVE, archive)
            await _in_thread(self._place.put, name + MANIFEST, manifest)
        await self._prune(backup)
        return backup

    async def verify(self, name: str, restore_at: Database | None = None) -> BackupReport:
        """Compare an archive with its manifest; with `restore_at` it is restored into a database
        of that server, which is dropped afterwards, and its rows are counted."""
        with tempfile.TemporaryDirectory(prefix=_WORK) as folder:
            expected = await self._read_manifest(name, Path(folder))
            archive = Path(folder, "archive")
            await _in_thread(self._place.fetch, name + ARCHIVE, archive)
            problems = list(await _compare(archive, expected))
            if restore_at is not None and not problems:
                rows = await _restored_rows(restore_at, archive)
                problems += [
                    f"{table}: {rows.get(table)} rows were restored, not {count}"
                    for table, count in expected.rows.items()
                    if rows.get(table) != count
                ]
        total = sum(expected.rows.values())
        restored = restore_at is not None
        return BackupReport(name, len(expected.rows), total, restored, tuple(problems))

    async def fetch(self, name: str, file: Path) -> None:
        """Copy an archive to a new file, for its owner only."""
        _check_name(name)
        await _in_thread(self._fetch_archive, name, file)

    def _fetch_archive(self, name: str, file: Path) -> None:
        try:  # for its owner alone: a backup has everything that the database has
            file.touch(mode=0o600, exist_ok=False)
        except OSError as error:
            raise BackupRefused(f"{file}: {error.strerror}") from error
        try:
            self._place.fetch(name + ARCHIVE, file)
        except BaseException:
            file.unlink(missing_ok=True)
            raise

    async def _prune(self, backup: StoredBackup) -> None:
        """Delete whole backups beyond `keep`, and what is left of others after a day. Later ones
        than the one just made stay: a clock ran ahead, or another process is making them."""
        stored = await _in_thread(self._place.names)
        archives, manifests = _names_among(stored, ARCHIVE), _names_among(stored, MANIFEST)
        complete = sorted(name for name in archives & manifests if name <= backup.name)
        abandoned = f"{backup.created - timedelta(seconds=ABANDONED_AFTER_S):{_TIME}}"
        stale = {name for name in archives ^ manifests if name < abandoned}
        for name in stale.union(complete[: -max(self._keep, 1)]):
            for suffix in (MANIFEST, ARCHIVE):
                await _in_thread(self._place.delete, name + suffix)

    async def _read_manifest(self, name: str, folder: Path) -> StoredBackup:
        _check_name(name)
        file = folder / "manifest"
        await _in_thread(self._place.fetch, name + MANIFEST, file)
        try:
            return msgspec.json.decode(file.read_bytes(), type=StoredBackup)
        except msgspec.MsgspecError as error:
            raise BackupRefused(f"{name}{MANIFEST} is no manifest of a backup: {error}") from error


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise BackupRefused(f"{name}: expected the name of a backup, as in `toolgate backup list`")


def _names_among(files: Sequence[str], suffix: str) -> set[str]:
    names = (name.removesuffix(suffix) for name in files if name.endswith(suffix))
    return {name for name in names if _NAME.fullmatch(name)}


async def _in_thread(work: Callable[..., T], *arguments: object) -> T:
    return await to_thread.run_sync(partial(work, *arguments))


def _digest(file: Path) -> tuple[int, str]:
    with file.open("rb") as archive:
        return file.stat().st_size, hashlib.file_digest(archive, "sha256").hexdigest()


async def _dump(database: Database, archive: Path) -> dict[str, int]:
    """Write the archive; returns the rows of each table in its snapshot."""
    async with database.connect() as connection, connection.transaction():
        await connection.execute(SNAPSHOT)
        row = await (await connection.execute("SELECT pg_export_snapshot()")).fetchone()
        rows = await count_in_snapshot(connection)
        options = ["--format=custom", f"--snapshot={row[0] if row else ''}", f"--file={archive}"]
        await _run("pg_dump", database, database.conninfo, options)
    return rows


async def _compare(archive: Path, expected: StoredBackup) -> Sequence[str]:
    size, digest = await _in_thread(_digest, archive)
    if size != expected.bytes:
        return [f"the archive has {size:,} bytes, not {expected.bytes:,}"]
    if digest != expected.sha256:
        return ["the archive was changed: its SHA-256 is another one"]
    program = client_program("pg_restore", None, Path("-"), ["--list", str(archive)])
    done = await anyio.run_process(program.command, check=False, env=program.environment)
    if done.returncode:
        return [f"pg_restore cannot read it: {_reason(done.stderr)}"]
    listed = {
        table if schema == "public" else f"{schema}.{table}"
        for schema, table in _TABLE.findall(done.stdout.decode())
    }
    return [f"the table {table} is missing" for table in sorted(expected.rows.keys() - listed)]


async def _restored_rows(database: Database, archive: Path) -> Mapping[str, int]:
    async with _scratch_database(database) as conninfo:
        options = ["--exit-on-error", "--no-owner", "--no-privileges"]
        await _run("pg_restore", database, conninfo, [*options, str(archive)])
        connection = await psycopg.AsyncConnection.connect(conninfo, autocommit=True)
        try:
            return await count_rows(connection)
        finally:
            await connection.close()


@asynccontextmanager
async def _scratch_database(database: Database) -> AsyncIterator[str]:
    """The address of an empty database of the same server, which is dropped at the end."""
    dbname = f"toolgate_verify_{token_hex(4)}"
    name = sql.Identifier(dbname)
    async with database.connect() as connection:
        try:
            await connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(name))
        except psycopg.errors.InsufficientPrivilege as error:
            text = "the database user may not create a database to restore into (CREATEDB)"
            raise DatabaseError(text) from error
        try:
            yield make_conninfo(database.conninfo, dbname=dbname)
        finally:
            with anyio.CancelScope(shield=True):
                await connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


async def _run(name: str, database: Database, conninfo: str, options: Sequence[str]) -> None:
    with service_file({"backup": conninfo}) as services:
        target = "--dbname=service=backup"
        program = client_program(
            name, database.embedded, services, ["--no-password", target, *options]
        )
        done = await anyio.run_process(
            program.command, check=False, stdin=subprocess.DEVNULL, env=program.environment
        )
    if done.returncode:
        reason = _reason(done.stderr) or f"it ended with {done.returncode}"  # -9: killed
        raise DatabaseError(f"{name} failed: {reason}")


def _reason(text: bytes) -> str:
    return " ".join(text.decode(errors="replace").split())[:ERROR_CHARACTERS]
