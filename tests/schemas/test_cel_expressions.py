"""CEL expressions: what compiles, what fails, and how much they get to see."""

from typing import Any

import pytest

from schemas.cel_expressions import (
    ExpressionFailed,
    InvalidExpression,
    compile_expression,
    too_large,
)

KNOWN = ("principal", "arguments")
STEPS = 500_000


def holds(text: str, **arguments: Any) -> bool:
    values = {"principal": {"id": "ada", "roles": ["hr"]}, "arguments": arguments, "other": 1}
    return compile_expression(text, KNOWN, STEPS).holds(values)


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("arguments.amount <= 1000", True),
        ("arguments.amount < 4.5", False),  # whole numbers and others are compared
        ("'hr' in principal.roles && arguments.amount == 5.0", True),
        ("has(arguments.missing)", False),
        ("arguments.items.all(one, one.price < 10)", True),
        ("arguments.items.exists(one, one.price > 10)", False),
        ("arguments.missing == 1 || true", True),
        ("arguments.name.matches('^R[a-z]+$')", True),
        ("arguments.big > 9223372036854775807", True),
        ("timestamp('2026-01-01T00:00:00Z') < timestamp('2026-01-02T00:00:00Z')", True),
        ("arguments.nothing == null", True),
    ],
)
def test_an_expression_is_true_or_false_of_arguments(text: str, held: bool) -> None:
    items = [{"price": 5}, {"price": 2}]
    assert holds(text, amount=5, items=items, name="Rex", big=2**70, nothing=None) is held


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("arguments.missing > 1", "there is no member 'missing'"),
        ("arguments.amount > '1'", "No such overload"),
        ("arguments.amount / 0 == 1", "division by zero"),
        ("arguments.amount + 9223372036854775807 > 0", "overflow"),
        ("[1][5] == 1", "out of bounds"),
        ("arguments.amount", "neither true nor false"),
        ("1", "neither true nor false"),
        ("arguments.name.matches('(a')", "regex"),
        ("principal", "neither true nor false"),
    ],
)
def test_evaluations_without_an_answer_fail(text: str, told: str) -> None:
    with pytest.raises(ExpressionFailed, match=told):
        holds(text, amount=5, name="x")


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("principal.id == 'a'", {"id": 1}),
        (
            "principal . claims . team == 'a' || principal.id == ''",
            {"id": 1, "claims": {"team": 2}},
        ),
        ("principal.claims.team.lead.name == 'a'", {"claims": {"team": 2}}),
        ("has(principal.claims.other)", {"claims": {}}),
        (
            "size(principal.claims) > 1 && principal.claims.team == 2",
            {"claims": {"team": 2, "x": 3}},
        ),
        ("principal.claims.exists(name, name == 'a')", {"claims": {"team": 2, "x": 3}}),
        ("principal.claims[principal.id] == 'a'", {"id": 1, "claims": {"team": 2, "x": 3}}),
        ("principal['id'] == 'a'", None),
        ("principal == {} || principal.id == ''", None),
        ("[principal].exists(p, p.id == 'a')", None),
        ("principal.all(name, name == 'id')", None),
        ("principal.id == 'a' && 'principal' != ''", None),
    ],
)
def test_only_members_used_by_the_expression_are_handed_over(text: str, seen: Any) -> None:
    principal = {"id": 1, "claims": {"team": 2, "x": 3}}
    expression = compile_expression(text, ("principal", "tool"), STEPS)
    found = expression.relevant({"principal": principal, "tool": {}})
    assert found == {"principal": principal if seen is None else seen}


def test_a_text_that_is_no_unicode_fails() -> None:
    with pytest.raises(ExpressionFailed):
        holds("arguments.name == 'x'", name="\ud800")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1 +", "line 1, character 4"),
        ("true &&\n  ==", "line 2"),
        ("", "line 1"),
        ("tool.name == 'x'", "no variable 'tool'; there are principal, arguments"),
        ("now() > 1", "no function 'now'"),
        ("arguments.items.all(one, other.price < 5)", "no variable 'other'"),
        ("(" * 200 + "true" + ")" * 200, "nested too deeply"),
    ],
    ids=["half", "line", "empty", "variable", "function", "inside", "deep"],
)
def test_invalid_expressions_are_refused_with_the_reason(text: str, told: str) -> None:
    with pytest.raises(InvalidExpression, match=told):
        compile_expression(text, KNOWN, STEPS)


def nest_value(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"a": list(range(9))}, None),
        ({"a": list(range(100))}, "more than 20 values"),
        ([[]] * 100, "more than 20 values"),
        ("x" * 31, "more than 30 bytes of text"),
        ({"x" * 31: 1}, "more than 30 bytes of text"),
        ("é" * 16, "more than 30 bytes of text"),
        (2**300, "more than 30 bytes of text"),
        (nest_value(5), None),
        (nest_value(6), "nested more than 5 deep"),
        (nest_value(100_000), "nested more than 5 deep"),
        (None, None),
    ],
    ids=[
        "few",
        "many",
        "lists",
        "long",
        "names",
        "letters",
        "number",
        "deep",
        "deeper",
        "very",
        "no",
    ],
)
def test_oversized_values_are_refused_before_evaluation(value: Any, told: str | None) -> None:
    assert too_large(value, 20, 30, 5) == told


@pytest.mark.parametrize(
    ("value", "levels", "told"),
    [
        ({"a": 1, "b": "x", "c": None, "d": True, "e": 0.5}, 1, None),
        ({str(number): None for number in range(19)}, 1, None),
        ({str(number): None for number in range(20)}, 1, "more than 20 values"),
        ({"a": "é" * 14}, 1, None),
        ({"a": "é" * 15}, 1, "more than 30 bytes of text"),
        ({"a": "\ud800" * 10}, 1, "more than 30 bytes of text"),
        ({"a": 2**300}, 1, "more than 30 bytes of text"),
        ({"x" * 30: 1}, 1, None),
        ({"a": 1}, 0, "nested more than 0 deep"),
    ],
)
def test_objects_of_scalars_have_the_same_limits(
    value: dict[str, Any], levels: int, told: str | None
) -> None:
    assert too_large(value, 20, 30, levels) == told
