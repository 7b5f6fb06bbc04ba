"""Metrics of messages: counts and durations of all, and use of the legacy payload."""

import asyncio
import logging
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.abc import Handler, Route
from gateway.context import Context
from gateway.protocol.dispatcher import METHODS
from schemas.errors import Fault
from schemas.hybrid import ServiceFailed
from schemas.jsonrpc import Request
from schemas.mcp.messages import CallToolResult
from schemas.memo import Memo

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class _Series:
    """Counts and durations of one label set. Plain numbers: a single thread writes."""

    __slots__ = ("buckets", "count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(BUCKETS_S) + 1)


@dataclass(frozen=True, slots=True)
class Totals:
    """Messages of one revision, method and outcome, and how many of them took how long."""

    method: str
    outcome: str
    count: int
    buckets: tuple[int, ...]  # by BUCKETS_S, and those that took longer


class _Messages(Collector):
    """Prometheus collector of the counts. (Its own instruments lock and cost five times as much on
    every message.)"""

    def __init__(self, series: Mapping[tuple[str, str, str], _Series]) -> None:
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
            running = accumulate(series.buckets)
            bounds = [*map(str, BUCKETS_S), "+Inf"]
            times.add_metric(key, list(zip(bounds, running, strict=True)), series.seconds)
        yield total
        yield times


class Metrics:
    """The instruments of one gateway process, for Prometheus."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._series: defaultdict[tuple[str, str, str], _Series] = defaultdict(_Series)
        self.registry.register(_Messages(self._series))

    def totals(self) -> list[Totals]:
        """What was counted so far."""
        return [
            Totals(method, outcome, one.count, tuple(one.buckets))
            for (_, method, outcome), one in list(self._series.items())
        ]

    def gauge(self, name: str, text: str, read: Any) -> None:
        """Add a gauge whose value is `read()` at the time of the scrape."""
        Gauge(name, text, registry=self.registry).set_function(read)

    def middleware(self, handler: Handler, route: Route) -> Handler:
        # Methods are labels, and clients may send any name: only these get a label of their own.
        method = route.method if route.method in METHODS else "other"
        revision = route.revision.name

        async def timed(context: Context, request: Request) -> Any:
            began, outcome = time.perf_counter(), "crashed"
            try:
                result = await handler(context, request)
                failed = type(result) is CallToolResult and result.is_error
                outcome = "tool_error" if failed else "ok"
                return result
            except ServiceFailed as fault:  # its code is chosen by the service
                outcome = f"service_{fault.status // 100}xx"
                raise
            except Fault as fault:
                outcome = str(fault.code)
                raise
            except asyncio.CancelledError:
                outcome = "cancelled"
                raise
            finally:
                seconds = time.perf_counter() - began
                series = self._series[revision, method, outcome]
                series.count += 1
                series.seconds += seconds
                series.buckets[bisect_left(BUCKETS_S, seconds)] += 1

        return timed


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

        async def counted(context: Context, request: Request) -> Any:
            headers, identity = context.headers, context.identity
            path, address = headers.side or "rpc", headers.client
            count[path] += 1
            client = (identity.principal.id if identity.verified else "", address)
            if not clients.use(client):
                clients.put(client, True)
                self._warn(client, path, request)
            return await handler(context, request)

        return counted

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
