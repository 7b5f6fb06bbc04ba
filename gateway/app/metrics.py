"""Gauges of a gateway and of its lists, for Prometheus."""

from collections.abc import Callable, Iterator
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.admin.health import Health
from gateway.app.shared_state import SharedState
from gateway.app.upstreams import Federation
from gateway.middleware.message_metrics import Metrics
from gateway.upstreams.mcp.server_set import ServerGauges
from registry.catalog.catalog import Catalog
from registry.catalog.feed import FeedState
from registry.catalog.tool_lists import ToolList

_GAUGES: tuple[tuple[str, str, Callable[[ToolList], float]], ...] = (
    ("toolgate_list_tokens", "Tokens (characters / 4) of all tools as a profile lists them.",
     lambda tools: tools.tokens),
    ("toolgate_list_shortened", "Tools that a profile lists shortened.",
     lambda tools: len(tools.shortened)),
    ("toolgate_list_left_out", "Tools that a profile cannot list.",
     lambda tools: len(tools.left_out)),
    ("toolgate_list_level", "How often the budget of a tool was halved to fit all of them.",
     lambda tools: tools.level),
)  # fmt: skip


class ListGauges(Collector):
    """Gauges of a tenant's lists that clients have requested."""

    def __init__(self, catalog: Callable[[], Catalog]) -> None:
        self._catalog = catalog

    def collect(self) -> Iterator[Metric]:
        lists = self._catalog().lists.tool_lists
        for name, text, read_value in _GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=("profile",))
            for tool_list in lists:
                gauge.add_metric((tool_list.profile.name,), read_value(tool_list))
            yield gauge


def register_gauges(
    metrics: Metrics,
    *,
    catalog: Callable[[], Catalog],
    shared_state: SharedState,
    federation: Federation,
    state: FeedState,
    health: Health,
    approvals: Callable[[], int],
    certificate: str,
) -> None:
    """Register the gauges. `catalog` returns that of the default tenant."""
    metrics.registry.register(ServerGauges(federation.servers))
    metrics.registry.register(ListGauges(catalog))
    sessions, hub, parking = shared_state.sessions, shared_state.hub, federation.parking
    gauges: list[tuple[str, str, Callable[[], float]]] = [
        ("toolgate_sessions", "Open sessions.", lambda: len(sessions)),
        ("toolgate_streams", "Open server-to-client streams.", lambda: hub.streams),
        ("toolgate_tools", "Tools in the catalog of the default tenant.",
         lambda: len(catalog().tools)),
        ("toolgate_ready", "1 when requests are served.", lambda: health.ready),
        ("toolgate_database_up", "1 while the database answers.", lambda: state.database == "ok"),
        ("toolgate_parked_calls", "Calls that wait for an answer of their client.",
         lambda: len(parking)),
        ("toolgate_approvals_waiting",
         "Calls that wait for an approval, in the database. Counted every minute by each process.",
         approvals),
    ]  # fmt: skip
    if certificate:
        gauges.append((
            "toolgate_certificate_end_seconds",
            "End of the certificate of server.tls, in seconds since the epoch; 0: unreadable.",
            lambda: _end_s(Path(certificate)),
        ))  # fmt: skip
    for name, text, read_value in gauges:
        metrics.gauge(name, text, read_value)


def _end_s(certificate: Path) -> float:
    """The file of now: it may have been renewed."""
    from gateway.http_client.certificates import certificate_end  # not where there is no TLS

    try:
        return certificate_end(certificate).timestamp()
    except (OSError, ValueError):
        return 0.0
