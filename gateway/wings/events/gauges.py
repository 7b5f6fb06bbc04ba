"""Metrics of the wing."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.wings.events.dispatch import Dispatch


class EventGauges(Collector):
    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch

    def collect(self) -> Iterator[Metric]:
        running = GaugeMetricFamily(
            "toolgate_invocations_running", "Invocations that run in this process."
        )
        running.add_metric((), self._dispatch.running)
        yield running
        for name, text, counted in (
            ("outcomes", "Deliveries that ended in this process.", self._dispatch.outcomes),
            ("swept", "Leases and deadlines that this process found over.", self._dispatch.swept),
        ):
            family = CounterMetricFamily(f"toolgate_invocations_{name}", text, labels=("kind",))
            for kind, count in sorted(counted.items()):
                family.add_metric((kind,), count)
            yield family
