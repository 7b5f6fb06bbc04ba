"""Toolgate as a process of its own, for what concerns processes."""

import asyncio
import json
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from anyio import to_thread
from click.testing import CliRunner, Result

from gateway.cli.main import cli

DEADLINE_S = 60


def environment(**settings: str) -> dict[str, str]:
    return os.environ | {"PYTHONUNBUFFERED": "1"} | settings


async def start(*args: str, **settings: str) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", *args),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        env=environment(**settings),
        limit=2**20,
    )


async def ran(*args: str, **settings: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    process = await start(*args, **settings)
    async with asyncio.timeout(DEADLINE_S):
        out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def command(*args: str, **settings: str) -> tuple[int, str, str]:
    """The same in this process: in a thread, as a command has an event loop of its own, so that it
    can call a gateway of the test."""

    def run() -> Result:
        return CliRunner().invoke(cli, args, env=settings, prog_name="toolgate")

    handlers = logging.getLogger().handlers[:]
    try:
        result = await to_thread.run_sync(run)
    finally:
        logging.getLogger().handlers[:] = handlers  # the command's write to its closed stream
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@dataclass
class Served:
    """A `toolgate serve`. Its log, on standard error, is JSON because that is no terminal."""

    process: Process
    url: str = ""

    async def ready(self) -> None:
        """Wait for the announcement, which is the first line."""
        line = await self.line()
        start, scheme, address = line.partition("http")
        assert start == "Toolgate is ready: ", line
        self.url = f"{scheme}{address}".removesuffix("/mcp")

    async def line(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            return (await self.process.stdout.readline()).decode().strip()

    async def event(self, name: str, **expected: Any) -> dict[str, Any]:
        """The next event of this name in the log, with these values."""
        assert self.process.stderr is not None
        async with asyncio.timeout(DEADLINE_S):
            while line := await self.process.stderr.readline():
                event: dict[str, Any] = json.loads(line)
                if event["event"] == name and expected.items() <= event.items():
                    return event
        raise AssertionError(f"the log ended without {name} {expected}")

    async def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit code, and the rest of the log."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(DEADLINE_S):
            _, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, err.decode()


@asynccontextmanager
async def serving(*args: str, **settings: str) -> AsyncIterator[Served]:
    """A `toolgate serve` on a free port; killed at the end if it still runs."""
    async with serve_process(await start("serve", "--port", "0", *args, **settings)) as gateway:
        yield gateway


@asynccontextmanager
async def serve_process(process: Process) -> AsyncIterator[Served]:
    """A process that serves; killed at the end if it still runs."""
    try:
        yield Served(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
