"""MCP over the standard input and output of a child process: one JSON text on each line.

The process is started without a shell, limited, and never orphaned. It leads a process group of its
own, which is killed with it. It ends with the gateway; if that is killed by SIGKILL, only the
process itself is killed (on Linux), and its children have to notice EOF on their standard input and
output. Process groups that it creates itself are not tracked.
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

from gateway.http_client.http1 import TooLarge
from gateway.upstreams.http.source_pools import UpstreamFailed
from gateway.upstreams.mcp import launcher
from gateway.upstreams.mcp.backoff import RestartBackoff
from gateway.upstreams.mcp.duplex_link import DuplexLink
from gateway.upstreams.mcp.link_and_handlers import (
    ClientProfile,
    MessageHandler,
    ServerDescription,
    SessionLost,
    Timeout,
)
from gateway.upstreams.mcp.message_parsers import LineSplitter
from schemas.mcp.revisions import V2025_11_25, Revision

log = logging.getLogger("toolgate.upstream")

INHERITED = ("PATH", "HOME", "LANG", "TMPDIR")  # environment variables passed on, and LC_*
NOT_STARTED = "could not be started: its command was not found or cannot be run"
GRACE_S = 2.0  # after EOF on its input, and again after SIGTERM
EOF_TIMEOUT_S = 1.0  # wait for EOF of its output after its exit: other processes may hold the pipe
LOGGED_LINES = 100  # of stderr, each minute
LOG_LINE_BYTES = 500  # of each


@dataclass(frozen=True, slots=True)
class ProcessCommand:
    """Command to start, and its limits."""

    name: str  # of the source
    words: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: int = 2**32  # heap and other private writable memory
    line_limit_bytes: int = 10 * 2**20


class LineProcess(asyncio.SubprocessProtocol):
    """Process whose output is split into lines, for `on_line`; `on_end` is called once, when the
    output has ended, with a reason that follows its name."""

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
        self.why = "has ended"  # known once it has exited
        self._out = LineSplitter(command.line_limit_bytes)
        self._err = LineSplitter(LOG_LINE_BYTES, cut=True)
        self._read = _Rate(command.line_limit_bytes, 1.0)
        self._logged = _Rate(LOGGED_LINES, 60.0)

    @classmethod
    async def start(
        cls,
        command: ProcessCommand,
        on_line: Callable[[bytes], None],
        on_end: Callable[[str], None],
    ) -> "LineProcess":
        """Start the process. Raises OSError."""
        process = cls(command, on_line, on_end)
        words = (sys.executable, "-I", "-S", str(Path(launcher.__file__)))
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
        """Write to the process; False when its write buffer is full, or its input is closed."""
        stdin = cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(0))
        if stdin is None or stdin.is_closing() or not self.running:
            return False
        if stdin.get_write_buffer_size() > self.command.line_limit_bytes:
            return False
        stdin.write(line + b"\n")
        return True

    async def close(self) -> None:
        """Close the input of the process, then SIGTERM, then SIGKILL; returns when it has
        exited."""
        self._on_end = None
        try:
            for step in (self._end_input, lambda: self._signal(signal.SIGTERM)):
                step()
                with suppress(TimeoutError):
                    async with asyncio.timeout(GRACE_S):
                        await self._exited.wait()
                        break
        finally:  # also on cancellation
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
            self._record_end(str(error))
            self._signal(signal.SIGKILL)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        if fd == 1:
            self.running = False
            self._silent = True
            self._finish()

    def process_exited(self) -> None:
        self._signal(signal.SIGKILL)  # kills the remaining members of its group
        self.running = False
        self._exited.set()
        code = self._transport.get_returncode()
        log.info("stdio_exited", extra={"source": self.command.name, "code": code})
        if code == launcher.NOT_FOUND:
            self.why = NOT_STARTED
        self._finish()

    def _finish(self) -> None:
        """Finish after exit or EOF: report the end when both came, or force it."""
        if self._silent and self._exited.is_set():
            self._record_end(self.why)
        else:  # its last output may not have been read
            asyncio.get_running_loop().call_later(EOF_TIMEOUT_S, self._cut)

    def _cut(self) -> None:
        self._signal(signal.SIGKILL)
        self._record_end(self.why)
        self._transport.close()

    def _record_end(self, why: str) -> None:
        self.running = False
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(why)

    def _end_input(self) -> None:
        stdin = self._transport.get_pipe_transport(0)
        if stdin is not None:
            stdin.close()

    def _signal(self, number: signal.Signals) -> None:
        """Signal the process group, but not after the exit: its number may have been reused."""
        if self._exited.is_set():
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _log(self, line: bytes) -> None:
        if self._logged.allows(1):
            text = line.decode(errors="replace")
            log.info("stdio_stderr", extra={"source": self.command.name, "line": text})

    def _pause(self) -> None:
        """Stop reading for a second: limits the share of a process that floods its output."""
        output = cast("asyncio.ReadTransport", self._transport.get_pipe_transport(1))
        output.pause_reading()
        asyncio.get_running_loop().call_later(1.0, output.resume_reading)


class _Rate:
    """Rate limit with a fixed window: at most `limit` in each `stretch_s` seconds."""

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
    """Environment of a server process: INHERITED and LC_* of the gateway, and `configured`."""
    inherited = {
        name: value for name, value in os.environ.items() if name in INHERITED or name[:3] == "LC_"
    }
    return {**inherited, **configured}


class StdioCarrier:
    """Carrier of one process of a source's command."""

    def __init__(self, command: ProcessCommand, link: DuplexLink, backoff: RestartBackoff) -> None:
        self.name = command.name
        self.limit_bytes = command.line_limit_bytes
        self._command = command
        self._link = link
        self._backoff = backoff
        self._process: LineProcess | None = None
        self._since = 0.0
        self._is_end_recorded = False

    @property
    def open(self) -> bool:
        return self._process is not None and self._process.running

    async def start(self) -> None:
        """Start the process. Raises UpstreamFailed, also during the backoff after the last process
        ended."""
        self._backoff.check()
        self._since = time.monotonic()
        try:
            self._process = await LineProcess.start(
                self._command, self._link.receive, self._record_end
            )
        except OSError as error:
            self._backoff.record_end(0.0, "could not be started")
            raise UpstreamFailed(f"{self.name} could not be started") from error

    async def send(
        self,
        body: bytes,
        headers: Mapping[str, str] = {},  # noqa: ARG002 - a line has none
    ) -> None:
        if self._process is None or not self._process.running:
            raise SessionLost(f"{self.name} has ended", sent=False)
        if not self._process.write(body):
            raise UpstreamFailed(f"{self.name} does not read its input")

    async def close(self) -> None:
        if self._process is not None:
            await self._process.close()

    def end_before_session(self) -> SessionLost:
        """The end of a process that has exited before it was asked anything; it is recorded."""
        why = self._process.why if self._process is not None else "has ended"
        if not self._is_end_recorded:
            self._backoff.record_end(time.monotonic() - self._since, why)
        return SessionLost(f"{self.name} {why}", sent=False)

    def _record_end(self, why: str) -> None:
        self._is_end_recorded = True
        self._backoff.record_end(time.monotonic() - self._since, why)
        self._link.lose(SessionLost(f"{self.name} {why}", sent=True))


async def open_stdio(
    command: ProcessCommand,
    backoff: RestartBackoff,
    profile: ClientProfile,
    *,
    background: MessageHandler,
    timeout: Timeout,
    requests_limit: int,
    revision: Revision = V2025_11_25,
) -> DuplexLink:
    """Start a process and begin its session. Raises RelayedFault and UpstreamFailed."""
    link = DuplexLink(background, profile, command.name, requests_limit)
    link.carrier = carrier = StdioCarrier(command, link, backoff)
    try:
        await carrier.start()
        await link.begin(revision, timeout)
    except UpstreamFailed as failure:
        useless = carrier.open
        await link.close()
        if useless:
            backoff.record_end(0.0, "was started and did not begin a session")
        elif isinstance(failure, SessionLost) and not failure.sent:
            raise carrier.end_before_session() from failure
        raise
    except BaseException:
        await link.close()
        raise
    return link


async def open_stdio_stateless(
    command: ProcessCommand,
    backoff: RestartBackoff,
    profile: ClientProfile,
    *,
    background: MessageHandler,
    facts: ServerDescription,
) -> DuplexLink:
    """Start a process that is known to speak 2026-07-28. Raises UpstreamFailed."""
    link = DuplexLink(background, profile, command.name, 0)
    link.facts = facts
    link.carrier = carrier = StdioCarrier(command, link, backoff)
    try:
        await carrier.start()
    except BaseException:
        await link.close()
        raise
    return link
