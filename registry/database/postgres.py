"""The database as the gateway uses it: connected, checked, migrated, pooled, and listened to.

Startup waits for an unreachable database. Later the pool reconnects as soon as it is back, and the
listener restarts an embedded server that died.

Errors are explained to operators in a sentence, without the statement, the values in it, and the
password.
"""

import enum
import itertools
import logging
import math
import re
import select
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

import anyio
import psycopg
from anyio import CancelScope, move_on_after, to_thread
from psycopg import AsyncConnection, IsolationLevel, pq, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import LockNotAvailable
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from config.settings import DatabaseSettings as Settings
from registry.database.embedded_server import DatabaseError, Embedded
from registry.database.migrate import REGISTRY, ChangedMigration, Component, migrations
from registry.database.migrate import migrate as apply_migrations
from registry.database.move_mark import closed_mark
from registry.database.shared_pool import NoTurn, SharedPool
from registry.database.silent_server import BoundedConnection, ServerProbes

# A refused connection has no SQLSTATE, only the message of the server or libpq.
_REFUSALS = (
    (r"password authentication failed for user|no password supplied",
     "the password for the user in database.url is wrong or missing"),
    (r"no pg_hba\.conf entry",
     "the server lets this user in from here neither with nor without TLS: see its pg_hba.conf"),
    (r'role "([^"]*)" does not exist',
     "the server has no user {0}: create it (CREATE ROLE ... LOGIN), or name another one"),
    (r'role "([^"]*)" is not permitted to log in',
     "the user {0} may not log in: ALTER ROLE ... LOGIN"),
    (r'database "([^"]*)" does not exist',
     "the server has no database {0}: create it (CREATE DATABASE), or name another one"),
    (r'permission denied for database "?([^"\s]*)',
     "the user may not connect to the database {0}: GRANT CONNECT ON DATABASE"),
    (r"too many (?:clients|connections)|remaining connection slots",
     "the server has no connection left: raise its max_connections, or lower database.pool_max"),
)  # fmt: skip
# By SQLSTATE, or by its class, the first two characters.
_FAILURES = {
    "42501": "the database user lacks a right: {message}. An administrator can GRANT it; `toolgate "
    "migrate` needs CREATE on the database and its schema",
    "25006": "the database takes no changes: {message}. database.url leads to a standby, perhaps",
    "42P01": "the tables are not those of this release: {message}. Run `toolgate migrate`",
    "42703": "the tables are not those of this release: {message}. Run `toolgate migrate`",
    "28": "the server does not let this user in: {message}. Check database.url",
    "3D": "there is no such database: {message}. Check database.url",
    "55P03": "another transaction holds a lock that the statement needs: {message}. Try again when "
    "it has ended; pg_stat_activity shows it",
    "53": "the database server lacks something: {message}",
    "57": "the database server stopped or cut the work off: {message}. Try again",
    "08": "the connection to the database was lost: {message}. Try again",
}


def is_uuid(text: str) -> bool:
    """Whether a text is a UUID as the database writes it."""
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def refusal(text: str) -> str | None:
    """The reason for a refused connection, from the server's message; None: unknown."""
    for pattern, meaning in _REFUSALS:
        if match := re.search(pattern, text):
            return meaning.format(*match.groups())
    return None


def failure(error: psycopg.Error) -> str:
    """The reason that a statement failed."""
    message = error.diag.message_primary or str(error).partition("\n")[0]
    state = error.sqlstate or ""
    meaning = _FAILURES.get(state) or _FAILURES.get(state[:2])
    return meaning.format(message=message) if meaning else f"the database failed: {message}"


def unavailability(error: Exception) -> str:
    """The reason for callers of an error of AWAY."""
    if isinstance(error, LockNotAvailable):
        return "Another transaction holds a lock that the request needs"
    if isinstance(error, NoTurn):
        return "Too many requests of this caller wait for the database"
    return "The database does not answer"


log = logging.getLogger("toolgate.database")

Pool: TypeAlias = SharedPool

CLOSE_S = 10.0  # longest time for a pool to close, whose connections end with the process
AWAY = (psycopg.OperationalError, PoolTimeout)  # no connection, or one that broke
EMBEDDED_URL = "embedded"
SERVER_NEEDED = 160000
# 0.8.2 fixes CVE-2026-3172 (parallel builds of HNSW indexes write beyond their buffer), 0.8.3 and
# 0.8.4 fix indexes that vacuum or concurrent inserts leave broken.
VECTOR_NEEDED = (0, 8, 4)
FIRST_RETRY_S = 0.2
HAS_VECTOR = "SELECT FROM pg_extension WHERE extname = 'vector'"
FOREVER_S = 3e8  # ten years
INT32_MAX = 2**31 - 1  # of a setting of the server: 24 days in milliseconds
CHECK_S = 30.0  # keepalive: idle time after which a listening connection is probed

# Our own advice is more specific.
_LIBPQ_ADVICE = re.compile(r"^connection failed: | Is the server running [^?]*\?")

# TCP keepalive: a vanished peer is detected after about a minute, not after two hours.
_KEEPALIVE = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}


@asynccontextmanager
async def borrow(
    pool: Pool, isolation: IsolationLevel | None = None
) -> AsyncIterator[AsyncConnection]:
    """A connection of the pool, in a transaction. It is returned to the pool even on cancellation.

    `pool.connection()` loses it when the cancellation of a scope reaches its own clean-up.
    """
    turn = await pool.take_turn()  # for which a task that is cancelled waits no longer
    with CancelScope(shield=True):  # at most as long as the pool's timeout
        connection = await pool.lend(turn)
    try:
        if isolation is not None:
            await connection.set_isolation_level(isolation)
        async with connection:
            yield connection
    finally:
        with CancelScope(shield=True):
            if isolation is not None:
                if _is_idle(connection):
                    await connection.set_isolation_level(None)
                else:  # left within its end: the pool would lend it out with this level
                    await connection.close()
            await pool.putconn(connection)


async def read_clock(connection: AsyncConnection) -> datetime:
    """The time of the database, which all gateways share."""
    rows = await connection.execute("SELECT clock_timestamp()")
    [(clock,)] = await rows.fetchall()
    now: datetime = clock.astimezone(UTC)
    return now


def _is_idle(connection: AsyncConnection) -> bool:
    return connection.info.transaction_status == pq.TransactionStatus.IDLE


@asynccontextmanager
async def autocommit(pool: Pool) -> AsyncIterator[AsyncConnection]:
    """A connection of the pool, in autocommit mode: for one statement, without the round trips of
    BEGIN and COMMIT."""
    turn = await pool.take_turn()
    with CancelScope(shield=True):
        connection = await pool.lend(turn)
    try:
        await connection.set_autocommit(True)
        yield connection
    finally:
        with CancelScope(shield=True):
            if _is_idle(connection):
                await connection.set_autocommit(False)
            await pool.putconn(connection)


class Resync(enum.Enum):
    """A gap in a stream of notifications: some may have been missed, so re-read everything."""

    RESYNC = "resync"


RESYNC: Final = Resync.RESYNC
Notice: TypeAlias = str | Literal[Resync.RESYNC]


class Database:
    """An open database. `pool` provides connections; made by `Database.open`."""

    def __init__(self, settings: Settings, server: Embedded | None = None) -> None:
        self._settings = settings
        self.embedded = server
        self.conninfo = _conninfo(settings, "url", server.url if server else settings.url)
        self._probes = ServerProbes(self.conninfo, settings.connect_timeout_s)
        self.pool = _pool(settings, self._probes, settings.pool_max, settings.connect_timeout_s)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        settings: Settings,
        *,
        wait: bool = True,
        migrate: bool = True,
        components: Sequence[Component] = (REGISTRY,),
        even_closed: bool = False,
    ) -> AsyncIterator["Database"]:
        """A checked database with the tables of `components`. Without `wait` an unreachable one
        raises at once, and unless `even_closed` one that was moved elsewhere.

        Raises `DatabaseError` for permanent errors.
        """
        async with embedded_server(settings) as embedded:
            database = cls(settings, embedded)
            await database._prepare(wait, components if migrate else (), even_closed)
            await database.pool.open()
            try:
                yield database
            finally:
                with move_on_after(CLOSE_S, shield=True):  # a lost cancellation holds up nobody
                    await database.pool.close()

    @asynccontextmanager
    async def temporary(self, component: Component) -> AsyncIterator[Pool]:
        """A pool of one connection that has the tables of a component for itself, as temporary
        ones: in no journal and no backup, and gone with the connection."""

        async def prepare(connection: AsyncConnection) -> None:
            await connection.execute(
                "SELECT set_config('search_path', 'pg_temp, ' || current_setting('search_path'),"
                " false)"
            )
            for migration in migrations((component,)):
                await connection.execute(migration.sql)
            await connection.commit()

        pool = SharedPool(
            self.conninfo,
            connection_class=BoundedConnection,
            min_size=1,
            max_size=1,
            timeout=self._settings.connect_timeout_s,
            max_lifetime=FOREVER_S,
            configure=prepare,
            open=False,
        )
        async with pool:
            yield pool

    async def alive(self) -> bool:
        """Whether it responds right now."""
        try:
            async with borrow(self.pool) as connection:
                await connection.execute("SELECT")
        except psycopg.OperationalError:
            return False
        return True

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[BoundedConnection]:
        """A dedicated connection outside the pool, in autocommit mode."""
        connection = await BoundedConnection.connect(self.conninfo, autocommit=True)
        try:
            yield connection
        finally:  # its own context manager would roll back first, and a cancelled task cannot wait
            with CancelScope(shield=True):
                await connection.close()

    async def listen(
        self,
        channel: str,
        handle: Callable[[Notice], Awaitable[None]],
        lost: Callable[[Exception], None] = lambda _error: None,
        checked: Callable[[bool], None] = lambda _has_vector: None,
        *,
        prepare: Callable[[AsyncConnection], Awaitable[None]] | None = None,
    ) -> None:
        """Await `handle(payload)` for notifications on `channel`, until cancelled.

        `RESYNC` comes first and after every gap; equal queued payloads are merged. A database error
        in `handle` counts as a gap: it receives RESYNC when that is possible. `lost(error)` is
        called on each loss of the connection, and `checked` after connecting and when idle with
        whether the database has pgvector, without which there is no semantic search. `prepare` gets
        each new connection.
        """
        delays = _delays(self._settings.retry_max_s)
        while True:
            try:
                await self._revive()
                async with self.connect() as connection:
                    connection.answer_timeout_s = self._settings.connect_timeout_s
                    await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                    if prepare is not None:
                        await prepare(connection)
                    checked(await _has_vector(connection))
                    await handle(RESYNC)
                    delays = _delays(self._settings.retry_max_s)
                    with self._probes.get(connection).ending_at_silence():
                        await self._follow(connection, handle, checked)
            except (psycopg.OperationalError, TimeoutError, DatabaseError) as error:
                lost(error)
                await self._pause("database_connection_lost", error, next(delays))

    async def _follow(
        self,
        connection: AsyncConnection,
        handle: Callable[[Notice], Awaitable[None]],
        checked: Callable[[bool], None],
    ) -> None:
        while True:
            notices = connection.notifies(timeout=CHECK_S, stop_after=1)
            payloads = {notice.payload: None async for notice in notices}
            for payload in payloads:
                await handle(payload)
            if not payloads:
                checked(await _has_vector(connection))

    async def _prepare(
        self, wait: bool, components: Sequence[Component], even_closed: bool
    ) -> None:
        for delay in _delays(self._settings.retry_max_s):
            try:
                async with self.connect() as connection:
                    await _check(connection)
                    mark = None if even_closed else await closed_mark(connection)
                    if mark is not None:
                        raise DatabaseError(str(mark))
                    if components:
                        await apply_migrations(connection, components)
                return
            except ChangedMigration as error:
                if self.embedded is None:
                    raise
                raise ChangedMigration(
                    f"{error}. The embedded database is the folder {self.embedded.directory}: "
                    "while no gateway runs, move it away to keep it, or remove it"
                ) from error
            except psycopg.OperationalError as error:
                if not wait:
                    reason = self._reason(error)
                    meaning = refusal(reason) or "Check that it runs, and database.url"
                    raise DatabaseError(
                        f"cannot reach the database: {reason}. {meaning[:1].upper()}{meaning[1:]}"
                    ) from error
                await self._pause("database_unreachable", error, delay)

    async def _pause(self, event: str, error: Exception, delay_s: float) -> None:
        log.warning(event, extra={"reason": self._reason(error), "retry_s": delay_s})
        await anyio.sleep(delay_s)

    async def _revive(self) -> None:
        if self.embedded is not None:
            await to_thread.run_sync(self.embedded.ensure)

    def _reason(self, error: Exception) -> str:
        """The reason in one line, for display; without the password that libpq may quote."""
        if isinstance(error, TimeoutError):
            return f"no answer within {self._settings.connect_timeout_s:g} s"
        text = _LIBPQ_ADVICE.sub("", re.sub(r"\s+", " ", str(error))).strip()
        password = conninfo_to_dict(self.conninfo).get("password")
        return text.replace(str(password), "***") if password else text


async def _check(connection: AsyncConnection) -> None:
    if connection.info.server_version < SERVER_NEEDED:
        server = connection.info.parameter_status("server_version")
        raise DatabaseError(f"PostgreSQL 16 or newer is needed; the server has {server}")
    rows = await connection.execute(
        # the view reads the control files of all extensions, for each of its rows
        "SELECT coalesce((SELECT extversion FROM pg_extension WHERE extname = 'vector'),"
        " (SELECT default_version FROM pg_available_extensions WHERE name = 'vector'))"
    )
    row = await rows.fetchone()
    version = row[0] if row else None
    if version is None:
        raise DatabaseError(
            "the database server lacks pgvector: install it there (on Debian the package "
            "postgresql-NN-pgvector), or set database.url to embedded"
        )
    if _version(version) < VECTOR_NEEDED:
        needed = ".".join(map(str, VECTOR_NEEDED))
        raise DatabaseError(
            f"pgvector {needed} or newer is needed (older ones break indexes: CVE-2026-3172 and "
            f"more) and the database has {version}: update the package, then run "
            "ALTER EXTENSION vector UPDATE"
        )


async def _has_vector(connection: AsyncConnection) -> bool:
    result = await connection.execute(HAS_VECTOR)
    return bool(result.rowcount)


def _version(text: str) -> tuple[int, ...]:
    """The version of pgvector; "0.8" is 0.8.0."""
    numbers = [int(part) for part in re.findall(r"\d+", text)[:3]]
    return (*numbers, *[0] * (3 - len(numbers)))


class DatabaseHandle:
    """The registry's database from when it has responded. Made before it is opened, for the parts
    of a process that use it later."""

    def __init__(self) -> None:
        self.opened: Database | None = None
        self.settled = anyio.Event()  # the catalog is loaded, or never will be

    def database(self) -> Database | None:
        return self.opened

    def pool(self) -> Pool | None:
        return self.opened.pool if self.opened else None


def make_pool(settings: Settings, name: str, *, size: int, timeout_s: float) -> Pool:
    """A pool, not opened yet, for the URL in the setting database.NAME, which is not embedded.

    Raises DatabaseError for a URL that libpq cannot parse.
    """
    conninfo = _conninfo(settings, name, getattr(settings, name))
    return _pool(settings, ServerProbes(conninfo, settings.connect_timeout_s), size, timeout_s)


def _pool(settings: Settings, probes: ServerProbes, size: int, timeout_s: float) -> Pool:
    # A statement, since poolers such as PgBouncer refuse parameters in the start of a connection.
    lock_timeout_ms = min(math.ceil(settings.lock_timeout_s * 1000), INT32_MAX)
    bound = sql.SQL("SET lock_timeout = {}").format(lock_timeout_ms)

    async def set_bounds(connection: BoundedConnection) -> None:
        connection.answer_timeout_s = settings.answer_timeout_s
        connection.is_answered = probes.get(connection).is_answered
        await connection.set_autocommit(True)
        await connection.execute(bound)
        await connection.set_autocommit(False)

    return SharedPool(
        probes.conninfo,
        connection_class=BoundedConnection,
        configure=set_bounds,
        min_size=0,
        max_size=size,
        timeout=timeout_s,
        # Upper bound of the backoff: an attempt with longer delays would miss the database's
        # return.
        reconnect_timeout=settings.connect_timeout_s,
        check=_alive,
        open=False,
    )


async def _alive(connection: AsyncConnection) -> None:
    """Check a pooled connection before its use: by a query only if its socket is readable, since a
    server that closes a connection sends the end of it. Raises psycopg.OperationalError."""
    if _is_readable(connection.pgconn.socket):
        await AsyncConnectionPool.check_connection(connection)


def _is_readable(socket: int) -> bool:
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return bool(poll.poll(0))


def _conninfo(settings: Settings, name: str, conninfo: str) -> str:
    try:
        named: dict[str, Any] = conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        raise DatabaseError(
            f"database.{name} is neither 'embedded' nor a libpq URL such as "
            "postgresql://user:password@host:5432/name"
        ) from None  # libpq quotes its unreadable input, including the password
    defaults = {
        "application_name": "toolgate",
        "connect_timeout": math.ceil(settings.connect_timeout_s),
        **_KEEPALIVE,
    }
    return make_conninfo("", **{**defaults, **named})


@asynccontextmanager
async def embedded_server(settings: Settings) -> AsyncIterator[Embedded | None]:
    """The embedded server, until exit; None: the settings name another one."""
    if settings.url != EMBEDDED_URL:
        yield None
        return
    embedded = await to_thread.run_sync(Embedded.start, settings)
    try:
        yield embedded
    finally:
        with CancelScope(shield=True):
            await to_thread.run_sync(embedded.stop)


def _delays(longest_s: float) -> Iterator[float]:
    """Backoff: 0.2, 0.4, 0.8 ... seconds, then `longest_s` for ever."""
    growing = (FIRST_RETRY_S * 2**n for n in itertools.count())
    return itertools.chain(
        itertools.takewhile(lambda delay: delay < longest_s, growing), itertools.repeat(longest_s)
    )
