"""CEL expressions of rules (https://cel.dev): compiled when rules are read, evaluated when calls
are made. Pure.

The library converts its input value by value, some microseconds each, has no time limit (two
nested macros: the square of a list), and overflows its stack where values are nested some
thousands deep. So `too_large` first checks everything that callers choose, and an expression
that could exceed its bound of steps (`schemas.expression_cost`) is rejected, or fails for inputs
that are too large for it.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

import cel

from schemas.errors import ToolgateError
from schemas.expression_cost import (
    LOWEST,
    LOWEST_OF_TOOL,
    SIZES,
    TooCostly,
    most_size,
    size_of,
    steps_of,
)
from schemas.expression_syntax import Node, NoExpression, parse

_FUNCTIONS = frozenset(
    {
        *("size", "contains", "startsWith", "endsWith", "matches", "type", "dyn"),
        *("int", "uint", "double", "string", "bytes", "timestamp", "duration"),
        *("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfYear", "getDayOfWeek"),
        *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
    }
)
_OF_A_CALL = frozenset(("arguments", "value"))  # variables that differ with each call
_OF_A_TOOL = frozenset(("tool", "source"))  # with each tool: 10,000 evaluations per list of 10,000
PER_TOOL = 50  # divisor of the steps for an expression over a tool alone
ENOUGH = SIZES[-1]  # more than the size of any input
CONVERTED = 32  # steps to convert one unit of size; a cheaper expression is accepted
# What follows a variable of which only a part is used: `principal.claims.team`.
_MEMBER = r"\s*\.\s*([A-Za-z_]\w*)(?!\w)(?!\s*\()"
_PART = rf"\b%s\b(?:{_MEMBER}(?:{_MEMBER})?)?"
_FAILURES = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)
_DETAIL = 200  # characters of the library's error message


class InvalidExpression(ToolgateError):
    """The text is not a valid expression, or uses an unknown name."""


class ExpressionFailed(ToolgateError):
    """Evaluation failed for these values: a member is missing, types do not fit."""


class Expression:
    """A compiled expression; `variables` are those that it uses."""

    __slots__ = ("_most", "_parts", "_program", "text", "variables")

    def __init__(
        self, text: str, program: cel.Program, variables: frozenset[str], most: int
    ) -> None:
        """`most`: largest input size within its bound of steps."""
        self.text = text
        self.variables = variables
        self._program = program
        self._most = most
        self._parts = {name: _parts(text, name) for name in variables}

    def seen(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The parts of `values` that it uses, or a superset: equal parts give equal results."""
        parts = self._parts
        return {name: _part(values[name], parts[name]) for name in parts if name in values}

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it is true of `values`, which are JSON and may hold more than it uses. Raises
        ExpressionFailed, also for a result that is not a boolean."""
        try:
            if missing := self.variables - values.keys():
                raise KeyError(min(missing))
            held = self._program.execute(self._bounded(self.seen(values)))
        except _FAILURES as error:
            reason = str(error).partition("\n")[0][:_DETAIL]
            kind = "there is no member " if isinstance(error, KeyError) else ""
            raise ExpressionFailed(f"{kind}{reason}") from error
        if held is not True and held is not False:
            raise ExpressionFailed("it is neither true nor false")
        return held

    def _bounded(self, seen: dict[str, Any]) -> dict[str, Any]:
        """`seen`, if its size is within the bound. Raises ExpressionFailed."""
        if self._most < ENOUGH and size_of(seen, self._most) > self._most:
            most = f"{self._most:,} values, or {self._most * 64:,} bytes of text"
            raise ExpressionFailed(f"it would take too long for more than {most}")
        return seen


def compile_expression(text: str, variables: Collection[str], steps: int) -> Expression:
    """Compile an expression of at most `steps`. Raises InvalidExpression with the reason and the
    position in `text`."""
    try:
        tree = parse(text)
        program = cel.compile(text)
    except NoExpression as error:
        raise InvalidExpression(str(error)) from error
    except ValueError as error:
        raise InvalidExpression(_readable(str(error))) from error
    named, called, local = _names(tree)
    _check_agreement(program, named, called)
    wanted = frozenset(named - (local - set(variables)))
    if unknown := sorted(wanted - set(variables)):
        there = ", ".join(variables)
        raise InvalidExpression(f"there is no variable {unknown[0]!r}; there are {there}")
    if unknown := sorted(called - _FUNCTIONS):
        raise InvalidExpression(f"there is no function {unknown[0]!r}")
    per_tool = not wanted.isdisjoint(_OF_A_TOOL) and wanted.isdisjoint(_OF_A_CALL)
    if per_tool:
        return Expression(text, program, wanted, _most(tree, steps // PER_TOOL, LOWEST_OF_TOOL))
    return Expression(text, program, wanted, _most(tree, steps, LOWEST))


def _most(tree: Node, steps: int, lowest: int) -> int:
    """Largest input size for that many steps. Raises InvalidExpression where that is below
    `lowest`."""
    try:
        least = steps_of(tree, lowest)
        if steps_of(tree, ENOUGH) <= CONVERTED * ENOUGH and least <= steps:
            return ENOUGH
    except TooCostly as error:
        raise InvalidExpression(f"it may take too long: {error}") from error
    if least > steps:
        raise InvalidExpression(
            f"it may take too long: {min(least, 10**12):,} steps for {lowest} values, expected at "
            f"most {steps:,} (expression_steps); macros inside each other multiply, and literal "
            "lists count"
        )
    return most_size(tree, steps)


def _names(tree: Node) -> tuple[set[str], set[str], set[str]]:
    """Names in an expression: variables, functions, and iteration variables of macros."""
    named, called, local = set[str](), set[str](), set[str]()
    left = [tree]
    while left:
        node = left.pop()
        left.extend(node.parts)
        if node.kind == "name":
            named.add(node.name)
        elif node.kind == "macro":
            local.add(node.local)
            named.update({node.local} if node.name == "filter" else ())  # which returns it
        elif node.kind == "call" and node.name[0].isalpha() and node.name != "in":
            called.add(node.name)
    return named, called, local


def _check_agreement(program: cel.Program, named: set[str], called: set[str]) -> None:
    """Raises InvalidExpression where the library parses the text differently from the parser that
    its cost was computed with."""
    used = program.references()
    functions = {one for one in used["functions"] if one[0].isalpha()}
    if set(used["variables"]) != named or functions != called:
        raise InvalidExpression("it is written in a way whose cost is not known")


def too_large(value: Any, most_values: int, most_bytes: int, most_levels: int) -> str | None:
    """The limit that a JSON value exceeds, as "more than 1,000 values"; None: it fits."""
    values, size = 0, 0
    level: list[Any] = [value]
    for _ in range(most_levels + 1):
        below: list[Any] = []
        for one in level:
            values += 1
            if isinstance(one, str):
                size += len(one) if one.isascii() else len(one.encode("utf-8", "surrogatepass"))
            elif isinstance(one, dict):
                size += sum(map(len, one))
                below.extend(one.values())
            elif isinstance(one, list):
                below.extend(one)
            elif isinstance(one, int):
                size += one.bit_length() // 8
            if values + len(below) > most_values:
                return f"more than {most_values:,} values"
            if size > most_bytes:
                return f"more than {most_bytes:,} bytes of text"
        if not below:
            return None
        level = below
    return f"nested more than {most_levels} deep"


_Parts = dict[str, "_Parts | None"]  # tree of members; None: the whole value


def _parts(text: str, variable: str) -> _Parts | None:
    found: _Parts = {}
    for first, second in re.findall(_PART % variable, text):
        if not first:
            return None
        inner = found.setdefault(first, {})
        if not second:
            found[first] = None
        elif inner is not None:
            inner[second] = None
    return found


def _part(value: Any, parts: _Parts | None) -> Any:
    if parts is None or not isinstance(value, dict):
        return value
    return {name: _part(value[name], inner) for name, inner in parts.items() if name in value}


def _readable(error: str) -> str:
    """`Failed to parse expression '...': ERROR: <input>:1:5: Syntax error: ...` without the
    parts that repeat the expression."""
    if "Recursion limit" in error:
        return "it is nested too deeply"
    found = re.search(r"<input>:(\d+):(\d+): ([^\n|]*)", error)
    if found is None:
        return "it is no CEL expression"
    line, column, text = found.groups()
    said = text.partition(" expecting ")[0].removeprefix("Syntax error: ").strip()
    return f"line {line}, character {column}: {said[:_DETAIL]}"
