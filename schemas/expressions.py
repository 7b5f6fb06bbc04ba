"""CEL expressions of rules (https://cel.dev): compiled when rules are read, evaluated when calls
are made. Pure.

The library converts what it is given value by value, some microseconds each, takes as long as a
rule says (two macros inside each other: the square of a list), and its stack ends where values are
nested some thousands deep. So `too_large` is asked first of everything that callers choose.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

import cel

from schemas.errors import ToolgateError

_FUNCTIONS = frozenset(
    {
        *("size", "contains", "startsWith", "endsWith", "matches", "type", "dyn"),
        *("int", "uint", "double", "string", "bytes", "timestamp", "duration"),
        *("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfYear", "getDayOfWeek"),
        *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
    }
)
# What a macro calls the members that it looks at: `items.all(item, item.price < 5)`.
_NAMED = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(\s*([A-Za-z_]\w*)\s*,")
# What a variable is followed by, where only a part of it is looked at: `principal.claims.team`.
_MEMBER = r"\s*\.\s*([A-Za-z_]\w*)(?!\w)(?!\s*\()"
_PART = rf"\b%s\b(?:{_MEMBER}(?:{_MEMBER})?)?"
_FAILURES = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)
_DETAIL = 200  # characters of what the library says


class InvalidExpression(ToolgateError):
    """A text is no expression, or names what there is not."""


class ExpressionFailed(ToolgateError):
    """An expression has no answer for these values: a member is missing, types do not fit."""


class Expression:
    """A compiled expression; `variables` are those that it looks at."""

    __slots__ = ("_parts", "_program", "text", "variables")

    def __init__(self, text: str, program: cel.Program, variables: frozenset[str]) -> None:
        self.text = text
        self.variables = variables
        self._program = program
        self._parts = {name: _parts(text, name) for name in variables}

    def seen(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What of `values` it looks at, and perhaps some more: it says the same of equal parts."""
        parts = self._parts
        return {name: _part(values[name], parts[name]) for name in parts if name in values}

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it is true of `values`, which are JSON and more than what it looks at. Raises
        ExpressionFailed, also for what is neither true nor false."""
        try:
            if missing := self.variables - values.keys():
                raise KeyError(min(missing))
            held = self._program.execute(self.seen(values))
        except _FAILURES as error:
            reason = str(error).partition("\n")[0][:_DETAIL]
            kind = "there is no member " if isinstance(error, KeyError) else ""
            raise ExpressionFailed(f"{kind}{reason}") from error
        if held is not True and held is not False:
            raise ExpressionFailed("it is neither true nor false")
        return held


def compile_expression(text: str, variables: Collection[str]) -> Expression:
    """Raises InvalidExpression that names what is wrong, and where in `text`."""
    try:
        program = cel.compile(text)
    except ValueError as error:
        raise InvalidExpression(_readable(str(error))) from error
    used = program.references()
    named = set(_NAMED.findall(text))
    wanted = frozenset(used["variables"]) - (named - set(variables))
    if unknown := sorted(wanted - set(variables)):
        there = ", ".join(variables)
        raise InvalidExpression(f"there is no variable {unknown[0]!r}; there are {there}")
    operators = {one for one in used["functions"] if not one[0].isalpha()}
    if unknown := sorted(set(used["functions"]) - operators - _FUNCTIONS):
        raise InvalidExpression(f"there is no function {unknown[0]!r}")
    return Expression(text, program, wanted)


def too_large(value: Any, most_values: int, most_bytes: int, most_levels: int) -> str | None:
    """What of JSON is more than an expression gets, "more than 1,000 values"; None: nothing."""
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


_Parts = dict[str, "_Parts | None"]  # members, and of each the members; None: all of it


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
    """`Failed to parse expression '...': ERROR: <input>:1:5: Syntax error: ...` without all that
    repeats the expression."""
    if "Recursion limit" in error:
        return "it is nested too deeply"
    found = re.search(r"<input>:(\d+):(\d+): ([^\n|]*)", error)
    if found is None:
        return "it is no CEL expression"
    line, column, text = found.groups()
    return f"line {line}, character {column}: {text.strip()[:_DETAIL]}"
