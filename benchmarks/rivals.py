"""Systems that the gateway is compared with: floor, ceiling and peers."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks import contextforge, envoy, nginx, peer
from benchmarks.processes import Child, free_port, start
from benchmarks.request import Unavailable
from benchmarks.rig import Rig, running, uvicorn


@contextmanager
def floor(rig: Rig, upstream_url: str = "") -> Iterator[Child]:
    """In front of the stub service where nothing else is named."""
    port = free_port()
    arguments = uvicorn(sys.executable, "benchmarks.floor:app", port)
    environment = {"TOOLGATE_BENCH_UPSTREAM": upstream_url or rig.upstream_url}
    child = start("floor", arguments, rig.directory, rig.cores.tested, environment, port)
    with running(child, "/bytes", rig.say):
        yield child


@contextmanager
def ceiling(rig: Rig) -> Iterator[Child]:
    if not nginx.BINARY:
        raise Unavailable("absent: apt-get install nginx (or another package of it)")
    child = nginx.start_proxy(nginx.BINARY, rig.upstream.port, rig.directory, rig.cores)
    with running(child, "/", rig.say):
        yield child


@contextmanager
def mcp_envoy(rig: Rig) -> Iterator[Child]:
    """Envoy as MCP server in front of the stub service, in one worker thread."""
    rig.say("preparing Envoy (installed on the first run)")
    child = envoy.start_bridge(peer.prepare(peer.ENVOY), rig.upstream.port, rig)
    with running(child, "/items/1", rig.say):
        yield child


@contextmanager
def context_forge(rig: Rig) -> Iterator[contextforge.Forge]:
    """ContextForge with the tool `get-item`."""
    rig.say("preparing ContextForge (installed on the first run)")
    python = peer.prepare(peer.CONTEXTFORGE)
    forge = contextforge.launch(python, rig)
    with running(forge.child, "/health", rig.say):
        forge.register(f"{rig.upstream_url}/items/{{id}}")
        yield forge


def fastmcp(rig: Rig, description: Path) -> AbstractContextManager[Child]:
    """Its server of an OpenAPI description."""
    environment = {
        "TOOLGATE_BENCH_UPSTREAM": rig.upstream_url,
        "TOOLGATE_BENCH_DESCRIPTION": str(description),
    }
    return _fastmcp(rig, "benchmarks.peer_app:app", environment)


def fastmcp_proxy(rig: Rig, upstream_url: str) -> AbstractContextManager[Child]:
    """Its proxy of an MCP server."""
    environment = {"TOOLGATE_BENCH_UPSTREAM": upstream_url}
    return _fastmcp(rig, "benchmarks.peer_proxy:app", environment)


@contextmanager
def _fastmcp(rig: Rig, app: str, environment: Mapping[str, str]) -> Iterator[Child]:
    rig.say("preparing FastMCP (installed on the first run)")
    python = peer.prepare(peer.FASTMCP)
    port = free_port()
    arguments = uvicorn(str(python), app, port)
    quiet = {**environment, "FASTMCP_LOG_LEVEL": "ERROR"}
    child = start("fastmcp", arguments, rig.directory, rig.cores.tested, quiet, port)
    with running(child, "/health", rig.say):
        yield child
