"""How the growth of costs is judged, and that pictures are well-formed."""

import math
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from benchmarks.curve import Curve, svg

SIZES = (10, 100, 1000, 10_000)


def curve(cost: Callable[[int], float], *, linear: bool = False) -> Curve:
    return Curve("a <call>", "tools", "µs", tuple((size, cost(size)) for size in SIZES), linear)


@pytest.mark.parametrize(
    ("cost", "exponent"),
    [(lambda _: 7.0, 0), (lambda n: 3 * n**0.5, 0.5), (lambda n: 2.0 * n, 1), (lambda n: n**2, 2)],
)
def test_the_exponent_is_that_of_the_cost(cost: Callable[[int], float], exponent: float) -> None:
    assert curve(cost).exponent == pytest.approx(exponent, abs=1e-9)


def test_nothing_but_whole_lists_may_grow_faster_than_the_logarithm() -> None:
    assert curve(lambda _: 100.0).holds
    assert curve(lambda n: 50 * math.log(n)).holds
    assert not curve(lambda n: n**0.5).holds
    assert curve(lambda n: 4.0 * n, linear=True).holds
    assert not curve(lambda n: n**1.5, linear=True).holds


def test_the_picture_has_every_point_and_the_exponent() -> None:
    picture = ElementTree.fromstring(svg(curve(lambda n: n**0.5)))
    texts = " ".join(picture.itertext())
    assert "exponent 0.50" in texts
    assert "10,000" in texts
    assert sum(one.tag.endswith("circle") for one in picture.iter()) == len(SIZES)
