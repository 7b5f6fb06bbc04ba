"""How many examples a property is tested with."""

import os
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, cycle, islice, product
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")
LEAST = 15


def read_share(text: str) -> float:
    """PROPERTY_EXAMPLES as a number: `1` is all examples, an empty text an eighth of them."""
    try:
        share = float(text or 0.125)
    except ValueError:
        share = 0
    if not 0 < share <= 1:
        raise SystemExit(f"PROPERTY_EXAMPLES: {text!r}; expected a number above 0, at most 1")
    return share


SHARE = read_share(os.environ.get("PROPERTY_EXAMPLES", ""))
# Of what is drawn while tests are collected: the same in all workers, for which it is set here.
SEED = os.environ.setdefault("PROPERTY_SEED", str(random.getrandbits(32)))


def examples(count: int, least: int = LEAST) -> int:
    """An eighth of `count`, as the next run draws others; all before a release, which sets
    PROPERTY_EXAMPLES=1. (Variables with the prefix TOOLGATE_ are settings of the gateways that
    tests start.)"""
    return min(count, max(least, round(count * SHARE)))


def seeds(count: int) -> list[int]:
    """Seeds of a property whose examples take a second each: an eighth of `count` numbers, drawn at
    random; all before a release."""
    drawn = random.Random(f"{SEED} {count}").sample(range(count), max(1, round(count * SHARE)))
    return sorted(drawn)


def places(start: int = 0) -> Iterator[int]:
    """Places that a test tries until one is beyond the last, counted from `start`: each fourth,
    from one of the first four drawn at random; all before a release."""
    step = 1 if SHARE >= 1 else 4
    return count(start + random.randrange(step), step)


def sample(cases: Iterable[T], least: int = LEAST) -> list[T]:
    """As many of the cases as `examples` says, drawn at random: for a test of very many that are
    alike, or cost a second each (`least` is lower then). Its failures must name the case."""
    distinct = list(dict.fromkeys(cases))
    return random.sample(distinct, examples(len(distinct), least))


def draw_one(values: Sequence[T], name: str) -> Sequence[T]:
    """One of the values that are alike for a case of this name, drawn at random; all before a
    release. May choose the parameters of tests."""
    few = SHARE < 1 and len(values) > 1
    return [random.Random(f"{SEED} {name}").choice(values)] if few else values


def pairs(
    places: Iterable[S], values: Iterable[T], values_of_a_place: int = 1
) -> Iterator[tuple[S, T]]:
    """Each place with some values, and each value in a place, drawn at random: for a test that
    tries values at places. Each pair once before a release."""
    rows, columns = list(places), list(values)
    if SHARE >= 1:
        return product(rows, columns)
    rows *= values_of_a_place
    random.shuffle(rows)
    random.shuffle(columns)
    return islice(zip(cycle(rows), cycle(columns), strict=False), max(len(rows), len(columns)))
