"""A child process that speaks in lines: started without a shell, limited, never left behind.

It leads a process group of its own, and all of the group ends with it. It ends when the gateway
does; if that is killed by SIGKILL, it alone does (on Linux), and what it started has to notice that
its input and output have ended. What it starts in groups of their own is its own affair.
"""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from gateway.upstreams.http.connections import TooLarge
from gateway.upstreams.mcp import confine
from gateway.upstreams.mcp.events import Lines

log = logging.getLogger("toolgate.upstream")

KEPT = ("PATH", "HOME", "LANG", "TMPDIR")  # of our environment, and LC_*
NOT_STARTED = "could not be started: its command was not found or cannot be run"
GRACE_S = 2.0  # after the end of its input, and again after SIGTERM
HELD_S = 1.0  # for its output to end after it, which others may hold
LOGGED_LINES = 100  # of stderr, each minute
LOGGED_BYTES = 500  # of each


@dataclass(frozen=True, slots=True)
class ProcessCommand:
    """What to start, and how much of everything it gets."""

    name: str  # of the source
    words: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: int = 2**32  # address space
    line_limit_bytes: int = 10 * 2**20


class LineProcess(asyncio.SubprocessProtocol):
    """One such process. Lines of its output go to `on_line`; `on_end` is called once, with words
    that follow its name, when it says nothing more."""

    def __init__(
        self,
        command: ProcessCommand,
        on_line: Callable[[bytes], None],
        on_end: Callable[[str], None],
    ) -> None:
        self.command = command
        self.pid = 0
        self.running = False
        self._on_line = on_line
        self._on_end: Callable[[str], None] | None = on_end
        self._exited = asyncio.Event()
        self._silent = False
        self._why = "has ended"
        self._out = Lines(command.line_limit_bytes)
        self._err = Lines(LOGGED_BYTES, cut=True)
        self._read = _Rate(command.line_limit_bytes, 1.0)
        self._logged = _Rate(LOGGED_LINES, 60.0)

    @classmethod
    async def start(
        cls,
        command: ProcessCommand,
        on_line: Callable[[bytes], None],
        on_end: Callable[[str], None],
    ) -> "LineProcess":
        """Raises OSError."""
        process = cls(command, on_line, on_end)
        words = (sys.executable, "-I", "-S", str(Path(confine.__file__)))
        limits = (str(command.memory_bytes), str(os.getpid()))
        await asyncio.get_running_loop().subprocess_exec(
            lambda: process,
            *words,
            *limits,
            *command.words,
            env=environment(command.env),
            start_new_session=True,
        )
        return process

    def write(self, line: bytes) -> bool:
        """False when it does not read what it was sent before, or nothing at all any more."""
        stdin = cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(0))
        if stdin is None or stdin.is_closing() or not self.running:
            return False
        if stdin.get_write_buffer_size() > self.command.line_limit_bytes:
            return False
        stdin.write(line + b"\n")
        return True

    async def close(self) -> None:
        """Ask it to end, then make it; returns when it is gone."""
        self._on_end = None
        try:
            for step in (self._end_input, lambda: self._signal(signal.SIGTERM)):
                step()
                with suppress(TimeoutError):
                    async with asyncio.timeout(GRACE_S):
                        await self._exited.wait()
                        break
        finally:  # also when nobody can wait so long
            self._signal(signal.SIGKILL)
        await self._exited.wait()
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self.pid = self._transport.get_pid()
        self.running = True

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            for line in self._err.feed(data):
                self._log(line)
            return
        if not self._read.allows(len(data)):
            self._pause()
        try:
            for line in self._out.feed(data):
                self._on_line(line)
        except TooLarge as error:
            self._ended(str(error))
            self._signal(signal.SIGKILL)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        if fd == 1:
            self.running = False
            self._silent = True
            self._wind_up()

    def process_exited(self) -> None:
        self._signal(signal.SIGKILL)  # whatever it leaves behind
        self.running = False
        self._exited.set()
        code = self._transport.get_returncode()
        log.info("stdio_exited", extra={"source": self.command.name, "code": code})
        if code == confine.NOT_FOUND:
            self._why = NOT_STARTED
        self._wind_up()

    def _wind_up(self) -> None:
        """It has ended, or closed its output: the one follows the other, or is made to."""
        if self._silent and self._exited.is_set():
            self._ended(self._why)
        else:  # what it said last may not have been read
            asyncio.get_running_loop().call_later(HELD_S, self._cut)

    def _cut(self) -> None:
        self._signal(signal.SIGKILL)
        self._ended(self._why)
        self._transport.close()

    def _ended(self, why: str) -> None:
        self.running = False
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(why)

    def _end_input(self) -> None:
        stdin = self._transport.get_pipe_transport(0)
        if stdin is not None:
            stdin.close()

    def _signal(self, number: signal.Signals) -> None:
        """To the group; once that is gone its number may be another's."""
        if self._exited.is_set():
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _log(self, line: bytes) -> None:
        if self._logged.allows(1):
            text = line.decode(errors="replace")
            log.info("stdio_stderr", extra={"source": self.command.name, "line": text})

    def _pause(self) -> None:
        """Nobody's flood takes all of our time."""
        output = cast("asyncio.ReadTransport", self._transport.get_pipe_transport(1))
        output.pause_reading()
        asyncio.get_running_loop().call_later(1.0, output.resume_reading)


class _Rate:
    """How much there may be of something in each stretch of time."""

    def __init__(self, limit: int, stretch_s: float) -> None:
        self._limit = limit
        self._stretch_s = stretch_s
        self._since = 0.0
        self._count = 0

    def allows(self, count: int) -> bool:
        now = time.monotonic()
        if now - self._since > self._stretch_s:
            self._since, self._count = now, 0
        self._count += count
        return self._count <= self._limit


def environment(configured: Mapping[str, str]) -> dict[str, str]:
    """What such a process may know of ours, and what it was given."""
    kept = {name: value for name, value in os.environ.items() if name in KEPT or name[:3] == "LC_"}
    return {**kept, **configured}
