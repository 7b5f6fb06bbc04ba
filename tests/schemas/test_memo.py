"""What a memo remembers, and what goes."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec import UNSET

from schemas.memo import Memo


@pytest.fixture
def full() -> Memo[str, int]:
    memo = Memo[str, int](3)
    for number, key in enumerate("abc"):
        memo.put(key, number)
    return memo


def test_put_returns_the_value_and_get_finds_stored_values(full: Memo[str, int]) -> None:
    assert full.put("b", 7) == 7
    assert [full.get(key) for key in "abcd"] == [0, 7, 2, None]
    assert full.get("d", UNSET) is UNSET


def test_nothing_is_something_that_can_be_remembered() -> None:
    memo = Memo[str, None](1)
    memo.put("a", None)
    assert memo.get("a", UNSET) is None


def test_for_one_more_the_oldest_goes(full: Memo[str, int]) -> None:
    assert full.get("a") == 0  # which is no use of it
    full.put("d", 3)
    assert (len(full), full.values()) == (3, [1, 2, 3])


def test_a_value_put_again_is_newest_and_evicts_nothing(full: Memo[str, int]) -> None:
    full.put("a", 9)
    assert full.values() == [1, 2, 9]
    full.put("d", 3)
    assert full.get("b") is None


def test_a_used_value_is_newest(full: Memo[str, int]) -> None:
    assert full.use("a") == 0
    assert full.use("d") is None
    full.put("d", 3)
    assert full.values() == [2, 0, 3]


@pytest.fixture
def hurry() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hurry")
def test_threads_may_share_a_memo() -> None:
    memo = Memo[int, int](2)

    def work(seed: int) -> None:
        for number in range(5000):
            key = (number * seed) % 7
            found = memo.use(key) if number % 2 else memo.get(key)
            assert found in {None, -key}
            memo.put(key, -key)
            assert len(memo.values()) <= 2

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, [1, 2, 3, 5]))
    assert len(memo) == 2
