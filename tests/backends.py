"""Backends of PostgreSQL that connections of tests use one after the other.

As a plugin of pytest, this module keeps the backend of a connection that is closed, for the next
connection to the same database. A new backend reads catalogs, compiles the functions of triggers
and plans their statements: 3 ms for a plain statement, 40 ms for an import.

What is used again has nothing of its session before: no settings, prepared statements, listeners,
locks, temporary tables or numbers of sequences. A backend that is not idle, or that has sent
something since, ends. Only databases of `tests.recycling` have such backends, and only connections
of this process: not those of commands and gateways that tests start.
"""

import select
import threading
from collections.abc import Generator
from typing import Any

from psycopg import AsyncConnection, BaseConnection, Connection, pq

LIMIT = 16  # of idle backends, which hold 10 MB each
# As `DISCARD ALL`, which forgets plans too; statistics are written as when a backend ends.
RESET = b"""
SELECT pg_advisory_unlock_all(); UNLISTEN *; CLOSE ALL; DEALLOCATE ALL; DISCARD TEMP;
DISCARD SEQUENCES; RESET SESSION AUTHORIZATION; RESET ALL; SELECT pg_stat_force_next_flush()
"""
NAME = "conninfo_of_test"  # an attribute of connections

connect_gen = BaseConnection._connect_gen.__func__  # type: ignore[attr-defined]
close, aclose = Connection.close, AsyncConnection.close
finished = pq.PGconn.connect_start(b"host=/nowhere")  # of connections that are closed
finished.finish()


class IdleBackends:
    def __init__(self) -> None:
        self._lock = threading.Lock()  # connections are opened in threads too
        self._databases: set[str] = set()
        self._idle: list[tuple[str, Any]] = []  # with their connection strings, the latest last

    def allow(self, database: str) -> None:
        """Keep the backends of a database from now on."""
        self._databases.add(database)

    def forbid(self, database: str) -> None:
        """End the backends of a database, and keep none from now on."""
        self._databases.discard(database)
        with self._lock:
            for idle in [idle for idle in self._idle if idle[1].db.decode() == database]:
                self._idle.remove(idle)
                idle[1].finish()

    def take(self, conninfo: str) -> Any | None:
        """The backend that was idle last of those with this connection string."""
        while (backend := self._pop(conninfo)) and not is_quiet(backend):
            backend.finish()
        return backend

    def _pop(self, conninfo: str) -> Any | None:
        with self._lock:
            for number in reversed(range(len(self._idle))):
                if self._idle[number][0] == conninfo:
                    return self._idle.pop(number)[1]
        return None

    def keep(self, conninfo: str, backend: Any) -> bool:
        """Whether a backend was reset, to be used again."""
        if not (
            backend.transaction_status == pq.TransactionStatus.IDLE
            and backend.pipeline_status == pq.PipelineStatus.OFF
            and backend.db.decode() in self._databases
            and backend.exec_(RESET).status in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
        ):
            return False
        while backend.notifies():
            pass
        with self._lock:
            self._idle.append((conninfo, backend))
            if len(self._idle) > LIMIT:
                self._idle.pop(0)[1].finish()
        return True

    def pids(self) -> list[int]:
        return [backend.backend_pid for _, backend in self._idle]


def is_quiet(backend: Any) -> bool:
    """Whether a server has sent nothing, such as the end of the connection."""
    poll = select.poll()
    poll.register(backend.socket, select.POLLIN)
    return not poll.poll(0)


idle_backends = IdleBackends()


def pytest_configure() -> None:
    BaseConnection._connect_gen = classmethod(connect_or_take)  # type: ignore[method-assign,assignment]
    Connection.close, AsyncConnection.close = close_or_keep, aclose_or_keep


def connect_or_take(kind: Any, conninfo: str = "") -> Generator[Any, Any, Any]:
    """`_connect_gen` of connections."""
    backend = idle_backends.take(conninfo)
    connection = kind(backend) if backend else (yield from connect_gen(kind, conninfo))
    setattr(connection, NAME, conninfo)
    return connection


def close_or_keep(connection: Connection) -> None:
    if not keep(connection):
        close(connection)


async def aclose_or_keep(connection: AsyncConnection) -> None:
    if not keep(connection):
        await aclose(connection)


def keep(connection: Any) -> bool:
    pooled = getattr(getattr(connection, "_pool", None), "close_returns", False)
    backend = connection.pgconn
    if (
        connection.closed
        or pooled
        or not idle_backends.keep(getattr(connection, NAME, ""), backend)
    ):
        return False
    connection._closed = True
    connection.pgconn = finished
    return True
