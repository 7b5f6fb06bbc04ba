"""What a gateway has and is, as gauges; what its parts count, they show themselves."""

from collections.abc import Callable

from gateway.admin.health import Health
from gateway.app.federation import Federation
from gateway.app.list_gauges import ListGauges
from gateway.app.shared import Shared
from gateway.middleware.telemetry import Metrics
from gateway.upstreams.mcp.gauges import ServerGauges
from registry.catalog.catalog import Catalog
from registry.catalog.feed import FeedState


def show(
    metrics: Metrics,
    catalog: Callable[[], Catalog],
    shared: Shared,
    federation: Federation,
    state: FeedState,
    health: Health,
) -> None:
    """`catalog` gives that of the default tenant."""
    metrics.registry.register(ServerGauges(federation.servers))
    metrics.registry.register(ListGauges(catalog))
    sessions, hub, parking = shared.sessions, shared.hub, federation.parking
    gauges: list[tuple[str, str, Callable[[], float]]] = [
        ("toolgate_sessions", "Open sessions.", lambda: len(sessions)),
        ("toolgate_streams", "Open server-to-client streams.", lambda: hub.streams),
        ("toolgate_tools", "Tools in the catalog of the default tenant.",
         lambda: len(catalog().tools)),
        ("toolgate_ready", "1 when requests are served.", lambda: health.ready),
        ("toolgate_database_up", "1 while the database answers.", lambda: state.database == "ok"),
        ("toolgate_parked_calls", "Calls that wait for an answer of their client.",
         lambda: len(parking)),
    ]  # fmt: skip
    for name, text, read in gauges:
        metrics.gauge(name, text, read)
