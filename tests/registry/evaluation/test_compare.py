"""Intervals: where statistics knows the answer, and what must hold anyway."""

import numpy as np
import pytest

from registry.evaluation.quality_metrics import bootstrap, macro, percentiles

GENERATOR = np.random.default_rng(1)


def column(values: list[float]) -> np.ndarray:
    return np.array(values)[:, None]


def test_the_interval_of_a_mean_is_as_wide_as_its_standard_error_says() -> None:
    values = GENERATOR.normal(50, 20, size=(400, 1))
    interval = bootstrap(values).interval(0)
    expected = 1.96 * values.std() / np.sqrt(400)
    assert interval.mean == pytest.approx(values.mean())
    assert interval.mean - interval.low == pytest.approx(expected, rel=0.15)
    assert interval.high - interval.mean == pytest.approx(expected, rel=0.15)


def test_values_that_are_all_equal_leave_no_doubt() -> None:
    interval = bootstrap(column([0.25] * 7)).interval(0)
    assert (interval.mean, interval.low, interval.high) == (0.25, 0.25, 0.25)


def test_a_difference_is_paired() -> None:
    """Two columns that differ by 1 in each row: their own intervals are wide, that one is not."""
    first = GENERATOR.normal(50, 20, size=200)
    both = bootstrap(np.stack([first + 1, first], axis=1))
    difference = both.interval(0, minus=1)
    assert both.interval(0).high - both.interval(0).low > 3
    assert difference.low == pytest.approx(1)
    assert difference.high == pytest.approx(1)
    assert difference.certain


def test_a_difference_of_nothing_but_chance_is_not_certain() -> None:
    values = GENERATOR.normal(size=(300, 2))
    values[:, 1] += values[:, 0].mean() - values[:, 1].mean()
    assert not bootstrap(values).interval(0, minus=1).certain


@pytest.mark.parametrize(("requests", "certain"), [(1, False), (29, False), (30, True)])
def test_a_difference_of_few_requests_is_not_certain(requests: int, certain: bool) -> None:
    values = np.tile([1.0, 0.0], (requests, 1))
    assert bootstrap(values).interval(0, minus=1).certain is certain


def test_a_mean_over_sets_is_as_certain_as_its_smallest_set() -> None:
    large, small = (bootstrap(np.tile([1.0, 0.0], (count, 1))) for count in (1000, 4))
    assert macro([large, large]).interval(0, minus=1).certain
    assert not macro([large, small]).interval(0, minus=1).certain


def test_the_same_values_have_the_same_interval_in_each_run() -> None:
    values = GENERATOR.normal(size=(50, 1))
    assert bootstrap(values).interval(0) == bootstrap(values).interval(0)
    assert bootstrap(values, seed=1).interval(0) != bootstrap(values, seed=2).interval(0)


def test_macro_means_weigh_small_and_large_sets_equally() -> None:
    mean = macro([bootstrap(column([1.0] * 10)), bootstrap(column([0.0] * 1000))])
    assert mean.interval(0).mean == pytest.approx(0.5)


def test_percentiles_of_times() -> None:
    assert percentiles(list(range(101))) == {"p50": 50, "p95": 95, "p99": 99}
    assert percentiles([]) == {}
