"""The embedded database: a real PostgreSQL 18 with pgvector, started from a wheel.

It belongs to all processes that use one data directory and stops with the last of them. Use is
known by file locks, not by lists, so a process that was killed with -9 uses it no longer. A server
whose users were all killed goes on; the next user finds it, and the last one stops it. A server
that was itself killed is started again by the next user and recovers from its write-ahead log.

It listens on a Unix socket alone: who may enter the socket's directory may connect.
"""

import fcntl
import logging
import os
import shlex
import shutil
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from config.settings import DatabaseSettings as Settings
from registry.database.datadir import USERS_LOCK, DataDirectory
from registry.database.installation import DatabaseError, find_account, find_installation

log = logging.getLogger("toolgate.database")

NAME = "toolgate"  # of the database and of its only user
PORT = 5432  # names the socket file; nothing listens on TCP
SOCKET_LOCK = f".s.PGSQL.{PORT}.lock"
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
LOG_LIMIT_BYTES = 10_000_000
LOG_LINES_SHOWN = 12

_POLL_S = 0.02
# Backends of a killed server hold its memory until they notice; one that is told to stop by
# somebody else closes its socket first and removes its lock file last.
_LINGERING = ("pre-existing shared memory block", 'lock file "postmaster.pid" already exists')


class Embedded:
    """One process's use of the embedded server, from `start` to `stop`."""

    def __init__(self, settings: Settings) -> None:
        account = find_account(settings.system_user)
        self._settings = settings
        self._users: int | None = None  # descriptor that holds the shared lock
        self._directory = DataDirectory(settings.data_dir, account)
        with self._directory.serialised():
            self._sockets = self._directory.socket_directory()
            self._installation = find_installation(self._directory.path, account)

    @classmethod
    def start(cls, settings: Settings) -> "Embedded":
        """Start the server or join the running one. Blocks, for long only after a crash."""
        embedded = cls(settings)
        with embedded._directory.serialised():
            embedded._users = embedded._directory.lock(USERS_LOCK, fcntl.LOCK_SH)
            try:
                embedded._ensure()
            except BaseException:
                embedded._release()
                raise
        return embedded

    def ensure(self) -> None:
        """Start the server again if it died. Blocks like `start`."""
        with self._directory.serialised():
            self._ensure()

    def stop(self) -> None:
        """Stop using the server; the last user stops it. The second time has no effect."""
        if self._users is None:
            return
        with self._directory.serialised():
            self._release()
            try:
                last = self._directory.lock(USERS_LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            try:
                self._stop_server()
            finally:
                os.close(last)

    @property
    def url(self) -> str:
        """libpq URL."""
        return f"postgresql://{NAME}@:{PORT}/{NAME}?host={quote(str(self._sockets), safe='')}"

    @property
    def _maintenance(self) -> str:
        return make_conninfo(self.url, dbname="postgres", connect_timeout=10)

    def _release(self) -> None:
        if self._users is not None:
            os.close(self._users)
            self._users = None

    def _ensure(self) -> None:
        if not self._directory.cluster.exists():
            self._initialise()
        deadline = time.monotonic() + START_TIMEOUT_S
        while (answer := self._ping()) != pq.Ping.OK:
            if time.monotonic() > deadline:
                raise self._failed("does not accept connections", self._log_tail(0))
            if answer == pq.Ping.NO_RESPONSE:
                self._launch()
            time.sleep(_POLL_S)
        self._create_database()

    def _ping(self) -> pq.Ping:
        return pq.Ping(pq.PGconn.ping(self._maintenance.encode()))

    def _initialise(self) -> None:
        """Make the cluster, all or nothing: a half one never gets its final name."""
        log.info("database_being_made", extra={"data_dir": str(self._directory.path)})
        stage = self._directory.cluster.with_suffix(".new")
        shutil.rmtree(stage, ignore_errors=True)
        self._directory.give(stage)
        done = self._installation.run(
            "initdb",
            *("--pgdata", str(stage), "--username", NAME, "--encoding", "UTF8"),
            # The same order of text on every platform, and no ICU or libc version to depend on.
            *("--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"),
            *("--auth-local", "trust", "--auth-host", "reject", "--no-instructions"),
            *(["--no-sync"] if self._settings.options.get("fsync") == "off" else []),
            timeout_s=START_TIMEOUT_S,
        )
        if done.returncode != 0:
            raise self._failed("could not be created", done.stdout)
        stage.rename(self._directory.cluster)

    def _launch(self) -> None:
        self._drop_stale_locks()
        log = self._directory.log
        if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
            log.replace(log.with_suffix(".log.1"))
        offset = self._directory.open_log()
        options = shlex.join(part for item in self._parameters() for part in ("-c", item))
        status, output = self._pg_ctl("start", START_TIMEOUT_S, "-l", str(log), "-o", options)
        if status != 0:
            said = self._log_tail(offset)
            if not any(reason in said for reason in _LINGERING):
                raise self._failed("did not start", said or output)

    def _parameters(self) -> list[str]:
        """`name=value` of each; what keeps the server private comes last and wins."""
        settings = self._settings
        values = {
            "shared_buffers": settings.shared_buffers,
            "maintenance_work_mem": settings.maintenance_work_mem,
            "max_connections": str(settings.max_connections),
            "timezone": "UTC",
            "log_timezone": "UTC",
            **settings.options,
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": f'"{self._sockets}"',
            "unix_socket_permissions": "0700",
        }
        return [f"{name}={value}" for name, value in values.items()]

    def _drop_stale_locks(self) -> None:
        """Remove the server's lock files if the process they name is not, or no longer, it.

        PostgreSQL asks only whether the process id exists, and would refuse to start. Ids repeat
        when a container starts again on the same volume, and a killed server that nobody has
        collected (a zombie) still has one.
        """
        for file in (self._directory.cluster / "postmaster.pid", self._sockets / SOCKET_LOCK):
            with suppress(OSError):
                process = Path("/proc") / file.read_text().partition("\n")[0].strip()
                if process.exists() and not self._is_server(process):
                    file.unlink()

    def _is_server(self, process: Path) -> bool:
        """Its working directory is the cluster. A zombie has none."""
        try:
            return (process / "cwd").readlink() == self._directory.cluster
        except OSError:
            return False

    def _stop_server(self) -> None:
        status, output = self._pg_ctl("stop", STOP_TIMEOUT_S, "-m", "fast")
        if status != 0 and self._ping() != pq.Ping.NO_RESPONSE:
            raise self._failed("did not stop", output)

    def _pg_ctl(self, action: str, timeout_s: int, *options: str) -> tuple[int, str]:
        """Exit status and output, after the action is complete."""
        done = self._installation.run(
            "pg_ctl",
            action,
            *("-D", str(self._directory.cluster), "-w", "-t", str(timeout_s), *options),
            timeout_s=timeout_s + 10,
        )
        return done.returncode, done.stdout

    def _create_database(self) -> None:
        try:
            with psycopg.connect(self._maintenance, autocommit=True) as connection:
                known = connection.execute("SELECT FROM pg_database WHERE datname = %s", [NAME])
                if not known.rowcount:
                    connection.execute("CREATE DATABASE toolgate")
        except psycopg.OperationalError as error:
            raise self._failed("does not accept connections", str(error)) from error

    def _log_tail(self, offset: int) -> str:
        """The last lines of what the server logged from `offset` on."""
        with suppress(FileNotFoundError), self._directory.log.open("rb") as log:
            log.seek(max(offset, log.seek(0, os.SEEK_END) - LOG_LINES_SHOWN * 1000))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-LOG_LINES_SHOWN:])
        return ""

    def _failed(self, what: str, said: str) -> DatabaseError:
        return DatabaseError(
            f"the embedded database in {self._directory.path} {what}:\n{said.strip()}\n"
            f"See {self._directory.log}, or set database.url to a PostgreSQL of your own."
        )
