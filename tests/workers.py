"""Workers of the suite that are forked from its controller, which has imported all tests.

As a plugin of pytest, this module imports the modules of tests once, and forks a process for each
worker of xdist before the controller has threads. execnet then starts interpreters, and gets these
processes instead. An interpreter of a worker spends several seconds of CPU on the imports, in a new
clone half a minute, since all compile the same.

A worker that crashed is replaced by an interpreter. So are all where the controller has threads,
and on other systems than Linux.
"""

import atexit
import gc
import importlib
import os
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from _pytest.config import apply_warning_filters
from execnet.gateway_io import popen_bootstrapline

from tests import forkserver

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-u", "-c", popen_bootstrapline]

# The ends of the controller, each with the process id at the other one.
waiting: list[tuple[socket.socket, int]] = []


def pytest_cmdline_main(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    count = 0 if is_worker else getattr(config.option, "tx", []).count("popen")
    if count and sys.platform == "linux":
        import_tests(config)
        if threading.active_count() == 1:
            fork_workers(count)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    if waiting:
        subprocess.Popen._execute_child = execute_or_take  # type: ignore[attr-defined]


def pytest_unconfigure() -> None:
    for link, pid in waiting:  # none took them
        link.close()
        os.waitpid(pid, 0)
    waiting.clear()


def import_tests(config: pytest.Config) -> None:
    """Import what the workers will collect. Whatever fails is imported again by each, and
    reported."""
    gc.disable()
    with warnings.catch_warnings():
        apply_warning_filters(config.getini("filterwarnings"), config.option.pythonwarnings or [])
        for file in find_tests(config):
            with suppress(BaseException):
                importlib.import_module(".".join(file.with_suffix("").parts))
    gc.collect()
    gc.freeze()  # the collector would write to all objects, and so copy them into each worker
    gc.enable()


def find_tests(config: pytest.Config) -> Iterator[Path]:
    """Files of tests at the arguments of pytest, relative to the root of the repository; without
    those that skip for lack of a library, which may start threads (QuickJS), or be large."""
    for argument in config.args:
        place = (config.invocation_params.dir / argument.partition("::")[0]).resolve()
        files = sorted(place.rglob("test_*.py")) if place.is_dir() else [place]
        for file in filter(Path.is_file, files):
            if file.is_relative_to(ROOT) and b"importorskip" not in file.read_bytes():
                yield file.relative_to(ROOT)


def fork_workers(count: int) -> None:
    for _ in range(count):
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            for link, _pid in waiting:
                link.close()
            waiting.clear()
            run_worker(theirs)
        theirs.close()
        waiting.append((ours, pid))


def execute_or_take(process: subprocess.Popen[Any], *args: Any) -> None:
    """`Popen._execute_child`, which takes a waiting worker where execnet starts an interpreter."""
    given = forkserver.parameters.bind(process, *args).arguments
    if not (waiting and given["args"] == COMMAND):
        forkserver.execute_or_fork(process, *args)
        return
    link, process.pid = waiting.pop(0)
    with link:
        socket.send_fds(link, [b"+"], forkserver.stream_descriptors(given))
    process._child_created = True  # type: ignore[attr-defined]
    forkserver.close_pipes(process, given)


def run_worker(link: socket.socket) -> None:
    """Do as the interpreter does, below the frames of the controller, which never go on."""
    code = 0
    try:
        with link:
            _, streams, _, _ = socket.recv_fds(link, 1, 3)
        if streams:
            forkserver.take_streams(streams)
            sys.orig_argv[:], sys.argv[:] = COMMAND, ["-c"]
            main = sys.modules["__main__"] = ModuleType("__main__")
            exec(eval(sys.stdin.readline()), vars(main))
    except KeyboardInterrupt:
        code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    os._exit(code)
