"""Metrics of messages: counts and durations of all, and use of the legacy payload."""

import asyncio
import logging
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.context import Context
from gateway.interfaces import Execute, Handler, Route, ToolCall
from gateway.protocol.dispatcher import METHODS
from gateway.protocol.revision_adapter import is_failure
from gateway.telemetry.histograms import BUCKETS_S, Histogram
from gateway.telemetry.traces import SpanContext
from schemas.errors import Fault
from schemas.hybrid import ServiceFailed
from schemas.jsonrpc import Request
from schemas.mcp.messages import CallToolResult
from schemas.memo import Memo
from schemas.source import Source
from schemas.tool import RelayedResult, Tool, ToolResult


def _times() -> Histogram:
    return Histogram(BUCKETS_S)


@dataclass(frozen=True, slots=True)
class Totals:
    """Messages of one revision, method and outcome, and how many of them took how long."""

    method: str
    outcome: str
    count: int
    buckets: tuple[int, ...]  # by BUCKETS_S, and those that took longer


class _Messages(Collector):
    """Prometheus collector of the counts."""

    def __init__(self, series: Mapping[tuple[str, str, str], Histogram]) -> None:
        self._series = series

    def collect(self) -> Iterator[Metric]:
        labels = ("revision", "method", "outcome")
        total = CounterMetricFamily(
            "toolgate_requests", "Messages served, by revision, method and outcome.", labels=labels
        )
        times = HistogramMetricFamily(
            "toolgate_request_seconds", "Time from message to reply.", labels=labels
        )
        for key, series in list(self._series.items()):
            total.add_metric(key, series.count)
            times.add_metric(key, series.cumulative(), series.sum)
        yield total
        yield times


class Metrics:
    """The instruments of one gateway process, for Prometheus."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._series: defaultdict[tuple[str, str, str], Histogram] = defaultdict(_times)
        self.registry.register(_Messages(self._series))

    def totals(self) -> list[Totals]:
        """Counts so far."""
        return [
            Totals(method, outcome, histogram.count, tuple(histogram.buckets))
            for (_, method, outcome), histogram in list(self._series.items())
        ]

    def gauge(self, name: str, text: str, read: Any) -> None:
        """Add a gauge whose value is `read()` at the time of the scrape."""
        Gauge(name, text, registry=self.registry).set_function(read)

    def series(self, route: Route) -> Callable[[str], Histogram]:
        """The durations of messages, by outcome."""
        method, revision = _method(route), route.revision.name
        return lambda outcome: self._series[revision, method, outcome]

    def middleware(self, handler: Handler, route: Route) -> Handler:
        method, revision = _method(route), route.revision.name

        async def time_request(context: Context, request: Request) -> Any:
            began, outcome = time.perf_counter(), "crashed"
            try:
                result = await handler(context, request)
                if type(result) is CallToolResult:
                    failed = result.is_error
                else:
                    failed = type(result) is dict and is_failure(result)
                outcome = "tool_error" if failed else "ok"
                return result
            except Fault as fault:
                outcome = outcome_label(fault)
                raise
            except asyncio.CancelledError:
                outcome = "cancelled"
                raise
            finally:
                seconds = time.perf_counter() - began
                series = self._series[revision, method, outcome]
                series.count += 1
                series.sum += seconds
                series.buckets[bisect_left(BUCKETS_S, seconds)] += 1

        return time_request


def _method(route: Route) -> str:
    """The label of a method. Clients may send any name: only known ones have one of their own."""
    return route.method if route.method in METHODS else "other"


def outcome_label(fault: Fault) -> str:
    if isinstance(fault, ServiceFailed):  # its code is chosen by the service
        return f"service_{fault.status // 100}xx"
    return str(fault.code)


OTHERS = "_OTHER"  # label of what has none of its own
TOOLS_REMEMBERED = 20_000  # names of tools that left a catalog are remembered, too
TOOL_BUCKETS = (3, 5, 7, 9, 11, 12, 13)  # of BUCKETS_S: 10 ms to 30 s; a tool has fewer samples


class _Calls:
    """The calls of one tool, or of one source."""

    __slots__ = ("outcomes", "times")

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.times = _times()

    def add(self, calls: "_Calls") -> None:
        self.outcomes.update(calls.outcomes)
        self.times.join(calls.times)


class CallMetrics(Collector):
    """Counts and durations of calls by source and by tool: the guard next to the call, so that it
    sees each call of every front, and the tools behind `call_tool`."""

    def __init__(self, tools: int) -> None:
        """`tools`: how many have a label of their own, those with the most calls."""
        self._tools = tools
        self._calls: defaultdict[tuple[str, str], _Calls] = defaultdict(_Calls)  # source, tool

    def applies(self, _tool: Tool, source: Source | None) -> bool:
        return source is not None

    def guard(self, execute: Execute) -> Execute:
        calls = self._calls

        async def count_call(call: ToolCall) -> ToolResult | RelayedResult:
            began, outcome = time.perf_counter(), "failed"
            try:
                result = await execute(call)
                outcome = "tool_error" if is_error(result) else "ok"
                return result
            except asyncio.CancelledError:
                outcome = "cancelled"
                raise
            finally:
                seconds = time.perf_counter() - began
                tool_calls = calls[self._key(call.tool)]
                tool_calls.outcomes[outcome] += 1
                tool_calls.times.count += 1
                tool_calls.times.sum += seconds
                tool_calls.times.buckets[bisect_left(BUCKETS_S, seconds)] += 1

        return count_call

    def exemplify(self, tool: Tool, seconds: float, span: SpanContext) -> None:
        """Name a span as an example of a tool's calls that take so long."""
        self._calls[self._key(tool)].times.exemplify(seconds, span)

    def _key(self, tool: Tool) -> tuple[str, str]:
        key = (tool.source, tool.name)
        if key not in self._calls and len(self._calls) >= TOOLS_REMEMBERED:
            return (tool.source, OTHERS)
        return key

    def collect(self) -> Iterator[Metric]:
        series = list(self._calls.items())
        sources: defaultdict[tuple[str, ...], _Calls] = defaultdict(_Calls)
        tools: defaultdict[tuple[str, ...], _Calls] = defaultdict(_Calls)
        often = sorted(series, key=lambda pair: -pair[1].times.count)[: self._tools]
        named = {key for key, _ in often}
        for (source, tool), calls in series:
            sources[source,].add(calls)
            tools[source, tool if (source, tool) in named else OTHERS].add(calls)
        yield from self._of_sources(sources)
        yield from self._of_tools(tools)

    def _of_sources(self, series: Mapping[tuple[str, ...], _Calls]) -> Iterator[Metric]:
        total = CounterMetricFamily(
            "toolgate_source_calls", "Calls of tools, by source.", labels=("source", "outcome")
        )
        times = HistogramMetricFamily(
            "toolgate_source_call_seconds", "Time of calls of tools.", labels=("source",)
        )
        yield from _fill_metrics(total, times, series, range(len(BUCKETS_S)))

    def _of_tools(self, series: Mapping[tuple[str, ...], _Calls]) -> Iterator[Metric]:
        total = CounterMetricFamily(
            "toolgate_tool_calls",
            "Calls of tools; of those with the most calls, and of all others.",
            labels=("source", "tool", "outcome"),
        )
        times = HistogramMetricFamily(
            "toolgate_tool_call_seconds", "Time of calls of a tool.", labels=("source", "tool")
        )
        yield from _fill_metrics(total, times, series, TOOL_BUCKETS)


def _fill_metrics(
    total: CounterMetricFamily,
    times: HistogramMetricFamily,
    series: Mapping[tuple[str, ...], _Calls],
    buckets: Sequence[int],
) -> Iterator[Metric]:
    for labels, calls in series.items():
        for outcome, count in calls.outcomes.items():
            total.add_metric((*labels, outcome), count)
        times.add_metric(labels, calls.times.cumulative(buckets), calls.times.sum)
    yield total
    yield times


def is_error(result: ToolResult | RelayedResult) -> bool:
    """Whether a tool says that it failed."""
    return result.is_error if isinstance(result, ToolResult) else is_failure(result.members)


log = logging.getLogger("toolgate.legacy")

CLIENTS_REMEMBERED = 1000


class LegacyUse(Collector):
    def __init__(self) -> None:
        self._count: Counter[str] = Counter()
        self._clients: Memo[tuple[str, str], bool] = Memo(CLIENTS_REMEMBERED)  # already logged

    def collect(self) -> Iterator[Metric]:
        total = CounterMetricFamily(
            "toolgate_legacy_requests", "Legacy hybrid payloads, by path.", labels=("path",)
        )
        for path, count in list(self._count.items()):
            total.add_metric((path,), count)
        yield total

    def middleware(self, handler: Handler, route: Route) -> Handler:
        if not route.revision.text_results:
            return handler

        count, clients = self._count, self._clients

        async def count_legacy(context: Context, request: Request) -> Any:
            headers, identity = context.headers, context.identity
            path, address = headers.side or "rpc", headers.client
            count[path] += 1
            client = (identity.principal.id if identity.verified else "", address)
            if not clients.use(client):
                clients.put(client, True)
                self._warn(client, path, request)
            return await handler(context, request)

        return count_legacy

    def _warn(self, client: tuple[str, str], path: str, request: Request) -> None:
        log.warning(
            "legacy_payload_deprecated",
            extra={
                "client": client[0] or client[1],
                "path": path,
                "method": request.method[:100],
                "instead": "send JSON-RPC 2.0",
            },
        )
