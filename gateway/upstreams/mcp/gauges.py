"""What operators see of the MCP servers behind the gateway, for Prometheus."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.upstreams.mcp.servers import Servers


class ServerGauges(Collector):
    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    def collect(self) -> Iterator[Metric]:
        labels = ("source",)
        up = GaugeMetricFamily(
            "toolgate_mcp_server_up", "1 while the MCP server answers.", labels=labels
        )
        sessions = GaugeMetricFamily(
            "toolgate_mcp_sessions", "Open sessions at the MCP server.", labels=labels
        )
        requests = CounterMetricFamily(
            "toolgate_mcp_requests", "Requests passed on to the MCP server.", labels=labels
        )
        failures = CounterMetricFamily(
            "toolgate_mcp_failures",
            "Requests that the MCP server gave no usable answer to.",
            labels=labels,
        )
        for server in self._servers:
            name = (server.source.name,)
            up.add_metric(name, server.watcher.failure is None)
            sessions.add_metric(name, len(server.pool))
            requests.add_metric(name, server.requests)
            failures.add_metric(name, server.failures)
        yield from (up, sessions, requests, failures)
