"""Fork server of the tests: `python -m gateway ...` without the second of CPU that imports take.

As a plugin of pytest, this module hands such commands of `subprocess` and `asyncio`, and that of
the process which reads files, to one process for each worker of the suite, which has imported the
gateway and forks for each of them. The fork has the arguments, environment, folder, streams and
process group that the command would have, runs the module as `__main__` with nothing open or
started, and ends as an interpreter does. It becomes a child of the test's process, so that signals
and exit codes are its own.

What differs from a new interpreter: all commands are imported, and random seeds of hashes are the
same for all. Tests of imports, installed packages or signals while Python starts need another
command line, such as `python -c`, which is run as it is. So are commands with other variables that
Python reads when it starts, and all on other systems than Linux.

A fork starts such commands as forks of its own. `python -m tests.script FILE` is `python FILE`.

    python -m tests.forkserver FD      the server, on a socket that it inherits
"""

import asyncio
import atexit
import ctypes
import gc
import importlib
import io
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO

from tests import clusters

ROOT = Path(__file__).parents[1]
MODULES = ("gateway", "tests.", "examples.")  # those with a dot: all below
READER = "gateway.wings.documents.reading.reader_process"
ISOLATED = ("-I", "-m", READER)
# Beginnings of the names of variables that Python and its libraries read when they start.
READ_EARLY = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "OPENBLAS_", "OMP_", "TZ")
ENVIRONMENT = dict(os.environ)  # before tests change it
SCRIPT = "tests.script"
CONSOLES = "gateway.cli.common.output"
SDK = ("mcp", "mcp.client.auth", "mcp.server.mcpserver")  # takes a second to import, too
SDK_IMPORT = re.compile(r"^\s*(?:from|import) mcp\b", re.MULTILINE)
UNBUFFERED = "PYTHONUNBUFFERED"
# The reader writes to no terminal, and its interpreter reads no variable of Python.
READ_EARLY_ISOLATED = ("LD_", "MALLOC_", "TZ")
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
SIZE = 4  # bytes of a number on the socket

execute, parameters = clusters.execute_or_copy, clusters.parameters


def pytest_configure() -> None:
    if sys.platform == "linux":
        subprocess.Popen._execute_child = execute_or_fork  # type: ignore[attr-defined]


def pytest_unconfigure() -> None:
    subprocess.Popen._execute_child = clusters.execute  # type: ignore[attr-defined]
    server.stop()


def execute_or_fork(process: subprocess.Popen[Any], *args: Any) -> None:
    """`Popen._execute_child`, where it is for a command that the server can run."""
    given = parameters.bind(process, *args).arguments
    if is_forked(given):
        process.pid = server.fork(given)
        process._child_created = True  # type: ignore[attr-defined]
        close_pipes(process, given)
    else:
        execute(process, *args)


def close_pipes(process: subprocess.Popen[Any], options: Mapping[str, Any]) -> None:
    pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
    process._close_pipe_fds(*(options[name] for name in pipes))  # type: ignore[attr-defined]


def is_forked(options: Mapping[str, Any]) -> bool:
    args = options["args"]
    if not (isinstance(args, (list, tuple)) and len(args) > 2 and args[0] == sys.executable):
        return False
    isolated = tuple(args[1:4]) == ISOLATED
    names = READ_EARLY_ISOLATED if isolated else READ_EARLY
    return (
        (isolated or (args[1] == "-m" and is_ours(str(args[2]))))
        and not (options["preexec_fn"] or options["pass_fds"] or options["shell"])
        and options["close_fds"]
        and options["umask"] < 0
        and options["uid"] is options["gid"] is options["gids"] is None
        and early_variables(environment(options), names) == early_variables(ENVIRONMENT, names)
        and Path(options["cwd"] or ".").is_dir()
    )


def is_ours(module: str) -> bool:
    return module == MODULES[0] or module.startswith(MODULES[1:])


def stream_descriptors(options: Mapping[str, Any]) -> list[int]:
    """Descriptors of this process that are standard input, output and error of the new one."""
    descriptors = (options["p2cread"], options["c2pwrite"], options["errwrite"])
    return [number if fd == -1 else fd for number, fd in enumerate(descriptors)]


def environment(options: Mapping[str, Any]) -> Mapping[str, str]:
    return os.environ if options["env"] is None else options["env"]


def early_variables(env: Mapping[str, str], names: tuple[str, ...] = READ_EARLY) -> dict[str, str]:
    return {
        name: value for name, value in env.items() if name.startswith(names) and name != UNBUFFERED
    }


def request_of(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "args": list(map(os.fsdecode, options["args"])),
        "env": {
            os.fsdecode(name): os.fsdecode(value) for name, value in environment(options).items()
        },
        "cwd": os.path.abspath(options["cwd"] or "."),  # noqa: PTH100 as given, links and all
        "session": options["start_new_session"],
        "group": options["process_group"],
    }


class ForkServer:
    """The server of this process, started when the first command needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # commands are started in threads too
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def fork(self, options: Mapping[str, Any]) -> int:
        """Process id of a new child of this process, which runs the command."""
        text = json.dumps(request_of(options)).encode()
        with self._lock:
            link = self._socket or self._start()
            # The child of a child that ends is that of the nearest ancestor that wants it.
            ctypes.CDLL(None).prctl(SUBREAPER, 1)
            try:
                socket.send_fds(link, [len(text).to_bytes(SIZE)], stream_descriptors(options))
                link.sendall(text)
                pid = int.from_bytes(receive(link, SIZE))
            finally:
                ctypes.CDLL(None).prctl(SUBREAPER, 0)
        return pid

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "tests.forkserver", str(theirs.fileno())]
            # Threads of BLAS would not survive the fork.
            env = ENVIRONMENT | {"OPENBLAS_NUM_THREADS": "1"}
            fds = [theirs.fileno()]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, env=env, cwd=ROOT, pass_fds=fds
            )
        self._socket = ours
        return ours

    def stop(self) -> None:
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait()


server = ForkServer()


def receive(link: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            raise EOFError("the other end of the fork server's socket is closed")
        data += part
    return bytes(data)


def main(fd: int) -> None:
    interruption = signal.getsignal(signal.SIGINT)
    with socket.socket(fileno=fd) as link:
        import_gateway()
        gc.collect()
        gc.freeze()  # the collector would write to all objects, and so copy them into each fork
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the forks get it too
        request, streams = serve(link)
    signal.signal(signal.SIGINT, interruption)
    run_module(request, streams)


def import_gateway() -> None:
    for target, _ in importlib.import_module("gateway.cli.main").COMMANDS.values():
        importlib.import_module(target.partition(":")[0])
    importlib.import_module(READER)
    del sys.modules[READER]  # it will be `__main__`


def source_of(request: Mapping[str, Any]) -> str:
    """The text of the module or script that a request names; "": there is none."""
    module, *following = request["args"][request["args"].index("-m") + 1 :]
    name = following[0] if module == SCRIPT else f"{ROOT / module.replace('.', '/')}.py"
    file = Path(request["cwd"], name)
    return file.read_text() if file.is_file() else ""


def serve(link: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork for each request; returns in the forks, with the request and its streams."""
    while True:
        head, streams, _, _ = socket.recv_fds(link, SIZE, 3)
        if not head:  # the tests are over
            sys.exit()
        request: dict[str, Any] = json.loads(receive(link, int.from_bytes(head)))
        if "mcp" not in sys.modules and SDK_IMPORT.search(source_of(request)):
            for name in SDK:
                importlib.import_module(name)
            gc.freeze()
        pids, gate = os.pipe(), os.pipe()
        middle = os.fork()
        if middle == 0:
            pid = os.fork()
            if pid == 0:
                os.close(gate[1])
                os.read(gate[0], 1)  # ends when the parent of this process is that of the server
                for fd in (*pids, gate[0]):
                    os.close(fd)
                return request, streams
            os.write(pids[1], pid.to_bytes(SIZE))
            os._exit(0)
        os.waitpid(middle, 0)
        link.sendall(os.read(pids[0], SIZE))
        for fd in (*pids, *gate, *streams):
            os.close(fd)


def fork_again(process: subprocess.Popen[Any], *args: Any) -> None:
    """`Popen._execute_child` of a fork. Not with threads, which may hold locks, and not from Python
    3.14, whose threads know their task of asyncio."""
    given = parameters.bind(process, *args).arguments
    if str(given["args"][1]).endswith(".py"):
        given["args"] = [given["args"][0], "-m", SCRIPT, *given["args"][1:]]
    alone = threading.active_count() == 1 and sys.version_info < (3, 14)
    if not (alone and is_forked({**given, "preexec_fn": None})):
        execute(process, *args)
        return
    for output in (sys.stdout, sys.stderr):
        output.flush()
    process.pid = os.fork()
    if process.pid == 0:
        run_to_end(given)
    process._child_created = True  # type: ignore[attr-defined]
    close_pipes(process, given)


def run_to_end(options: Mapping[str, Any]) -> NoReturn:
    """Run the command of a fork's fork, below the frames of the fork, which never go on."""
    gc.freeze()
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]  # folders of the parent
    asyncio._set_running_loop(None)
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    streams = [os.dup(fd) for fd in stream_descriptors(options)]
    for file in list(Path("/proc/self/fd").iterdir()):
        if int(file.name) > 2 and int(file.name) not in streams:
            with suppress(OSError):  # the listing's own
                os.close(int(file.name))
    code: Any = 1
    try:
        if options["preexec_fn"]:
            options["preexec_fn"]()
        run_module(request_of(options), streams)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


def run_module(request: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Do as `python -m MODULE` does."""
    subprocess.Popen._execute_child = fork_again  # type: ignore[attr-defined]
    for environment in (os.environ, ENVIRONMENT):
        environment.clear()
        environment.update(request["env"])
    os.chdir(request["cwd"])
    if request["session"]:
        os.setsid()
    elif request["group"] >= 0:
        os.setpgid(0, request["group"])
    take_streams(streams)
    if CONSOLES in sys.modules:
        renew_consoles()
    sys.orig_argv[:] = request["args"]
    *options, module = request["args"][1 : request["args"].index("-m") + 2]
    sys.argv[:] = ["-m", *request["args"][len(options) + 2 :]]
    sys.path[:1] = [] if "-I" in options else [request["cwd"]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def renew_consoles() -> None:
    """Make the consoles of commands again, in place: they read terminals and variables once."""
    module: Any = sys.modules[CONSOLES]
    for console, is_stderr in ((module.out, False), (module.err, True)):
        module.Printer.__init__(console, stderr=is_stderr)


def take_streams(streams: Sequence[int]) -> None:
    """Make three descriptors those of standard input, output and error."""
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    sys.stdin = sys.__stdin__ = stream(0, sys.stdin)
    sys.stdout = sys.__stdout__ = stream(1, sys.stdout)
    sys.stderr = sys.__stderr__ = stream(2, sys.stderr)


def stream(fd: int, inherited: TextIO) -> io.TextIOWrapper:
    """One of the standard streams, as Python makes them."""
    raw: Any = io.FileIO(fd, "w" if fd else "r", closefd=False)
    raw.name = inherited.name
    unbuffered = bool(fd and os.environ.get(UNBUFFERED))
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw) if fd else io.BufferedReader(raw),
        encoding=inherited.encoding,
        errors=inherited.errors,
        line_buffering=not unbuffered and (fd == 2 or raw.isatty()),
        write_through=unbuffered,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
