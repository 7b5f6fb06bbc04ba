"""Patterns of rules: what they find, and what stands in its place."""

import pytest

from schemas.rule_patterns import InvalidPattern, Pattern


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


def test_replacements_are_inserted_literally():
    assert Pattern("(b)").replace("abc", r"\1\g<0>") == r"a\1\g<0>c"


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?<!a)b", "((a{200}){200}){200}"])
def test_nonlinear_and_huge_patterns_are_refused(pattern):
    with pytest.raises(InvalidPattern):
        Pattern(pattern)
