"""Mismatches of plain data with a type, explained by the JSON Schema of the type.

Every front of an operation tells the same: a tool call is checked by this schema, and the body of a
REST request, a form of the console or a command is explained by it where the conversion fails.
"""

import re
from typing import Any

import msgspec

from schemas.json_schema.checker import ArgumentProblem, Checker
from schemas.memo import Memo

CHECKERS = 512  # of types; an operation has two

_PLACE = re.compile(r"^(?P<what>.*?)(?: - at `(?P<place>[^`]*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_OF_TIMES = re.compile(r"Invalid RFC3339|Expected `datetime\b")
_OF_FORMATS = re.compile(r"Invalid (ISO8601|UUID|base64)")  # which schemas do not check
_TIME = "expected a time with its zone, as RFC 3339 has it, such as 2030-01-31T12:00:00Z"
_TEXT = 500

_checkers: Memo[str, Checker | None] = Memo(CHECKERS)


def explain_mismatch(
    value: Any, kind: Any, error: msgspec.ValidationError, *, secret: bool = False
) -> list[ArgumentProblem]:
    """Problems of a value that cannot be converted to `kind`, for the reason `error`; at least one.
    `secret`: without values."""
    checker = _checker(kind)
    try:
        problems = checker.explain(value, secret=secret) if checker is not None else []
    except ValueError:  # nested too deeply, or too costly to check
        problems = []
    return problems or [_of_conversion(error, checker)]


def mismatch_text(value: Any, kind: Any, error: msgspec.ValidationError) -> str:
    """The problems as one text."""
    problems = explain_mismatch(value, kind, error)
    return "; ".join(f"{p.argument}: {p.message}" if p.path else p.message for p in problems)


def _checker(kind: Any) -> Checker | None:
    """None for a type without a schema."""
    key = repr(kind)
    if (checker := _checkers.use(key)) is not None:
        return checker
    try:
        schema = msgspec.json.encode(msgspec.json.schema(kind))
        return _checkers.put(key, Checker(schema, described=True))
    except (TypeError, ValueError):
        return None


def _of_conversion(error: msgspec.ValidationError, checker: Checker | None) -> ArgumentProblem:
    """The words of what no schema tells: of a type's own checks, or about a format."""
    match = _PLACE.match(str(error))
    problem, place = (match["what"], match["place"] or "$") if match else (str(error), "$")
    path = tuple(name or int(index) for name, index in _STEP.findall(place))
    if _OF_TIMES.match(problem):  # a description is that of the member: "only records since then"
        problem = _TIME
    elif _OF_FORMATS.match(problem) and checker is not None and (text := checker.description(path)):
        problem = f"expected {text}"
    return ArgumentProblem(path, problem[:_TEXT])
