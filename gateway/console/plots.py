"""Plots of evaluations, from values to lines: what templates draw as SVG. Pure.

Axes begin at 0 and end at all there can be (100 %, 1); what is measured has its 95 % interval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LEFT, RIGHT, TOP, BOTTOM = 68, 76, 12, 44  # margins, with room for labels
WIDTH, HEIGHT = 560, 280
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
    for curve, label_y in zip(curves, _label_places(curves), strict=True):
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


def _label_places(curves: Sequence[Mapping[str, Any]]) -> list[float]:
    """Heights of the labels at the ends of lines, moved apart."""
    wanted = sorted(
        (_y(curve["points"][-1]["recall"] / 100), at) for at, curve in enumerate(curves)
    )
    places, last = [0.0] * len(curves), 0.0
    for y, at in wanted:
        last = max(y, last + SHIFT)
        places[at] = last
    return places
