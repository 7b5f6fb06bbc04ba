"""Example programs as they are: processes."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.clusters import quick_place

ROOT = Path(__file__).parents[2]
STOP_S = 30


def python(*arguments: str) -> list[str]:
    """`python ARGUMENTS...`, which may begin with a file; in a way that the fork server knows."""
    module = ("-m", "tests.script") if arguments[0].endswith(".py") else ()
    return [sys.executable, *module, *arguments]


@contextmanager
def program(*arguments: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """`python ARGUMENTS...` in the repository, killed at the end if it has not ended by then.

    Its standard error is in a file, which cannot fill up as a pipe can; see `errors`.
    """
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            python(*arguments),
            cwd=ROOT,
            env=os.environ | (env or {}),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        process.stderr = log
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


def errors(process: subprocess.Popen[str]) -> str:
    """What a process that has ended wrote to standard error."""
    assert process.stderr
    process.stderr.seek(0)
    return process.stderr.read()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().rstrip("\n")


@dataclass(frozen=True)
class Run:
    """`examples/run.py`, ready."""

    process: subprocess.Popen[str]
    printed: str  # all of it, up to the last line of what it says when it is ready
    data_dir: Path

    @property
    def url(self) -> str:
        """The first address that it printed, without the path."""
        found = re.search(r"http://[^/\s]+", self.printed)
        assert found
        return found[0]

    def family(self) -> list[psutil.Process]:
        """Every process below it, those of the database too."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        database = (
            one
            for one in psutil.process_iter(["cmdline"])
            if any(str(self.data_dir) in word for word in one.info["cmdline"] or ())
        )
        return [*{*below, *database}]


@contextmanager
def running(data_dir: Path | None = None, **env: str) -> Iterator[Run]:
    """`examples/run.py` in a directory of its own, or in this one."""
    with ExitStack() as stack:
        own = data_dir or stack.enter_context(data_directory())
        settings = {"TOOLGATE_SERVER__PORT": "0", "TOOLGATE_DATABASE__DATA_DIR": str(own)}
        process = stack.enter_context(program("examples/run.py", env=settings | env))
        run = Run(process, until_ready(process), own)
        family = run.family()
        try:
            yield run
        finally:  # a database that is still stopping writes into the directory
            process.terminate()
            psutil.wait_procs(family, timeout=STOP_S)


@contextmanager
def data_directory() -> Iterator[Path]:
    # Not below `tmp_path`: as root, the database runs as a user who cannot enter that.
    path = Path(tempfile.mkdtemp(prefix="toolgate-examples-", dir=quick_place()))
    path.chmod(0o711)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def until_ready(process: subprocess.Popen[str]) -> str:
    printed = ""
    assert process.stdout
    for text in process.stdout:
        printed += text
        if "Ctrl-C stops both" in text:
            return printed
    process.wait()
    pytest.fail(f"ended before it was ready:\n{printed}{errors(process)}")


@pytest.fixture
def petshop() -> Iterator[str]:
    """The URL of a pet shop that nobody has changed yet."""
    with program("-m", "examples.petshop", "--port", "0") as process:
        yield line(process)
