"""Histograms in plain numbers, for metrics: a single thread writes, without a lock. (Instruments of
`prometheus_client` cost five times as much on every message.)"""

import time
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

from gateway.telemetry.traces import SpanContext

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Bounds for times of messages and calls."""

Bucket = tuple[str, float] | tuple[str, float, Exemplar]
"""Upper bound, the number of values up to it, and an example of those above the bound before."""


class Histogram:
    """Counts of values by the upper bounds of buckets, with their sum."""

    __slots__ = ("bounds", "buckets", "count", "exemplars", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.count = 0
        self.sum = 0.0
        self.buckets = [0] * (len(bounds) + 1)
        # The last example of a bucket, by its number: value, span, and seconds since 1970.
        self.exemplars: dict[int, tuple[float, SpanContext, float]] = {}

    def add(self, value: float) -> None:
        self.count += 1
        self.sum += value
        self.buckets[bisect_left(self.bounds, value)] += 1

    def exemplify(self, value: float, span: SpanContext) -> None:
        """Name a span as an example of that value."""
        self.exemplars[bisect_left(self.bounds, value)] = (value, span, time.time())

    def join(self, histogram: "Histogram") -> None:
        """Add what another one with the same bounds counted."""
        self.count += histogram.count
        self.sum += histogram.sum
        self.exemplars |= histogram.exemplars
        for number, count in enumerate(histogram.buckets):
            self.buckets[number] += count

    def cumulative(self, numbers: Sequence[int] | None = None) -> Sequence[Bucket]:
        """The buckets as Prometheus has them: all, or those numbered in `numbers` and the last."""
        last, first = len(self.bounds), 0
        running = list(accumulate(self.buckets))
        buckets: list[Bucket] = []
        for number in (*(range(last) if numbers is None else numbers), last):
            text = "+Inf" if number == last else floatToGoString(self.bounds[number])
            within = [place for place in range(first, number + 1) if place in self.exemplars]
            bucket = (text, running[number])
            buckets.append((*bucket, self._exemplar(within[-1])) if within else bucket)
            first = number + 1
        return buckets

    def _exemplar(self, number: int) -> Exemplar:
        value, span, at = self.exemplars[number]
        return Exemplar(span.ids, value, at)
