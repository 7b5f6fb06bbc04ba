"""Move of a whole database to another PostgreSQL, by pg_dump and pg_restore.

    plan -> close the source -> copy -> compare -> finish

The source is closed while nobody is connected: its sessions can only read from then on, and
gateways refuse it. Both are properties of the database, a setting and its comment, not rows, so
its tables stay as they are. A move that fails opens the source again; one that was killed leaves
it closed, and the next run continues.

The target is empty, or has the mark of a move from this source that did not finish. It is filled
in one transaction. Addresses with their passwords are passed to the programs in a service file,
which is for its owner only: arguments of processes are readable by everyone.
"""

import os
import re
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal
from uuid import uuid4

import anyio
import msgspec
import psycopg
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream
from psycopg import AsyncConnection, sql
from psycopg.conninfo import conninfo_to_dict

from config.settings import DatabaseSettings as Settings
from registry.database.client_programs import (
    TABLES,
    ClientProgram,
    client_program,
    count_rows,
    service_file,
)
from registry.database.embedded_server import DatabaseError
from registry.database.move_mark import MARK_PREFIX, ClosedMark, closed_mark, database_comment
from registry.database.postgres import Database

MARK_TABLE = "toolgate_move_t"  # in the target, until the move is finished
POLL_S = 0.2
ERROR_CHARACTERS = 500

_SESSIONS = """
SELECT coalesce(nullif(application_name, ''), 'unnamed'), count(*)::int FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND usesysid IS NOT NULL
 GROUP BY 1 ORDER BY 1
"""
_IDENTITY = """
SELECT (SELECT system_identifier FROM pg_control_system()) || '/' || oid FROM pg_database
 WHERE datname = current_database()
"""
_VECTOR_SCHEMA = """
SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
 WHERE e.extname = 'vector'
"""
# Statements that drop all that is not of an extension, in schemas that are not the system's.
_DROPS = """
WITH own AS (SELECT oid, nspname FROM pg_namespace WHERE nspname <> 'information_schema'
                AND nspname NOT LIKE 'pg\\_%%'),
     foreign_ AS (SELECT classid, objid FROM pg_depend WHERE deptype = 'e')
(SELECT format('DROP %%s IF EXISTS %%I.%%I CASCADE',
              CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW'
                   WHEN 'S' THEN 'SEQUENCE' WHEN 'c' THEN 'TYPE' ELSE 'TABLE' END,
              own.nspname, c.relname)
  FROM pg_class c JOIN own ON own.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S', 'c') AND c.relname <> %(mark)s
   AND ('pg_class'::regclass, c.oid) NOT IN (SELECT classid, objid FROM foreign_)
 ORDER BY c.relkind = 'S')  -- most sequences go with their tables
UNION ALL
SELECT format('DROP ROUTINE IF EXISTS %%s CASCADE', p.oid::regprocedure)
  FROM pg_proc p JOIN own ON own.oid = p.pronamespace
 WHERE ('pg_proc'::regclass, p.oid) NOT IN (SELECT classid, objid FROM foreign_)
UNION ALL
SELECT format('DROP TYPE IF EXISTS %%s CASCADE', t.oid::regtype)
  FROM pg_type t JOIN own ON own.oid = t.typnamespace
 WHERE t.typtype IN ('e', 'd')
   AND ('pg_type'::regclass, t.oid) NOT IN (SELECT classid, objid FROM foreign_)
"""
_RESTORED_TABLE = re.compile(r'processing data for table "(?:.*\.)?([^".]+)"')

TargetState = Literal["empty", "begun", "copied"]


@dataclass(frozen=True, slots=True)
class MovePlan:
    """Both ends of a move, and what it takes along."""

    source: str  # HOST:PORT/NAME, or the folder of an embedded database
    target: str
    state: TargetState  # of the target; "begun": by a move from this source
    tables: Mapping[str, int]  # rows of the source
    size_bytes: int


class DatabaseMove:
    """One move between two open databases; made by `open_move`."""

    def __init__(
        self,
        source: tuple[Database, AsyncConnection],
        target: tuple[Database, AsyncConnection],
    ) -> None:
        self.source, self._from = source
        self.target, self._to = target
        self._id = ""  # of the mark that this process has set or taken over
        self._state: TargetState = "empty"
        self.holds_source = False  # closed by this process, which has not finished

    async def plan(self) -> MovePlan:
        """Check both sides. Raises DatabaseError for a move that cannot be made."""
        if await _identity(self._from) == await _identity(self._to):
            raise DatabaseError("source and target are the same database; nothing was moved")
        mark = await closed_mark(self._from)
        if mark is not None and mark.finished:
            raise DatabaseError(f"there is nothing to move: {mark}")
        self._id = mark.move if mark else ""
        await self._check_versions()
        await self._check_vector()
        tables = await count_rows(self._from, MARK_TABLE)
        self._state = await self._target_state(tables, mark)
        if not tables:
            raise DatabaseError("the source has no tables; start a gateway on the target instead")
        rows = await self._from.execute("SELECT pg_database_size(current_database())")
        (size,) = await rows.fetchone() or (0,)
        return MovePlan(_place(self.source), _place(self.target), self._state, tables, int(size))

    async def close_source(self, wait_s: float, waiting: Callable[[str], None]) -> None:
        """Wait for the sessions at the source to end, then make it read-only. `waiting` gets the
        sessions that are open. Raises DatabaseError when some are still open after `wait_s`."""
        deadline = anyio.current_time() + wait_s
        while sessions := await _sessions(self._from):
            if anyio.current_time() >= deadline:
                raise DatabaseError(_in_use(sessions))
            waiting(sessions)
            await anyio.sleep(POLL_S)
        self._id = self._id or uuid4().hex
        await self._mark(finished=False)
        self.holds_source = True
        if sessions := await _sessions(self._from):  # opened before the mark: they may write
            raise DatabaseError(_in_use(sessions))

    async def reopen_source(self) -> None:
        await reopen(self._from)

    async def copy(self, progress: Callable[[str], None]) -> None:
        """Copy everything in one transaction; `progress` gets each table. A copy that an earlier
        run has completed stays. Raises DatabaseError."""
        if self._state == "copied":
            return
        await self._create_vector()
        async with self._to.transaction():
            await self._drop_stale_copy()
            name = sql.Identifier(MARK_TABLE)
            create = sql.SQL(
                "CREATE TABLE IF NOT EXISTS {} (source_id text NOT NULL, move_id text NOT NULL)"
            )
            await self._to.execute(create.format(name))
            await self._to.execute(sql.SQL("TRUNCATE {}").format(name))
            row = [await _identity(self._from), self._id]
            await self._to.execute(sql.SQL("INSERT INTO {} VALUES (%s, %s)").format(name), row)
        with service_file(
            {"source": self.source.conninfo, "target": self.target.conninfo}
        ) as services:
            await _pipe(
                _dump(self.source, services),
                _restore(self.target, services),
                progress,
            )
        await self._to.execute("ANALYZE")

    async def _drop_stale_copy(self) -> None:
        """Drop what a run before has copied, when the source was used again since."""
        if self._state == "begun":
            drops = await self._to.execute(_DROPS, {"mark": MARK_TABLE})
            for (statement,) in await drops.fetchall():
                await self._to.execute(statement)

    async def compare(self) -> list[str]:
        """Tables whose numbers of rows differ, in words."""
        source, target = (
            await count_rows(self._from, MARK_TABLE),
            await count_rows(self._to, MARK_TABLE),
        )
        return [
            f"{name}: {source.get(name, 'no table')} rows in the source, "
            f"{target.get(name, 'no table')} in the target"
            for name in sorted(source.keys() | target.keys())
            if source.get(name) != target.get(name)
        ]

    async def finish(self) -> None:
        """Let the target be used, and keep the source closed. In this order: a mark that stayed in
        a target that is used would let a later move drop its tables."""
        drop = sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(MARK_TABLE))
        await self._to.execute(drop)
        await self._mark(finished=True)
        self.holds_source = False

    async def _mark(self, *, finished: bool) -> None:
        before = await closed_mark(self._from)
        comment = before.comment if before else await database_comment(self._from)
        mark = ClosedMark(self._id, _place(self.target), datetime.now(UTC), finished, comment)
        await _alter_database(
            self._from,
            "SET default_transaction_read_only = on",
            MARK_PREFIX + msgspec.json.encode(mark).decode(),
        )

    async def _check_versions(self) -> None:
        versions = [side.info.server_version // 10000 for side in (self._from, self._to)]
        if versions[1] < versions[0]:
            raise DatabaseError(
                f"the target has PostgreSQL {versions[1]}, and the source {versions[0]}: a dump "
                "is not meant for older servers. Upgrade the target"
            )

    async def _check_vector(self) -> None:
        """The target has pgvector where the source has it, or not yet: dumps name its schema."""
        source, target = await _vector_schema(self._from), await _vector_schema(self._to)
        if target and source != target:
            raise DatabaseError(
                f"the target has the extension vector in the schema {target}, and the source in "
                f"{source}: ALTER EXTENSION vector SET SCHEMA {source}"
            )

    async def _create_vector(self) -> None:
        schema = sql.Identifier(await _vector_schema(self._from) or "public")
        create = sql.SQL("CREATE EXTENSION IF NOT EXISTS vector SCHEMA {}").format(schema)
        try:
            await self._to.execute(create)
        except psycopg.errors.InsufficientPrivilege as error:
            raise DatabaseError(
                "the user may not create the extension vector in the target: let an administrator "
                "run CREATE EXTENSION vector there"
            ) from error

    async def _target_state(
        self, expected: Mapping[str, int], closed: ClosedMark | None
    ) -> TargetState:
        """`expected`: tables of the source, whose mark is `closed`. Raises DatabaseError for a
        target with data that may be of others."""
        tables = [name async for _, name in await self._to.execute(TABLES, [MARK_TABLE])]
        rows = await self._to.execute("SELECT to_regclass(%s) IS NOT NULL", [MARK_TABLE])
        if await rows.fetchone() == (True,):
            mark = sql.SQL("SELECT source_id, move_id FROM {}").format(sql.Identifier(MARK_TABLE))
            match await (await self._to.execute(mark)).fetchone():
                case (source, move) if source == await _identity(self._from):
                    await self._check_stale_copy(expected)
                    return "copied" if tables and move == self._id else "begun"
            raise DatabaseError(
                "the target has an unfinished move of another database: use an empty one"
            )
        if tables and closed is not None and closed.target == _place(self.target):
            return "copied"  # killed while it finished; `compare` says whether it is all there
        if tables:
            raise DatabaseError(
                f"the target is not empty (it has {len(tables)} tables, such as {tables[0]}): "
                "name an empty database, which this move fills"
            )
        return "empty"

    async def _check_stale_copy(self, expected: Mapping[str, int]) -> None:
        """Check that the copy to be dropped has tables of the source alone, and no sessions."""
        if sessions := await _sessions(self._to):
            raise DatabaseError(f"the target is in use by {sessions}: nothing was moved")
        if others := (await count_rows(self._to, MARK_TABLE)).keys() - expected.keys():
            raise DatabaseError(
                f"the target has tables that the source lacks, such as {min(others)}: name an "
                "empty database, which this move fills"
            )


@asynccontextmanager
async def open_move(settings: Settings, target_url: str) -> AsyncIterator[DatabaseMove]:
    """A move from the database of the settings to the one at `target_url`. A source that it has
    closed is opened again when the block raises."""
    target = msgspec.structs.replace(settings, url=target_url)
    async with (
        Database.open(settings, wait=False, migrate=False, even_closed=True) as source,
        Database.open(target, wait=False, migrate=False, even_closed=True) as outside,
        source.connect() as from_,
        outside.connect() as to,
    ):
        move = DatabaseMove((source, from_), (outside, to))
        try:
            yield move
        except BaseException:
            if move.holds_source and not from_.broken:
                with anyio.CancelScope(shield=True):
                    await move.reopen_source()
            raise


async def reopen(connection: AsyncConnection) -> ClosedMark | None:
    """Let a database be used again that a move has closed; returns the mark that it had."""
    mark = await closed_mark(connection)
    comment = mark.comment if mark else await database_comment(connection)
    await _alter_database(connection, "RESET default_transaction_read_only", comment)
    return mark


async def _alter_database(connection: AsyncConnection, change: str, comment: str | None) -> None:
    """Change a setting that new sessions of the database begin with, and its comment, in one
    transaction."""
    name = sql.Identifier(connection.info.dbname)
    await connection.execute("SET default_transaction_read_only = off")
    try:
        async with connection.transaction():
            await connection.execute(sql.SQL("ALTER DATABASE {} ").format(name) + sql.SQL(change))
            text = sql.SQL("COMMENT ON DATABASE {} IS {}").format(name, comment)
            await connection.execute(text)
    except psycopg.errors.InsufficientPrivilege as error:
        raise DatabaseError(
            f"the user {connection.info.user} does not own the database "
            f"{connection.info.dbname}, so it cannot close it for other sessions: ALTER DATABASE "
            "... OWNER TO"
        ) from error


async def _sessions(connection: AsyncConnection) -> str:
    """The other sessions of a database: "toolgate (3), psql (1)"."""
    rows = await connection.execute(_SESSIONS)
    return ", ".join([f"{name} ({count})" async for name, count in rows])


async def _identity(connection: AsyncConnection) -> str:
    row = await (await connection.execute(_IDENTITY)).fetchone()
    return str(row[0]) if row else ""


async def _vector_schema(connection: AsyncConnection) -> str:
    row = await (await connection.execute(_VECTOR_SCHEMA)).fetchone()
    return str(row[0]) if row else ""


def _place(database: Database) -> str:
    """The database without user and password."""
    if database.embedded is not None:
        return str(database.embedded.directory)
    named = conninfo_to_dict(database.conninfo)
    host = named.get("host") or named.get("hostaddr") or "localhost"
    return f"{host}:{named.get('port') or 5432}/{named.get('dbname') or named.get('user') or ''}"


def _in_use(sessions: str) -> str:
    return (
        f"the source is in use by {sessions}: stop its gateways and workers, which finish their "
        "calls first, and run this again; --wait lets it wait for them. Nothing was moved"
    )


def _dump(source: Database, services: Path) -> ClientProgram:
    # Extensions are left out: only their owners may restore their comments.
    options = ["--format=custom", "--compress=none", "--exclude-extension=*", "--no-password"]
    options.append(f"--exclude-table={MARK_TABLE}")  # of a move that filled the source once
    return client_program(
        "pg_dump", source.embedded, services, [*options, "--dbname=service=source"]
    )


def _restore(target: Database, services: Path) -> ClientProgram:
    options = ["--exit-on-error", "--single-transaction", "--no-owner", "--no-privileges"]
    options += ["--no-password", "--verbose"]
    return client_program(
        "pg_restore", target.embedded, services, [*options, "--dbname=service=target"]
    )


async def _pipe(
    dump: ClientProgram, restore: ClientProgram, progress: Callable[[str], None]
) -> None:
    """Run `dump | restore`. Raises DatabaseError with what they say."""
    errors: list[str] = []

    async def follow(process: Process) -> None:
        async for line in _lines(process):
            if match := _RESTORED_TABLE.search(line):
                progress(match[1])
            elif "error:" in line and "Broken pipe" not in line:
                errors.append(line)

    read_end, write_end = os.pipe()
    try:
        async with await dump.start(stdin=subprocess.DEVNULL, stdout=write_end) as writer:
            os.close(write_end)
            write_end = -1
            async with await restore.start(stdin=read_end, stdout=subprocess.DEVNULL) as reader:
                os.close(read_end)
                read_end = -1
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(follow, writer)
                    tasks.start_soon(follow, reader)
                codes = [await process.wait() for process in (writer, reader)]
    finally:
        for descriptor in (read_end, write_end):
            if descriptor >= 0:
                os.close(descriptor)
    if any(codes):
        reason = " ".join(errors)[:ERROR_CHARACTERS] or f"exit codes {codes}"
        raise DatabaseError(f"the copy failed, and the target is as it was: {reason}")


async def _lines(process: Process) -> AsyncIterator[str]:
    """Lines of standard error."""
    rest = ""
    assert process.stderr is not None  # noqa: S101 - a pipe, see `ClientProgram.start`
    async for text in TextReceiveStream(process.stderr, errors="replace"):
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            yield line
    if rest:
        yield rest
