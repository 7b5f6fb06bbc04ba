"""Metrics of people's connections, as this process sees them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.connections.token_renewals import RenewalFailed, RenewalRefused


class ConnectionMetrics(Collector):
    """Counts by source, whose number is that of the settings; nothing names a person."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str]] = Counter()
        self._renewals: Counter[tuple[str, str]] = Counter()
        self.states: Mapping[tuple[str, str], int] = {}  # as they were counted last

    def count_request(self, source: str, reason: str) -> None:
        """Count a call whose person was asked to connect."""
        self._requests[source, reason] += 1

    @contextmanager
    def count_renewal(self, source: str) -> Iterator[None]:
        """Count the renewal that is asked for inside, by how it ends."""
        try:
            yield
        except RenewalRefused:
            self._renewals[source, "refused"] += 1
            raise
        except RenewalFailed:
            self._renewals[source, "failed"] += 1
            raise
        self._renewals[source, "renewed"] += 1

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "toolgate_connection_requests",
            "Calls that were answered by a link to connect an account, by reason.",
            labels=("source", "reason"),
        )
        renewals = CounterMetricFamily(
            "toolgate_connection_renewals",
            "Renewals of people's tokens by this process: renewed, refused (the person has to "
            "connect again), or failed (it is tried again).",
            labels=("source", "outcome"),
        )
        states = GaugeMetricFamily(
            "toolgate_connections",
            "Connections of people, in the database: ok, failing (the last renewal has failed), "
            "expired, or suspended. Counted every minute by each process.",
            labels=("source", "state"),
        )
        for family, counts in (
            (requests, self._requests), (renewals, self._renewals), (states, self.states)
        ):  # fmt: skip
            for labels, count in counts.items():
                family.add_metric(labels, count)
            yield family
