"""A curve of costs: how it grows, and its picture, both axes logarithmic."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

TOLERANCE = 1.3  # growth beyond that of the bound, for noise
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 560, 340, 70, 50, 40, 20


@dataclass(frozen=True, slots=True)
class Curve:
    """Costs by size. Linear ones may grow as the size does, such as those of a whole list."""

    name: str
    size: str  # what there are more of
    unit: str
    points: tuple[tuple[int, float], ...]
    linear: bool = False

    @property
    def exponent(self) -> float:
        """b of the fitted cost = a * size ** b."""
        xs = [math.log(size) for size, _ in self.points]
        ys = [math.log(cost) for _, cost in self.points]
        x, y = sum(xs) / len(xs), sum(ys) / len(ys)
        spread = sum((value - x) ** 2 for value in xs)
        return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / spread

    @property
    def growth(self) -> float:
        return self.points[-1][1] / self.points[0][1]

    @property
    def bound(self) -> float:
        """The growth of log n from the smallest size to the largest; or of n."""
        first, last = self.points[0][0], self.points[-1][0]
        return last / first if self.linear else math.log(last + math.e) / math.log(first + math.e)

    @property
    def holds(self) -> bool:
        return self.growth <= self.bound * TOLERANCE


def svg(curve: Curve) -> str:
    """The picture of a curve, with its exponent."""
    across = _scale([size for size, _ in curve.points], LEFT, WIDTH - RIGHT)
    up = _scale([cost for _, cost in curve.points], HEIGHT - BOTTOM, TOP)
    places = [(across.place(size), up.place(cost)) for size, cost in curve.points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    title = f"{curve.name}: {curve.unit} by {curve.size}, exponent {curve.exponent:.2f}"
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
                ' font-family="sans-serif" font-size="12">'
            ),
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            f'<text x="{LEFT}" y="22" font-size="14">{escape(title)}</text>',
            *_grid(across, up),
            f'<polyline points="{line}" fill="none" stroke="#0b61a4" stroke-width="2"/>',
            *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#0b61a4"/>' for x, y in places),
            "</svg>\n",
        ]
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    """A logarithmic axis of whole decades."""

    first: int
    last: int
    place: Callable[[float], float]

    def ticks(self) -> Iterator[tuple[str, float]]:
        for power in range(self.first, self.last + 1):
            yield f"{10.0**power:,g}", self.place(10.0**power)


def _scale(values: Sequence[float], begin: float, end: float) -> _Scale:
    first = math.floor(math.log10(min(values)))
    last = max(math.ceil(math.log10(max(values))), first + 1)
    step = (end - begin) / (last - first)
    return _Scale(first, last, lambda value: begin + (math.log10(value) - first) * step)


def _grid(across: _Scale, up: _Scale) -> Iterator[str]:
    line = '<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="#ddd"/>'
    text = '<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>'
    for name, x in across.ticks():
        yield line.format(x, TOP, x, HEIGHT - BOTTOM)
        yield text.format(x, HEIGHT - BOTTOM + 18, "middle", name)
    for name, y in up.ticks():
        yield line.format(LEFT, y, WIDTH - RIGHT, y)
        yield text.format(LEFT - 6, y + 4, "end", name)
