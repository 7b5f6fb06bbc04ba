"""Recall over the number of results, and how far the fit of a search can be believed. Pure.

Intervals of recall are of the bootstrap, those of shares Wilson's (1927): both at 95 %.
"""

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

from registry.evaluation.quality_metrics import (
    DEPTH,
    Results,
    bootstrap,
    percentiles,
    recalls,
    reciprocal_rank,
)
from registry.evaluation.request_sets import RelevantTools

BINS = 5  # of the fit, from 0 to 1
Z = 1.96  # standard deviations of a 95 % interval


class CurvePoint(Struct, frozen=True):
    """Recall among the first `k` results, per cent, with its interval."""

    k: int
    recall: float
    low: float
    high: float


class ModeCurve(Struct, frozen=True):
    """Recall curve of one search mode. `mrr`: mean reciprocal rank, per cent."""

    mode: str
    points: tuple[CurvePoint, ...]
    mrr: float
    p50_ms: float
    p95_ms: float


class FitBin(Struct, frozen=True):
    """Requests whose fit was from `low` to `high`: the mean of what was told, and the share of them
    with a relevant tool among the first ten, with its interval; all from 0 to 1."""

    low: float
    high: float
    requests: int
    told: float
    found: float
    found_low: float
    found_high: float


def curve(
    mode: str, answers: Results, relevant: Sequence[RelevantTools], took_ms: Sequence[float]
) -> ModeCurve:
    """The curve of a mode. `answers`: ids of tools by request, best first."""
    import numpy as np  # see `quality_metrics`

    sample = bootstrap(100 * np.array(recalls(answers, relevant)))
    points = []
    for k in range(1, DEPTH + 1):
        interval = sample.interval(k - 1)
        points.append(
            CurvePoint(k, round(interval.mean, 1), round(interval.low, 1), round(interval.high, 1))
        )
    ranks = [
        reciprocal_rank(answer, want.gold) for answer, want in zip(answers, relevant, strict=True)
    ]
    mrr = sum(ranks) / len(ranks)
    times = percentiles(took_ms)
    return ModeCurve(
        mode, tuple(points), round(100 * mrr, 1), round(times["p50"], 1), round(times["p95"], 1)
    )


def calibration_pairs(
    fits: Sequence[float | None], answers: Results, relevant: Sequence[RelevantTools]
) -> list[tuple[float, bool]]:
    """Of each search that has a fit: the fit, and whether a relevant tool is among the first ten.

    The fit is the probability that one of the tools found is what was asked for, not that the best
    of them is.
    """
    return [
        (fit, not want.gold.isdisjoint(answer[:DEPTH]))
        for fit, answer, want in zip(fits, answers, relevant, strict=True)
        if fit is not None
    ]


def calibration(fits: Iterable[tuple[float, bool]]) -> tuple[FitBin, ...]:
    """Mean fit and measured share of successes, in each range of fits that has searches; see
    `calibration_pairs`."""
    ranges: dict[int, list[tuple[float, bool]]] = {}
    for pair in fits:
        ranges.setdefault(min(int(pair[0] * BINS), BINS - 1), []).append(pair)
    return tuple(_bin(at, entries) for at, entries in sorted(ranges.items()))


def _bin(at: int, entries: Sequence[tuple[float, bool]]) -> FitBin:
    count = len(entries)
    share = sum(right for _, right in entries) / count
    low, high = _wilson(share, count)
    mean_fit = sum(fit for fit, _ in entries) / count
    return FitBin(
        at / BINS, (at + 1) / BINS, count, round(mean_fit, 3), round(share, 3), round(low, 3),
        round(high, 3),
    )  # fmt: skip


def _wilson(share: float, count: int) -> tuple[float, float]:
    """The interval of a share."""
    middle = (share + Z * Z / (2 * count)) / (1 + Z * Z / count)
    spread = Z * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    spread /= 1 + Z * Z / count
    return max(0.0, middle - spread), min(1.0, middle + spread)
