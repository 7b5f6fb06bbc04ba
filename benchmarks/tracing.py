"""`python -m benchmarks.tracing`: what traces and metrics of tools cost a call.

One gateway for each of them runs in this process, beside one without, at one database. They answer
the same call in turn, in rounds whose order changes, so that all of them meet the same machine.
Counted is processor time of all threads: that of the fastest quarter of slices of 50 calls, and
that of encoding and sending the spans of a round, which lasts as long as `tracing.flush_s`. A
second gateway without anything shows the noise. Functions called per request are counted as in
`benchmarks.ways`; they are the same in every run.

`python -m benchmarks --only tracing` (`measure_tracing`) has calls per second over HTTP, between
gateways of their own on one core, each right after one without traces.
"""

import asyncio
import random
import statistics
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks import calls
from benchmarks.footprint import OPERATIONS
from benchmarks.processes import Child
from benchmarks.race import Entry, race
from benchmarks.request import Unavailable
from benchmarks.rig import Rig
from benchmarks.table import Row, Target
from benchmarks.toolgate import gateway
from benchmarks.ways import (
    Recorder,
    Walk,
    announced,
    own_directory,
    petshop,
    petshop_settings,
    posted,
    serving,
)
from config.settings import Settings
from gateway.app.gateway import Gateway

RATIOS = {"off": 0.998, "1 %": 0.99, "100 %": 0.8}  # of the calls per second without traces
SHARES = {"off": None, "1 %": 0.01, "100 %": 1.0}
QUEUE = 1_000_000  # spans: none is dropped, so that each is paid for
GOALS = {"off": 0.2, "traces of 1 %": 1.0, "traces of 100 %": 20.0}  # per cent, of calls per second
ROUND_S = 2.0  # of one gateway: as long as between two sendings (tracing.flush_s)
BY_NAME = msgspec.json.encode(
    {"jsonrpc": "2.0", "id": 1, "method": "listPets", "params": {"species": "cat"}}
)
HEADERS = {"content-type": "application/json"}
STEP = 50  # calls of a slice
NEVER_S = 86_400.0  # spans are sent at the end of a round, within its time
COLLECTOR = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
"""


def measure_tracing(rig: Rig) -> list[Row]:
    """Calls per second with traces, each share beside a gateway without any; the noise is shown by
    another one without."""
    with ExitStack() as stack:
        sink = stack.enter_context(collector())
        plain = stack.enter_context(gateway(rig, OPERATIONS))
        call = calls.call(calls.find_tool(plain.port))

        def entry(name: str, child: Child) -> Entry:
            request = calls.rpc(child.port, "tools/call", call)
            targets = (Target("floor", RATIOS[name]),) if name in RATIOS else ()
            arrive = partial(calls.checked, child, request)
            return Entry(f"/rpc tools/call, traces: {name}", arrive, targets=targets)

        children = {
            name: stack.enter_context(gateway(rig, OPERATIONS, traced(share, sink)))
            for name, share in SHARES.items()
        }
        entries = [entry(name, child) for name, child in children.items()]
        rows = race(rig, entry("none", plain), entries)
        for child in children.values():
            check_exported(child)
        return rows


def traced(share: float | None, sink: str) -> dict[str, Any]:
    """Settings with traces of that share of the messages."""
    if share is None:
        return {}
    endpoint = f"{sink}/v1/traces"
    return {"tracing": {"enabled": True, "ratio": share, "queue": QUEUE, "endpoint": endpoint}}


def check_exported(child: Child) -> None:
    """Raises Unavailable if spans were dropped, as those are not paid for."""
    with urllib.request.urlopen(f"{child.url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    lost = [
        line for line in lines if line.startswith("toolgate_spans_total") and "exported" not in line
    ]
    if any(float(line.rpartition(" ")[2]) for line in lost):
        raise Unavailable(f"spans were lost: {lost}")


class Contender:
    """One gateway, and the processor time of its calls, microseconds."""

    def __init__(self, gateway: Gateway, walk: Walk) -> None:
        self._gateway = gateway
        self.walk = walk
        self._slices: list[float] = []  # of a call, the mean of a slice
        self._sending: list[float] = []  # of spans, per call of a round

    async def round(self) -> None:
        calls = 0
        until = time.monotonic() + ROUND_S
        while time.monotonic() < until:
            began = time.process_time_ns()
            for _ in range(STEP):
                await self.walk()
            self._slices.append((time.process_time_ns() - began) / STEP / 1000)
            calls += STEP
        began = time.process_time_ns()
        if self._gateway.tracing is not None:
            await self._gateway.tracing.flush()
        self._sending.append((time.process_time_ns() - began) / calls / 1000)

    @property
    def call_us(self) -> float:
        """A call when nothing disturbs it, the quarter of slices that are fastest, and sending."""
        return statistics.quantiles(self._slices)[0] + statistics.median(self._sending)


@click.command()
@click.option("--rounds", type=click.IntRange(5), default=8, show_default=True)
def main(rounds: int) -> None:
    """What traces and metrics cost a call, compared in turn."""
    table = Table("gateway", "functions", "us", "per cent", "goal", title="Cost of observation")
    for name, (functions, added, share) in asyncio.run(measure(rounds)).items():
        goal = f"{GOALS[name]}" if name in GOALS else ""
        table.add_row(name, str(functions), f"{added:+.2f}", f"{share:+.2f}", goal)
    Console().print(table)


async def measure(rounds: int) -> Mapping[str, tuple[int, float, float]]:
    """By gateway: functions per call, and what a call costs more, in microseconds and per cent."""
    recorder = Recorder()
    recorder.install()
    try:
        with collector() as sink, petshop() as url, own_directory() as directory:
            async with AsyncExitStack() as stack:
                base = petshop_settings(directory, url)
                contenders = {}
                for name, settings in variants(base, sink).items():
                    gateway = Gateway(settings)
                    app = await stack.enter_async_context(serving(gateway))
                    contenders[name] = Contender(gateway, posted(app, "/rpc", BY_NAME, HEADERS))
                functions = {
                    name: (await recorder.least(contender.walk)).calls
                    for name, contender in contenders.items()
                }
                recorder.uninstall()
                await _race(list(contenders.values()), rounds)
    finally:
        recorder.uninstall()
    floor = contenders.pop("nothing").call_us
    added = {name: contender.call_us - floor for name, contender in contenders.items()}
    return {name: (functions[name], more, 100 * more / floor) for name, more in added.items()}


async def _race(contenders: Sequence[Contender], rounds: int) -> None:
    order = random.Random(1)
    for _ in range(rounds):
        for contender in order.sample(contenders, len(contenders)):
            await contender.round()


def variants(base: Settings, sink: str) -> Mapping[str, Settings]:
    """The settings of each gateway."""
    change = msgspec.structs.replace

    def sampling(ratio: float) -> Settings:
        tracing = change(
            base.tracing, enabled=True, ratio=ratio, flush_s=NEVER_S, endpoint=f"{sink}/v1/traces"
        )
        return change(base, tracing=tracing)

    return {
        "nothing": base,
        "off": base,
        "traces of 1 %": sampling(0.01),
        "traces of 10 %": sampling(0.1),
        "traces of 100 %": sampling(1.0),
        "metrics.tools": change(base, metrics=change(base.metrics, tools=200)),
    }


@contextmanager
def collector() -> Iterator[str]:
    """The URL of a collector that drops what it gets, in a process of its own."""
    with announced([sys.executable, "-c", COLLECTOR]) as url:
        yield url


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.tracing")
