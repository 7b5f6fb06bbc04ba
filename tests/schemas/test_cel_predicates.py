"""Predicates decide as the library does, or leave the decision to it."""

from typing import Any

import cel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.cel_expressions import compile_expression
from schemas.cel_predicates import Predicate
from tests.properties import examples

KNOWN = ("principal", "arguments", "source")
STEPS = 500_000
FAILURES = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)


def compile_text(text: str) -> tuple[Predicate | None, Any]:
    expression = compile_expression(text, KNOWN, STEPS)
    return expression.predicate, expression


def decide_text(text: str, **values: Any) -> bool | None:
    predicate, _ = compile_text(text)
    assert predicate is not None, text
    return predicate(values)


@pytest.mark.parametrize(
    "text",
    [
        "arguments.id > 1000000",
        "arguments.amount <= -4.5 || !(arguments.kind in ['a', 'b'])",
        "'hr' in principal.roles && arguments.name.startsWith('x')",
        "has(arguments.force) && arguments.other == true",
        "principal.claims.team == arguments.team",
        'source == "petshop"',
    ],
)
def test_comparisons_with_literals_are_predicates(text: str) -> None:
    assert compile_text(text)[0] is not None


@pytest.mark.parametrize(
    "text",
    [
        "arguments.items.all(one, one > 1)",
        "arguments['id'] > 1",
        "arguments.a + 1 > 2",
        "arguments.a.b.c == 1",
        "arguments.a == 1 && arguments.a.b == 1",
        "arguments.a == 'it\\'s'",
        "arguments.a == r'x'",
        "arguments.a == 1u",
        "arguments.a == 0x10",
        "arguments.a == 9007199254740993.0",
        "startsWith(arguments.a, 'x')",
        "!!arguments.a",
        "-(-1) < arguments.a",
        "arguments.a == null",
        "arguments.a in [1, 'x']",
        "arguments.a in []",
        "arguments.a == 'arguments.b'",
        "size(arguments.a) > 1",
        "true",
        " || ".join(f"arguments.a{number} == 1" for number in range(20)),
    ],
)
def test_complex_expressions_are_left_to_the_library(text: str) -> None:
    assert compile_text(text)[0] is None


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("arguments.a == 1 || arguments.b == 'x'", {"a": 1, "b": "\ud800"}),
        ("arguments.a == 1 || arguments.b == 1", {"a": 1, "b": {}}),
        ("arguments.a == 1 || 'x' in arguments.b", {"a": 1, "b": ["x", "\ud800"]}),
        ("arguments.a == 1 || arguments.b == 1", {"a": 1, "b": 2**63}),
        ("arguments.a < 1.5", {"a": 2**53 + 1}),
        ("arguments.a == 1", {"a": True}),
        ("arguments.a == 1.0", {"a": float("nan")}),
        ("arguments.a == 1", {}),
        ("has(arguments.a.b)", {}),
        ("arguments.a", {"a": 1}),
        ("arguments.a > 1", []),
    ],
)
def test_uncertain_values_are_left_to_the_library(text: str, arguments: Any) -> None:
    assert decide_text(text, arguments=arguments) is None


def test_a_variable_that_is_missing_is_left_to_the_library() -> None:
    assert decide_text("arguments.a == 1 || principal.id == 'x'", arguments={"a": 1}) is None


NAMES = ["arguments.a", "arguments.b", "principal.roles", "principal.claims.x", "source"]
LITERALS = ["0", "1", "-1", "9007199254740993", "999999999999999999", "1.0", "-0.0", "0.5", "''",
            "'a'", '"ab"', "'é'", "'\U0001f600'", "true", "false"]  # fmt: skip
LISTS = ["['a', 'ab']", "[1, -1, 2]", "['é']", "[1.0]", "['a', 1]"]
SCALARS = st.one_of(
    st.sampled_from([0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**30, True, False]),
    st.sampled_from([0.0, -0.0, 0.5, 1.0, 9007199254740992.0, 1e300, float("inf"), float("nan")]),
    st.sampled_from(["", "a", "ab", "abc", "b", "é", "\U0001f600", "z", "\ud800", "true", "1"]),
    st.none(),
)
VALUES = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=3),
    st.lists(st.sampled_from(["a", "ab", "é"]), max_size=3),
    st.dictionaries(st.sampled_from(["x", "y"]), SCALARS, max_size=2),
)


def _tests() -> st.SearchStrategy[str]:
    name, literal = st.sampled_from(NAMES), st.sampled_from(LITERALS)
    sign = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
    method = st.sampled_from(["startsWith", "endsWith", "contains"])
    leaf = st.one_of(
        st.builds("{} {} {}".format, name, sign, st.one_of(literal, name)),
        st.builds("{} in {}".format, name, st.sampled_from(LISTS)),
        st.builds("{} in {}".format, st.one_of(literal, name), name),
        st.builds("{}.{}({})".format, name, method, literal),
        st.builds("{}({}, {})".format, method, name, literal),
        st.builds("has({})".format, st.sampled_from(NAMES[:-1])),
        name,
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds("{} {} {}".format, inner, st.sampled_from(["&&", "||"]), inner),
            st.builds("({}) {} ({})".format, inner, st.sampled_from(["&&", "||"]), inner),
            st.builds("!({})".format, inner),
            st.builds("!{}".format, inner),
        ),
        max_leaves=6,
    )


def _members(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, VALUES))


ANYTHING = st.fixed_dictionaries(
    {
        "arguments": st.one_of(_members("a", "b"), VALUES),
        "source": VALUES,
        "principal": st.fixed_dictionaries(
            {}, optional={"roles": VALUES, "claims": st.one_of(_members("x"), VALUES)}
        ),
    }
)
EXAMPLES = examples(300)


@settings(max_examples=EXAMPLES, deadline=None)
@given(text=_tests(), values=ANYTHING)
def test_a_predicate_never_differs_from_the_library(text: str, values: dict[str, Any]) -> None:
    predicate, expression = compile_text(text)
    found = None if predicate is None else predicate(values)
    if found is None:
        return
    given = expression.relevant(values)
    try:
        held = cel.compile(text).execute(given)
    except FAILURES as error:
        held = repr(error)
    assert held is found, (text, values)
