"""The table of threats is whole: each line has tests, and there are tests of those names."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
TABLE = Path(__file__).with_name("THREATS.md").read_text()
LINES = {row[1]: row[0] for row in re.finditer(r"^\| ([A-Z]+\d+) \|.*$", TABLE, re.MULTILINE)}


@cache
def named_in(path: str) -> frozenset[str]:
    """Without running any of it."""
    tree = ast.parse((TESTS / path).read_text())
    found = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in found if node.name.startswith("test_"))


def test_every_group_has_lines() -> None:
    assert len(LINES) == len(re.findall(r"^\| [A-Z]+\d+ \|", TABLE, re.MULTILINE))
    assert {name[0] for name in LINES} == set("TSCPUNIDBLAWKMHR")


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_threat_has_a_defence_and_existing_tests(line: str) -> None:
    _, _, threat, against, tests, _ = (cell.strip() for cell in line.split("|"))
    assert threat
    assert against
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", tests)
    assert named
    assert re.sub(r"`[\w/]+\.py::test_\w+`", "", tests).strip() == ""
    missing = [f"{path}::{name}" for path, name in named if name not in named_in(path)]
    assert missing == []
