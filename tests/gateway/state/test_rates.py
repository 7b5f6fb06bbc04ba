"""Rates that are counted in leases: never more than the limit, and seldom a question."""

import random

import pytest

from gateway.abc import Verdict
from gateway.state import rates
from gateway.state.memory import MemoryCounter
from gateway.state.rates import LONGEST_S, RETRY_S, SHARE, LeasedRates, LocalRates
from schemas.errors import Unavailable

pytestmark = pytest.mark.anyio

KEY = ("principal_calls", "tenant", "ann")
WINDOW_S = 60.0


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


class Asked(MemoryCounter):
    """The counter that nodes share, and how often it was asked."""

    def __init__(self, clock):
        super().__init__(clock.monotonic)
        self.questions = 0
        self.away = False
        self.keys = set()

    async def hit(self, key, limit, window_s, wanted=1) -> Verdict:
        self.questions += 1
        self.keys.add(key)
        if self.away:
            raise Unavailable("away")
        return await super().hit(key, limit, window_s, wanted)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(rates, "time", clock)
    return clock


@pytest.fixture
def counter(clock):
    return Asked(clock)


async def take(node, limit, window_s=WINDOW_S, key=KEY):
    wait_s = node.take(key, limit, window_s)
    return await node.acquire(key, limit, window_s) if wait_s is None else wait_s


def most_in_any_window(times, window_s):
    return max(sum(end - window_s < one <= end for one in times) for end in times)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("limit", [1, 7, 60, 1000])
async def test_nodes_together_never_allow_more_than_the_limit(clock, counter, limit, seed):
    chance = random.Random(seed)
    nodes = [LeasedRates(counter, LocalRates()) for _ in range(3)]
    allowed = []
    for _ in range(2000):
        clock.now += chance.choice([0, 0, 0.01, 0.05, 3]) * WINDOW_S / limit
        if await take(chance.choice(nodes), limit) == 0:
            allowed.append(clock.now)
    assert most_in_any_window(allowed, WINDOW_S) <= limit
    assert len(allowed) >= limit / 2


async def test_uses_late_in_a_lease_count_for_a_whole_window(clock, counter):
    node, began = LeasedRates(counter, LocalRates()), clock.now
    allowed = []
    for at_s, uses in ((0, 100), (0.99 * WINDOW_S / SHARE, 13), (WINDOW_S * 61 / 60 + 0.1, 1100)):
        clock.now = began + at_s
        allowed += [clock.now for _ in range(uses) if await take(node, 1000) == 0]
    assert most_in_any_window(allowed, WINDOW_S) <= 1000
    assert len(allowed) >= 1000 * (1 - 1 / SHARE)


@pytest.mark.parametrize("limit", [100, 6000])
async def test_a_busy_node_has_most_of_the_limit(clock, counter, limit):
    """Bound of what is lost: a twentieth for what a lease was longer than it was needed."""
    node = LeasedRates(counter, LocalRates())
    allowed = 0
    for _ in range(2 * limit):
        clock.now += WINDOW_S / limit / 4
        allowed += await take(node, limit) == 0
    assert allowed >= limit * (1 - 1 / SHARE)


async def test_a_busy_node_seldom_asks(clock, counter):
    node = LeasedRates(counter, LocalRates())
    for _ in range(5000):
        assert await take(node, 6000) == 0
    assert counter.questions < 40


async def test_a_quiet_node_takes_no_more_than_it_uses(clock, counter):
    busy, quiet = (LeasedRates(counter, LocalRates()) for _ in range(2))
    for _ in range(10):
        assert await take(quiet, 100) == 0
        clock.now += WINDOW_S / SHARE + 1  # its lease is over
        counter.questions = 0
    assert await take(quiet, 100) == 0
    assert counter.questions == 1
    wait_s, used = 0.0, 0
    while not (wait_s := await take(busy, 100)):
        used += 1
    assert used >= 80
    assert wait_s > 0


async def test_a_refusal_is_remembered_until_it_is_over(clock, counter):
    node = LeasedRates(counter, LocalRates())
    assert await take(node, 1) == 0
    wait_s = await take(node, 1)
    asked = counter.questions
    clock.now += wait_s / 2
    assert await take(node, 1) == pytest.approx(wait_s / 2)
    assert counter.questions == asked
    clock.now += wait_s / 2 + 0.001
    assert await take(node, 1) == 0


async def test_windows_of_a_day_have_leases_of_no_more_than_half_a_minute(clock, counter):
    node = LeasedRates(counter, LocalRates())
    for _ in range(100):
        await take(node, 100_000, 86_400.0)
    asked = counter.questions
    clock.now += LONGEST_S + 1
    await take(node, 100_000, 86_400.0)
    assert counter.questions == asked + 1


async def test_while_the_counter_is_away_each_node_counts_alone(clock, counter, caplog):
    node = LeasedRates(counter, LocalRates())
    counter.away = True
    waits = [await take(node, 3) for _ in range(5)]
    assert [wait == 0 for wait in waits] == [True, True, True, False, False]
    assert counter.questions == 1
    assert [record.message for record in caplog.records] == ["rate_limits_local"]
    counter.away = False
    clock.now += RETRY_S + 0.1
    assert await take(node, 3) == 0  # what was counted alone is not what the others know
    assert counter.questions == 2


async def test_or_refuses_if_that_is_wanted(clock, counter):
    node = LeasedRates(counter, None)
    counter.away = True
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"limits\.when_away"):
            await take(node, 3)
    assert counter.questions == 1


async def test_what_is_given_back_of_a_lease_can_be_taken_again(clock, counter):
    node = LeasedRates(counter, LocalRates())
    assert await take(node, 1) == 0
    node.give_back(KEY, WINDOW_S)
    assert node.take(KEY, 1, WINDOW_S) == 0
    assert await take(node, 1) > 0


async def test_the_names_of_shared_counters_tell_nothing_and_never_coincide(clock, counter):
    node = LeasedRates(counter, LocalRates())
    for key in (("a", "b"), ("a,b",), ("a", "b", ""), ("x" * 10_000,)):
        await take(node, 1, key=key)
    assert len(counter.keys) == 4
    assert all(len(key) < 64 for key in counter.keys)


@pytest.mark.parametrize("shared", [False, True], ids=["local", "leased"])
async def test_what_is_remembered_is_bounded(clock, counter, shared):
    node = LeasedRates(counter, LocalRates(), keys=3) if shared else LocalRates(keys=3)
    for name in "abcad":
        await take(node, 1, key=(name,))
    assert await take(node, 1, key=("a",)) > 0  # used since
    assert await take(node, 1, key=("d",)) > 0
    if not shared:
        assert len(node) == 3
        assert await take(node, 1, key=("b",)) == 0  # forgotten
