"""The data directory of the embedded database: who owns what in it, and its locks.

    start.lock    exclusive while a process starts or stops the server
    users.lock    shared as long as a process uses the server; who gets it exclusively is the last
    postgres-18/  the cluster        run/  its socket        server.log        programs-*/

The directory itself and what stands directly in it are ours. As root only the cluster, the socket
directory and the log belong to the server's account, so that a server that was broken into cannot
lead root astray with links.
"""

import fcntl
import hashlib
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.settings import DatabaseSettings as Settings
from registry.database.installation import Account, DatabaseError

CLUSTER = "postgres-18"
START_LOCK = "start.lock"
USERS_LOCK = "users.lock"
SOCKET_PATH_LIMIT = 103  # bytes; sun_path has 108 on Linux, 104 on macOS, the last one is NUL

_SOCKET = ".s.PGSQL.5432"
# Where sockets go when the directory's path is too long. Not TMPDIR: all users of one data
# directory have to meet, whatever their environments.
_SHORT = Path("/tmp")  # noqa: S108 - a folder in it that is checked to be ours
# pg_ctl puts the path between double quotes into a shell command; libpq splits hosts at commas.
_UNUSABLE = frozenset('"$`\\,\n')
_FOREIGN = frozenset({"lost+found"})  # in a directory that is a mounted file system


class DataDirectory:
    """A directory of ours, made or checked by the constructor."""

    def __init__(self, setting: str, account: Account | None) -> None:
        """`setting` is `database.data_dir`. Raises `DatabaseError`, which names it."""
        self.path = directory_of(setting)
        self.cluster = self.path / CLUSTER
        self.log = self.path / "server.log"
        self._account = account
        self._refuse_unusable()
        try:
            self._create()
        except OSError as error:
            raise self._refused(f"cannot be created ({error.strerror})") from error

    def socket_directory(self) -> Path:
        """A directory that only the server's account and root may enter; made when missing."""
        directory = self.path / "run"
        if len(os.fsencode(directory / _SOCKET)) <= SOCKET_PATH_LIMIT:
            return self.give(directory)
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        directory = _SHORT / f"toolgate-{os.geteuid()}-{digest}"
        owners = {os.geteuid(), self._account.uid if self._account else os.geteuid()}
        if directory.is_symlink() or (directory.exists() and directory.stat().st_uid not in owners):
            raise DatabaseError(
                f"{directory} belongs to somebody else; remove it or set a shorter "
                "database.data_dir"
            )
        return self.give(directory)

    def give(self, path: Path) -> Path:
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
    def serialised(self) -> Iterator[None]:
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
            raise self._refused(f"must not contain {' '.join(sorted(map(repr, bad)))}")
        barrier = self._account.barrier(self.path) if self._account else None
        if barrier is not None and self._account is not None:
            raise self._refused(
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
        # As root the server's account has to get through, to what belongs to it.
        mode = 0o711 if self._account else 0o700
        if stat.S_IMODE(self.path.stat().st_mode) != mode:
            self.path.chmod(mode)

    def _refuse_foreign(self) -> None:
        if self.path.stat().st_uid != os.geteuid():
            raise self._refused("belongs to another user")
        names = {entry.name for entry in self.path.iterdir()}
        if names - _FOREIGN and START_LOCK not in names:
            raise self._refused("has something else in it")

    def _refused(self, reason: str) -> DatabaseError:
        return DatabaseError(
            f"the data directory {self.path} {reason}; set database.data_dir to a directory "
            "for the embedded database alone"
        )


def directory_of(setting: str) -> Path:
    """Where `database.data_dir` leads."""
    return (Path(setting).expanduser() if setting else _default()).resolve()


def has_cluster(settings: Settings) -> bool:
    """Whether there is a database to look into: one of our own only where it was made before."""
    return settings.url != "embedded" or (directory_of(settings.data_dir) / CLUSTER).exists()


def _default() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/toolgate")
    if sys.platform == "darwin":
        return Path("~/Library/Application Support/toolgate").expanduser()
    home = os.environ.get("XDG_DATA_HOME", "")
    # The specification tells to ignore relative paths.
    base = Path(home) if home.startswith("/") else Path("~/.local/share").expanduser()
    return base / "toolgate"
