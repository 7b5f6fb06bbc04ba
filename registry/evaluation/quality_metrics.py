"""Results of an evaluation: metrics, confidence, thresholds. Pure.

Recall and completeness count the needed tools, each met by any of its alternatives: `slots`. NDCG
has binary gains over all of `gold`; its ideal has as many hits as fit (Järvelin and Kekäläinen
2002, with the discount 1 / log2(rank + 1)). MRR uses the first hit. All are from 0 to 1.

The bootstrap (Efron 1979): the same requests resampled with replacement, many times; between the
2.5th and the 97.5th percentile of the means lies the 95 % interval. All columns are resampled
together, so the interval of a difference is the paired one.

Pure. All qualities are per cent, all times milliseconds.
"""

import math
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from registry.evaluation.improvements import ToolImprovement
from registry.evaluation.request_sets import RelevantTools

if TYPE_CHECKING:  # numpy takes a tenth of a second and 15 MB, in gateways that evaluate nothing
    import numpy as np
    from numpy.typing import NDArray

DEPTH = 10  # number of results that are scored
METRICS = ("recall@1", "recall@5", "recall@10", "ndcg@10", "completeness@10", "mrr@10")


def scores(
    ids: Sequence[str], gold: Set[str], slots: Sequence[Collection[str]]
) -> tuple[float, ...]:
    """One number for each of METRICS. `ids`: ids of tools, best first."""
    return (
        recall(ids, slots, 1),
        recall(ids, slots, 5),
        recall(ids, slots, 10),
        ndcg(ids, gold),
        float(recall(ids, slots, DEPTH) == 1),
        reciprocal_rank(ids, gold),
    )


def recall(ids: Sequence[str], slots: Sequence[Collection[str]], depth: int) -> float:
    """The share of `slots` with a tool among the first `depth`."""
    first = set(ids[:depth])
    return sum(not first.isdisjoint(slot) for slot in slots) / len(slots)


def ndcg(ids: Sequence[str], gold: Set[str], depth: int = DEPTH) -> float:
    gained = sum(_discount(rank) for rank, answer in enumerate(ids[:depth], 1) if answer in gold)
    return gained / sum(_discount(rank) for rank in range(1, min(depth, len(gold)) + 1))


def reciprocal_rank(ids: Sequence[str], gold: Set[str], depth: int = DEPTH) -> float:
    """The reciprocal rank; 0 when none of `gold` is among the first `depth`."""
    return next((1 / rank for rank, answer in enumerate(ids[:depth], 1) if answer in gold), 0.0)


def _discount(rank: int) -> float:
    return 1 / math.log2(rank + 1)


ENOUGH = 30  # requests: with fewer, the bootstrap overstates confidence
RESAMPLES = 2000
SEED = 6  # fixed seed: reproducible intervals
_PERCENTILES = (2.5, 97.5)

Values: TypeAlias = "NDArray[np.float64]"


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and the 95 % interval around it."""

    mean: float
    low: float
    high: float
    requests: int  # sample size; with one there is no interval

    @property
    def enough(self) -> bool:
        return self.requests >= ENOUGH

    @property
    def certain(self) -> bool:
        """Whether a difference is significant: from enough requests, with 0 outside its
        interval."""
        return self.enough and (self.low > 0 or self.high < 0)


@dataclass(frozen=True, slots=True)
class BootstrapMeans:
    """The means of some columns, and those of each resample."""

    means: Values  # (columns,)
    draws: Values  # (resamples, columns)
    requests: int  # of several sets: of the smallest

    def interval(self, column: int, minus: int | None = None) -> Interval:
        """The interval of a column, or of its lead over another one."""
        import numpy as np

        mean, draws = self.means[column], self.draws[:, column]
        if minus is not None:
            mean, draws = mean - self.means[minus], draws - self.draws[:, minus]
        low, high = np.percentile(draws, _PERCENTILES)
        return Interval(float(mean), float(low), float(high), self.requests)

    def only(self, columns: Sequence[int]) -> "BootstrapMeans":
        return BootstrapMeans(self.means[columns], self.draws[:, columns], self.requests)


def bootstrap(values: Values, seed: int = SEED, resamples: int = RESAMPLES) -> BootstrapMeans:
    """Bootstrap of `values`: one row for each request, shape (requests, columns), at least one
    row."""
    import numpy as np

    count = len(values)
    generator = np.random.default_rng(seed)
    draws = np.empty((resamples, values.shape[1]))
    for number in range(resamples):  # a matrix of all weights would take 8 bytes x 2000 x requests
        weights = np.bincount(generator.integers(count, size=count), minlength=count)
        draws[number] = weights @ values / count
    return BootstrapMeans(values.mean(axis=0), draws, count)


def macro(sets: Sequence[BootstrapMeans]) -> BootstrapMeans:
    """The macro average: each set weighs the same."""
    import numpy as np

    means = np.mean([sample.means for sample in sets], axis=0)
    draws = np.mean([sample.draws for sample in sets], axis=0)
    return BootstrapMeans(means, draws, min(sample.requests for sample in sets))


def percentiles(values: Sequence[float]) -> Mapping[str, float]:
    """p50, p95 and p99; empty for no values."""
    import numpy as np

    if not values:
        return {}
    values_ = np.percentile(np.asarray(values), (50, 95, 99))
    return dict(zip(("p50", "p95", "p99"), map(float, values_), strict=True))


BASELINE = "bm25+rrf"

Results = Sequence[Sequence[str]]  # tools found, by request


@dataclass(frozen=True, slots=True)
class SetMetrics:
    """Metrics of one set, or the mean of several. Columns: the METRICS of each mode, one after the
    other."""

    name: str
    modes: tuple[str, ...]
    sample: BootstrapMeans

    def interval(self, mode: str, metric: str, minus: str | None = None) -> Interval:
        """The interval of a mode, or of its lead over the mode `minus`."""
        subtracted = None if minus is None else self._column(minus, metric)
        return self.sample.interval(self._column(mode, metric), subtracted)

    def only(self, modes: Sequence[str]) -> BootstrapMeans:
        return self.sample.only(
            [self._column(mode, metric) for mode in modes for metric in METRICS]
        )

    def _column(self, mode: str, metric: str) -> int:
        return self.modes.index(mode) * len(METRICS) + METRICS.index(metric)


@dataclass(frozen=True, slots=True)
class SetResult:
    """The results of one set of requests."""

    quality: SetMetrics
    tools: int
    requests: int
    unknown: Mapping[str, Sequence[str]]  # relevant tools that do not exist: ids of their requests
    encode_ms: Sequence[float]
    search_ms: Mapping[str, Sequence[float]]  # by mode
    paths: Mapping[str, Mapping[str, int]]
    notes: Mapping[str, Mapping[str, int]]
    model: str | None
    recalls: Mapping[str, Sequence[float]] = field(default_factory=dict)  # by mode: of 1 to DEPTH
    improvements: Sequence[ToolImprovement] = ()  # of the first mode
    fits: Sequence[tuple[float, bool]] = ()  # see `registry.evaluation.curves.believed`


def recalls(answers: Results, relevant: Sequence[RelevantTools]) -> list[list[float]]:
    """Recall of the first 1 to DEPTH tools, by request, from 0 to 1."""
    return [
        [recall(tools, want.slots, depth) for depth in range(1, DEPTH + 1)]
        for tools, want in zip(answers, relevant, strict=True)
    ]


def recall_curve(answers: Results, relevant: Sequence[RelevantTools]) -> list[float]:
    """Mean recall of the first 1 to DEPTH tools, per cent."""
    values = recalls(answers, relevant)
    return [100 * sum(of_depth) / len(values) for of_depth in zip(*values, strict=True)]


def measure(
    name: str, by_mode: Mapping[str, Results], relevant: Sequence[RelevantTools], number: int = 0
) -> SetMetrics:
    """Metrics of a set; `number` is its index, so that each draws its own samples."""
    import numpy as np

    columns = [
        [
            scores(answer, want.gold, want.slots)
            for answer, want in zip(answers, relevant, strict=True)
        ]
        for answers in by_mode.values()
    ]
    return SetMetrics(name, tuple(by_mode), bootstrap(100 * np.hstack(columns), SEED + number))


def mean_of(sets: Sequence[SetMetrics]) -> SetMetrics:
    """The mean over results, for the modes common to all."""
    modes = tuple(
        measured
        for measured in sets[0].modes
        if all(measured in measured_set.modes for measured_set in sets)
    )
    return SetMetrics(
        f"mean of {len(sets)}", modes, macro([measured.only(modes) for measured in sets])
    )


@dataclass(frozen=True, slots=True)
class Threshold:
    metric: str
    percent: float
    mode: str | None = None  # None: the first one that is evaluated

    @classmethod
    def parse(cls, text: str) -> "Threshold":
        """A threshold from text. Raises ValueError with the expected form."""
        left, _, number = text.partition("=")
        mode, _, metric = left.strip().rpartition(":")
        if metric not in METRICS:
            raise ValueError(f"{metric!r} is no measure; there are {', '.join(METRICS)}")
        try:
            percent = float(number)
        except ValueError:
            percent = -1.0
        if not 0 <= percent <= 100:
            raise ValueError(f"{number!r} is no number from 0 to 100, as in ndcg@10=60")
        return cls(metric, percent, mode or None)


def missed_thresholds(thresholds: Sequence[Threshold], quality: SetMetrics) -> list[str]:
    """A sentence for each threshold that is missed."""
    sentences = []
    for threshold in thresholds:
        mode = threshold.mode or quality.modes[0]
        mean = quality.interval(mode, threshold.metric).mean
        if mean < threshold.percent:
            sentences.append(
                f"{threshold.metric} of {mode} on {quality.name} is {mean:.1f}, "
                f"less than {threshold.percent:g}"
            )
    return sentences
