"""Sampling of traces, in front of any SDK: which messages get spans is decided here, at the cost of
one random number; spans of those are made after the fact, by `gateway.app.trace_export`.

Sampled are a share of the messages, those whose caller samples them, and, known at their end, all
that fail or are slow; of these two without the calls that they made. The caller's context is the
parent only if the caller is authenticated, else a link: ids of strangers must not join traces.
"""

import asyncio
import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import lru_cache
from random import random
from typing import Any, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from config.settings import Tracing
from gateway.context import Context
from gateway.interfaces import Execute, Handler, Route, ToolCall
from gateway.middleware.audit_trail import fingerprint_of
from gateway.middleware.message_metrics import CallMetrics, Metrics, is_error, outcome_label
from gateway.protocol.revision_adapter import is_failure
from gateway.telemetry.histograms import BUCKETS_S
from gateway.telemetry.traces import (
    CURRENT,
    TRACEPARENT,
    ActiveTrace,
    Span,
    SpanContext,
    SpanTemplate,
    child_of,
    new_context,
    parse,
)
from schemas.errors import Fault
from schemas.jsonrpc import Request
from schemas.mcp.messages import CallToolResult
from schemas.source import Source
from schemas.tool import RelayedResult, Tool, ToolResult

NAME_LENGTH = 100  # characters of names that clients may choose
TEMPLATES = 2048  # of spans, that are remembered


class Sampler(Collector):
    """The middleware of messages, and the guard of tool calls."""

    def __init__(
        self, settings: Tracing, metrics: Metrics, calls: CallMetrics | None = None
    ) -> None:
        """A sampler that counts messages in `metrics`, and names its traces as exemplars there and
        in `calls`."""
        self.finished: deque[Span] = deque()
        self.exported = 0
        self.failed = 0
        self._dropped = 0
        self._settings = settings
        self._metrics = metrics
        self._calls = calls

    def collect(self) -> Iterator[Metric]:
        total = CounterMetricFamily(
            "toolgate_spans", "Spans of traces, by what became of them.", labels=("outcome",)
        )
        total.add_metric(("exported",), self.exported)
        total.add_metric(("failed",), self.failed)
        total.add_metric(("dropped",), self._dropped)
        yield total

    def middleware(self, handler: Handler, route: Route) -> Handler:
        """Stands in the place of `Metrics.middleware`, and counts what that counts: the duration
        and the outcome of a message are measured once."""
        ratio, slow_s = self._settings.ratio, self._settings.slow_s
        if route.method == "subscriptions/listen":
            slow_s = math.inf  # a stream lasts as long as its client
        series_of = self._metrics.series(route)

        async def trace_request(context: Context, request: Request) -> Any:
            params, trace, origin = request.params, None, _NOWHERE
            if (  # most messages come from nowhere
                context.headers.traceparent is not None
                or (
                    type(params) is dict
                    and "_meta" in params
                    and type(params["_meta"]) is dict
                    and TRACEPARENT in params["_meta"]
                )
                or CURRENT.get() is not None
            ):
                origin = _origin(context, request)
            if random() < ratio if origin.sampled is None else origin.sampled:  # noqa: S311
                trace = origin.begin()
                token = CURRENT.set(trace)
            began, outcome, error = time.perf_counter(), "crashed", "crashed"
            try:
                result = await handler(context, request)
                if type(result) is CallToolResult:
                    failed = result.is_error
                else:
                    failed = type(result) is dict and is_failure(result)
                outcome, error = ("tool_error", "tool_error") if failed else ("ok", "")
                return result
            except Fault as fault:
                outcome, error = outcome_label(fault), str(fault.code)
                raise
            except asyncio.CancelledError:
                outcome = error = "cancelled"
                raise
            finally:
                seconds = time.perf_counter() - began
                series = series_of(outcome)
                series.count += 1
                series.sum += seconds
                series.buckets[bisect_left(BUCKETS_S, seconds)] += 1
                if trace is not None:
                    CURRENT.reset(token)
                if trace is not None or error or seconds > slow_s:
                    active = trace or origin.begin()
                    active.error = error
                    if self._finish(context, request, active, seconds):
                        series.exemplify(seconds, active.context)

        return trace_request

    def _finish(
        self, context: Context, request: Request, trace: ActiveTrace, seconds: float
    ) -> bool:
        """Queue the spans of a message that ends now; returns whether there was room."""
        ended = time.time_ns()
        method, tool, id_ = request.method[:NAME_LENGTH], trace.tool, request.id
        called = tool != ""
        if not called and method == "tools/call" and type(request.params) is dict:
            tool = str(request.params.get("name", ""))[:NAME_LENGTH]
        attributes = {"toolgate.request.id": context.request_id}
        if id_ is not UNSET and id_ is not None:
            attributes["jsonrpc.request.id"] = str(id_)[:NAME_LENGTH]
        if context.session is not None:
            attributes["mcp.session.id"] = fingerprint_of(context.session)
        span = Span(
            _message_template(method, context.revision.name, tool, trace.error, called),
            trace.context,
            ended - int(seconds * 1e9),
            ended,
            attributes,
            trace.parent,
            trace.link,
        )
        return self._keep(span, trace.calls)

    def applies(self, tool: Tool, _source: Source | None) -> bool:
        return not tool.binding.facts.own

    def guard(self, execute: Execute) -> Execute:
        """Innermost guard: it sees what is sent to a service."""

        def trace_call(call: ToolCall) -> Coroutine[Any, Any, ToolResult | RelayedResult]:
            trace = CURRENT.get()
            return call_sampled(call, trace) if type(trace) is ActiveTrace else execute(call)

        async def call_sampled(call: ToolCall, trace: ActiveTrace) -> ToolResult | RelayedResult:
            trace.tool = call.tool.name
            child = child_of(trace.context)
            token, began, error = CURRENT.set(child), time.time_ns(), "failed"
            try:
                result = await execute(_with_trace(call, child))
                error = "tool_error" if is_error(result) else ""
                return result
            except Fault as fault:
                error = str(fault.code)
                raise
            except asyncio.CancelledError:
                error = "cancelled"
                raise
            finally:
                CURRENT.reset(token)
                ended = time.time_ns()
                tool = call.tool
                template = _call_template(
                    tool.name, tool.source, tool.binding.operation_name or tool.name, error
                )
                trace.calls.append(Span(template, child, began, ended, None, trace.context))
                if self._calls is not None:
                    self._calls.exemplify(call.tool, (ended - began) / 1e9, child)

        return trace_call

    @contextmanager
    def operation(self, name: str, kind: str, attributes: dict[str, Any]) -> Iterator[None]:
        """The span of an operation that is no message, part of what this task does already, else
        the root of a trace. Calls that it makes are part of it where it is internal: a client's
        may be a generator, which must not change the context of its task."""
        outer = CURRENT.get()
        parent = outer.context if isinstance(outer, ActiveTrace) else outer
        sampled = parent is not None or random() < self._settings.ratio  # noqa: S311
        child = new_context() if parent is None else child_of(parent)
        token = CURRENT.set(child) if sampled and kind == "internal" else None
        began, error = time.time_ns(), "failed"
        try:
            yield
            error = ""
        except (asyncio.CancelledError, GeneratorExit):
            error = "cancelled"
            raise
        finally:
            error = str(attributes.get("error.type", error)) if error else ""
            if token is not None:
                CURRENT.reset(token)
            if sampled or error:
                if error:
                    attributes["error.type"] = error
                template = _operation_template(name, kind, error)
                self._keep(Span(template, child, began, time.time_ns(), attributes, parent), [])

    def _keep(self, span: Span, calls: list[Span]) -> bool:
        """Queue spans for the collector; returns whether there was room."""
        room = self._settings.queue - len(self.finished)
        if room <= len(calls):
            self._dropped += 1 + len(calls)
            return False
        self.finished.append(span)
        self.finished.extend(calls)
        return True


class _Origin(NamedTuple):
    """Where a message comes from."""

    parent: SpanContext | None = None
    link: SpanContext | None = None
    sampled: bool | None = None  # None: not decided by the caller

    def begin(self) -> ActiveTrace:
        """The trace of a message from here."""
        parent = self.parent
        return ActiveTrace(new_context() if parent is None else child_of(parent), parent, self.link)


_NOWHERE = _Origin()


def _origin(context: Context, request: Request) -> _Origin:
    """The origin of a message: what this gateway does already, else the span that its `_meta` names
    (SEP-414), else that of its HTTP request. The last two are links if they are strangers'."""
    active = CURRENT.get()
    if active is not None:
        return _Origin(active.context if isinstance(active, ActiveTrace) else active, None, True)
    params, outer = request.params, context.headers.traceparent
    meta = params.get("_meta") if type(params) is dict else None
    inner = meta.get(TRACEPARENT) if type(meta) is dict else None
    if inner is None and outer is None:
        return _NOWHERE
    of_message, of_request = parse(inner), parse(outer)
    named = of_message or of_request
    if named is None:
        return _NOWHERE
    if not context.identity.verified:
        return _Origin(link=named)
    return _Origin(named, of_request if of_message is not None else None, named.sampled)


@lru_cache(TEMPLATES)
def _message_template(  # noqa: PLR0917 - keywords of a cached function take longer
    method: str, revision: str, tool: str, error: str, called: bool
) -> SpanTemplate:
    """The template of a message's spans (semantic conventions of MCP, server). `called`: whether
    the tool was, which the message names otherwise."""
    attributes = {
        "mcp.method.name": method,
        "mcp.protocol.version": revision,
        "network.transport": "tcp",
    }
    if called or method == "tools/call":
        attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
    if error:
        attributes["error.type"] = error
    if error.lstrip("-").isdigit():
        attributes["rpc.response.status_code"] = error
    name = method
    if called:
        name = f"{method} {tool}" if method == "tools/call" else tool
    return SpanTemplate(name, "server", error, tuple(attributes.items()))


_operation_template = lru_cache(TEMPLATES)(SpanTemplate)


@lru_cache(TEMPLATES)
def _call_template(tool: str, source: str, operation: str, error: str) -> SpanTemplate:
    """The template of a service's spans."""
    attributes = {"gen_ai.tool.name": tool, "toolgate.source": source}
    if error:
        attributes["error.type"] = error
    return SpanTemplate(operation, "client", error, tuple(attributes.items()))


def _with_trace(call: ToolCall, own: SpanContext) -> ToolCall:
    """The call with `own` in its `_meta`, for another MCP server (SEP-414)."""
    if not call.tool.binding.facts.relayed:
        return call
    context = call.context
    meta = context.params.get("_meta")
    meta = {**(meta if isinstance(meta, dict) else {}), TRACEPARENT: own.traceparent}
    return replace(call, context=replace(context, params={**context.params, "_meta": meta}))
