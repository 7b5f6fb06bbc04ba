"""Metrics of the wing."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.state.quotas import UsageQuotas
from gateway.wings.events.dispatch import Dispatch


class EventGauges(Collector):
    def __init__(self, dispatch: Dispatch, usage: UsageQuotas) -> None:
        self._dispatch = dispatch
        self._usage = usage

    def collect(self) -> Iterator[Metric]:
        running = GaugeMetricFamily(
            "toolgate_invocations_running", "Invocations that run in this process."
        )
        running.add_metric((), self._dispatch.running)
        yield running
        shares = GaugeMetricFamily(
            "toolgate_invocations_quota_share",
            "Largest share of a quota that a tenant or principal uses, as last counted here.",
            labels=("quota",),
        )
        for quota, share in (self._usage.shares | self._dispatch.ended_shares).items():
            shares.add_metric((quota,), share)
        yield shares
        labels = ("kind",)
        ended = CounterMetricFamily(
            "toolgate_invocation_outcomes", "Deliveries that ended in this process.", labels=labels
        )
        swept = CounterMetricFamily(
            "toolgate_invocations_swept",
            "Leases and deadlines that this process found over.",
            labels=labels,
        )
        for family, counted in (
            (ended, self._dispatch.outcomes),
            (swept, self._dispatch.swept),
        ):
            sums: Counter[str] = Counter()
            for (_tenant, kind), count in counted.items():
                sums[kind] += count
            for kind, count in sorted(sums.items()):
                family.add_metric((kind,), count)
            yield family
