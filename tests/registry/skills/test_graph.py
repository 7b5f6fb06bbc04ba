"""Circles, orders and lengths of ways, on graphs as they come."""

import random
from itertools import pairwise

import pytest

from registry.skills.snapshot import cycle_through, dependency_order, longest_path


@pytest.mark.parametrize(
    ("edges", "way"),
    [
        ({}, None),
        ({"a": ["b"], "b": ["c"]}, None),
        ({"a": ["a"]}, ["a", "a"]),
        ({"a": ["b"], "b": ["a"]}, ["a", "b", "a"]),
        ({"a": ["x", "b"], "b": ["c"], "c": ["a"]}, ["a", "b", "c", "a"]),
        ({"a": ["b"], "b": ["c"], "c": ["b"]}, None),
    ],
    ids=["empty", "chain", "itself", "two", "three", "elsewhere"],
)
def test_a_cycle_is_found_from_its_members(edges, way) -> None:
    assert cycle_through(edges, "a") == way


def test_dependencies_come_first_and_once() -> None:
    edges = {"a": ["b", "c"], "b": ["d"], "c": ["d"]}
    assert dependency_order(edges, "a") == ["d", "b", "c", "a"]


def test_a_circle_that_is_there_already_ends() -> None:
    assert sorted(dependency_order({"a": ["b"], "b": ["a"]}, "a")) == ["a", "b"]


def test_the_longest_way_is_told() -> None:
    edges = {"a": ["b", "d"], "b": ["c"], "c": ["d"]}
    assert longest_path(edges, ["a", "d"]) == ["a", "b", "c", "d"]
    assert longest_path({}, []) == []


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_are_ordered_exactly_if_acyclic(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"n{number}" for number in range(12)]
    edges = {name: chance.sample(names, chance.choice([0, 0, 1, 2])) for name in names}
    for name in names:
        order = dependency_order(edges, name)
        assert len(order) == len(set(order))
        place = {one: at for at, one in enumerate(order)}
        backward = any(place[to] >= place[one] for one in order for to in edges[one])
        reached = [one for one in order if cycle_through(edges, one)]
        assert backward == bool(reached)
        for one in reached:
            way = cycle_through(edges, one)
            assert way[0] == way[-1] == one
            assert all(to in edges[at] for at, to in pairwise(way))


def test_ten_thousand_in_a_row_are_no_recursion() -> None:
    edges = {f"{number}": [f"{number + 1}"] for number in range(10_000)}
    assert len(dependency_order(edges, "0")) == len(longest_path(edges, ["0"])) == 10_001
    assert cycle_through(edges, "0") is None
