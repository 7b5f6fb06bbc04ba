"""Exports of traces and metrics by OTLP, for which an extra is installed."""

from typing import TYPE_CHECKING

from config.settings import Settings
from gateway.middleware.message_metrics import CallMetrics, Metrics
from schemas.errors import ToolgateError

if TYPE_CHECKING:  # a gateway without them does not import them
    from gateway.app.metrics_export import MetricsExport
    from gateway.app.trace_export import TraceExport


OTEL_MISSING = "{} needs the packages of an extra: pip install 'toolgate[otel]'"


def make_trace_export(
    settings: Settings, metrics: Metrics, calls: CallMetrics | None
) -> "TraceExport | None":
    if not settings.tracing.enabled:
        return None
    from gateway.middleware.trace_sampling import Sampler

    try:
        from gateway.app.trace_export import TraceExport, resource_of
    except ImportError as error:
        raise ToolgateError(OTEL_MISSING.format("tracing.enabled")) from error
    sampler = Sampler(settings.tracing, metrics, calls)
    return TraceExport(settings.tracing, resource_of(settings.tracing), sampler)


def make_metrics_export(settings: Settings, metrics: Metrics) -> "MetricsExport | None":
    if not settings.metrics.otlp.enabled:
        return None
    try:
        from gateway.app.metrics_export import MetricsExport
        from gateway.app.trace_export import resource_of
    except ImportError as error:
        raise ToolgateError(OTEL_MISSING.format("metrics.otlp.enabled")) from error
    return MetricsExport(settings.metrics.otlp, metrics.registry, resource_of(settings.tracing))
