"""Export of spans by OTLP over HTTP (`toolgate[otel]`).

Messages of the protocol are made here from what `gateway.middleware.trace_sampling` has kept, in
batches and in a thread, so that no message waits for that. The spans and the exporter of
OpenTelemetry's SDK take five times as much processor time, and OpenTelemetry's classes of protobuf
three times as much as bytes that are encoded once for a template.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Iterable, Sequence
from functools import lru_cache
from http import HTTPStatus
from struct import Struct
from typing import Any

import aiohttp
import anyio
from anyio import to_thread
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.resources import Resource

from config.settings import Tracing
from gateway.methods.results_by_revision import SERVER
from gateway.middleware.trace_sampling import TEMPLATES, Sampler
from gateway.telemetry.traces import CURRENT, ActiveTrace, Span, SpanContext, SpanTemplate

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
KEYS = 256  # of attributes, that are remembered encoded
# Tags of fields, that are encoded here: of a request, its groups, a span, and an attribute.
RESOURCES, SCOPES, SPANS = b"\x0a", b"\x12", b"\x12"
TRACE_ID, SPAN_ID, STARTED, ENDED = 0x0A, 0x12, 0x39, 0x41
PARENT_ID, ATTRIBUTE = b"\x22\x08", b"\x4a"
STRING, VALUE = b"\x0a", b"\x12"
IDS, TIMES = Struct("<BB16sBB8s"), Struct("<BQBQ")
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
                except Exception:  # of a span that cannot be encoded: the next batch goes on
                    log.exception("spans_not_encoded", extra={"count": len(batch)})
                    self.sampler.failed += len(batch)
                    continue
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
    scope = trace_pb2.ScopeSpans()
    scope.scope.name, scope.scope.version = "toolgate", SERVER.version
    group = trace_pb2.ResourceSpans()
    _fill(group.resource.attributes, resource.attributes.items())
    spans = b"".join([_field(SPANS, _encode_span(span)) for span in batch])
    scopes = _field(SCOPES, _serialize(scope) + spans)
    return _field(RESOURCES, _serialize(group) + scopes)


def _encode_span(span: Span) -> bytes:
    """A message of protobuf may have its fields in any order: the template's come first."""
    context, parent = span.context, span.parent
    trace_id, span_id = context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big")
    encoded = [
        _encode_template(span.template),
        IDS.pack(TRACE_ID, 16, trace_id, SPAN_ID, 8, span_id),
        TIMES.pack(STARTED, span.started_ns, ENDED, span.ended_ns),
    ]
    if parent is not None:
        encoded += PARENT_ID, parent.span_id.to_bytes(8, "big")
    if span.own_attributes:
        for key, value in span.own_attributes.items():
            is_text = type(value) is str
            text = _field(STRING, value.encode()) if is_text else _serialize(_value(value))
            encoded.append(_field(ATTRIBUTE, _encode_key(key) + _field(VALUE, text)))
    if span.link is not None:
        encoded.append(_encode_link(span.link))
    return b"".join(encoded)


@lru_cache(TEMPLATES)
def _encode_template(template: SpanTemplate) -> bytes:
    span = trace_pb2.Span(
        name=template.name,
        kind=KINDS[template.kind],
        flags=SAMPLED_FLAG | HAS_REMOTE | (REMOTE if template.kind == "server" else 0),
        status=ERROR_STATUS if template.error else None,
    )
    _fill(span.attributes, template.attributes)
    return _serialize(span)


def _encode_link(link: SpanContext) -> bytes:
    span = trace_pb2.Span()
    span.links.add(
        trace_id=link.trace_id.to_bytes(16, "big"),
        span_id=link.span_id.to_bytes(8, "big"),
        flags=link.sampled | HAS_REMOTE | REMOTE,
    )
    return _serialize(span)


def _serialize(message: Any) -> bytes:
    encoded: bytes = message.SerializeToString()
    return encoded


@lru_cache(KEYS)
def _encode_key(key: str) -> bytes:
    return _field(STRING, key.encode())


def _field(tag: bytes, content: bytes) -> bytes:
    """A field of protobuf that has a length, in seven bits a byte."""
    size = len(content)
    while size >= 128:
        tag += bytes((size & 127 | 128,))
        size >>= 7
    return b"%b%c%b" % (tag, size, content)


def _fill(attributes: Any, members: Iterable[tuple[str, Any]]) -> None:
    for key, value in members:
        attributes.add(key=key, value=_value(value))


def _value(value: Any) -> AnyValue:
    match value:
        case str():
            return AnyValue(string_value=value)
        case bool():
            return AnyValue(bool_value=value)
        case int() if -INT64 <= value < INT64:  # a model's answer may tell any number
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case list() | tuple():
            return AnyValue(array_value=ArrayValue(values=map(_value, value)))
    return AnyValue(string_value=str(value))
