"""Shared fixture of all measurements: directory, cores, load, the upstream service."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import nginx
from benchmarks.description import describe
from benchmarks.load import Load
from benchmarks.processes import Child, Cores, free_port, start

UVICORN = ("--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning")


@dataclass(frozen=True, slots=True)
class Rig:
    directory: Path  # temporary, readable by every system user
    cores: Cores
    load: Load
    slice_s: float  # one measurement
    rounds: int
    upstream: Child
    say: Callable[[str], None]

    @property
    def upstream_url(self) -> str:
        return self.upstream.url

    def write_description(self, operations: int) -> Path:
        path = self.directory / f"items-{operations}.json"
        path.write_bytes(describe(operations, self.upstream_url))
        return path


@contextmanager
def running(child: Child, path: str, say: Callable[[str], None]) -> Iterator[Child]:
    """The child once `GET path` answers 200, stopped at the end."""
    try:
        say(f"starting {child.name}")
        child.await_ready(path)
        yield child
    finally:
        child.stop()


def start_upstream(directory: Path, cores: Cores) -> tuple[Child, str]:
    """The stub service and what it is made of."""
    if nginx.BINARY:
        return nginx.start_stub(nginx.BINARY, directory, cores), "nginx"
    port = free_port()
    arguments = uvicorn(sys.executable, "benchmarks.stub:app", port)
    return start("stub", arguments, directory, cores.load, port=port), "raw ASGI under uvicorn"


def start_mcp_server(directory: Path, cores: frozenset[int]) -> Child:
    port = free_port()
    arguments = uvicorn(sys.executable, "benchmarks.mcp_server:app", port)
    arguments += ["--timeout-graceful-shutdown", "1"]  # its streams end with it
    return start("mcp-server", arguments, directory, cores, port=port)


@contextmanager
def mcp_server(rig: Rig) -> Iterator[Child]:
    """The MCP server behind the gateway, on the core of the load as the stub is."""
    child = start_mcp_server(rig.directory, rig.cores.load)
    with running(child, "/streams", rig.say):
        yield child


def uvicorn(python: str, app: str, port: int) -> list[str]:
    return [python, "-m", "uvicorn", app, "--host", "127.0.0.1", "--port", str(port), *UVICORN]
