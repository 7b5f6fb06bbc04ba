"""Traces and metrics: which messages have spans, and what a collector of OpenTelemetry gets."""

import asyncio
import gzip
import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource

from config.load import load, mask_secrets
from config.settings import Settings, Tracing
from config.sources import SourceSettings
from gateway.app.gateway import Gateway
from gateway.app.metrics_export import convert_family
from gateway.app.trace_export import TraceExport, encode_spans
from gateway.context import CallHeaders, Context, Identity, Principal
from gateway.interfaces import Route
from gateway.middleware.message_metrics import Metrics
from gateway.middleware.trace_sampling import Sampler
from gateway.telemetry.traces import Span, SpanContext, SpanTemplate, parse
from gateway.upstreams.http.client import Client as HttpClient
from gateway.upstreams.mcp.handshake import handshake_params, stateless_params
from gateway.wings.models.messages import FinalResponse, ModelFailed, ModelReply, StatusUpdate
from gateway.wings.models.model_metrics import ModelUse
from gateway.wings.models.usage import ModelCost, TokenUsage
from schemas.errors import InvalidParams
from schemas.jsonrpc import Request
from schemas.mcp.messages import META_CAPABILITIES
from schemas.mcp.revisions import V2025_11_25, V2026_07_28
from tests.fixtures_gateway import Recorder, pets, running
from tests.polling import until

pytestmark = pytest.mark.anyio

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALLER = f"00-{TRACE}-{SPAN}-01"
UNREACHABLE = "http://127.0.0.1:9/v1/traces"
OTHER = f"00-{TRACE}-00f067aa0ba902b7-01"


@dataclass
class Collector:
    """What an OTLP collector received."""

    url: str = ""
    spans: list[Any] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)  # the last ones, by name
    refusals: list[int] = field(default_factory=list)  # statuses of its next answers

    def spans_named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            status = found.refusals.pop(0) if found.refusals else 200
            if self.path == "/v1/metrics":
                self.take_metrics(body)
            elif status == 200:
                self.take_spans(body)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def take_spans(self, body: bytes) -> None:
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                found.spans += [span for scope in group.scope_spans for span in scope.spans]

        def take_metrics(self, body: bytes) -> None:
            for group in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in group.scope_metrics:
                    found.metrics |= {one.name: one for one in scope.metrics}

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        found.url = f"http://127.0.0.1:{server.server_port}/v1/traces"
        yield found
        server.shutdown()
        thread.join()


def attributes(span: Any) -> dict[str, str]:
    return {one.key: one.value.string_value for one in span.attributes}


def with_tracing(settings: Settings, **changes: Any) -> Settings:
    tracing = replace(settings.tracing, enabled=True, ratio=1.0, flush_s=0.05, **changes)
    return replace(settings, tracing=tracing)


async def test_a_call_has_a_span_that_its_service_is_told(
    settings: Settings,
    service: Recorder,
    collector: Collector,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    params = {"name": "getPet", "arguments": {"id": 1}}
    failing = {"name": "getPet", "arguments": {"id": "no"}}
    ghost = {"/ghost": {"get": {"operationId": "ghost", "summary": "Not there"}}}
    file = tmp_path / "ghost.json"
    file.write_text(json.dumps({**pets(), "paths": ghost}))
    dead = SourceSettings(openapi=str(file), base_url="http://127.0.0.1:9")
    settings = replace(settings, sources={**settings.sources, "dead": dead})
    async with running(with_tracing(settings, endpoint=collector.url)) as client:
        await client.modern("tools/call", params)
        request = {"jsonrpc": "2.0", "id": 7, "method": "listPets"}
        await client.post("/rpc", request, {"traceparent": CALLER})
        await client.post("/rpc", {**request, "method": "nothing"})
        caplog.set_level(logging.INFO, "toolgate.upstream")
        await client.post("/rpc", {**request, "method": "ghost"})
        session = await client.session()
        await session.call("tools/call", failing)
        await until(lambda: sum(one.status.code == 2 for one in collector.spans) == 4)
        metrics = await (await client.http.get(client.url + "/metrics")).text()
    [inner] = collector.spans_named("GET /pets/{id}")
    outer = next(one for one in collector.spans if one.span_id == inner.parent_span_id)
    assert outer.name == "tools/call getPet"
    assert (outer.kind, inner.kind, outer.parent_span_id) == (2, 3, b"")
    assert inner.trace_id == outer.trace_id
    heard = service.requests[0]["headers"]["traceparent"]
    assert heard == f"00-{inner.trace_id.hex()}-{inner.span_id.hex()}-01"
    facts = attributes(outer)
    assert facts["mcp.protocol.version"] == "2026-07-28"
    assert (facts["gen_ai.operation.name"], facts["gen_ai.tool.name"]) == ("execute_tool", "getPet")
    assert attributes(inner)["toolgate.source"] == "pets"
    [stranger] = collector.spans_named("listPets")
    assert stranger.trace_id.hex() != TRACE
    assert [link.span_id.hex() for link in stranger.links] == [SPAN]
    [failed] = collector.spans_named("nothing")
    assert attributes(failed)["error.type"] == "-32601"
    assert failed.status.code == 2
    [away] = collector.spans_named("GET /ghost")
    [line] = [one for one in caplog.records if one.msg == "upstream_failed"]
    assert (line.trace_id, line.span_id) == (away.trace_id.hex(), away.span_id.hex())
    assert attributes(away)["error.type"] == "tool_error"
    [invalid] = [one for one in collector.spans_named("tools/call") if one.status.code == 2]
    assert attributes(invalid)["error.type"] == "-32602"
    assert 'toolgate_spans_total{outcome="exported"}' in metrics


async def test_metrics_are_sent_by_the_names_of_the_conventions(
    settings: Settings, service: Recorder, collector: Collector
) -> None:
    """Those that have none keep their own; a histogram names the trace of one of its messages."""
    otlp = replace(
        settings.metrics.otlp,
        enabled=True,
        endpoint=collector.url.replace("traces", "metrics"),
        interval_s=0.05,
    )
    metrics = replace(settings.metrics, tools=5, otlp=otlp)
    settings = with_tracing(replace(settings, metrics=metrics), endpoint=collector.url)
    async with running(settings) as client:
        await client.modern("tools/call", {"name": "getPet", "arguments": {"id": 1}})
        request = {"jsonrpc": "2.0", "id": 7, "method": "nothing"}
        await client.post("/rpc", request)
        await until(lambda: "rpc.server.call.duration" in collector.metrics and collector.spans)
        answer = await client.http.get(
            client.url + "/metrics", headers={"Accept": "application/openmetrics-text"}
        )
        text = await answer.text()
    served = collector.metrics["mcp.server.operation.duration"]
    assert served.unit == "s"
    [called] = [
        one
        for one in served.histogram.data_points
        if attributes(one).get("mcp.method.name") == "tools/call"
    ]
    assert attributes(called)["mcp.protocol.version"] == "2026-07-28"
    assert (called.count, sum(called.bucket_counts)) == (1, 1)
    assert len(called.bucket_counts) == len(called.explicit_bounds) + 1
    [message] = collector.spans_named("tools/call getPet")
    assert [one.trace_id for one in called.exemplars] == [message.trace_id]
    [refused] = collector.metrics["rpc.server.call.duration"].histogram.data_points
    assert attributes(refused) == {
        "rpc.system.name": "jsonrpc",
        "rpc.method": "_OTHER",
        "error.type": "-32601",
        "rpc.response.status_code": "-32601",
    }
    [tool] = collector.metrics["gen_ai.execute_tool.duration"].histogram.data_points
    assert attributes(tool)["gen_ai.tool.name"] == "getPet"
    assert [one.trace_id for one in tool.exemplars] == [message.trace_id]
    assert collector.metrics["toolgate_tools"].gauge.data_points[0].as_double > 1
    calls = collector.metrics["toolgate_tool_calls"].sum
    assert (calls.is_monotonic, calls.data_points[0].as_int) == (True, 1)
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    exemplars = [
        line for line in text.splitlines() if f'trace_id="{message.trace_id.hex()}"' in line
    ]
    assert {line.partition("{")[0] for line in exemplars} == {
        "toolgate_request_seconds_bucket",
        "toolgate_source_call_seconds_bucket",
        "toolgate_tool_call_seconds_bucket",
    }
    assert text.endswith("# EOF\n")


async def test_disabled_tracing_adds_no_parts(settings: Settings) -> None:
    gateway = Gateway(settings)
    assert gateway.tracing is None
    assert gateway.metrics_export is None
    assert type(gateway.upstreams.client) is HttpClient
    assert gateway._counting == [gateway.metrics.middleware, gateway.legacy_use.middleware]
    await gateway.upstreams.client.close()


async def test_without_tracing_the_context_of_a_caller_is_passed_on(
    settings: Settings, service: Recorder
) -> None:
    """That of the message counts more than that of its HTTP request; a malformed one is dropped."""
    params = {"name": "getPet", "arguments": {"id": 1}}
    async with running(settings) as client:
        session = await client.session()
        for header, meta in ((CALLER, None), (CALLER, OTHER), (None, OTHER), ("00-zz", "x\ny")):
            headers = {} if header is None else {"traceparent": header}
            named = {} if meta is None else {"_meta": {"traceparent": meta}}
            request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
            body = {**request, "params": {**params, **named}}
            await client.post("/mcp", body, {**session.headers, **headers})
        await client.post("/rpc", {**request, "params": params}, {"traceparent": CALLER})
    heard = [one["headers"].get("traceparent") for one in service.requests]
    assert heard == [CALLER, OTHER, OTHER, None, CALLER]


DEFAULTS: Tracing = load(None, {}).tracing


def sampler(metrics: Metrics | None = None, **changes: Any) -> Sampler:
    return Sampler(
        replace(DEFAULTS, **{"ratio": 0.0, "slow_s": 1000.0, **changes}), metrics or Metrics()
    )


async def serve(
    subject: Sampler,
    *,
    header: str | None = None,
    meta: Any = None,
    verified: bool = True,
    method: str = "ping",
) -> None:
    """Serve a message without a failure."""

    async def handler(_context: Context, _request: Request) -> Any:
        return {}

    params = {} if meta is None else {"_meta": meta}
    identity = Identity(Principal("ada", "t"), verified=verified)
    context = Context(identity, V2025_11_25, "r-1", headers=CallHeaders(traceparent=header))
    middleware = subject.middleware(handler, Route(V2025_11_25, method))
    await middleware(context, Request("2.0", method, params, 1))


@pytest.mark.parametrize(
    ("header", "meta", "verified", "expected"),
    [
        (CALLER, None, True, (SPAN, "")),
        (CALLER, {"traceparent": OTHER}, True, ("00f067aa0ba902b7", SPAN)),
        (None, {"traceparent": CALLER}, True, (SPAN, "")),
        (CALLER, None, False, ("", SPAN)),
        ("00-zz", {"traceparent": 5}, True, ("", "")),
        (None, "text", True, ("", "")),
    ],
)
async def test_the_parent_is_that_of_a_known_caller(
    header: str | None, meta: Any, verified: bool, expected: tuple[str, str]
) -> None:
    subject = sampler(ratio=1.0)
    await serve(subject, header=header, meta=meta, verified=verified)
    [span] = subject.finished
    ids = tuple(f"{one.span_id:016x}" if one else "" for one in (span.parent, span.link))
    assert ids == expected
    assert (span.context.trace_id == int(TRACE, 16)) is bool(expected[0])


async def test_verified_callers_decide_on_their_sampling() -> None:
    subject = sampler()
    await serve(subject, header=CALLER, verified=False)
    await serve(subject, header=CALLER[:-2] + "00")
    await serve(subject)
    assert not subject.finished
    await serve(subject, header=CALLER)
    assert len(subject.finished) == 1


async def test_failures_and_slow_messages_always_have_a_span() -> None:
    async def failing(_context: Context, _request: Request) -> Any:
        raise InvalidParams("bad")

    subject = sampler()
    context = Context(Identity(Principal("ada", "t")), V2025_11_25, "r-1")
    middleware = subject.middleware(failing, Route(V2025_11_25, "ping"))
    with pytest.raises(InvalidParams):
        await middleware(context, Request("2.0", "ping", {}, 1))
    [span] = subject.finished
    assert (span.template.error, span.attributes["rpc.response.status_code"]) == (
        "-32602",
        "-32602",
    )
    slow = sampler(slow_s=1e-9)
    await serve(slow)
    await serve(slow, method="subscriptions/listen")  # lasts as long as its client
    assert [(one.template.name, one.template.error) for one in slow.finished] == [("ping", "")]


OUTCOMES: dict[str, Any] = {
    "ok": {},
    "tool_error": {"isError": Raw(b"true")},  # of another MCP server
    "-32602": InvalidParams("bad"),
    "crashed": RuntimeError(),
    "cancelled": asyncio.CancelledError(),
}


@pytest.mark.parametrize("ratio", [None, 0.0, 1.0])
async def test_messages_are_counted_alike_with_and_without_traces(ratio: float | None) -> None:
    """Traces take the place of the middleware that counts."""

    async def handler(_context: Context, request: Request) -> Any:
        result = OUTCOMES[request.params["of"]]  # type: ignore[call-overload, index]
        if isinstance(result, BaseException):
            raise result
        return result

    metrics = Metrics()
    counting = metrics if ratio is None else sampler(metrics, ratio=ratio)
    middleware = counting.middleware(handler, Route(V2025_11_25, "tools/call"))
    context = Context(Identity(Principal("ada", "t")), V2025_11_25, "r-1")
    for outcome in OUTCOMES:
        with suppress(InvalidParams, RuntimeError, asyncio.CancelledError):
            await middleware(context, Request("2.0", "tools/call", {"of": outcome}, 1))
    assert {one.outcome: one.count for one in metrics.totals()} == dict.fromkeys(OUTCOMES, 1)


async def test_spans_beyond_the_queue_are_counted() -> None:
    subject = sampler(ratio=1.0, queue=1)
    for _ in range(3):
        await serve(subject)
    assert len(subject.finished) == 1
    [family] = subject.collect()
    assert {one.labels["outcome"]: one.value for one in family.samples}["dropped"] == 2


async def test_spans_wait_for_a_collector_that_is_away(collector: Collector) -> None:
    """They are sent again, in their order, unless the collector says that it will not have them."""
    subject = sampler(ratio=1.0)
    away = TraceExport(replace(DEFAULTS, endpoint=UNREACHABLE), Resource({}), subject)
    there = TraceExport(replace(DEFAULTS, endpoint=collector.url), Resource({}), subject)
    collector.refusals = [503, 400]
    await serve(subject, method="first")
    for export in (away, there):
        await export.flush()
        assert (len(subject.finished), subject.exported, subject.failed) == (1, 0, 0)
    await there.flush()
    assert (len(subject.finished), subject.exported, subject.failed) == (0, 0, 1)
    for method in ("second", "third"):
        await serve(subject, method=method)
    await away.flush()
    await there.flush()
    assert [one.name for one in collector.spans] == ["second", "third"]
    assert (subject.exported, subject.failed) == (2, 1)
    await serve(subject)
    await away.close()  # what is left then is lost, and counted
    assert subject.failed == 2


async def test_a_span_that_cannot_be_encoded_does_not_end_the_export(collector: Collector) -> None:
    subject = sampler(ratio=1.0)
    export = TraceExport(replace(DEFAULTS, endpoint=collector.url), Resource({}), subject)
    await serve(subject, method="first")
    subject.finished[0].own_attributes = {"toolgate.source": "\ud800"}  # no UTF-8
    await export.flush()
    assert (len(subject.finished), subject.exported, subject.failed) == (0, 0, 1)
    await serve(subject, method="second")
    await export.flush()
    assert [span.name for span in collector.spans] == ["second"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CALLER, SpanContext(int(TRACE, 16), int(SPAN, 16), True)),
        (CALLER.replace("00-", "01-", 1) + "-more", SpanContext(int(TRACE, 16), int(SPAN, 16))),
        (CALLER.replace("00-", "01-", 1) + "-more\r", None),
        (CALLER.replace("00-", "01-", 1) + "-é", None),
        (CALLER.replace("00-", "01-", 1) + "-" + 1000 * "a", None),
        (CALLER + "-more", None),
        (CALLER.replace("00-", "ff-", 1), None),
        (CALLER.upper(), None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (CALLER + "\n", None),
        (None, None),
    ],
)
def test_malformed_contexts_are_ignored(text: str | None, expected: SpanContext | None) -> None:
    assert parse(text) == expected
    if expected is not None:
        assert parse(expected.traceparent) == expected


@pytest.mark.parametrize("where", ["TRACING", "METRICS__OTLP"])
def test_headers_for_the_collector_are_masked(where: str) -> None:
    settings = load(None, {f"TOOLGATE_{where}__HEADERS": '{"Authorization": "s3cret"}'})
    assert "s3cret" not in json.dumps(mask_secrets(settings))


def test_an_agent_s_run_has_the_spans_of_its_models() -> None:
    """By the conventions of GenAI: `invoke_agent`, and below it `chat`."""
    subject = sampler(ratio=1.0)
    use = ModelUse(subject.operation)
    cost = ModelCost(0.5, "USD")
    usage = TokenUsage(input=10, output=3, cached=4)
    reply = ModelReply("Hello", (), "", "stop", usage, cost, "m-2026")
    with (
        subject.operation("invoke_agent toolgate", "internal", {}),
        use.observing("deepseek_single", "m") as asked,
    ):
        asked.observe(StatusUpdate("retrying", "late"))
        asked.observe(FinalResponse(reply.text, reply.usage.total, reply))
    chat, run = subject.finished
    assert (chat.template.name, chat.template.kind, run.template.kind) == (
        "chat m",
        "client",
        "internal",
    )
    assert chat.parent == run.context
    assert run.parent is None
    facts = chat.attributes
    assert facts["gen_ai.provider.name"] == "deepseek"
    assert facts["gen_ai.response.finish_reasons"] == ["stop"]
    assert (facts["gen_ai.usage.input_tokens"], facts["gen_ai.usage.output_tokens"]) == (10, 3)
    samples = {
        (one.name, *one.labels.values()): one.value
        for family in use.collect()
        for one in family.samples
    }
    assert samples["toolgate_model_requests_total", "deepseek_single", "ok"] == 1
    assert samples["toolgate_model_tokens_total", "deepseek_single", "input"] == 10
    assert samples["toolgate_model_cost_total", "deepseek_single", "USD"] == 0.5
    assert samples["toolgate_model_first_token_seconds_count", "deepseek_single"] == 1
    sent = {one.name: one for family in use.collect() for one in convert_family(family, (1, 2))}
    [duration] = sent["gen_ai.client.operation.duration"].data.data_points
    shared = {"gen_ai.provider.name": "deepseek", "gen_ai.request.model": "m"}
    assert duration.attributes == {"gen_ai.operation.name": "chat", **shared}
    [read, written] = sent["gen_ai.client.token.usage"].data.data_points
    assert (read.attributes["gen_ai.token.type"], read.sum) == ("input", 10)
    assert (written.attributes["gen_ai.token.type"], written.sum) == ("output", 3)
    assert sent["gen_ai.client.token.usage"].unit == "{token}"


def test_a_failed_request_to_a_model_always_has_a_span() -> None:
    subject = sampler()
    use = ModelUse(subject.operation)
    with pytest.raises(ModelFailed), use.observing("qwen_single", "m"):
        raise ModelFailed("No answer", "late")
    with use.observing("qwen_single", "m"):
        pass
    [span] = subject.finished
    assert (span.template.error, span.attributes["error.type"]) == ("late", "late")


def test_a_number_beyond_64_bits_is_exported_as_a_text() -> None:
    """As the tokens that a model's answer told may be: the other spans go with it."""
    template = SpanTemplate("chat", "client")
    span = Span(template, SpanContext(1, 2), 1, 2, {"n": 2**70, "m": 2**63 - 1})
    request = ExportTraceServiceRequest.FromString(encode_spans([span], Resource({})))
    [found] = request.resource_spans[0].scope_spans[0].spans
    numbers = {one.key: one.value for one in found.attributes}
    assert numbers["n"].string_value == str(2**70)
    assert numbers["m"].int_value == 2**63 - 1


@pytest.mark.parametrize("length", [0, 1, 127, 128, 16_383, 16_384, 3_000_000])
def test_exported_spans_have_all_their_members(length: int) -> None:
    """Their constant part is encoded once, and the rest here: lengths take one to four bytes."""
    text = "é" + length * "x"
    template = SpanTemplate("GET /pets", "client", "late", (("error.type", "late"), ("e", text)))
    parent, link = SpanContext(2**127, 2**63), SpanContext(5, 6, sampled=False)
    own = {"text": text, "list": ["a", 1], "share": 0.5, "whole": True, "none": None}
    span = Span(template, SpanContext(2**127, 1), 7, 2**63, own, parent, link)
    bare = Span(SpanTemplate("ping", "server"), SpanContext(1, 2), 1, 2)
    body = encode_spans([span, bare, span], Resource({"service.name": "toolgate"}))
    [group] = ExportTraceServiceRequest.FromString(body).resource_spans
    assert attributes(group.resource) == {"service.name": "toolgate"}
    [scope] = group.scope_spans
    exported, second, third = scope.spans
    assert (scope.scope.name, exported) == ("toolgate", third)
    assert (exported.name, exported.kind, exported.status.code) == ("GET /pets", 3, 2)
    assert exported.trace_id == (2**127).to_bytes(16, "big")
    assert exported.span_id == (1).to_bytes(8, "big")
    assert exported.parent_span_id == (2**63).to_bytes(8, "big")
    assert (exported.start_time_unix_nano, exported.end_time_unix_nano) == (7, 2**63)
    values = {member.key: member.value for member in exported.attributes}
    assert values["e"].string_value == values["text"].string_value == text
    assert [value.WhichOneof("value") for value in values["list"].array_value.values] == [
        "string_value",
        "int_value",
    ]
    assert (values["share"].double_value, values["whole"].bool_value) == (0.5, True)
    assert values["none"].string_value == "None"
    [linked] = exported.links
    assert (linked.span_id, linked.flags) == ((6).to_bytes(8, "big"), 0x300)
    assert (exported.flags, second.flags) == (0x101, 0x301)
    assert (second.name, second.parent_span_id, len(second.attributes)) == ("ping", b"", 0)


@pytest.mark.parametrize("tasks", [True, False])
def test_baggage_of_a_client_is_not_passed_to_mcp_servers(tasks: bool) -> None:
    params = {"name": "x", "_meta": {"baggage": "user=ada", "mine": 1}}
    context = Context(Identity(Principal("ada", "t")), V2026_07_28, "r-1")
    assert stateless_params(params, context, {})["_meta"] == {"mine": 1, META_CAPABILITIES: {}}
    assert handshake_params(params, tasks)["_meta"] == {"mine": 1}
