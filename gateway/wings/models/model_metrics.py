"""Metrics and spans of requests to chat models."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.telemetry.histograms import Histogram
from gateway.telemetry.traces import Operate, no_trace
from gateway.wings.models.messages import (
    FinalResponse,
    LastRequest,
    ModelEvent,
    ModelFailed,
    ModelReply,
    StatusUpdate,
    ToolCallsComplete,
)

BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
# Those of the conventions of GenAI.
BUCKETS_TOKENS = tuple(4**power for power in range(14))


class ModelRequestTimes:
    """One request, as it is observed."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.first_s: float | None = None  # until the first part of an answer
        self.reply: ModelReply | None = None

    def observe(self, event: ModelEvent) -> None:
        if self.first_s is None and not isinstance(event, StatusUpdate):
            self.first_s = time.perf_counter() - self.began
        if isinstance(event, ToolCallsComplete | FinalResponse):
            self.reply = event.reply


class ModelUse(Collector):
    """Requests, tokens, money and times by strategy; and a span of each request."""

    def __init__(self, operate: Operate = no_trace) -> None:
        self._operate = operate
        self._requests: Counter[tuple[str, str]] = Counter()  # strategy, outcome
        self._tokens: Counter[tuple[str, str]] = Counter()  # strategy, kind
        self._costs: defaultdict[tuple[str, str], float] = defaultdict(float)  # and currency
        self._last: dict[str, tuple[str, float]] = {}  # by strategy: outcome, and when
        self._first = defaultdict[tuple[str, ...], Histogram](partial(Histogram, BUCKETS_S))
        # By strategy and model, and by outcome or by kind of tokens.
        self._times = defaultdict[tuple[str, ...], Histogram](partial(Histogram, BUCKETS_S))
        self._sizes = defaultdict[tuple[str, ...], Histogram](partial(Histogram, BUCKETS_TOKENS))

    @contextmanager
    def observing(self, strategy: str, model: str) -> Iterator[ModelRequestTimes]:
        """Observe one request, with its retries."""
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": strategy.partition("_")[0],  # as in deepseek_single
            "gen_ai.request.model": model,
            "toolgate.strategy": strategy,
        }
        times, outcome = ModelRequestTimes(time.perf_counter()), "cancelled"
        try:
            with self._operate(f"chat {model}", "client", attributes):
                try:
                    yield times
                    outcome = "ok"
                except ModelFailed as error:
                    outcome = attributes["error.type"] = error.kind
                    raise
                finally:
                    attributes |= _reply_attributes(times.reply)
        finally:
            self._count((strategy, model), outcome, times)

    def last(self, strategy: str) -> LastRequest | None:
        last_request = self._last.get(strategy)
        return last_request and LastRequest(last_request[0], time.monotonic() - last_request[1])

    def _count(self, asking: tuple[str, str], outcome: str, times: ModelRequestTimes) -> None:
        strategy, _ = asking
        self._requests[strategy, outcome] += 1
        if outcome != "cancelled":
            self._last[strategy] = outcome, time.monotonic()
        self._times[*asking, outcome].add(time.perf_counter() - times.began)
        if times.first_s is not None:
            self._first[strategy,].add(times.first_s)
        if (reply := times.reply) is not None:
            for kind, tokens in (("input", reply.usage.input), ("output", reply.usage.output)):
                self._tokens[strategy, kind] += tokens
                self._sizes[*asking, kind].add(tokens)
            if reply.cost is not None:
                self._costs[strategy, reply.cost.currency] += reply.cost.amount

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "toolgate_model_requests",
            "Requests to chat models, by outcome.",
            labels=("strategy", "outcome"),
        )
        tokens = CounterMetricFamily(
            "toolgate_model_tokens",
            "Tokens that chat models read (input) and wrote (output).",
            labels=("strategy", "kind"),
        )
        cost = CounterMetricFamily(
            "toolgate_model_cost",
            "Money that chat models cost, by the prices of the settings.",
            labels=("strategy", "currency"),
        )
        for family, counts in ((requests, self._requests), (tokens, self._tokens)):
            for labels, count in list(counts.items()):
                family.add_metric(labels, count)
            yield family
        for labels, amount in list(self._costs.items()):
            cost.add_metric(labels, amount)
        yield cost
        yield from self._histograms()

    def _histograms(self) -> Iterator[Metric]:
        first = HistogramMetricFamily(
            "toolgate_model_first_token_seconds",
            "Time until the first part of an answer of a chat model.",
            labels=("strategy",),
        )
        times = HistogramMetricFamily(
            "toolgate_model_request_seconds",
            "Time of requests to chat models, with their retries.",
            labels=("strategy", "model", "outcome"),
        )
        sizes = HistogramMetricFamily(
            "toolgate_model_request_tokens",
            "Tokens of a request to a chat model (input) and of its answer (output).",
            labels=("strategy", "model", "kind"),
        )
        for family, histograms in (
            (first, self._first),
            (times, self._times),
            (sizes, self._sizes),
        ):
            for labels, histogram in list(histograms.items()):
                family.add_metric(labels, histogram.cumulative(), histogram.sum)
            yield family


def _reply_attributes(reply: ModelReply | None) -> dict[str, Any]:
    """The attributes of an answer."""
    if reply is None:
        return {}
    return {
        "gen_ai.response.model": reply.model,
        "gen_ai.response.finish_reasons": [reply.finish],
        "gen_ai.usage.input_tokens": reply.usage.input,
        "gen_ai.usage.output_tokens": reply.usage.output,
        "gen_ai.usage.cache_read.input_tokens": reply.usage.cached,
    }
