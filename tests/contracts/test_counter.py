"""What every `Counter` does, seen from two nodes."""

import anyio
import pytest

from gateway.interfaces import Counter, Verdict
from tests.contracts.backends import DEADLINE_S, Backend, Pair

pytestmark = pytest.mark.anyio

HOUR_S = 3600


async def test_so_many_uses_are_allowed_and_no_more_at_whatever_node(nodes: Pair) -> None:
    stores = (nodes.a, nodes.b)
    verdicts = [await stores[turn % 2].counter.hit("k", 3, HOUR_S) for turn in range(5)]
    assert [verdict.is_allowed for verdict in verdicts] == [True, True, True, False, False]
    assert [verdict.remaining for verdict in verdicts] == [2, 1, 0, 0, 0]
    assert all(verdict.retry_after_s == 0 for verdict in verdicts[:3])
    assert all(0 < verdict.retry_after_s <= HOUR_S * 61 / 60 for verdict in verdicts[3:])


async def test_keys_are_counted_apart(nodes: Pair) -> None:
    for key in ("a", "b", "a:b", "\t☃", "x" * 1000):
        assert await nodes.a.counter.hit(key, 1, HOUR_S) == Verdict(True, 0, 0)
        assert not (await nodes.b.counter.hit(key, 1, HOUR_S)).is_allowed


async def test_windows_of_one_key_are_counted_apart(nodes: Pair) -> None:
    assert (await nodes.a.counter.hit("k", 1, HOUR_S)).is_allowed
    assert (await nodes.a.counter.hit("k", 1, 2 * HOUR_S)).is_allowed
    assert not (await nodes.a.counter.hit("k", 1, HOUR_S)).is_allowed


async def test_uses_at_a_time_are_all_counted(nodes: Pair) -> None:
    allowed: list[bool] = []

    async def use(counter: Counter) -> None:
        for _ in range(5):
            allowed.append((await counter.hit("k", 20, HOUR_S)).is_allowed)  # noqa: PERF401

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(use, nodes.a.counter)
            tasks.start_soon(use, nodes.b.counter)
    assert (len(allowed), sum(allowed)) == (50, 20)


async def test_a_use_is_allowed_again_after_retry_after(nodes: Pair) -> None:
    window_s = 0.2
    assert (await nodes.a.counter.hit("k", 1, window_s)).is_allowed
    with anyio.fail_after(DEADLINE_S):
        while not (verdict := await nodes.b.counter.hit("k", 1, window_s)).is_allowed:
            assert 0 < verdict.retry_after_s <= window_s * 61 / 60 + 0.001
            await anyio.sleep(verdict.retry_after_s)


async def test_a_limit_of_none_allows_nothing(nodes: Pair) -> None:
    verdict = await nodes.a.counter.hit("k", 0, HOUR_S)
    assert (verdict.is_allowed, verdict.remaining) == (False, 0)
    assert verdict.retry_after_s > 0


async def test_counted_uses_survive_purging(nodes: Pair) -> None:
    await nodes.a.counter.hit("k", 1, HOUR_S)
    await nodes.b.purge()
    assert not (await nodes.a.counter.hit("k", 1, HOUR_S)).is_allowed


async def test_a_backend_that_is_away_is_unavailable(shared_backend: Backend) -> None:
    async with shared_backend.nodes() as nodes:
        await shared_backend.refuses(nodes.a.counter.hit("k", 1, HOUR_S))


async def test_several_uses_are_counted_at_once_up_to_the_limit(nodes: Pair) -> None:
    assert await nodes.a.counter.hit("k", 10, HOUR_S, count=6) == Verdict(6, 4, 0)
    assert await nodes.b.counter.hit("k", 10, HOUR_S, count=6) == Verdict(4, 0, 0)
    refused = await nodes.a.counter.hit("k", 10, HOUR_S, count=6)
    assert (refused.granted, refused.is_allowed) == (0, False)
    assert 0 < refused.retry_after_s <= HOUR_S * 61 / 60
