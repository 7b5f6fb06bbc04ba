"""The gateway under test, started as users do: by its command."""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.processes import Child, clean_environment, free_port, pin, start
from benchmarks.request import Unavailable
from benchmarks.rig import Rig, running

COMMAND = (sys.executable, "-m", "gateway")
SERVICE = Path(__file__).with_name("service.py")
IMPORT_TIMEOUT_S = 300.0
_NONE: Mapping[str, Any] = {}
_counter = itertools.count(1)


class Installation(msgspec.Struct, frozen=True):
    """One settings file with an embedded database of its own."""

    name: str
    settings: Path
    data_dir: Path
    port: int


@contextmanager
def installation(
    rig: Rig, name: str, sources: Mapping[str, Any], more: Mapping[str, Any] = _NONE
) -> Iterator[Installation]:
    """`sources`, and `more` groups, as in the settings file. Whatever still runs on the database is
    stopped at the end.

    As root the embedded server runs as another user, hence directories that anybody may enter.
    """
    home = rig.directory / name
    home.mkdir(mode=0o755)
    site = Installation(name, home / "toolgate.yaml", home / "data", free_port())
    settings = {
        "logging": {"level": "warning"},
        "sources": sources,
        **more,
        "server": {**more.get("server", {}), "port": site.port},
        "database": {"data_dir": str(site.data_dir), **more.get("database", {})},
    }
    site.settings.write_bytes(msgspec.json.encode(settings))  # JSON is YAML
    try:
        yield site
    finally:
        _stop_database(site.data_dir)


@contextmanager
def serving(rig: Rig, site: Installation) -> Iterator[Child]:
    with running(launch(rig, site), "/ready", rig.say) as child:
        yield child


@contextmanager
def gateway(rig: Rig, operations: int, more: Mapping[str, Any] = _NONE) -> Iterator[Child]:
    """A gateway that serves one generated service of so many operations. `more`: settings."""
    description = rig.write_description(operations)
    source = {"items": {"openapi": str(description), "base_url": rig.upstream_url}}
    name = f"toolgate-{operations}-{next(_counter)}"
    with installation(rig, name, source, more) as site, serving(rig, site) as child:
        yield child


@contextmanager
def portal(rig: Rig) -> Iterator[Child]:
    """A gateway that serves the hybrid service of these benchmarks."""
    sources = {"catalogue": {"python": str(SERVICE)}}
    name = f"toolgate-portal-{next(_counter)}"
    with installation(rig, name, sources) as site, serving(rig, site) as child:
        yield child


@contextmanager
def relay(rig: Rig, server_url: str, mcp: Mapping[str, Any] = _NONE) -> Iterator[Child]:
    """A gateway in front of one MCP server."""
    sources = {"server": {"mcp": f"{server_url}/mcp"}}
    name = f"toolgate-relay-{next(_counter)}"
    with installation(rig, name, sources, {"mcp": mcp}) as site, serving(rig, site) as child:
        yield child


def launch(rig: Rig, site: Installation) -> Child:
    arguments = [*COMMAND, "serve", "--config", str(site.settings)]
    return start(site.name, arguments, rig.directory, rig.cores.tested, port=site.port)


def import_openapi(rig: Rig, site: Installation, description: Path) -> float:
    """Seconds for `toolgate import openapi` where there is no database yet, its birth included."""
    arguments = [*COMMAND, "import", "openapi", str(description), "--name", "large"]
    options = ["--base-url", rig.upstream_url, "--config", str(site.settings)]
    begin = time.perf_counter()
    with subprocess.Popen(
        [*arguments, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    ) as process:
        pin(process.pid, rig.cores.tested)
        _, complaint = process.communicate(timeout=IMPORT_TIMEOUT_S)
    if process.returncode != 0:
        raise Unavailable(f"import failed: {complaint.decode(errors='replace')[-200:]}")
    return time.perf_counter() - begin


def _stop_database(data_dir: Path) -> None:
    """The server stops with the last of its users; this is for users that were killed."""
    for marker in data_dir.rglob("postmaster.pid"):
        with suppress(ProcessLookupError, ValueError, FileNotFoundError):
            os.kill(int(marker.read_text().split("\n", 1)[0]), signal.SIGINT)
