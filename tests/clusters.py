"""New clusters of PostgreSQL as copies: `initdb` takes half a second of CPU, `cp` a tenth of that.

The first `initdb` of a run of tests makes the cluster that all others copy, those of commands that
the fork server starts too: their arguments differ in the directory alone. A new interpreter runs
`initdb` itself, and so does the server of the session (`tests.fixtures_database`): its system
identifier differs from that of the copies, as those of servers do.
"""

import fcntl
import hashlib
import inspect
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

MEMORY = Path("/dev/shm")
ROOM_BYTES = 6 * 2**30
DIRECTORY = "--pgdata"
UNSYNCED = "--no-sync"  # of no effect on what is made


def quick_place() -> Path | None:
    """Where databases of tests lie: in memory, where there is much of it and programs may run; new
    databases are a thousand files each, which take a disk longer than the test takes."""
    with suppress(OSError):
        place = os.statvfs(MEMORY)
        if place.f_bavail * place.f_frsize >= ROOM_BYTES and not place.f_flag & os.ST_NOEXEC:
            return MEMORY
    return None


# The same folder for all workers and commands; the process that has set it removes it.
FOLDER = Path(
    os.environ.setdefault(
        "TEMPLATE_CLUSTERS",
        f"{quick_place() or tempfile.gettempdir()}/toolgate-clusters-{os.getpid()}",
    )
)
execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]
parameters = inspect.signature(execute)
are_copied = True


def pytest_unconfigure() -> None:
    if FOLDER.name.endswith(f"-{os.getpid()}"):
        shutil.rmtree(FOLDER, ignore_errors=True)


@contextmanager
def without_copies() -> Iterator[None]:
    """Let `initdb` make each cluster."""
    global are_copied
    before, are_copied = are_copied, False
    yield
    are_copied = before


def execute_or_copy(process: subprocess.Popen[Any], *args: Any) -> None:
    """`Popen._execute_child`, which copies a cluster in place of `initdb`."""
    options = parameters.bind(process, *args).arguments
    if are_copied and isinstance(options["args"], (list, tuple)):
        program, *words = map(os.fsdecode, options["args"])
        if Path(program).name == "initdb" and DIRECTORY in words:
            args = (copy_command(program, words, options), *args[1:])
    execute(process, *args)


def copy_command(program: str, words: list[str], options: Mapping[str, Any]) -> list[str]:
    """The command that does as `initdb` does. That itself, while it makes what is copied, and where
    that failed: its errors are those of the caller."""
    target = words[words.index(DIRECTORY) + 1]
    common = [word for word in words if word not in {DIRECTORY, target, UNSYNCED}]
    if Path(target).parent != FOLDER:
        with suppress(OSError, subprocess.CalledProcessError):
            return ["cp", "-a", f"{template_cluster(program, common, options)}/.", target]
    return [program, *words]


def template_cluster(program: str, common: list[str], options: Mapping[str, Any]) -> Path:
    """What is copied for these arguments and this user, made by the first caller."""
    key = json.dumps([common, options["uid"], options["gid"]])
    template = FOLDER / hashlib.sha256(key.encode()).hexdigest()[:16]
    FOLDER.mkdir(exist_ok=True)
    FOLDER.chmod(0o755)  # for the user of the server, whatever the umask
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not template.exists():
            stage = template.with_suffix(".new")
            shutil.rmtree(stage, ignore_errors=True)
            stage.mkdir(mode=0o700)
            if options["uid"] is not None:
                os.chown(stage, options["uid"], options["gid"])
            subprocess.run(
                [program, DIRECTORY, str(stage), *common, UNSYNCED],
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=options["env"],
                user=options["uid"],
                group=options["gid"],
                extra_groups=options["gids"],
                umask=options["umask"],
            )
            stage.rename(template)
    return template
