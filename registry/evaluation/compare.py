"""How sure a mean is, and whether one mode is better than another. Pure.

The bootstrap (Efron 1979): the same requests drawn again with replacement, many times; between the
2.5th and the 97.5th percentile of the means lies the 95 % interval. All columns are drawn together,
so the interval of a difference is that of the paired one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ENOUGH = 30  # requests: of fewer, the bootstrap takes chance for certainty
RESAMPLES = 2000
SEED = 6  # the same intervals in each run
_PERCENTILES = (2.5, 97.5)

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and the 95 % interval around it."""

    mean: float
    low: float
    high: float
    requests: int  # that it is of; one has no interval

    @property
    def enough(self) -> bool:
        return self.requests >= ENOUGH

    @property
    def certain(self) -> bool:
        """Of a difference: it has a sign, and not by chance."""
        return self.enough and (self.low > 0 or self.high < 0)


@dataclass(frozen=True, slots=True)
class Sampled:
    """The means of some columns, and what they are in each resample."""

    means: Values  # (columns,)
    draws: Values  # (resamples, columns)
    requests: int  # of several sets: of the smallest

    def interval(self, column: int, minus: int | None = None) -> Interval:
        """Of a column, or of what it has more than another one."""
        mean, draws = self.means[column], self.draws[:, column]
        if minus is not None:
            mean, draws = mean - self.means[minus], draws - self.draws[:, minus]
        low, high = np.percentile(draws, _PERCENTILES)
        return Interval(float(mean), float(low), float(high), self.requests)

    def only(self, columns: Sequence[int]) -> "Sampled":
        return Sampled(self.means[columns], self.draws[:, columns], self.requests)


def sampled(values: Values, seed: int = SEED, resamples: int = RESAMPLES) -> Sampled:
    """`values`: one row for each request, shape (requests, columns), at least one row."""
    count = len(values)
    generator = np.random.default_rng(seed)
    draws = np.empty((resamples, values.shape[1]))
    for number in range(resamples):  # a matrix of all weights would take 8 bytes x 2000 x requests
        weights = np.bincount(generator.integers(count, size=count), minlength=count)
        draws[number] = weights @ values / count
    return Sampled(values.mean(axis=0), draws, count)


def macro(sets: Sequence[Sampled]) -> Sampled:
    """The mean over sets, each of which weighs the same."""
    means = np.mean([one.means for one in sets], axis=0)
    draws = np.mean([one.draws for one in sets], axis=0)
    return Sampled(means, draws, min(one.requests for one in sets))


def percentiles(values: Sequence[float]) -> Mapping[str, float]:
    """p50, p95 and p99; empty for no values."""
    if not values:
        return {}
    found = np.percentile(np.asarray(values), (50, 95, 99))
    return dict(zip(("p50", "p95", "p99"), map(float, found), strict=True))
