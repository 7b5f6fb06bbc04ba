"""Latency under half load, import of a large description, cold start, memory."""

import socket
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import calls, rivals
from benchmarks.load import Subject
from benchmarks.processes import Child
from benchmarks.report import Report
from benchmarks.request import HttpRequest, Unavailable
from benchmarks.rig import Rig
from benchmarks.table import Row, Target
from benchmarks.toolgate import Installation, gateway, import_openapi, installation, launch, serving

OPERATIONS = 100
LARGE = 1000  # operations of the generated description
SESSIONS = 1000
WARM_UP = 50  # sessions before the first look at the memory
STARTS = 3
LATENCY_ROUNDS = 2  # times the usual number: a tail varies more than a mean
PROBE_S = 1.0

P99_TARGETS = (Target("value", 2.0),)
IMPORT_TARGETS = (Target("value", 5.0),)
MEMORY_TARGETS = (Target("value", 150.0),)
START_TARGETS = (Target("value", 2.0),)


@dataclass(frozen=True, slots=True)
class Pair:
    """Floor and gateway under the same rate, right after one another."""

    rate: float  # requests/s: half of what the gateway took a moment before
    floor: Report
    gateway: Report

    @property
    def added_ms(self) -> float:
        return self.gateway.p99_ms - self.floor.p99_ms


def measure_latency(rig: Rig) -> list[Row]:
    with rivals.floor(rig) as base, gateway(rig, OPERATIONS) as child:
        call = calls.call(calls.find_tool(child.port))
        direct = calls.forwarded(base)
        through = calls.checked(child, calls.in_session(child.port, "tools/call", call))
        rig.load.warm_up(direct, rig.slice_s)
        warm = rig.load.warm_up(through, rig.slice_s)
        return _latency_rows(list(pairs(rig, direct, through, warm)))


def pairs(rig: Rig, direct: Subject, through: Subject, warm: Report) -> Iterator[Pair]:
    """Both at half of what `through` takes."""
    rounds = LATENCY_ROUNDS * rig.rounds
    for number in range(1, rounds + 1):
        rate = rig.load.saturate(through, PROBE_S, warm).per_s / 2
        rig.say(f"latency: round {number} of {rounds} at {rate:,.0f} requests/s")
        floor = rig.load.pace(direct, rig.slice_s, rate)
        yield Pair(rate, floor, rig.load.pace(through, rig.slice_s, rate))


def _latency_rows(pairs: Sequence[Pair]) -> list[Row]:
    rate = statistics.median(pair.rate for pair in pairs)
    return [
        _p99("floor p99 at half load", [pair.floor for pair in pairs], rate),
        _p99("/mcp 2025-06-18 p99 at half load", [pair.gateway for pair in pairs], rate),
        added_row("p99 added by the gateway", pairs, P99_TARGETS),
    ]


def added_row(scenario: str, pairs: Sequence[Pair], targets: Sequence[Target]) -> Row:
    """How much later than the floor all but one in a hundred answers came."""
    added = tuple(pair.added_ms for pair in pairs)
    return Row(
        scenario,
        statistics.median(added),
        "ms",
        targets=tuple(targets),
        errors=sum(pair.gateway.errors for pair in pairs),
        note=f"rounds from {min(added):.2f} to {max(added):.2f} ms",
        rounds=added,
    )


def _p99(scenario: str, reports: Sequence[Report], rate: float) -> Row:
    values = tuple(report.p99_ms for report in reports)
    p50 = statistics.median(report.p50_ms for report in reports)
    note = f"p50 {p50:.2f} ms, {rate:,.0f} calls/s"
    return Row(scenario, statistics.median(values), "ms", note=note, rounds=values)


def measure_import(rig: Rig, description: Path | None) -> list[Row]:
    """`description` None: a generated one."""
    path = description or rig.write_description(LARGE)
    with installation(rig, "import", {}) as site:
        rig.say(f"importing {path.name}")
        seconds = import_openapi(rig, site, path)
        starts = tuple(_cold_start(rig, site) for _ in range(STARTS))
        with serving(rig, site) as child:
            tools = len(calls.list_tools(child.port))
            memory = child.rss_mb
    name = f"{path.name}, {tools:,} tools"
    return [
        Row(f"import of {name}", seconds, "s", targets=IMPORT_TARGETS),
        Row(
            "cold start with it imported, to ready",
            statistics.median(starts),
            "s",
            targets=START_TARGETS,
            rounds=starts,
        ),
        Row("gateway memory with it, listed once", memory, "MB", targets=MEMORY_TARGETS),
    ]


def _cold_start(rig: Rig, site: Installation) -> float:
    """The embedded database starts with it."""
    rig.say("cold start")
    child = launch(rig, site)
    try:
        return child.await_ready("/ready")
    finally:
        child.stop()


def measure_memory(rig: Rig) -> list[Row]:
    """Without embeddings: the model, which loads in its own time, would count as sessions."""
    with gateway(rig, OPERATIONS, {"embedding": {"provider": "disabled"}}) as child:
        _ = [calls.session_headers(child.port) for _ in range(WARM_UP)]
        idle_mb = child.rss_mb
        rig.say(f"memory: opening {SESSIONS:,} sessions")
        sessions = [calls.session_headers(child.port) for _ in range(SESSIONS)]
        opened = child.rss_mb
        rig.say(f"memory: opening {SESSIONS:,} streams")
        with _streams(child, sessions):
            streaming = child.rss_mb
    return [
        Row(f"memory at rest, {OPERATIONS} tools", idle_mb, "MB"),
        _grown(f"memory with {SESSIONS:,} sessions", opened, idle_mb),
        _grown(f"memory with {SESSIONS:,} sessions, each with a stream", streaming, idle_mb),
    ]


def _grown(scenario: str, value: float, idle_mb: float) -> Row:
    return Row(
        scenario, value, "MB", note=f"{(value - idle_mb) * 1000 / SESSIONS:.1f} kB a session"
    )


@contextmanager
def _streams(child: Child, sessions: list[dict[str, str]]) -> Iterator[None]:
    """An open server-to-client stream for each of the sessions."""
    with ExitStack() as stack:
        for headers in sessions:
            stream = stack.enter_context(socket.create_connection(("127.0.0.1", child.port)))
            accept = {**headers, "accept": "text/event-stream"}
            stream.sendall(HttpRequest(child.port, "/mcp", "GET", headers=accept).encode()[0])
            if b" 200 " not in stream.recv(4096).split(b"\r\n", 1)[0]:
                raise Unavailable("GET /mcp opened no stream")
        yield
