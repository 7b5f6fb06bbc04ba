"""Launcher process of one run: its input, output and end."""

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from gateway.upstreams.sandbox.languages import HERE, environment, python

GRACE_S = 5.0  # for the launcher, to end the script's process and exit
ERROR_BYTES = 4096  # of its stderr; the rest is dropped


@dataclass(frozen=True, slots=True)
class Ended:
    code: int  # see jail.py
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
    async def start(cls, plan: str, given: bytes, output_limit: int) -> "Process":
        """`given` is its whole input."""
        process = cls(output_limit)
        await asyncio.get_running_loop().subprocess_exec(
            lambda: process,
            *(python(), "-I", "-S", str(HERE / "jail.py"), plan),
            env=environment(),
            cwd="/",
            start_new_session=True,
        )
        stdin = cast("asyncio.WriteTransport", process._transport.get_pipe_transport(0))
        stdin.write(given)
        stdin.write_eof()
        return process

    async def wait(self) -> Ended:
        await self._over.wait()
        code = self._transport.get_returncode() or 0
        too_long = len(self._output) > self._limit
        return Ended(
            code if code >= 0 else 128 - code,
            bytes(self._output),
            self._errors.decode(errors="replace"),
            too_long,
        )

    async def close(self) -> None:
        """SIGTERM, and SIGKILL after GRACE_S, if it still runs; returns when it has ended."""
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
        """SIGTERM to the launcher, which kills the script."""
        if not self._exited:
            with suppress(ProcessLookupError, PermissionError):
                self._transport.send_signal(signal.SIGTERM)
