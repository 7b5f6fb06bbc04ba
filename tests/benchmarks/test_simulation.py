"""The simulation of many gateways: repeatable, and right where arithmetic suffices."""

from functools import cache

import pytest

from benchmarks.simulation import (
    BUSY,
    COSTS,
    Plan,
    Saturation,
    Simulation,
    Traffic,
    grown,
    saturation,
)

LIMITS_ALONE = Traffic(searches=0, streamed=0, audited=0)


@cache
def one_redis() -> Saturation:
    return saturation(Plan(), LIMITS_ALONE)


def test_the_same_traffic_is_simulated_twice() -> None:
    runs = [Simulation(Plan(), Traffic(), 5000) for _ in range(2)]
    for run in runs:
        run.run()
    assert runs[0].latencies == runs[1].latencies
    assert runs[0].busy() == runs[1].busy()


def test_one_redis_is_busy_when_its_thread_is() -> None:
    found = one_redis()
    assert found.part == "redis"
    assert found.rate == pytest.approx(BUSY * 1e6 / COSTS["limit"].us, rel=0.1)


def test_a_part_that_has_grown_is_not_the_first_to_be_busy_again() -> None:
    plan, _ = grown(Plan(balancers=1), "redis")
    found = saturation(plan, LIMITS_ALONE)
    assert (plan.redis, found.part) == (2, "redis")
    assert found.rate > 1.7 * one_redis().rate


def test_searches_keep_the_database_busy_first_where_there_are_many() -> None:
    searches = 0.2
    found = saturation(Plan(), Traffic(searches=searches, audited=0))
    assert found.part == "database"
    served = Plan().database_cores / (searches * COSTS["search"].us * 1e-6)
    assert found.rate == pytest.approx(BUSY * served, rel=0.15)
