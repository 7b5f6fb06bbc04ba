"""Patterns of rules: what they find, and what stands in its place."""

import pytest

from schemas.patterns import InvalidPattern, Pattern


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("[0-9]+", "a1b22", "a*b*"),
        ("é|☃", "né☃e", "n**e"),
        ("(?i)SECRET", "a Secret", "a *"),
        ("x*", "axxb", "a*b"),  # what is empty stays
        ("none", "text", "text"),
    ],
)
def test_each_match_is_replaced(pattern, text, expected):
    assert Pattern(pattern).replace(text, "*") == expected


def test_what_stands_for_a_match_is_taken_as_it_is():
    assert Pattern("(b)").replace("abc", r"\1\g<0>") == r"a\1\g<0>c"


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?<!a)b", "((a{200}){200}){200}"])
def test_what_takes_more_than_linear_time_or_much_memory_is_refused(pattern):
    with pytest.raises(InvalidPattern):
        Pattern(pattern)
