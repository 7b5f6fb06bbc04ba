"""Who the gateway is measured against: floor, ceiling and peer."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import nginx, peer
from benchmarks.processes import Child, free_port, start
from benchmarks.request import Unavailable
from benchmarks.rig import Rig, running, uvicorn


@contextmanager
def floor(rig: Rig) -> Iterator[Child]:
    port = free_port()
    arguments = uvicorn(sys.executable, "benchmarks.floor:app", port)
    environment = {"TOOLGATE_BENCH_UPSTREAM": rig.upstream_url}
    child = start("floor", arguments, rig.directory, rig.cores.tested, environment, port)
    with running(child, "/bytes", rig.say):
        yield child


@contextmanager
def ceiling(rig: Rig) -> Iterator[Child]:
    if not nginx.BINARY:
        raise Unavailable("not available: nginx is not installed")
    child = nginx.start_proxy(nginx.BINARY, rig.upstream.port, rig.directory, rig.cores)
    with running(child, "/", rig.say):
        yield child


@contextmanager
def fastmcp(rig: Rig, description: Path) -> Iterator[Child]:
    rig.say("preparing FastMCP (installed on the first run)")
    python = peer.prepare()
    port = free_port()
    environment = {
        "TOOLGATE_BENCH_UPSTREAM": rig.upstream_url,
        "TOOLGATE_BENCH_DESCRIPTION": str(description),
        "FASTMCP_LOG_LEVEL": "ERROR",
    }
    arguments = uvicorn(str(python), "benchmarks.peer_app:app", port)
    child = start("fastmcp", arguments, rig.directory, rig.cores.tested, environment, port)
    with running(child, "/health", rig.say):
        yield child
