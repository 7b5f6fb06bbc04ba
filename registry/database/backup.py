"""Backup and restore of the embedded database, with the programs of its PostgreSQL.

A backup is one snapshot, taken while gateways serve; it is a file in the custom format of pg_dump,
compressed. It is restored into an empty database only, in one transaction.
"""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT

import anyio
import psycopg
from anyio import to_thread

from config.settings import DatabaseSettings as Settings
from registry.database.embedded_server import DatabaseError, Embedded, program_environment
from registry.database.postgres import embedded_server

_TABLES = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
   AND n.nspname NOT LIKE 'pg\\_toast%' LIMIT 1
"""
_OUTSIDE = (
    "only the embedded database is backed up and restored by Toolgate; database.url leads to "
    "another server: use its pg_dump and pg_restore"
)


async def back_up(settings: Settings, file: Path) -> int:
    """Write a backup to `file`, which appears once it is whole; returns its bytes. Raises
    DatabaseError."""
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    async with _used_server(settings) as embedded:
        try:
            _create(part)
            await _run(embedded, "pg_dump", ["--format=custom", f"--file={part}", embedded.url])
            return _finish(part, file)
        finally:
            part.unlink(missing_ok=True)


async def restore(settings: Settings, file: Path) -> None:
    """Restore the backup in `file` into the database, which must be empty. Raises DatabaseError."""
    async with _used_server(settings) as embedded:
        if table := await to_thread.run_sync(_a_table, embedded.url):
            raise DatabaseError(
                f"the database is not empty (it has the table {table}), so nothing was restored. "
                "Name another directory in database.data_dir"
            )
        options = ["--exit-on-error", "--single-transaction", "--no-owner"]
        await _run(embedded, "pg_restore", [*options, f"--dbname={embedded.url}", str(file)])


def _create(part: Path) -> None:
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _finish(part: Path, file: Path) -> int:
    part.replace(file)
    return file.stat().st_size


@asynccontextmanager
async def _used_server(settings: Settings) -> AsyncIterator[Embedded]:
    async with embedded_server(settings) as embedded:
        if embedded is None:
            raise DatabaseError(_OUTSIDE)
        yield embedded


async def _run(server: Embedded, program: str, arguments: Sequence[str]) -> None:
    done = await anyio.run_process(
        [str(server.programs / program), "--no-password", *arguments],
        check=False,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        env=program_environment(),
    )
    if done.returncode:
        reason = " ".join(done.stdout.decode(errors="replace").split())[:500]
        # pg_restore of a file that is empty, cut off, of another kind or of a newer pg_dump
        if "input file" in reason or "file header" in reason:
            raise DatabaseError(
                f"{arguments[-1]} cannot be read as a backup of `toolgate backup`: {reason}"
            )
        raise DatabaseError(f"{program} failed: {reason}")


def _a_table(url: str) -> str:
    """The name of any table in the database; "" if it is empty."""
    with psycopg.connect(url, connect_timeout=10) as connection:
        row = connection.execute(_TABLES).fetchone()
        return "" if row is None else str(row[0])
