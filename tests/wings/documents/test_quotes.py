"""Quotes are found where they stand, and nowhere else."""

import pytest

from gateway.wings.documents.quotes import LONGEST, find_quote

TEXT = "Redis has\n  port 6380, and `nginx` has (a+)+$ of them."


@pytest.mark.parametrize(
    ("quote", "expected"),
    [
        ("Redis has port 6380", "Redis has\n  port 6380"),
        ('"Redis has port\t6380"', "Redis has\n  port 6380"),
        ("has (a+)+$ of them.", "has (a+)+$ of them."),
        ("Redis has port 6379", None),
        ("edis has port 638", None),
        ("redis has port 6380", None),
        ("Redis", None),
        ("", None),
        (" ' \n", None),
        ("x" * (LONGEST + 1), None),
    ],
)
def test_a_quote_is_found_with_any_white_space(quote: str, expected: str | None) -> None:
    found = find_quote(quote, TEXT)
    assert (None if found is None else TEXT[slice(*found)]) == expected


def test_short_quotes_count_if_allowed() -> None:
    assert find_quote("Redis", TEXT, least=1) == (0, 5)


def test_a_quote_that_almost_repeats_takes_no_time() -> None:
    assert find_quote("a " * 900 + "b", "a " * 1_000_000) is None


def test_a_quote_that_stands_within_a_long_word_takes_no_time() -> None:
    assert find_quote("a" * 20, "a" * 1_000_000) is None
    assert find_quote("a" * 20, "a" * 1_000_000 + " " + "a" * 20) == (1_000_001, 1_000_021)
