"""Searches in texts: their slices, their turns, and their end."""

import time
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from gateway.operations.problems import ProblemDetails
from gateway.wings.document_library import Passage
from gateway.wings.knowledge import grep_and_records
from gateway.wings.knowledge.grep_and_records import LinePattern, TextSearches, line_pattern
from tests.wings.knowledge.rig import knowledge_settings

pytestmark = pytest.mark.anyio

SETTINGS = knowledge_settings()


def rows(*texts: str) -> list[tuple[Any, ...]]:
    return [("c", f"{n}.txt", 1, text.encode(), "text/plain") for n, text in enumerate(texts)]


def numbers(pattern: LinePattern, text: str) -> list[int]:
    return [passage.lines[0] for passage in pattern.search(rows(text)) if passage is not None]


@pytest.mark.parametrize("slice_bytes", [1, 3, 7, 64, 10_000])
@pytest.mark.parametrize(
    ("pattern", "lines"),
    [("^$", [2, 4, 6]), ("b", [3, 7]), ("^a", [1, 5]), ("[a-c]$", [1, 3, 5, 7]), ("x", [])],
)
def test_sliced_searches_find_the_lines_of_the_whole_text(pattern, lines, slice_bytes):
    """Searches in slices find the same lines (mending 4)."""
    compiled = line_pattern(pattern, SETTINGS)
    text = "a\n\nb\n\na\n\nb\n"
    assert numbers(LinePattern(compiled.expression, slice_bytes), text) == lines


def test_costly_patterns_are_searched_in_short_slices():
    """A slice is as short as the pattern is costly (mending 4)."""
    plain, costly = line_pattern("word", SETTINGS), line_pattern("(?:[ab].{100}){4}c", SETTINGS)
    assert plain.slice_bytes > 50 * costly.slice_bytes
    pauses = [passage for passage in costly.search(rows("ab " * 20_000)) if passage is None]
    assert len(pauses) >= 60_000 // costly.slice_bytes


@pytest.mark.parametrize("pattern", ["(?:[alph].{400}){2}Q", "(x{40}){40}", "(?:a.{30}){30}"])
def test_patterns_that_expand_too_far_are_refused(pattern):
    """Cost is known before any text is read (mending 4)."""
    with pytest.raises(ProblemDetails, match=r"at most 500 \(knowledge\.grep_pattern_steps\)"):
        line_pattern(pattern, SETTINGS)


def slow_search(slices: int, done: list[str], name: str) -> Iterator[Passage | None]:
    for _ in range(slices):
        time.sleep(grep_and_records.SLICE_S)  # work of a thread that holds no lock
        yield None
    done.append(name)


async def test_searches_of_one_caller_do_not_delay_other_callers() -> None:
    """Forty searches of one caller do not delay another tenant's (mending 4)."""
    searches, done = TextSearches(SETTINGS), list[str]()

    async def run(slices: int, name: str, tenant: str) -> None:
        search = slow_search(slices, done, name)
        await searches.run(search, 10, ends=time.monotonic() + 60, tenant=tenant, owner="u")

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(run, 4, "burst", "a")
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(run, 2, "stranger", "b")
    assert done.index("stranger") <= 2


async def test_searches_end_with_their_callers() -> None:
    """Nothing is searched for a client that has left (mending 4)."""
    searches, done = TextSearches(SETTINGS), list[str]()
    steps: list[None] = []

    def search() -> Iterator[Passage | None]:
        for part in slow_search(10_000, done, "left"):
            steps.append(None)
            yield part

    ends = time.monotonic() + 60
    with anyio.fail_after(10):
        with anyio.move_on_after(0.1) as scope:
            await searches.run(search(), 10, ends=ends, tenant="a", owner="u")
        assert scope.cancelled_caught
        count = len(steps)
        await searches.run(slow_search(2, done, "next"), 10, ends=ends, tenant="a", owner="u")
    assert len(steps) == count
    assert done == ["next"]


async def test_searches_end_when_their_time_is_up() -> None:
    """The clock is looked at between slices of one text, not only between texts (mending 4)."""
    searches, done = TextSearches(SETTINGS), list[str]()
    with anyio.fail_after(10), pytest.raises(ProblemDetails, match=r"knowledge\.grep_timeout_s"):
        await searches.run(
            slow_search(10_000, done, "x"), 10, ends=time.monotonic(), tenant="a", owner="u"
        )
    assert done == []
