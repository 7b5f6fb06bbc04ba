"""The grammar of expressions: our reading is the library's, and errors say what was expected."""

from contextlib import suppress

import cel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.cel_expressions import InvalidExpression, compile_expression
from schemas.cel_syntax import ExpressionSyntaxError, parse


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "1 +",
            "line 1, character 4: expected a value, such as a name, a number or a text in",
        ),
        (
            "arguments.amount = 5",
            "line 1, character 18: equality is written ==, at ^ in `arguments.amount ^= 5`",
        ),
        (
            "a.b and a.c",
            "found `and` (and is written &&), at ^ in `a.b ^and a.c`",
        ),
        (
            "true &&\n  == 1",
            "found `==`, at ^ in `^== 1`",
        ),
        ("(1 > 2", "line 1, character 7: expected an operator or `)`, found the end"),
        ("a.l.all(x, x > 0", "line 1, character 17: expected an operator, `,` or `)`"),
        ("a.'x'", "line 1, character 3: expected the name of a member, found `'x'`"),
        ("a == 'x", "line 1, character 6: the text that begins here does not end"),
        ("a.l.all(x)", "`all` takes a name and an expression, as in `items.all(item, item > 0)`"),
        ("a.l.all(1, true)", "the first argument of `all` is a name, as in `item`"),
        ("not a", "expected a value, .* found `not` .not is written !."),
        ("a & b", "line 1, character 3: and is written &&"),
        ("a ? b", "expected an operator or `:`, found the end"),
        ("{'a' 1}", "expected an operator or `:`, found `1`"),
        ("a # b", "line 1, character 3: '#' means nothing here"),
        ("", "line 1, character 1: expected a value"),
        ("1 2", "expected an operator or the end, found `2`"),
        ("x" * 100 + " = 1", "at ^ in `x{23} ^= 1`"),
    ],
)
def test_a_syntax_error_names_the_expected_token_and_its_place(text: str, told: str) -> None:
    with pytest.raises(InvalidExpression) as caught:
        compile_expression(text, ("a", "arguments"), 500_000)
    said = str(caught.value)
    if "{23}" in told:
        told = told.replace("x{23}", "x" * 23)
    if ".*" in told:
        assert told.partition(".*")[0] in said
        assert "(not is written !)" in said
    else:
        assert told in said
    assert "\n" not in said
    assert len(said) < 250


@pytest.mark.parametrize(
    "text",
    [
        "(" * 60 + "true" + ")" * 60,
        "[" * 60 + "]" * 60 + " == []",
        "1" + "- -1" * 400 + " > 0",
        "a" + ".b" * 400 + " == 1",
        "a" + "[0]" * 400 + " == 1",
        "true ? 1 : " * 60 + "1",
        "a" + ".map(x, x)" * 300 + " == []",
    ],
    ids=["parentheses", "lists", "signs", "members", "indexes", "choices", "macros"],
)
def test_an_expression_has_a_maximum_nesting(text: str) -> None:
    with pytest.raises(InvalidExpression, match="nested too deeply"):
        compile_expression(text, ("a",), 500_000)


def test_hundreds_of_alternatives_are_not_nested() -> None:
    many = " || ".join(f"a == 'name{number}'" for number in range(200))
    assert compile_expression(many, ("a",), 500_000).holds({"a": "name199"})


@pytest.mark.parametrize(
    "text",
    [
        "a.b[0].c == 'x' // a remark",
        "'it\\'s' + \"a \\\" b\" + r'\\' + '''a ' b''' + \"\"\"a \" b\"\"\" != ''",
        "b'a' == br'\\x' || br'a' == B'a'",
        "0x1F + 1u < 1.5e3 + .5 - -1",
        "!(!a) && --1 > 0 ? [1, 2,].size() : {'a': 1, 'b': [2],}.size()",
        "has(a.b) && a.l.exists_one(x, x in [1]) && a.l.map(x, x > 1, x * 2) == [2]",
        "a.in_stock % 2 == 1 / 1",
        "true || false || null == null",
    ],
)
def test_all_that_the_language_has_is_read(text: str) -> None:
    compile_expression(text, ("a",), 500_000)


PIECES = r"""
    a .b 1 1.5 'x' r'\' "y" ( ) [ ] { } , : ? == && || ! - + in .all(x, .map(x, .filter(x, has( ' \
    //
    ''' b' true .5 1u x e 0x . all( Foo{ ` " size( matches( .exists_one(e,
"""
texts = st.lists(st.sampled_from([*PIECES.split(), " ", "\n", "in "]), max_size=14).map("".join)


@given(texts)
def test_expressions_readable_by_the_library_have_a_known_cost(text: str) -> None:
    """Nothing has a cost that is reckoned for something else."""
    try:
        program = cel.compile(text)
    except ValueError:
        return
    told = ""
    try:
        expression = compile_expression(text, ("a", "x", "e"), 1 << 60)
        assert expression.variables <= set(program.references()["variables"])
    except InvalidExpression as refused:
        told = str(refused)
    assert "cost is not known" not in told


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ExpressionSyntaxError):
        assert parse(text).kind
