"""Runs scripts in the sandbox: the command of each language, the files that it needs, the process
and its result."""

import asyncio
import json
import marshal
import math
import os
import shutil
import signal
import sys
import sysconfig
from binascii import b2a_base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
from anyio import CapacityLimiter
from msgspec import UNSET, Raw, Struct, UnsetType

from config.settings import Scripts
from gateway.http_client.deadline import Deadline
from gateway.sandbox.seccomp_filter import MACHINES, program
from schemas.binding import Language
from schemas.errors import Fault, ToolgateError
from schemas.jsonrpc import decode_strict

DIRECTORY = Path(__file__).parent
JAIL = DIRECTORY / "jail_launcher.py"
# of the C library and what is linked against it; some are links on most systems
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
_DEVICES = ("/dev/null", "/dev/urandom")
_NODE_MODULES = "/usr/share/nodejs"  # Debian's node keeps parts of itself there

_BASE = {"base": sys.base_prefix, "platbase": sys.base_prefix, "installed_base": sys.base_prefix}

GRACE_S = 5.0  # for the launcher, to end the script's process and exit
ERROR_BYTES = 4096  # of its stderr; the rest is dropped

REFUSED = 97  # as in jail_launcher.py, which can be loaded on Linux only
MESSAGE_CHARACTERS = 500
OPEN_FILES = 64
# Includes all processes of the same user; seccomp allows threads only.
THREADS = 4096

_PROBES: dict[Language, str] = {
    "python": "def main(arguments): return 1",
    "javascript": "function main() { return 1 }",
}
_MEMORY_SIGNS = ("MemoryError", "heap out of memory", "Array buffer allocation failed")


@dataclass(frozen=True, slots=True)
class Runtime:
    """Command and visible files of an interpreter."""

    command: tuple[str, ...]
    environment: dict[str, str]
    paths: tuple[str, ...]  # visible, read-only; none lies in another
    links: dict[str, str]  # visible symbolic links
    hidden: tuple[str, ...]  # directories in `paths` that appear empty
    memory: Literal["RLIMIT_AS", "RLIMIT_DATA"]  # rlimit that bounds its memory
    files: dict[str, str] = field(default_factory=dict)  # further ones, by their paths inside


def runtime(language: Language, memory_bytes: int) -> Runtime | None:
    """The interpreter of a language; None: this machine has none."""
    return _python() if language == "python" else _javascript(memory_bytes)


def python() -> str:
    """The interpreter outside any virtual environment."""
    base: str = getattr(sys, "_base_executable", sys.executable)
    return str(Path(base).resolve())


def environment() -> dict[str, str]:
    """Environment variables that this interpreter needs to start."""
    shared = sysconfig.get_config_var("Py_ENABLE_SHARED")
    return {"LD_LIBRARY_PATH": str(sysconfig.get_config_var("LIBDIR"))} if shared else {}


def _python() -> Runtime:
    library = Path(sysconfig.get_path("stdlib", vars=_BASE)).resolve()
    shared = Path(str(sysconfig.get_config_var("LIBDIR"))).glob("libpython*.so*")
    packages = [library / name for name in ("site-packages", "dist-packages")]
    return Runtime(
        (python(), "-I", "-S", "-X", "utf8", "-c", (DIRECTORY / "run_python.py").read_text()),
        environment(),
        *_view(python(), str(library), *map(str, shared)),
        tuple(str(path) for path in packages if path.is_dir()),
        "RLIMIT_AS",
    )


def _javascript(memory_bytes: int) -> Runtime | None:
    node = shutil.which("node") or shutil.which("nodejs")
    if node is None:
        return None
    executable = str(Path(node).resolve())
    heap_mb = max(memory_bytes // 2**20 * 3 // 4, 16)
    return Runtime(
        (
            executable,
            f"--max-old-space-size={heap_mb}",
            "--disable-wasm-trap-handler",  # it reserves 10 GB of addresses for each memory
            "--no-warnings",
            "-e",
            (DIRECTORY / "run_javascript.js").read_text(),
        ),
        {},
        *_view(executable, _NODE_MODULES),
        (),
        "RLIMIT_DATA",  # V8 reserves far more addresses than it uses
    )


def _view(*paths: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Existing paths and links, without paths inside others."""
    wanted_paths = [Path(path) for path in (*_LIBRARIES, *_DEVICES, *paths)]
    links = {str(path): str(path.readlink()) for path in wanted_paths if path.is_symlink()}
    there = [path for path in wanted_paths if path.exists() and not path.is_symlink()]
    return tuple(dict.fromkeys(_outermost(there))), links


def _outermost(paths: list[Path]) -> Iterator[str]:
    for path in paths:
        if not any(parent in path.parents for parent in paths):
            yield str(path)


@dataclass(frozen=True, slots=True)
class ProcessResult:
    code: int  # see jail_launcher.py
    output: bytes
    errors: str
    too_long: bool  # the output exceeded its limit, so the run was ended


class Process(asyncio.SubprocessProtocol):
    def __init__(self, output_limit: int) -> None:
        self._limit = output_limit
        self._output = bytearray()
        self._errors = bytearray()
        self._open = {1, 2}  # its pipes
        self._exited = False
        self._over = asyncio.Event()

    @classmethod
    async def start(cls, plan: str, input_: bytes, output_limit: int) -> "Process":
        """Start the launcher; `input_` is its whole input."""
        process = cls(output_limit)
        await asyncio.get_running_loop().subprocess_exec(
            lambda: process,
            *(python(), "-I", "-S", str(JAIL), plan),
            env=environment(),
            cwd="/",
            start_new_session=True,
        )
        stdin = cast("asyncio.WriteTransport", process._transport.get_pipe_transport(0))
        stdin.write(input_)
        stdin.write_eof()
        return process

    async def wait(self) -> ProcessResult:
        await self._over.wait()
        code = self._transport.get_returncode() or 0
        too_long = len(self._output) > self._limit
        return ProcessResult(
            code if code >= 0 else 128 - code,
            bytes(self._output),
            self._errors.decode(errors="replace"),
            too_long,
        )

    async def close(self) -> None:
        """Close the process: SIGTERM, and SIGKILL after GRACE_S, if it still runs; returns when it
        has ended."""
        try:
            self._end()
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    await self._over.wait()
        finally:  # also on cancellation
            if not self._exited:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._transport.get_pid(), signal.SIGKILL)
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._errors += data[: ERROR_BYTES - len(self._errors)]
            return
        if len(self._output) <= self._limit:
            self._output += data
            if len(self._output) > self._limit:
                self._end()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        self._open.discard(fd)
        self._look()

    def process_exited(self) -> None:
        self._exited = True
        self._look()

    def _look(self) -> None:
        if self._exited and not self._open:
            self._over.set()

    def _end(self) -> None:
        """Send SIGTERM to the launcher, which kills the script."""
        if not self._exited:
            with suppress(ProcessLookupError, PermissionError):
                self._transport.send_signal(signal.SIGTERM)


class ScriptFailed(ToolgateError):
    """Reason why a script has no result; follows the tool's name and reveals no gateway
    internals."""


class _ScriptOutput(Struct):
    """Output of `run_python.py` and `run_javascript.js`."""

    answer: Raw | UnsetType = UNSET
    error: str | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class _Plan:
    """Input of `jail_launcher.py`."""

    parent: int  # the process id of the gateway
    command: tuple[str, ...]
    environment: dict[str, str]
    paths: tuple[str, ...]
    links: dict[str, str]
    hidden: tuple[str, ...]
    files: dict[str, str]
    limits: dict[str, int]
    filter: bytes
    tells: bool = False  # the launcher writes the id of the command's process to stderr first


_decoder = msgspec.json.Decoder(_ScriptOutput)


class Sandbox:
    """Runs scripts, a bounded number at a time."""

    def __init__(self, settings: Callable[[], Scripts]) -> None:
        self._settings = settings
        self._slots = CapacityLimiter(settings().concurrency)

    async def run(self, language: Language, source: str, arguments: Any) -> Raw:
        """Run a script: the return value of its `main`. Raises ScriptFailed."""
        settings = self._settings()
        self._slots.total_tokens = settings.concurrency
        plan = _plan(language, settings)
        input_ = json.dumps({"source": source, "arguments": arguments}).encode()
        try:
            with Deadline(settings.time_s):
                await self._slots.acquire()
        except TimeoutError:
            raise ScriptFailed("had to wait too long for others (scripts.concurrency)") from None
        try:
            ended = await _run_to_end(plan, input_, settings)
        finally:
            self._slots.release()
        return _answer(ended, settings)

    async def missing(self, language: Language) -> str | None:
        """Reason why scripts in this language cannot be run here; None when they can."""
        try:
            await self.run(language, _PROBES[language], {})
        except ScriptFailed as error:
            return str(error)
        return None


def _plan(language: Language, settings: Scripts) -> str:
    """The plan of the launcher. Raises ScriptFailed."""
    runtime = runtime_of(language, settings.memory_bytes)
    cpu_s = math.ceil(settings.time_s) + 1
    return launch_plan(runtime, process_limits(runtime, settings.memory_bytes, cpu_s))


def runtime_of(language: Language, memory_bytes: int) -> Runtime:
    """The interpreter of a language. Raises ScriptFailed on an unsupported machine."""
    if sys.platform != "linux" or os.uname().machine not in MACHINES:
        raise ScriptFailed(
            "cannot be run: scripts need Linux on x86-64 or arm64, with namespaces and seccomp"
        )
    runtime_ = runtime(language, memory_bytes)
    if runtime_ is None:
        raise ScriptFailed("cannot be run: there is no node (Node.js) on this machine's PATH")
    return runtime_


def launch_plan(runtime: Runtime, limits: Mapping[str, int], *, tells: bool = False) -> str:
    """The argument of `jail_launcher.py` that runs the command of an interpreter."""
    plan = _Plan(
        os.getpid(),
        runtime.command,
        environment=runtime.environment,
        paths=runtime.paths,
        links=runtime.links,
        hidden=runtime.hidden,
        files=runtime.files,
        limits=dict(limits),
        filter=program(MACHINES[os.uname().machine]),
        tells=tells,
    )
    return b2a_base64(marshal.dumps(asdict(plan)), newline=False).decode()


def process_limits(runtime: Runtime, memory_bytes: int, cpu_s: int) -> dict[str, int]:
    return {
        runtime.memory: memory_bytes,
        "RLIMIT_CPU": cpu_s,  # of all threads
        "RLIMIT_FSIZE": 0,
        "RLIMIT_NOFILE": OPEN_FILES,
        "RLIMIT_NPROC": THREADS,
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
    }


async def _run_to_end(plan: str, input_: bytes, settings: Scripts) -> ProcessResult:
    process = await Process.start(plan, input_, settings.output_bytes)
    try:
        with Deadline(settings.time_s):
            return await process.wait()
    except TimeoutError:
        raise ScriptFailed(
            f"did not answer within {settings.time_s:g} s (scripts.time_s)"
        ) from None
    finally:
        await process.close()


def _answer(result: ProcessResult, settings: Scripts) -> Raw:
    if result.too_long:
        raise ScriptFailed(
            f"answered more than {settings.output_bytes} bytes (scripts.output_bytes)"
        )
    if result.code == REFUSED:
        error = result.errors.strip() or "the sandbox did not start"
        raise ScriptFailed(f"cannot be run: this machine does not let scripts be confined: {error}")
    if result.code != 0:
        raise ScriptFailed(_death(result))
    if not result.output.strip():
        raise ScriptFailed("ended without an answer")
    try:
        decode_strict(result.output)
        output = _decoder.decode(result.output)
    except (Fault, msgspec.DecodeError):
        output = _ScriptOutput()
    if output.answer is not UNSET:
        return output.answer
    if output.error is UNSET:
        raise ScriptFailed("wrote something to its standard output that is not an answer")
    full = any(sign in output.error for sign in _MEMORY_SIGNS)
    more = ": it ran out of memory (scripts.memory_bytes)" if full else ""
    raise ScriptFailed(f"failed: {output.error[:MESSAGE_CHARACTERS]}{more}")


def _death(result: ProcessResult) -> str:
    if any(sign in result.errors for sign in _MEMORY_SIGNS):
        return "ran out of memory (scripts.memory_bytes)"
    if result.code > 128:
        return (
            f"was ended by signal {result.code - 128}: it crashed, or needed more memory or time "
            "than it may (scripts.memory_bytes, scripts.time_s)"
        )
    return f"ended with exit code {result.code} before it answered"
