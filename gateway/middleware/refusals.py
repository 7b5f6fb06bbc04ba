"""How often who was refused: by the limit, never by who it was."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


class RefusalCounts(Collector):
    def __init__(self) -> None:
        self._count: Counter[str] = Counter()

    def collect(self) -> Iterator[Metric]:
        total = CounterMetricFamily(
            "toolgate_refusals", "What was refused, by the limit.", labels=("limit",)
        )
        for limit, count in list(self._count.items()):
            total.add_metric((limit,), count)
        yield total

    def add(self, limit: str) -> None:
        """`limit` is the name of a setting: there are few."""
        self._count[limit] += 1
