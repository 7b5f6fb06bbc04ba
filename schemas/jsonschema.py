"""JSON Schema: compile once, check fast, explain well.

One validator does both, `jsonschema_rs`: 0.4 us a check. Its regular expressions run in linear
time, where the `re` module of the pure Python validator can be made to hang by a value that a
client chose. `format` is an annotation here, as 2020-12 has it by default.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from schemas.errors import ParseError
from schemas.jsonrpc import decode_json, json_type
from schemas.schema_cost import check_cost
from schemas.validators import ValidationError, ValidationErrorKind, compiled
from schemas.violation import describe

PROBLEMS_SHOWN = 8  # enough to mend a call in one go; a thousand would drown the model
NAMES_SHOWN = 20
NAMES_COMPARED = 200  # with one that is wrong; thousands would take seconds
VALUE_SHOWN = 60  # characters of a rejected value
MESSAGE_SHOWN = 240
PARTS_EXPLAINED = 5000  # values inside the arguments; more have their first problem explained


@dataclass(frozen=True, slots=True)
class ArgumentProblem:
    """One thing that is wrong with the arguments."""

    argument: str  # "pet.tags[0]"; empty for the arguments as a whole
    message: str


class Checker:
    """A compiled input schema."""

    __slots__ = ("_compiled", "_schema")

    def __init__(self, schema: bytes) -> None:
        """Raises ValueError when `schema` is not a valid JSON Schema, or none that can be checked
        in time."""
        try:
            self._schema: dict[str, Any] = decode_json(schema)
        except ParseError as error:
            raise ValueError(error.message) from error
        check_cost(self._schema)
        self._compiled = compiled(self._schema)

    def accepts(self, arguments: Any) -> bool:
        """Raises ValueError for arguments that are nested too deeply to be checked."""
        return self._compiled.is_valid(arguments)

    def explain(self, arguments: Mapping[str, Any]) -> list[ArgumentProblem]:
        """What is wrong with `arguments`; empty when nothing is."""
        errors = self._errors(arguments)
        found = (problem for error in errors for problem in self._problems(error))
        return list(islice(found, PROBLEMS_SHOWN))

    def violation(self, data: Any, below: str | None = None) -> str:
        """The first thing that is wrong with `data`, as `schemas.violation` puts it."""
        try:
            self._compiled.validate(data)
        except ValidationError as error:
            return describe(error, self._schema, below)
        return ""

    def _errors(self, arguments: Mapping[str, Any]) -> Iterable[ValidationError]:
        if _is_small(arguments):
            return self._compiled.iter_errors(arguments)  # all at once: 10 us for each
        try:
            self._compiled.validate(arguments)
        except ValidationError as error:
            return [error]
        return []

    def _problems(self, error: ValidationError) -> Iterator[ArgumentProblem]:
        where = _path(error.instance_path)
        match error.kind:
            case ValidationErrorKind.AnyOf(context) | ValidationErrorKind.OneOfNotValid(context):
                for inner in _nearest(context):
                    yield from self._problems(inner)
            case ValidationErrorKind.Required(name):
                yield ArgumentProblem(_join(where, name), "is required")
            case ValidationErrorKind.AdditionalProperties(names):
                known = self._known(error)
                for name in names:
                    yield ArgumentProblem(
                        _join(where, _cut(name, VALUE_SHOWN)), _not_known(name, known)
                    )
            case ValidationErrorKind.Type(types):
                wanted = " or ".join(sorted(types))
                yield ArgumentProblem(where, f"expected {wanted}, got {_shown(error.instance)}")
            case ValidationErrorKind.Enum(options):
                allowed = ", ".join(_shown(option) for option in options[:NAMES_SHOWN])
                yield ArgumentProblem(
                    where, f"expected one of {allowed}, got {_shown(error.instance)}"
                )
            case _:
                yield ArgumentProblem(where, _shortened(error.message))

    def _known(self, error: ValidationError) -> list[str]:
        """The properties beside the `additionalProperties` that was violated."""
        schema: Any = self._schema
        for step in error.schema_path[:-1]:
            try:
                schema = schema[step]
            except (KeyError, IndexError, TypeError):
                return []  # the path went through a reference
        return list(schema.get("properties", ())) if isinstance(schema, dict) else []


def _is_small(arguments: Mapping[str, Any]) -> bool:
    left: list[Any] = [arguments]
    for _ in range(PARTS_EXPLAINED):
        if not left:
            return True
        value = left.pop()
        if isinstance(value, dict | list):
            left.extend(value.values() if isinstance(value, dict) else value)
    return not left


def _nearest(branches: Iterable[list[ValidationError]]) -> list[ValidationError]:
    """Of several alternatives that all failed, the one that the value was probably meant for."""

    def distance(errors: list[ValidationError]) -> tuple[int, int]:
        deepest = max((len(error.instance_path) for error in errors), default=0)
        return -deepest, len(errors)

    return min(branches, key=distance, default=[])


def _not_known(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name[:VALUE_SHOWN], known[:NAMES_COMPARED], n=1)
    if close:
        return f"is not known; did you mean {close[0]!r}?"
    return f"is not known; expected: {', '.join(known[:NAMES_SHOWN]) or 'nothing more'}"


def _path(steps: Iterable[str | int]) -> str:
    path = ""
    for step in steps:
        path = f"{path}[{step}]" if isinstance(step, int) else _join(path, step)
    return path


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    if isinstance(value, dict | list):
        return json_type(value)
    return _cut(f'"{value}"' if isinstance(value, str) else str(value), VALUE_SHOWN)


def _shortened(text: str) -> str:
    """A message with its middle left out: it begins with the value and ends with the reason."""
    if len(text) <= MESSAGE_SHOWN:
        return text
    return f"{text[:VALUE_SHOWN]}…{text[VALUE_SHOWN - MESSAGE_SHOWN :]}"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
