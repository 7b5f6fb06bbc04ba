"""Export of spans by OTLP over HTTP (`toolgate[otel]`).

Messages of the protocol are made here from what `gateway.middleware.trace_sampling` has kept, in
batches and in a thread, so that no message waits for that. The spans and the exporter of
OpenTelemetry's SDK take five times as much processor time.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import aiohttp
import anyio
from anyio import to_thread
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.resources import Resource

from config.settings import Tracing
from gateway.methods.results_by_revision import SERVER
from gateway.middleware.trace_sampling import Sampler
from gateway.telemetry.traces import CURRENT, ActiveTrace, Span

log = logging.getLogger("toolgate.tracing")

BATCH = 512  # spans of one request to the collector
KINDS = {
    "server": trace_pb2.Span.SPAN_KIND_SERVER,
    "client": trace_pb2.Span.SPAN_KIND_CLIENT,
    "internal": trace_pb2.Span.SPAN_KIND_INTERNAL,
}
ERROR_STATUS = trace_pb2.Status(code=trace_pb2.Status.STATUS_CODE_ERROR)
SAMPLED_FLAG = 1  # of the flags of a span
HAS_REMOTE, REMOTE = 0x100, 0x200  # whether it is known if the parent is remote, and that it is
INT64 = 1 << 63
AGAIN = frozenset({429, 502, 503, 504})  # statuses after which a batch may be sent again
PROTOBUF = {"Content-Type": "application/x-protobuf"}


class TraceExport:
    """The traces of one gateway: their sampling, and their way to a collector."""

    def __init__(self, settings: Tracing, resource: Resource, sampler: Sampler) -> None:
        self.sampler = sampler
        self._settings = settings
        self._resource = resource

    async def run(self) -> None:
        """Export what was kept, until cancelled; meanwhile log lines name their trace."""
        usual = logging.getLogRecordFactory()

        def make_record(*arguments: Any, **keys: Any) -> logging.LogRecord:
            record, active = usual(*arguments, **keys), CURRENT.get()
            if active is not None:
                context = active.context if isinstance(active, ActiveTrace) else active
                record.__dict__.update(context.ids)
            return record

        logging.setLogRecordFactory(make_record)
        try:
            while True:
                await anyio.sleep(self._settings.flush_s)
                await self.flush()
        finally:
            logging.setLogRecordFactory(usual)

    async def close(self) -> None:
        """Export what is left."""
        await self.flush()
        self.sampler.failed += len(self.sampler.finished)

    async def flush(self) -> None:
        """Export what is queued. What the collector cannot take now stays there."""
        finished_spans = self.sampler.finished
        if not finished_spans:
            return
        timeout = aiohttp.ClientTimeout(total=self._settings.timeout_s)
        async with aiohttp.ClientSession(timeout=timeout, headers=self._settings.headers) as http:
            while finished_spans:
                batch = [finished_spans.popleft() for _ in range(min(BATCH, len(finished_spans)))]
                try:
                    body = await to_thread.run_sync(encode_spans, batch, self._resource)
                    status = await self._post_spans(http, body)
                except asyncio.CancelledError:
                    finished_spans.extendleft(reversed(batch))  # for `close`
                    raise
                if status == HTTPStatus.OK:
                    self.sampler.exported += len(batch)
                    continue
                log.warning("spans_not_exported", extra={"count": len(batch), "status": status})
                if status is None or status in AGAIN:
                    finished_spans.extendleft(reversed(batch))
                    return  # until the next interval
                self.sampler.failed += len(batch)

    async def _post_spans(self, http: aiohttp.ClientSession, body: bytes) -> int | None:
        """The status of the collector's answer; None: there is none."""
        to = self._settings.endpoint
        try:
            async with http.post(to, data=body, headers=PROTOBUF, allow_redirects=False) as answer:
                return answer.status
        except (aiohttp.ClientError, OSError):
            return None


def resource_of(settings: Tracing) -> Resource:
    """This process, as the collector knows it."""
    return Resource.create(
        {
            "service.name": settings.service_name,
            "service.version": SERVER.version,
            "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
        }
    )


def encode_spans(batch: Sequence[Span], resource: Resource) -> bytes:
    """The request to the collector with these spans."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    _fill(group.resource.attributes, resource.attributes)
    scope = group.scope_spans.add()
    scope.scope.name, scope.scope.version = "toolgate", SERVER.version
    for span in batch:
        _add(scope.spans, span)
    body: bytes = request.SerializeToString()
    return body


def _add(spans: Any, span: Span) -> None:
    """Append a span to those of a request."""
    context, parent = span.context, span.parent
    exported = spans.add(
        name=span.name,
        kind=KINDS[span.kind],
        trace_id=context.trace_id.to_bytes(16, "big"),
        span_id=context.span_id.to_bytes(8, "big"),
        start_time_unix_nano=span.started_ns,
        end_time_unix_nano=span.ended_ns,
        flags=SAMPLED_FLAG | HAS_REMOTE | (REMOTE if span.kind == "server" else 0),
    )
    _fill(exported.attributes, span.attributes)
    if parent is not None:
        exported.parent_span_id = parent.span_id.to_bytes(8, "big")
    if span.link is not None:
        link = span.link
        exported.links.add(
            trace_id=link.trace_id.to_bytes(16, "big"),
            span_id=link.span_id.to_bytes(8, "big"),
            flags=link.sampled | HAS_REMOTE | REMOTE,
        )
    if span.error:
        exported.status.CopyFrom(ERROR_STATUS)


def _fill(attributes: Any, members: Mapping[str, Any]) -> None:
    for key, value in members.items():
        attribute = attributes.add()
        attribute.key = key
        if type(value) is str:
            attribute.value.string_value = value
        elif type(value) is int and not -INT64 <= value < INT64:  # as a model's answer told
            attribute.value.string_value = str(value)
        else:
            attribute.value.CopyFrom(_value(value))


def _value(value: Any) -> AnyValue:
    match value:
        case str():
            return AnyValue(string_value=value)
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case list() | tuple():
            return AnyValue(array_value=ArrayValue(values=map(_value, value)))
    return AnyValue(string_value=str(value))
