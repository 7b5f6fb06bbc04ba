"""Metrics of the wing: of this process, since its start."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.wings.memory.memory_search import Recaller
from gateway.wings.memory.memory_store import MemoryStore
from gateway.wings.memory.retention import MemoryRetention


class MemoryGauges(Collector):
    def __init__(self, store: MemoryStore, recaller: Recaller, retention: MemoryRetention) -> None:
        self._store = store
        self._recaller = recaller
        self._retention = retention

    def collect(self) -> Iterator[Metric]:
        writes = CounterMetricFamily(
            "toolgate_memory_writes",
            "Memories that were given: added, or present already.",
            labels=("scope", "outcome"),
        )
        for labels, count in sorted(self._store.given.items()):
            writes.add_metric(labels, count)
        searches = CounterMetricFamily(
            "toolgate_memory_searches",
            "Searches of memories: found, nothing, or found by words only.",
            labels=("outcome",),
        )
        for outcome, count in sorted(self._recaller.outcomes.items()):
            searches.add_metric((outcome,), count)
        sessions = GaugeMetricFamily(
            "toolgate_memory_sessions_waiting", "Sessions that ended and wait for promotion."
        )
        sessions.add_metric((), self._retention.waiting_sessions)
        uses = GaugeMetricFamily(
            "toolgate_memory_uses_waiting", "Memories whose uses are not stored yet."
        )
        uses.add_metric((), self._retention.waiting_uses)
        yield from (writes, searches, sessions, uses)
