"""`toolgate top`: requests, times and errors of gateways, from their own metrics."""

import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import IO

import anyio
import click
from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families
from rich.live import Live
from rich.table import Table

from config.settings import Settings
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import fail
from gateway.cli.common.options import json_option
from gateway.cli.common.output import note, out, print_json, print_rows
from gateway.cli.common.parameter_types import Number
from gateway.cli.common.settings import settings_option
from gateway.cli.running.client import EXPECTED_URL, RunningGateway, running_gateway
from gateway.cli.running.health import get_text

OK_OUTCOME = "ok"
FAST = 0.95  # share of the requests that are faster than the time shown
COLUMNS = ("per second", "p95", "errors per second")
KINDS = {  # what is shown: its counter, its histogram, and the label that names it
    "method": ("toolgate_requests_total", "toolgate_request_seconds_bucket"),
    "source": ("toolgate_source_calls_total", "toolgate_source_call_seconds_bucket"),
    "tool": ("toolgate_tool_calls_total", "toolgate_tool_call_seconds_bucket"),
}
NOTHING = {  # said where a gateway has counted none since it started
    "method": "No request has come since the start of the gateway.",
    "source": "No source was called since the start of the gateway.",
    "tool": "No tool was called since the start of the gateway.",
}

Key = tuple[str, str]  # method, source or tool; and outcome


class Scrape(Struct, frozen=True):
    """The counts of requests, or of calls, of some gateways, at a time."""

    at: float  # seconds
    counts: Mapping[Key, float]
    buckets: Mapping[tuple[str, float], float]  # by name and upper bound, seconds; cumulative


class CallRate(Struct, frozen=True):
    """Rates of a method, a source or a tool between two scrapes."""

    name: str
    per_second: float
    p95_s: float | None  # upper bound of its bucket; None: without requests, or beyond all buckets
    errors_per_second: float


@click.command()
@click.option(
    "--url", "--target", "targets", metavar="URL", multiple=True,
    help="Gateway to watch; repeatable [default: that of the settings].",
)  # fmt: skip
@click.option(
    "--token-file", metavar="FILE", type=click.File("r"), help="File with the metrics.token."
)
@click.option(
    "--interval", type=Number(0.1, 3600), default=2, show_default=True, help="Seconds per look."
)
@click.option(
    "--by", type=click.Choice(list(KINDS)), default="method", show_default=True,
    help="Rows; sources and tools are counted where metrics.tools is above 0.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Look once and print rows.")
@json_option
@settings_option
def top(
    settings: Settings,
    *,
    targets: tuple[str, ...],
    token_file: IO[str] | None,
    interval: float,
    by: str,
    once: bool,
    as_json: bool,
) -> None:
    """Show requests, times and errors of gateways by method, until Ctrl-C.

    The figures are the differences between two looks at /metrics, summed over all
    gateways. p95 is the upper bound of a bucket of the histogram.

    \b
    Examples:
      toolgate top
      toolgate top --url http://a:8765 --url http://b:8765 --token-file m
      toolgate top --by tool
      toolgate top --once --json
    """
    urls = targets or (None,)
    gateways = [running_gateway(settings, "/metrics", url=url, key_file=token_file) for url in urls]
    looked_at = partial(_scrape, gateways, by)
    run(_top(looked_at, by, interval_s=interval, once=once or as_json, as_json=as_json))


async def _top(
    scrape: Callable[[], Awaitable[Scrape]],
    by: str,
    *,
    interval_s: float,
    once: bool,
    as_json: bool,
) -> None:
    before = await scrape()
    if once:
        await anyio.sleep(interval_s)
        call_rates = rates(before, await scrape())
        if as_json:
            print_json([{by: rate.name, **_figures(rate)} for rate in call_rates])
        elif not call_rates:
            note(NOTHING[by])
        else:
            print_rows((by, *COLUMNS), [_cells(rate) for rate in call_rates])
        return
    with Live(console=out, auto_refresh=False) as live:
        while True:
            await anyio.sleep(interval_s)
            after = await scrape()
            live.update(_table(by, rates(before, after)), refresh=True)
            before = after


async def _scrape(gateways: Sequence[RunningGateway], by: str) -> Scrape:
    """Raises click.exceptions.Exit where nothing is counted by what is asked for."""
    total, bucket = KINDS[by]
    is_known = False
    counts: defaultdict[Key, float] = defaultdict(float)
    buckets: defaultdict[tuple[str, float], float] = defaultdict(float)
    for gateway in gateways:
        status, text = await get_text(gateway)
        if status != 200:
            text = "metrics.public or metrics.token let others read /metrics"
            fail(f"{gateway.url} answers {status}: {text}")
        if "toolgate_" not in text:
            fail(f"{gateway.url} answers, but not as a gateway: {EXPECTED_URL}")
        for family in text_string_to_metric_families(text):
            is_known = is_known or f"{family.name}_total" == total
            for name, labels, value, *_ in family.samples:
                if name == total:
                    counts[labels[by], labels["outcome"]] += value
                elif name == bucket:
                    buckets[labels[by], float(labels["le"])] += value
    if not is_known:
        fail(f"nothing is counted by {by}: set metrics.tools, such as to 200")
    return Scrape(anyio.current_time(), counts, buckets)


def rates(before: Scrape, after: Scrape) -> list[CallRate]:
    """Rates between two scrapes, the busiest first. A counter that went back belongs
    to a gateway that was restarted: it began at zero."""
    seconds = max(after.at - before.at, 1e-9)
    names = {name for name, _ in after.counts}
    call_rates = [_rate(name, before, after, seconds) for name in names]
    return sorted(call_rates, key=lambda rate: (-rate.per_second, rate.name))


def _rate(name: str, before: Scrape, after: Scrape, seconds: float) -> CallRate:
    grown = {
        outcome: _increase(before.counts.get((of, outcome), 0), count)
        for (of, outcome), count in after.counts.items()
        if of == name
    }
    steps = {
        bound: _increase(before.buckets.get((of, bound), 0), count)
        for (of, bound), count in after.buckets.items()
        if of == name
    }
    failed = sum(count for outcome, count in grown.items() if outcome != OK_OUTCOME)
    return CallRate(name, sum(grown.values()) / seconds, _percentile(steps), failed / seconds)


def _increase(before: float, after: float) -> float:
    return after - before if after >= before else after


def _percentile(steps: Mapping[float, float]) -> float | None:
    total = steps.get(math.inf, 0)
    bounds = [bound for bound, count in sorted(steps.items()) if total and count >= FAST * total]
    return bounds[0] if bounds and math.isfinite(bounds[0]) else None


def _figures(rate: CallRate) -> dict[str, float | None]:
    return {
        "per_second": rate.per_second,
        "p95_s": rate.p95_s,
        "errors_per_second": rate.errors_per_second,
    }


def _table(by: str, rates: Iterable[CallRate]) -> Table:
    table = Table(by, *COLUMNS, box=None)
    for rate in rates:
        table.add_row(*_cells(rate))
    return table


def _cells(rate: CallRate) -> tuple[str, ...]:
    p95 = "-" if rate.p95_s is None else f"{rate.p95_s * 1000:g} ms"
    return rate.name, f"{rate.per_second:.1f}", p95, f"{rate.errors_per_second:.1f}"
