"""A process of Python in the sandbox that stays: frames go in and out of its two pipes.

It has the isolation of `script_runner.py`; it reads and writes only these pipes.
"""

import asyncio
import marshal
import math
import os
import signal
import time
import zlib
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import PIPE
from asyncio.subprocess import Process as Subprocess
from binascii import b2a_base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from types import CodeType
from typing import Any, Literal, TypeVar, cast

import anyio
import msgspec

from gateway.http_client.deadline import Deadline
from gateway.sandbox.script_runner import (
    DIRECTORY,
    ERROR_BYTES,
    GRACE_S,
    JAIL,
    ScriptFailed,
    environment,
    launch_plan,
    process_limits,
    python,
    runtime_of,
)
from schemas.errors import ToolgateError

T = TypeVar("T")

MODULES = ("jail_pipes", "javascript")  # modules that programs inside import, before those that do
LEAST_WAIT_S = 0.05  # between two looks at the CPU time of a process
START_S = 60.0  # for the process of a session, on a machine under load
# CPU time of its start, which is no time of its code: 0.2 s, and some seconds on a machine under
# load. The limit of the process has it besides: it ends what `next_frame` could not.
START_CPU_S = 10.0

Reason = Literal["refused", "time", "memory", "crashed", "protocol"]


class SessionEnded(ToolgateError):
    """The process of a session has ended, with its variables."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLimits:
    memory_bytes: int
    cell_s: float  # CPU time of a cell, or of a program
    session_s: float  # CPU time of all
    output_characters: int  # of a cell
    frame_bytes: int  # of what it asks for


_LOADER = """
import binascii, marshal, sys, types, zlib
modules, program = marshal.loads(zlib.decompress(binascii.a2b_base64({})))
for name, code in modules.items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(code, vars(module))
exec(program)
"""  # what the jail runs, which is of the same interpreter

_frames = msgspec.json.Decoder(dict[str, Any])


class JailedProcess:
    def __init__(self, process: Subprocess, pid: int, limits: CodeLimits) -> None:
        """`pid` of the command, whose parent the launcher is."""
        self._clock = ~pid << 3 | 2  # its CPU time, as clock_getcpuclockid(3) names it
        self._limits = limits
        self.received_bytes = 0
        self._input = cast("StreamWriter", process.stdin)
        self._output = cast("StreamReader", process.stdout)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, limits: CodeLimits, program: str, files: Mapping[str, str] | None = None
    ) -> AsyncIterator["JailedProcess"]:
        """A process that runs a file of this folder. `files`: others that it sees, by their paths
        inside. Raises SessionEnded."""
        process = await asyncio.create_subprocess_exec(
            *(python(), "-I", "-S", str(JAIL), _plan(limits, program, files or {})),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=environment(),
            cwd="/",
            start_new_session=True,
        )
        errors = cast("StreamReader", process.stderr)
        draining: asyncio.Task[None] | None = None
        try:
            jailed = cls(process, await _command(errors), limits)
            draining = asyncio.create_task(_drain(errors))
            yield jailed
        finally:
            with anyio.CancelScope(shield=True):
                await _close(process)
                await _drain(cast("StreamReader", process.stdout))  # else its pipe stays open
                if draining is not None:
                    await draining

    @property
    def cpu_s(self) -> float:
        """CPU time that it has used. Raises SessionEnded."""
        try:
            return time.clock_gettime(self._clock)
        except OSError as error:
            raise SessionEnded("crashed", "the process of the session has ended") from error

    async def send(self, value: Any) -> None:
        """Raises SessionEnded."""
        data = msgspec.json.encode(value)
        try:
            self._input.write(len(data).to_bytes(4, "big") + data)
            await self._input.drain()
        except ConnectionError as error:
            raise SessionEnded("crashed", "the process of the session has ended") from error

    async def next_frame(self, began: float) -> dict[str, Any]:
        """The next frame. Raises SessionEnded when the cell has used up its time since `began`."""
        reading = asyncio.ensure_future(self._read())
        try:
            while True:
                remaining_s = self._limits.cell_s - (self.cpu_s - began)
                if remaining_s <= 0:
                    text = f"the cell took more than {self._limits.cell_s:g} s of CPU time"
                    raise SessionEnded("time", text)
                done, _ = await asyncio.wait({reading}, timeout=max(remaining_s, LEAST_WAIT_S))
                if done:
                    return reading.result()
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, SessionEnded):
                await reading

    async def _read(self) -> dict[str, Any]:
        """The next frame. Raises SessionEnded."""
        try:
            size = int.from_bytes(await self._output.readexactly(4), "big")
            if size > self._limits.frame_bytes:
                raise SessionEnded("protocol", f"a frame of {size} bytes is too long")
            self.received_bytes += size
            return _frames.decode(await self._output.readexactly(size))
        except asyncio.IncompleteReadError as error:
            raise SessionEnded("crashed", "the process of the session has ended") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SessionEnded("protocol", "the session sent something that is no frame") from error


def convert_frame(frame: dict[str, Any], type_: type[T]) -> T:
    """Raises SessionEnded for a frame of another kind."""
    try:
        return msgspec.convert(frame, type_)
    except msgspec.ValidationError as error:
        raise SessionEnded("protocol", "the session sent an unknown frame") from error


def _plan(limits: CodeLimits, program: str, files: Mapping[str, str]) -> str:
    try:
        plan = runtime_of("python", limits.memory_bytes)
    except ScriptFailed as error:
        raise SessionEnded("refused", str(error)) from error
    # Hashes of strings must not differ between sessions; -I would ignore the variable. Each arena
    # of malloc reserves 64 MiB of addresses.
    command = (plan.command[0], "-s", "-P", "-S", "-X", "utf8", "-c", _source(program))
    variables = {**plan.environment, "PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "1"}
    plan = replace(plan, command=command, environment=variables, files=dict(files))
    cpu_s = math.ceil(limits.session_s + START_CPU_S)
    return launch_plan(plan, process_limits(plan, limits.memory_bytes, cpu_s), tells=True)


@cache
def _source(program: str) -> str:
    """A program with the modules that it imports: the jail has no file of the gateway. Compiled, as
    that takes a tenth of the time until it is ready."""
    modules = {f"gateway.sandbox.{name}": _compile(f"{name}.py") for name in MODULES}
    codes = zlib.compress(marshal.dumps((modules, _compile(program))))
    return _LOADER.format(b2a_base64(codes, newline=False))


def _compile(file: str) -> CodeType:
    return compile((DIRECTORY / file).read_text(), "<string>", "exec", dont_inherit=True)


async def _command(errors: StreamReader) -> int:
    """The id of the command's process, which the launcher tells. Raises SessionEnded."""
    try:
        with Deadline(START_S):
            first = await errors.readline()
    except TimeoutError as error:
        raise SessionEnded("refused", "the sandbox did not start in time") from error
    if not first.strip().isdigit():
        reason = first.decode(errors="replace").strip() or "the sandbox did not start"
        raise SessionEnded("refused", f"this machine does not let code be confined: {reason}")
    return int(first)


async def _drain(pipe: StreamReader) -> None:
    while await pipe.read(ERROR_BYTES):
        pass


async def _close(process: Subprocess) -> None:
    """End the process; returns when it has ended."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await process.wait()
    finally:  # also on cancellation
        if process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
        if process.stdin is not None:
            process.stdin.close()
