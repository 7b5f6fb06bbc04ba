"""What lists of tools cost and leave out, for Prometheus."""

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from registry.catalog.catalog import Catalog
from registry.catalog.lists import ToolList

_GAUGES: tuple[tuple[str, str, Callable[[ToolList], float]], ...] = (
    ("toolgate_list_tokens", "Tokens (characters / 4) of all tools as a profile lists them.",
     lambda one: one.tokens),
    ("toolgate_list_shortened", "Tools that a profile lists shortened.",
     lambda one: len(one.shortened)),
    ("toolgate_list_left_out", "Tools that a profile cannot list.", lambda one: len(one.left_out)),
    ("toolgate_list_level", "How often the budget of a tool was halved to fit all of them.",
     lambda one: one.level),
)  # fmt: skip


class ListGauges(Collector):
    """Of the lists of one tenant that somebody asked for."""

    def __init__(self, catalog: Callable[[], Catalog]) -> None:
        self._catalog = catalog

    def collect(self) -> Iterator[Metric]:
        lists = self._catalog().tool_lists
        for name, text, read in _GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=("profile",))
            for one in lists:
                gauge.add_metric((one.chosen.name,), read(one))
            yield gauge
