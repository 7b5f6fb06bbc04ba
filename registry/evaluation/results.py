"""What an evaluation found. Pure. All qualities are per cent, all times milliseconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from registry.evaluation.compare import SEED, Interval, Sampled, macro, sampled
from registry.evaluation.metrics import METRICS, scores
from registry.evaluation.sets import RelevantTools

BASELINE = "bm25+rrf"

Found = Sequence[Sequence[str]]  # of each request, the tools


@dataclass(frozen=True, slots=True)
class Measured:
    """One set, or the mean of several. Columns: the METRICS of each mode, one after the other."""

    name: str
    modes: tuple[str, ...]
    sample: Sampled

    def interval(self, mode: str, metric: str, minus: str | None = None) -> Interval:
        """Of a mode, or of what it has more than the mode `minus`."""
        other = None if minus is None else self._column(minus, metric)
        return self.sample.interval(self._column(mode, metric), other)

    def only(self, modes: Sequence[str]) -> Sampled:
        return self.sample.only([self._column(one, metric) for one in modes for metric in METRICS])

    def _column(self, mode: str, metric: str) -> int:
        return self.modes.index(mode) * len(METRICS) + METRICS.index(metric)


@dataclass(frozen=True, slots=True)
class SetResult:
    """What was found for one set of requests."""

    quality: Measured
    tools: int
    requests: int
    unknown: Mapping[str, Sequence[str]]  # tools that requests want and nobody has: who wants them
    encode_ms: Sequence[float]
    search_ms: Mapping[str, Sequence[float]]  # by mode
    paths: Mapping[str, Mapping[str, int]]
    notes: Mapping[str, Mapping[str, int]]
    model: str | None


def measured(
    name: str, found: Mapping[str, Found], wanted: Sequence[RelevantTools], number: int = 0
) -> Measured:
    """`number`: of the set; each draws its own samples."""
    columns = [
        [
            scores(answer, want.gold, want.slots)
            for answer, want in zip(answers, wanted, strict=True)
        ]
        for answers in found.values()
    ]
    return Measured(name, tuple(found), sampled(100 * np.hstack(columns), SEED + number))


def mean_of(sets: Sequence[Measured]) -> Measured:
    """Of the modes that all of them have."""
    modes = tuple(one for one in sets[0].modes if all(one in other.modes for other in sets))
    return Measured(f"mean of {len(sets)}", modes, macro([one.only(modes) for one in sets]))
