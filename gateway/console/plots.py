"""Plots of evaluations and costs, from values to lines: what templates draw as SVG. Pure.

Axes begin at 0. Those of evaluations end at all there can be (100 %, 1), and what is measured has
its 95 % interval.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from math import floor, log10
from typing import Any

LEFT, RIGHT, TOP, BOTTOM = 68, 76, 12, 44  # margins, with room for labels
WIDTH, HEIGHT = 560, 280
DAY_TICKS = 6
SHIFT = 14  # between labels of lines that end at nearly the same height


@dataclass(frozen=True, slots=True)
class PlotTick:
    at: float  # pixels
    label: str


@dataclass(frozen=True, slots=True)
class PlotLine:
    """A line with its interval: a band around it, and a mark at each value."""

    name: str
    path: str
    band: str
    marks: tuple[tuple[float, float, str], ...]  # x, y, what the value is
    label_y: float


@dataclass(frozen=True, slots=True)
class PlotBar:
    """A measured share over what was told, with its interval as a whisker."""

    x: float
    y: float
    low: float
    high: float
    label: str


@dataclass(frozen=True, slots=True)
class Plot:
    x_title: str
    y_title: str
    x_ticks: tuple[PlotTick, ...]
    y_ticks: tuple[PlotTick, ...]
    lines: tuple[PlotLine, ...] = ()
    bars: tuple[PlotBar, ...] = ()
    diagonal: str = ""
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def _x(share: float) -> float:
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def _y(share: float) -> float:
    return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)


def recall_plot(curves: Sequence[Mapping[str, Any]], x_title: str, y_title: str) -> Plot:
    """Recall in per cent over the number of results, a line for each mode."""
    most = max((curve["points"][-1]["k"] for curve in curves), default=10)

    def x_of(k: int) -> float:
        return _x((k - 1) / max(most - 1, 1))

    lines: list[PlotLine] = []
    ends = [_y(curve["points"][-1]["recall"] / 100) for curve in curves]
    for curve, label_y in zip(curves, _label_places(ends), strict=True):
        points = [(x_of(p["k"]), _y(p["recall"] / 100), p) for p in curve["points"]]
        upper = [f"{x} {_y(p['high'] / 100)}" for x, _, p in points]
        lower = [f"{x} {_y(p['low'] / 100)}" for x, _, p in reversed(points)]
        marks = tuple(
            (x, y, f"{curve['mode']}, {p['k']}: {p['recall']:.1f} %") for x, y, p in points
        )
        path = "M" + "L".join(f"{x} {y}" for x, y, _ in points)
        lines.append(
            PlotLine(curve["mode"], path, "M" + "L".join([*upper, *lower]) + "Z", marks, label_y)
        )
    return Plot(
        x_title,
        y_title,
        tuple(PlotTick(x_of(k), str(k)) for k in range(1, most + 1)),
        tuple(PlotTick(_y(share / 100), f"{share} %") for share in range(0, 101, 20)),
        lines=tuple(lines),
    )


def calibration_plot(bins: Sequence[Mapping[str, Any]], x_title: str, y_title: str) -> Plot:
    """Plot of the mean fit against the measured share, from 0 to 1; on the diagonal the two are
    the same."""
    ticks = [share / 5 for share in range(6)]
    return Plot(
        x_title,
        y_title,
        tuple(PlotTick(_x(tick), f"{tick:.1f}") for tick in ticks),
        tuple(PlotTick(_y(tick), f"{tick:.1f}") for tick in ticks),
        bars=tuple(
            PlotBar(
                _x(bucket["told"]),
                _y(bucket["found"]),
                _y(bucket["found_low"]),
                _y(bucket["found_high"]),
                str(bucket["requests"]),
            )
            for bucket in bins
        ),
        diagonal=f"M{_x(0)} {_y(0)}L{_x(1)} {_y(1)}",
    )


def days_plot(
    rows: Mapping[str, Any],
    series: Mapping[str, Callable[[Any], float]],
    first: str,
    last: str,
    *,
    titles: tuple[str, str],
) -> Plot:
    """Values over the days from `first` to `last`, a line for each of `series` by its name; a day
    without a row has none of it. `titles`: of the axes."""
    begin, end = date.fromisoformat(first), date.fromisoformat(last)
    days = [(begin + timedelta(days=at)).isoformat() for at in range((end - begin).days + 1)]
    values = {
        name: [value_of(rows[day]) if day in rows else 0.0 for day in days]
        for name, value_of in series.items()
    }
    top = _round_up(max((max(line) for line in values.values()), default=0.0))
    places = [_x(at / max(len(days) - 1, 1)) for at in range(len(days))]
    labels_y = _label_places([_y(line[-1] / top) for line in values.values()])
    lines = []
    for (name, line), label_y in zip(values.items(), labels_y, strict=True):
        points = [(x, _y(value / top)) for x, value in zip(places, line, strict=True)]
        marks = tuple(
            (x, y, f"{name}, {day}: {value:,.10g}")
            for (x, y), day, value in zip(points, days, line, strict=True)
        )
        path = "M" + "L".join(f"{x} {y}" for x, y in points)
        lines.append(PlotLine(name, path, "", marks, label_y))
    step = -(-len(days) // DAY_TICKS)
    return Plot(
        *titles,
        tuple(PlotTick(places[at], days[at][5:]) for at in range(0, len(days), step)),
        tuple(PlotTick(_y(share / 4), short_number(top * share / 4)) for share in range(5)),
        lines=tuple(lines),
    )


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 10 times a power of ten: its quarters are round, too."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 4, 10, 20) if step * power >= value)


def short_number(value: float) -> str:
    """As in 1.5M, where there is little room."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def _label_places(ends: Sequence[float]) -> list[float]:
    """Heights of the labels of lines that end at these heights, moved apart."""
    heights = sorted((y, at) for at, y in enumerate(ends))
    places, last = [0.0] * len(ends), 0.0
    for y, at in heights:
        last = max(y, last + SHIFT)
        places[at] = last
    return places
