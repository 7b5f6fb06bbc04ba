"""Rates that are counted in leases: never more than the limit, and seldom a question."""

import random
from functools import partial

import anyio
import pytest
from anyio.lowlevel import checkpoint

from gateway.interfaces import RateBound, Verdict
from gateway.state import rate_windows
from gateway.state.memory import MemoryCounter
from gateway.state.rate_windows import LONGEST_S, RETRY_S, SHARE, LeasedRates, LocalRates
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
        self.answers = anyio.Event()  # unless set, questions wait
        self.answers.set()
        self.keys = set()

    async def hit(self, key, limit, window_s, count=1) -> Verdict:
        self.questions += 1
        self.keys.add(key)
        await self.answers.wait()
        if self.away:
            raise Unavailable("away")
        return await super().hit(key, limit, window_s, count)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(rate_windows, "time", clock)
    return clock


@pytest.fixture
def counter(clock):
    return Asked(clock)


async def take(node, limit, window_s=WINDOW_S, key=KEY):
    wait_s = node.take(key, limit, window_s)
    await let_tasks_run()  # renewals ahead
    return await node.acquire(key, limit, window_s) if wait_s is None else wait_s


async def let_tasks_run():
    """Background tasks have come to the counter, and on if it answers."""
    for _ in range(3):
        await checkpoint()


async def spend_to(node, left):
    """Spend the node's lease until so many uses are left of it, and tell how many were spent."""
    lease, spent = node._leases.get((KEY, WINDOW_S)), 0
    while lease.left > left:
        assert node.take(KEY, 6000, WINDOW_S) == 0
        spent += 1
    return spent


async def busy_node(clock, counter, fallback=None):
    """A node whose lease is of some size, and has just begun."""
    node = LeasedRates(counter, fallback)
    lease = None
    while lease is None or lease.size < 64 or lease.left < lease.size - 1:
        clock.now += 0.001
        assert await take(node, 6000) == 0
        lease = node._leases.get((KEY, WINDOW_S))
    return node


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


async def test_a_quiet_node_leases_only_its_use(clock, counter):
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


async def test_a_refusal_is_cached_until_its_end(clock, counter):
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


async def test_callers_do_not_wait_while_another_asks_an_unavailable_counter(clock, counter):
    node = LeasedRates(counter, LocalRates())
    counter.away = True
    assert await take(node, 3) == 0
    clock.now += RETRY_S + 0.1
    counter.answers = anyio.Event()  # it is frozen
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take, node, 3)
        await let_tasks_run()
        with anyio.fail_after(5):
            assert await take(node, 3, key="another") == 0
        assert counter.questions == 2
        counter.away = False
        counter.answers.set()
    assert await take(node, 3, key="another") == 0
    assert counter.questions == 3


async def test_a_counter_that_goes_away_is_logged_once(clock, counter, caplog):
    node = LeasedRates(counter, LocalRates())
    counter.away, counter.answers = True, anyio.Event()
    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(partial(take, node, 3, key=str(number)))
        await let_tasks_run()
        counter.answers.set()
    assert [record.msg for record in caplog.records] == ["rate_limits_local"]


async def test_or_refuses_if_that_is_wanted(clock, counter):
    node = LeasedRates(counter, None)
    counter.away = True
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"limits\.when_down"):
            await take(node, 3)
    assert counter.questions == 1


async def test_returned_uses_of_a_lease_can_be_taken_again(clock, counter):
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
async def test_cached_keys_are_bounded(clock, counter, shared):
    node = LeasedRates(counter, LocalRates(), keys=3) if shared else LocalRates(keys=3)
    for name in "abcad":
        await take(node, 1, key=(name,))
    assert await take(node, 1, key=("a",)) > 0  # used since
    assert await take(node, 1, key=("d",)) > 0
    if not shared:
        assert len(node) == 3
        assert await take(node, 1, key=("b",)) == 0  # forgotten


@pytest.mark.parametrize("keys", [3, 100], ids=["evicting", "roomy"])
async def test_prepared_bounds_count_like_plain_bounds(clock, counter, keys):
    """Whatever is counted, evicted or given back between their uses."""
    rng, names = random.Random(7), "abcd"
    plain, prepared = LocalRates(keys), LocalRates(keys)
    sets = [
        [RateBound("calls", ((name,), WINDOW_S), most, "") for name, most in limits]
        for limits in ([("a", 5), ("b", 3)], [("b", 9)], [("c", 2), ("a", 4)], [])
    ]
    counts = [prepared.prepare(bounds) for bounds in sets]
    for _ in range(2000):
        clock.now += rng.choice((0.0, 0.5, 20.0))
        which, name = rng.randrange(len(sets)), rng.choice(names)
        assert counts[which]() == plain.take_all(sets[which])
        if rng.random() < 0.3:
            assert prepared.take((name,), 4, WINDOW_S) == plain.take((name,), 4, WINDOW_S)
        if rng.random() < 0.2:
            plain.give_back((name,), WINDOW_S)
            prepared.give_back((name,), WINDOW_S)


async def test_a_busy_node_renews_its_lease_before_exhaustion(clock, counter):
    node = await busy_node(clock, counter)
    for _ in range(1000):
        clock.now += 0.001
        assert node.take(KEY, 6000, WINDOW_S) == 0  # no call waits for the counter
        await let_tasks_run()


async def test_a_lease_that_is_nearly_over_is_renewed_too(clock, counter):
    node = await busy_node(clock, counter)
    for _ in range(200):  # too few to use up a lease
        clock.now += 0.05
        assert node.take(KEY, 6000, WINDOW_S) == 0
        await let_tasks_run()


async def test_a_lease_that_was_taken_ahead_is_not_spent_later_than_any_other(clock, counter):
    node, began = await busy_node(clock, counter), clock.now
    await spend_to(node, 3)
    await let_tasks_run()  # the next one is at hand
    clock.now = began + WINDOW_S / SHARE - 0.001
    assert node.take(KEY, 6000, WINDOW_S) == 0
    clock.now = began + WINDOW_S / SHARE + 0.001
    assert node.take(KEY, 6000, WINDOW_S) is None


async def test_one_renewal_ahead_is_under_way_at_a_time(clock, counter):
    node = await busy_node(clock, counter)
    counter.answers, counter.questions = anyio.Event(), 0
    await spend_to(node, 3)
    for _ in range(3):
        assert node.take(KEY, 6000, WINDOW_S) == 0
        await let_tasks_run()
    assert counter.questions == 1
    counter.answers.set()
    with anyio.fail_after(30):
        await node.settle()
    assert node.take(KEY, 6000, WINDOW_S) == 0


async def test_callers_without_a_lease_await_the_running_renewal(clock, counter):
    node, waits = await busy_node(clock, counter), []
    counter.answers, counter.questions = anyio.Event(), 0
    await spend_to(node, 0)

    async def wait():
        waits.append(await node.acquire(KEY, 6000, WINDOW_S))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as callers:
            for _ in range(10):
                callers.start_soon(wait)
            await let_tasks_run()
            callers.start_soon(wait)
            counter.answers.set()
    assert waits == [0.0] * 11
    assert counter.questions == 1


async def test_a_caller_that_leaves_does_not_end_the_renewal(clock, counter):
    node = await busy_node(clock, counter)
    counter.answers, counter.questions = anyio.Event(), 0
    await spend_to(node, 0)
    async with anyio.create_task_group() as callers:
        callers.start_soon(node.acquire, KEY, 6000, WINDOW_S)
        await let_tasks_run()
        callers.cancel_scope.cancel()
    counter.answers.set()
    with anyio.fail_after(30):
        await node.settle()
    assert node.take(KEY, 6000, WINDOW_S) == 0
    assert counter.questions == 1


@pytest.mark.parametrize("alone", [True, False])
async def test_when_a_renewal_ahead_fails_the_rest_of_the_lease_is_spent(
    clock, counter, caplog, alone
):
    node = await busy_node(clock, counter, LocalRates() if alone else None)
    counter.away, counter.questions = True, 0
    while node._leases.get((KEY, WINDOW_S)).left:
        assert await take(node, 6000) == 0
    assert counter.questions == 1  # and not again before RETRY_S
    if alone:
        assert await take(node, 6000) == 0
    else:
        with pytest.raises(Unavailable, match=r"limits\.when_down"):
            await take(node, 6000)
    expected = "rate_limits_local" if alone else "rate_limits_unavailable"
    assert [record.message for record in caplog.records] == [expected]
    counter.away = False
    clock.now += RETRY_S + 0.1
    assert await take(node, 6000) == 0
    assert counter.questions == 2


async def test_when_a_renewal_ahead_is_refused_the_rest_of_the_lease_is_spent(clock, counter):
    node, others = await busy_node(clock, counter), LeasedRates(counter, None)
    while await take(others, 6000) == 0:
        clock.now += 0.0001
    left = node._leases.get((KEY, WINDOW_S)).left
    counter.questions = 0
    assert [await take(node, 6000) for _ in range(left)] == [0.0] * left
    assert await take(node, 6000) > 0
    assert counter.questions == 1


async def test_a_node_that_stops_keeps_no_more_than_a_twentieth_of_the_limit(clock, counter):
    node, others = LeasedRates(counter, None), LeasedRates(counter, None)
    spent = 0
    for _ in range(300):
        clock.now += 0.0001
        spent += await take(node, 1000) == 0
        lease = node._leases.get((KEY, WINDOW_S))
        assert lease.left + (lease.ahead or (0,))[0] <= 1000 // SHARE
    while await take(others, 1000) == 0:
        spent += 1
    assert 1000 * (1 - 1 / SHARE) <= spent <= 1000


class Slow(Asked):
    """It counts a question some time after that was asked, and its answer comes later still."""

    def __init__(self, clock, chance):
        super().__init__(clock)
        self._chance = chance

    async def hit(self, key, limit, window_s, count=1) -> Verdict:
        await self._pause()
        verdict = await super().hit(key, limit, window_s, count)
        await self._pause()
        return verdict

    async def _pause(self):
        for _ in range(self._chance.randrange(20)):
            await checkpoint()


@pytest.mark.parametrize("seed", range(2))
async def test_nodes_with_a_slow_counter_never_allow_more_than_the_limit(clock, seed):
    chance, limit, allowed = random.Random(seed), 400, []
    counter = Slow(clock, chance)
    nodes = [LeasedRates(counter, None) for _ in range(3)]

    async def use(node):
        for _ in range(150):
            idle_s = WINDOW_S / 6 if chance.random() < 0.02 else 0.0
            clock.now += idle_s + chance.choice([0, 0.01, 0.5]) * WINDOW_S / limit
            if await take(node, limit) == 0:
                allowed.append(clock.now)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for turn in range(9):
                tasks.start_soon(use, nodes[turn % 3])
    assert most_in_any_window(allowed, WINDOW_S) <= limit
    assert len(allowed) >= limit / 2
