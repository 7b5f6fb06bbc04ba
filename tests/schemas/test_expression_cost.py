"""Expressions that would take long are refused before they are evaluated."""

import time
from contextlib import suppress
from typing import Any

import cel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.cel_expressions import (
    MINIMUM_SIZE,
    ExpressionFailed,
    InvalidExpression,
    TooCostly,
    compile_expression,
    size_of,
    steps_of,
)
from schemas.cel_syntax import parse
from tests.properties import examples

STEPS = 500_000
ONES = f"[{','.join('1' * 30)}]"
WIDE = f"[{','.join('1' * 1000)}]"


def bomb(macro: str, levels: int) -> str:
    """A macro over literal lists, so many levels deep."""
    names = [f"x{level}" for level in range(levels)]
    return "".join(f"{ONES}.{macro}({name}, " for name in names) + "1 > 0" + ")" * levels


@pytest.mark.parametrize("macro", ["all", "exists", "exists_one", "existsOne", "map", "filter"])
@pytest.mark.parametrize("levels", [4, 5, 20])
def test_expensive_expressions_are_refused(macro: str, levels: int) -> None:
    with pytest.raises(InvalidExpression, match="it may take too long"):
        compile_expression(f"{bomb(macro, levels)} == true", ("arguments",), STEPS)


DOUBLED = "arguments.l" + "".join(f".map(x{n}, [x{n}, x{n}])" for n in range(40))


@pytest.mark.parametrize(
    "text",
    [
        f"{WIDE}.all(x, {WIDE}.all(y, y == x))",
        f"{WIDE}.map(x, {WIDE}) == []",
        f"[{WIDE}].all(x, x.all(y, x.all(z, x.all(w, true))))",
        "arguments.l.all(x, arguments.l.all(y, arguments.l.all(z, true)))",
        "arguments.l.map(x, arguments.l).map(y, arguments.l).map(z, arguments.l) == []",
        "arguments.l.all(a,a.all(b,b.all(c,c.all(d,d.all(e,true)))))",
        "arguments.l.map(x, arguments.s + arguments.s).map(y, y + arguments.l.map(z, y)) == []",
        f"{DOUBLED} == []",
        "('x' + '" + "+".join("y" * 10) + "').matches('(x{1,100}){1,100}y')",
        "arguments.s.matches('(\\\\w{30}){30}')",
        "arguments.s.matches(r'\\w{200}')",
        "arguments.s.matches('(x\\x7b1,100\\x7d){1,100}')",
        "arguments.s.matches('(?x)(x{ 1,100 }){1,100}')",
        "arguments.s.matches(arguments.pattern)",
        "arguments.s.matches(r'[\\w[a]]{200}')",
        "arguments.l.all(x, x.matches('\\\\w{40}'))",
        "[1].all(x, matches(arguments.s, r'(a{100}){1000}'))",
    ],
)
def test_the_ways_to_be_expensive_are_known(text: str) -> None:
    with pytest.raises(InvalidExpression, match="it may take too long"):
        compile_expression(text, ("arguments",), STEPS)


@pytest.mark.parametrize(
    "text",
    [
        "arguments.amount <= 1000",
        "arguments.items.all(item, item.price < 5 && item.tags.all(tag, tag != 'x'))",
        "arguments.items.filter(item, item.price > 5).size() < 3",
        "arguments.items.map(item, item.price).exists(price, price > 5)",
        "arguments.name in ['a', 'b', 'c'] || principal.roles.exists(role, role == 'hr')",
        "arguments.mail.matches('^[a-z.]+@example[.]org$')",
        "arguments.mail.matches(r'^\\w+@\\w+$')",
        "arguments.items.all(one, principal.claims.teams.exists(team, team == one.team))",
        "tool.name.startsWith('get_') && tool.tags.exists(tag, tag == 'pii')",
        "tool.name.matches('^(get|list)_[a-z]+$') && 'admin' in principal.roles",
    ],
)
def test_usual_rules_are_far_below_the_bound(text: str) -> None:
    compile_expression(text, ("principal", "tool", "arguments"), STEPS)


def test_a_literal_list_counts_by_its_length() -> None:
    short = "[1,2,3].all(x, [1,2,3].all(y, [1,2,3].all(z, x + y + z > 0)))"
    assert compile_expression(short, (), STEPS).holds({})


def test_values_in_expressions_may_be_as_large_as_the_steps_allow() -> None:
    text = "arguments.l.map(x, x).size() > 0"
    expression = compile_expression(text, ("arguments",), STEPS)
    assert expression.holds({"arguments": {"l": list(range(300))}})
    with pytest.raises(ExpressionFailed, match=r"too long for more than [0-9,]+ values"):
        expression.holds({"arguments": {"l": list(range(5000))}})
    assert expression.holds({"arguments": {"l": [1], "others": list(range(5000))}})


def test_an_expression_over_a_tool_has_fewer_steps_than_one_over_a_call() -> None:
    for over in ("tool.tags", "arguments.l"):
        once = f"{over}.exists(t, {ONES}.all(x, x > 0))"
        if over == "tool.tags":
            with pytest.raises(InvalidExpression, match="expected at most 10,000"):
                compile_expression(once, ("tool", "arguments"), STEPS)
        else:
            compile_expression(once, ("tool", "arguments"), STEPS)


DATA = {
    "l": list(range(200)),
    "s": "x" * 3000,
    "m": {str(number): number for number in range(200)},
    "q": [list(range(14)) for _ in range(14)],
    "n": 3,
}
SIZE = size_of(DATA, 1 << 40)
scalars = st.sampled_from(["1", "a.n", "a.s", "true", "'x'", "{'k': a.l}"])
lists = st.sampled_from(["a.l", "a.q", "a.m", "a.q[1]", "[1, 2, 3]", "x", ONES])


def within(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    macro = st.sampled_from(["all", "exists", "exists_one", "map", "filter"])
    return st.one_of(
        st.builds("({}.{}(x, {}))".format, inner, macro, inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["==", "in", "+", "&&"]), inner),
        st.builds("size({})".format, inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
        st.builds("{}.matches('(x+x+)+y')".format, inner),
    )


expressions = st.recursive(st.one_of(scalars, lists), within, max_leaves=12)


@settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))
@given(expressions)
def test_no_expression_takes_longer_than_its_bound(text: str) -> None:
    """A step is about 0.1 us; a machine that is loaded, or slow, gets thirty times as much."""
    try:
        steps = steps_of(parse(text), SIZE)
    except TooCostly:
        return
    if steps > STEPS:
        return
    values: Any = {"a": DATA, "x": DATA["l"]}
    program, began = cel.compile(text), time.process_time()
    with suppress(ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        program.execute(values)
    spent = time.process_time() - began
    assert spent < 0.1 + 30 * STEPS * 1e-7


@given(expressions, st.integers(1, 1000))
def test_more_to_look_at_never_takes_fewer_steps(text: str, size: int) -> None:
    try:
        tree = parse(text)
        assert steps_of(tree, size) <= steps_of(tree, size + MINIMUM_SIZE)
    except TooCostly:
        pass
