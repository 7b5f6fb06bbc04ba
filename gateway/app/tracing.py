"""Export of spans by OTLP over HTTP, with the SDK of OpenTelemetry (`toolgate[otel]`).

Spans are built here from what `gateway.middleware.tracing` has kept, in batches and in a thread, so
that no message waits for the SDK.
"""

import logging
import os
import socket
from collections.abc import Sequence
from typing import Any

import anyio
from anyio import to_thread
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace import SpanContext as OtelContext

from config.settings import Tracing
from gateway.methods.results import SERVER
from gateway.middleware.tracing import Sampler
from gateway.traces import CURRENT, ActiveTrace, Span, SpanContext

log = logging.getLogger("toolgate.tracing")

BATCH = 512  # spans of one request to the collector
KINDS = {
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "internal": SpanKind.INTERNAL,
}
SCOPE = InstrumentationScope("toolgate", SERVER.version)


class TraceExport:
    """The traces of one gateway: their sampling, and their way to a collector."""

    def __init__(self, settings: Tracing, resource: Resource, sampler: Sampler) -> None:
        self.sampler = sampler
        self._settings = settings
        self._resource = resource
        self._exporter = OTLPSpanExporter(
            endpoint=settings.endpoint,
            headers=dict(settings.headers),
            timeout=settings.timeout_s,
        )

    async def run(self) -> None:
        """Export what was kept, until cancelled; meanwhile log lines name their trace."""
        usual = logging.getLogRecordFactory()

        def named(*arguments: Any, **keys: Any) -> logging.LogRecord:
            record, active = usual(*arguments, **keys), CURRENT.get()
            if active is not None:
                context = active.context if isinstance(active, ActiveTrace) else active
                record.__dict__.update(context.ids)
            return record

        logging.setLogRecordFactory(named)
        try:
            while True:
                await anyio.sleep(self._settings.flush_s)
                await self._flush()
        finally:
            logging.setLogRecordFactory(usual)

    async def close(self) -> None:
        """Export what is left."""
        await self._flush()
        await to_thread.run_sync(self._exporter.shutdown)

    async def _flush(self) -> None:
        kept = self.sampler.finished
        while kept:
            batch = [kept.popleft() for _ in range(min(BATCH, len(kept)))]
            if await to_thread.run_sync(self._exported, batch):
                self.sampler.exported += len(batch)
            else:
                self.sampler.failed += len(batch)
                log.warning("spans_not_exported", extra={"count": len(batch)})
                return  # until the next interval

    def _exported(self, batch: Sequence[Span]) -> bool:
        spans = [readable(span, self._resource) for span in batch]
        return self._exporter.export(spans) is SpanExportResult.SUCCESS


def resource_of(settings: Tracing) -> Resource:
    """This process, as the collector knows it."""
    return Resource.create(
        {
            "service.name": settings.service_name,
            "service.version": SERVER.version,
            "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
        }
    )


def readable(span: Span, resource: Resource) -> ReadableSpan:
    """The span as the SDK has it."""
    return ReadableSpan(
        name=span.name,
        context=_context(span.context),
        parent=None if span.parent is None else _context(span.parent, is_remote=True),
        resource=resource,
        attributes=span.attributes,
        links=[] if span.link is None else [Link(_context(span.link, is_remote=True))],
        kind=KINDS[span.kind],
        status=Status(StatusCode.ERROR) if span.error else Status(StatusCode.UNSET),
        start_time=span.started_ns,
        end_time=span.ended_ns,
        instrumentation_scope=SCOPE,
    )


def _context(context: SpanContext, *, is_remote: bool = False) -> OtelContext:
    flags = TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT)
    return OtelContext(context.trace_id, context.span_id, is_remote, flags)
