"""Statements are literal texts, or composed by `psycopg.sql`: no text is formatted or encoded past
the check of literal strings."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES = sorted(
    file for package in ("gateway", "registry") for file in (ROOT / package).rglob("*.py")
)
RUNS = ("execute", "executemany")


def _lines_of_formatted_sql(tree: ast.AST) -> Iterator[int]:
    """Lines of statements that are f-strings, or that a method of a text has made."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            statements = node.args[:1] if node.func.attr in RUNS else []
            for statement in statements:
                match statement:
                    case ast.JoinedStr() | ast.Call(func=ast.Attribute(attr="encode")):
                        yield node.lineno
                    case ast.Call(func=ast.Attribute(attr="format", value=ast.Constant())):
                        yield node.lineno
                    case ast.BinOp(left=ast.JoinedStr()) | ast.BinOp(right=ast.JoinedStr()):
                        yield node.lineno


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('c.execute(f"SELECT {x}")', [1]),
        ('c.execute("SELECT {}".format(x))', [1]),
        ("c.execute(text.encode(), values)", [1]),
        ('c.execute(sql.SQL("SELECT {}").format(x))', []),
        ('c.execute("SELECT 1")', []),
    ],
)
def test_formatted_statements_are_recognised(source: str, lines: list[int]) -> None:
    assert list(_lines_of_formatted_sql(ast.parse(source))) == lines


def test_no_statement_is_formatted_or_encoded_text() -> None:
    """Values and fragments reach a statement by psycopg alone (mending 4)."""
    formatted = {
        f"{file.relative_to(ROOT)}:{line}"
        for file in FILES
        if ".execute" in (source := file.read_text())
        for line in _lines_of_formatted_sql(ast.parse(source))
    }
    assert formatted == set()


def test_no_file_is_excepted_from_the_rule_of_formatted_statements() -> None:
    assert [file.name for file in FILES if "noqa: S608" in file.read_text()] == []
