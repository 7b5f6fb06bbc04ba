"""Nothing but the tables of kinds tells kinds apart: no class of a binding is tested for, and no
name of a kind is compared with, outside what is named here."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.source import KINDS

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "config", "registry", "gateway")
BINDINGS = {one.binding.__name__ for one in KINDS.values()} | {"Binding", "ServiceBinding"}
OWN = {  # of settings, where each kind has a key of its own, of what makes tools of two
    # kinds, and of what writes a tool of any kind down as the request that makes it
    "config/source_conflicts.py",
    "gateway/cli/doctor/environment.py",
    "gateway/admin/requests_from_views.py",
    "registry/importers/hybrid/actions_to_tools.py",
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def is_class_test(node: ast.AST) -> bool:
    """`isinstance(x, McpBinding | ...)` or `case McpBinding():`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        named = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        return node.func.id == "isinstance" and not named.isdisjoint(BINDINGS)
    return (
        isinstance(node, ast.MatchClass)
        and isinstance(node.cls, ast.Name)
        and node.cls.id in BINDINGS
    )


def is_name_test(node: ast.AST) -> bool:
    """`kind == "mcp"`, `source.kind in ("openapi", "graphql")`."""
    if not isinstance(node, ast.Compare):
        return False
    texts = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
    left = node.left
    name = left.attr if isinstance(left, ast.Attribute) else getattr(left, "id", "")
    return name == "kind" and not texts.isdisjoint(KINDS)


def test_kinds_are_told_apart_by_their_tables_alone() -> None:
    found = [
        f"{path}:{getattr(node, 'lineno', 0)}"
        for path, module in modules()
        if path not in OWN
        for node in ast.walk(module)
        if is_class_test(node) or is_name_test(node)
    ]
    assert not found, (
        "make it a fact of the binding or of the source: schemas/binding.py, source.py"
    )


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("isinstance(tool.binding, McpBinding)", True),
        ("isinstance(one, OpenAPIBinding | GraphQLBinding)", True),
        ("isinstance(tool, Tool)", False),
        ("source.kind == 'mcp'", True),
        ("kind not in ('python', 'command')", True),
        ("item.kind == 'prompt'", False),
    ],
)
def test_tests_for_a_kind_are_recognised(code: str, expected: bool) -> None:
    [node] = ast.parse(code).body
    assert isinstance(node, ast.Expr)
    assert (is_class_test(node.value) or is_name_test(node.value)) is expected
