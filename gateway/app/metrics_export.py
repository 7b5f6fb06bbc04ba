"""Export of metrics by OTLP over HTTP, with the SDK of OpenTelemetry (`toolgate[otel]`).

Nothing is counted a second time: what `/metrics` serves is read at intervals and sent. Metrics that
the semantic conventions of MCP, GenAI and RPC know have their names and attributes, the others keep
those that they have for Prometheus.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import anyio
from anyio import to_thread
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Exemplar as OtelExemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Exemplar, Sample

from config.settings import MetricsOtlp
from gateway.methods.results_by_revision import SERVER
from gateway.middleware.message_metrics import OTHERS
from schemas.mcp.revisions import JSON_RPC, SUPPORTED

log = logging.getLogger("toolgate.metrics")

Labels: TypeAlias = Mapping[str, str]
Named: TypeAlias = tuple[str, dict[str, str]]  # a metric of the conventions, and its attributes

SCOPE = InstrumentationScope("toolgate", SERVER.version)
CUMULATIVE = AggregationTemporality.CUMULATIVE
MCP_REVISIONS = frozenset(SUPPORTED)


class MetricsExport:
    """The metrics of one gateway on their way to a collector."""

    def __init__(
        self, settings: MetricsOtlp, registry: CollectorRegistry, resource: Resource
    ) -> None:
        self._interval_s = settings.interval_s
        self._registry = registry
        self._resource = resource
        self._started_ns = time.time_ns()
        self._exporter = OTLPMetricExporter(
            endpoint=settings.endpoint,
            headers=dict(settings.headers),
            timeout=settings.timeout_s,
        )

    async def run(self) -> None:
        """Export at intervals, until cancelled."""
        while True:
            await anyio.sleep(self._interval_s)
            await self._export()

    async def close(self) -> None:
        """Export the last values."""
        await self._export()
        await to_thread.run_sync(self._exporter.shutdown)

    async def _export(self) -> None:
        families = list(self._registry.collect())  # here: counts are those of this thread
        if not await to_thread.run_sync(self._send_metrics, families):
            log.warning("metrics_not_exported")

    def _send_metrics(self, families: Sequence[Family]) -> bool:
        times = (self._started_ns, time.time_ns())
        metrics = [metric for family in families for metric in convert_family(family, times)]
        scope = ScopeMetrics(SCOPE, metrics, "")
        data = MetricsData([ResourceMetrics(self._resource, [scope], "")])
        return self._exporter.export(data) is MetricExportResult.SUCCESS


Times: TypeAlias = tuple[int, int]
"""When the process began to count, and now, nanoseconds since 1970."""


def convert_family(family: Family, times: Times) -> Iterator[Metric]:
    """The metrics of OpenTelemetry that a family of Prometheus is."""
    if family.type == "histogram":
        yield from _histograms(family, times)
        return
    points = [
        NumberDataPoint(dict(sample.labels), *times, sample.value)
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]
    summed = family.type == "counter"
    data = Sum(points, CUMULATIVE, is_monotonic=True) if summed else Gauge(points)
    if points:
        yield Metric(family.name, family.documentation, "", data)


def _histograms(family: Family, times: Times) -> Iterator[Metric]:
    family_name: str = family.name
    naming = CONVENTIONS.get(family_name)
    by_name: defaultdict[str, list[HistogramDataPoint]] = defaultdict(list)
    for labels, samples in _by_labels(family.samples):
        name, attributes = (family_name, dict(labels)) if naming is None else naming(labels)
        by_name[name].append(_point(attributes, samples, times))
    unit = "{token}" if family_name.endswith("_tokens") else "s"
    for name, points in by_name.items():
        yield Metric(name, family.documentation, unit, Histogram(points, CUMULATIVE))


def _by_labels(samples: Sequence[Sample]) -> Iterator[tuple[Labels, list[Sample]]]:
    """The samples of each histogram, by its labels."""
    by_labels: defaultdict[tuple[tuple[str, str], ...], list[Sample]] = defaultdict(list)
    for sample in samples:
        by_labels[
            tuple((name, text) for name, text in sample.labels.items() if name != "le")
        ].append(sample)
    for key, members in by_labels.items():
        yield dict(key), members


def _point(
    attributes: dict[str, str], samples: Sequence[Sample], times: Times
) -> HistogramDataPoint:
    buckets = [sample for sample in samples if sample.name.endswith("_bucket")]
    [total] = [sample.value for sample in samples if sample.name.endswith("_sum")]
    running = [0, *(int(sample.value) for sample in buckets)]
    smallest: Any = None  # the smallest and the largest value are optional, and unknown
    return HistogramDataPoint(
        attributes,
        *times,
        count=running[-1],
        sum=total,
        bucket_counts=[after - before for before, after in pairwise(running)],
        explicit_bounds=[float(sample.labels["le"]) for sample in buckets[:-1]],
        min=smallest,
        max=smallest,
        exemplars=[_exemplar(sample.exemplar) for sample in buckets if sample.exemplar is not None],
    )


def _exemplar(exemplar: Exemplar) -> OtelExemplar:
    at_ns = int(float(exemplar.timestamp or 0) * 1e9)
    span_id, trace_id = (int(exemplar.labels[name], 16) for name in ("span_id", "trace_id"))
    return OtelExemplar({}, exemplar.value, at_ns, span_id, trace_id)


def _message(labels: Labels) -> Named:
    """A message: of MCP, or of one of the fronts of JSON-RPC."""
    method = OTHERS if labels["method"] == "other" else labels["method"]
    attributes = _failure(labels["outcome"])
    if labels["revision"] not in MCP_REVISIONS:
        rpc_attributes = {"rpc.system.name": "jsonrpc", "rpc.method": method}
        if labels["revision"] != JSON_RPC.name:
            rpc_attributes["toolgate.front"] = labels["revision"]
        return "rpc.server.call.duration", {**rpc_attributes, **attributes}
    attributes |= {"mcp.method.name": method, "mcp.protocol.version": labels["revision"]}
    if method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    return "mcp.server.operation.duration", attributes


def _failure(outcome: str) -> dict[str, str]:
    if outcome == "ok":
        return {}
    status = {"rpc.response.status_code": outcome} if outcome.lstrip("-").isdigit() else {}
    return {"error.type": outcome, **status}


def _upstream_name(labels: Labels) -> Named:
    return "mcp.client.operation.duration", {
        "mcp.method.name": labels["method"],
        "toolgate.source": labels["source"],
    }


def _tool(labels: Labels) -> Named:
    return "gen_ai.execute_tool.duration", {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": labels["tool"],
        "toolgate.source": labels["source"],
    }


def _model(labels: Labels) -> dict[str, str]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": labels["strategy"].partition("_")[0],
        "gen_ai.request.model": labels["model"],
    }


def _model_name(labels: Labels) -> Named:
    return "gen_ai.client.operation.duration", {**_model(labels), **_failure(labels["outcome"])}


def _tokens(labels: Labels) -> Named:
    return "gen_ai.client.token.usage", {**_model(labels), "gen_ai.token.type": labels["kind"]}


CONVENTIONS: Mapping[str, Callable[[Labels], Named]] = {
    "toolgate_request_seconds": _message,
    "toolgate_mcp_request_seconds": _upstream_name,
    "toolgate_tool_call_seconds": _tool,
    "toolgate_model_request_seconds": _model_name,
    "toolgate_model_request_tokens": _tokens,
}
"""Names by the semantic conventions, v0.1.0 of those of GenAI and MCP; all are in development."""
