"""JSON Schema: compile once, check fast, explain well.

One validator does both, `jsonschema_rs`: 0.4 us a check. Its regular expressions run in linear
time, where the `re` module of the pure Python validator is open to ReDoS by a client's value.
`format` is an annotation here, the default of 2020-12.

Violations in hybrid data are reported in the wording of light-hybrid-4j, which reports the first
violation as its validator words it: a path that begins with $, then the rule. A `message` keyword
in the violated schema replaces all of that (a text, or one text for each keyword).
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from schemas.errors import ParseError
from schemas.json_schema.cost import LEVELS, check_cost
from schemas.json_schema.pattern_cost import SchemaPattern
from schemas.json_schema.references import find, reference_of
from schemas.json_schema.validators import (
    MATCHING_ALL,
    Meter,
    SchemaTooCostly,
    ValidationError,
    ValidationErrorKind,
    compile_validator,
    is_cheap,
    pattern_cost,
    unknown_dialect,
)
from schemas.json_schema.walk import subschemas
from schemas.jsonrpc import decode_json, json_type
from schemas.urls import without_credentials

MESSAGE_CHARACTERS = 300  # characters of a message: patterns and enumerations may be long

_NAMES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array",
          dict: "object", type(None): "null"}  # fmt: skip

# keyword -> text; {limit} is the keyword's value in the schema
_WORDS = {
    "enum": "does not have a value in the enumeration {limit}",
    "const": "must be the constant value '{limit}'",
    "minLength": "must be at least {limit} characters long",
    "maxLength": "must be at most {limit} characters long",
    "pattern": "does not match the regex pattern {limit}",
    "minimum": "must have a minimum value of {limit}",
    "maximum": "must have a maximum value of {limit}",
    "exclusiveMinimum": "must have an exclusive minimum value of {limit}",
    "exclusiveMaximum": "must have an exclusive maximum value of {limit}",
    "multipleOf": "must be multiple of {limit}",
    "minItems": "must have at least {limit} items",
    "maxItems": "must have at most {limit} items",
    "uniqueItems": "must have only unique items in the array",
    "minProperties": "must have at least {limit} properties",
    "maxProperties": "must have at most {limit} properties",
    "oneOf": "must be valid to one and only one schema",
    "anyOf": "must be valid to any of the schemas",
    "not": "must not be valid to the schema",
}

# keyword -> text, which completes "expected ..."; of schemas of our own types
_EXPECTATIONS = {
    "minLength": "at least {limit} character{s}",
    "maxLength": "at most {limit} character{s}",
    "minimum": "at least {limit}",
    "maximum": "at most {limit}",
    "exclusiveMinimum": "more than {limit}",
    "exclusiveMaximum": "less than {limit}",
    "minItems": "at least {limit} item{s}",
    "maxItems": "at most {limit} item{s}",
    "minProperties": "at least {limit} member{s}",
    "maxProperties": "at most {limit} member{s}",
}

PROBLEMS_SHOWN = 8  # enough to correct a call in one go; a thousand would flood the model
NAMES_SHOWN = 20
NAMES_COMPARED = 200  # with a misspelled one; thousands would take seconds
VALUE_SHOWN = 60  # characters of a rejected value
MESSAGE_SHOWN = 240
PARTS_EXPLAINED = 5000  # values inside the arguments; of more, only the first problem is explained
EVALUATIONS_EXPLAINED = 20_000  # schema evaluations over all values: some 10 us each
FIRST_EXPLAINED = 2_000  # at one value
EVALUATIONS_FREE = 64  # at one value: affordable for every value that a body can hold
EVALUATIONS_LIMIT = 20_000_000  # over all values, for schemas above LOOKS_FREE at one value
HOPS = 16  # references and alternatives in a row that lead to a description
_UNEXPLAINED_TEXT = "does not fit the schema, which is too complex to locate the error"


def describe(error: ValidationError, schema: Mapping[str, Any], below: str | None = None) -> str:
    """`error` as a sentence; `schema` is the whole one that it comes from.

    `below` is the argument that holds all of the data, and is not part of the client's path.
    """
    keyword, parent = _violated_keyword(error, schema)
    custom = parent.get("message")
    text = custom.get(keyword) if isinstance(custom, dict) else custom
    if isinstance(text, str):
        return text
    steps = list(error.instance_path)
    if below is not None and steps[:1] == [below]:
        del steps[0]
    return f"{_hybrid_path(steps)}: {_words(error, keyword, parent)}"[:MESSAGE_CHARACTERS]


def _violated_keyword(
    error: ValidationError, schema: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The violated keyword and the schema that contains it; {} where an embedded `$id`
    makes the path start elsewhere."""
    steps = list(error.schema_path) or [""]
    parent: Any = schema
    try:
        for step in steps[:-1]:
            parent = parent[str(step) if isinstance(parent, dict) else step]  # a property "0" is 0
    except (LookupError, TypeError):
        parent = {}
    return str(steps[-1]), parent if isinstance(parent, dict) else {}


def _words(error: ValidationError, keyword: str, parent: dict[str, Any]) -> str:
    kind, value = error.kind, error.instance
    match keyword:
        case "required":
            return f"required property '{getattr(kind, 'property', '')}' not found"
        case "type":
            types = parent.get("type", getattr(kind, "types", ""))
            expected = types if isinstance(types, str) else f"[{', '.join(types)}]"
            return f"{_NAMES.get(type(value), 'value')} found, {expected} expected"
        case "additionalProperties" | "unevaluatedProperties":
            names = getattr(kind, "unexpected", [""])
            return (
                f"property '{names[0]}' is not defined in the schema and the schema does not "
                "allow additional properties"
            )
    if keyword not in parent or keyword not in _WORDS:
        return error.message[:MESSAGE_CHARACTERS]
    return _WORDS[keyword].replace("{limit}", _parameter(parent[keyword]))


def _parameter(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _hybrid_path(steps: Iterable[str | int]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


class ArgumentProblem(Struct, frozen=True):
    """One violation in the arguments of a call, or in the body of a request."""

    path: tuple[str | int, ...]  # to the value; empty for the arguments as a whole
    message: str

    @property
    def argument(self) -> str:
        """The path as text: "pet.tags[0]"; empty for the arguments as a whole."""
        return _path(self.path)


class Checker:
    """A compiled input schema."""

    __slots__ = ("_compiled", "_cost", "_described", "_guard", "_schema", "accepts")

    def __init__(self, schema: bytes, *, described: bool = False) -> None:
        """`described`: descriptions beside patterns complete the sentence "expected ...", as those
        of our own types do. Raises ValueError when `schema` is not a valid JSON Schema, or too
        costly to check."""
        try:
            self._schema: dict[str, Any] = decode_json(schema)
        except ParseError as error:
            raise ValueError(error.message) from error
        if isinstance(self._schema, dict) and unknown_dialect(self._schema) is not None:
            self._schema = {}  # its keywords may mean something else: anything is accepted
        self._described = described
        self._cost = check_cost(self._schema)
        patterns = pattern_cost(self._schema)
        evaluations = self._cost.at_most
        if evaluations > EVALUATIONS_FREE or not (
            is_cheap(patterns.texts, evaluations) and is_cheap(patterns.names, evaluations)
        ):
            evaluations = self._cost.evaluations
        meter = None if is_cheap(patterns.texts, evaluations) else Meter()
        self._guard: _Guard | None = None
        self._compiled = compile_validator(self._schema, meter)
        # Whether arguments are valid. Raises ValueError for arguments nested too deeply to be
        # checked, SchemaTooCostly for those that would take too long.
        self.accepts: Callable[[Any], bool] = self._compiled.is_valid
        if meter or evaluations > EVALUATIONS_FREE or not is_cheap(patterns.names, evaluations):
            self._guard = _Guard(meter, evaluations, patterns.names)
            self.accepts = partial(self._accepts, self._guard)

    def _accepts(self, guard: "_Guard", arguments: Any) -> bool:
        guard.admit(arguments)
        valid = self._compiled.is_valid(arguments)
        guard.settle()
        return valid

    def explain(self, arguments: Any, *, secret: bool = False) -> list[ArgumentProblem]:
        """The problems of rejected `arguments`; empty when they are valid. `secret`: without the
        values."""
        if self._guard:
            self._guard.admit(arguments)
        errors = self._errors(arguments)
        if errors is None:
            return [] if self.accepts(arguments) else [ArgumentProblem((), _UNEXPLAINED_TEXT)]
        if self._guard:
            self._guard.settle()
        problems = (problem for error in errors for problem in self._problems(error, secret=secret))
        return list(islice(problems, PROBLEMS_SHOWN))

    def description(self, path: Iterable[str | int]) -> str:
        """The description of the value at `path`; "" without one."""
        schema: Any = self._schema
        for step in path:
            schema = next(
                filter(None, (_below(choice, step) for choice in self._choices(schema))), {}
            )
        descriptions = (choice.get("description") for choice in self._choices(schema))
        return next((text for text in descriptions if isinstance(text, str)), "")

    def _choices(self, schema: Any, hops: int = HOPS) -> Iterator[dict[str, Any]]:
        """The schema, what it references, and its alternatives."""
        if not isinstance(schema, dict) or not hops:
            return
        yield schema
        if (reference := reference_of(schema)) is not None:
            yield from self._choices(find(self._schema, reference), hops - 1)
        for choice in subschemas(schema, ["anyOf"]):
            yield from self._choices(choice, hops - 1)

    def violation(self, data: Any, below: str | None = None) -> str:
        """The first violation in `data`, in the words of light-hybrid-4j. Raises
        SchemaTooCostly."""
        if self._guard:
            self._guard.admit(data)
        if self._cost.with_errors(_measure(data)[1]) > FIRST_EXPLAINED:
            return "" if self.accepts(data) else f"$: {_UNEXPLAINED_TEXT}"
        try:
            self._compiled.validate(data)
        except ValidationError as error:
            if self._guard:
                self._guard.settle()
            return describe(error, self._schema, below)
        if self._guard:
            self._guard.settle()
        return ""

    def _errors(self, arguments: Any) -> Iterable[ValidationError] | None:
        """The validation errors; None: they would take too long to find."""
        parts, levels = _measure(arguments)
        evaluations = self._cost.with_errors(levels)
        if parts <= PARTS_EXPLAINED and parts * evaluations <= EVALUATIONS_EXPLAINED:
            return self._compiled.iter_errors(arguments)  # not lazy: 10 us for each
        if evaluations > FIRST_EXPLAINED:
            return None
        try:
            self._compiled.validate(arguments)
        except ValidationError as error:
            return [error]
        return []

    def _problems(self, error: ValidationError, *, secret: bool) -> Iterator[ArgumentProblem]:
        where = tuple(error.instance_path)
        got = "" if secret else f", got {_excerpt(error.instance)}"
        match error.kind:
            case ValidationErrorKind.AnyOf(context) | ValidationErrorKind.OneOfNotValid(context):
                place, branches = _selected_branches(context)
                if branches:
                    for inner in _nearest(branches):
                        yield from self._problems(inner, secret=secret)
                else:
                    yield _no_branch(place, context, secret=secret)
            case ValidationErrorKind.Required(name):
                yield ArgumentProblem((*where, name), "is required")
            case ValidationErrorKind.AdditionalProperties(names):
                known_names = self._known_names(error)
                for name in names:
                    yield ArgumentProblem(
                        (*where, _cut(name, VALUE_SHOWN)), _not_known(name, known_names)
                    )
            case ValidationErrorKind.Type(types):
                yield ArgumentProblem(where, f"expected {' or '.join(sorted(types))}{got}")
            case ValidationErrorKind.Enum(options):
                allowed = ", ".join(_excerpt(option) for option in options[:NAMES_SHOWN])
                yield ArgumentProblem(where, f"expected one of {allowed}{got}")
            case _:
                expected = self._expectation(error)
                if expected:
                    yield ArgumentProblem(where, f"expected {expected}{got}")
                else:
                    text = "is not as expected" if secret else _shorten(error.message)
                    yield ArgumentProblem(where, text)

    def _expectation(self, error: ValidationError) -> str:
        """Expectation of a described schema; "" where the validator has to say it."""
        if not self._described:
            return ""
        keyword, parent = _violated_keyword(error, self._schema)
        if keyword == "pattern" and "description" in parent:
            return str(parent["description"])
        if keyword not in parent or keyword not in _EXPECTATIONS:
            return ""
        limit = _parameter(parent[keyword])
        return _EXPECTATIONS[keyword].format(limit=limit, s="" if limit == "1" else "s")

    def _known_names(self, error: ValidationError) -> list[str]:
        """Names in the `properties` beside the violated `additionalProperties`."""
        schema = _at(self._schema, error.schema_path[:-1])
        return list(schema.get("properties", ())) if isinstance(schema, dict) else []


def _at(schema: Any, steps: Iterable[str | int]) -> Any:
    """The part of a schema at a path; None: there is none, as where it went through a reference."""
    for step in steps:
        try:
            schema = schema[step]
        except (KeyError, IndexError, TypeError):
            return None
    return schema


def _below(schema: dict[str, Any], step: str | int) -> Any:
    """The schema of a member or an item."""
    if isinstance(step, int):
        return schema.get("items")
    return schema.get("properties", {}).get(step) or schema.get("additionalProperties")


class _Guard:
    """Cost checks of arguments before and after validation by a potentially slow schema."""

    __slots__ = ("_evaluations", "_meter", "_names")

    def __init__(self, meter: Meter | None, evaluations: int, names: SchemaPattern) -> None:
        """`names`: the cost of patterns that property names are matched with."""
        self._meter = meter
        self._evaluations = evaluations
        self._names = names

    def admit(self, arguments: Any) -> None:
        """Raises SchemaTooCostly for arguments that would take too long."""
        if self._meter:
            self._meter.reset()
        if (
            self._evaluations > EVALUATIONS_FREE
            and _parts(arguments, EVALUATIONS_LIMIT // self._evaluations) is None
        ):
            limit = EVALUATIONS_LIMIT // self._evaluations
            raise SchemaTooCostly(f"there are more than {limit:,} values to be checked")
        if self._names.letters and self._evaluations * self._naming(arguments) > MATCHING_ALL:
            raise SchemaTooCostly("there are too many names to be checked against patterns")

    def settle(self) -> None:
        """Raises SchemaTooCostly where the meter invalidated the validator's result."""
        if self._meter and self._meter.refused:
            raise SchemaTooCostly(self._meter.refused)

    def _naming(self, arguments: Any) -> int:
        return sum(self._names.matching(len(name)) for name in _names(arguments))


def _names(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield from node
        if isinstance(node, dict | list):
            pending.extend(node.values() if isinstance(node, dict) else node)


def _parts(value: Any, limit: int) -> int | None:
    """Number of values inside, counted recursively; None: more than `limit`."""
    pending, count = [value], 0
    while pending:
        node = pending.pop()
        count += 1
        if isinstance(node, dict | list):
            pending.extend(node.values() if isinstance(node, dict) else node)
        if count + len(pending) > limit:
            return None
    return count


def _measure(value: Any) -> tuple[int, int]:
    """Number of values and of levels; above PARTS_EXPLAINED values, that plus one, and the levels
    seen so far."""
    level, parts, levels = [value], 0, 0
    while level:
        parts += len(level)
        if parts > PARTS_EXPLAINED:
            return PARTS_EXPLAINED + 1, LEVELS
        level = [
            inner
            for member in level
            if isinstance(member, dict | list)
            for inner in (member.values() if isinstance(member, dict) else member)
        ]
        levels += bool(level)
    return parts, levels


_Place = tuple[str | int, ...]


def _selected_branches(
    branches: list[list[ValidationError]],
) -> tuple[_Place, list[list[ValidationError]]]:
    """The branches that the value of a discriminator selects, and the place of that value: where
    most branches allow only some values. No branches: none allows the value. All: no discriminator.
    """
    refusals: dict[_Place, tuple[int, int]] = {}  # branches, and those that expect one value
    for errors in branches:
        for error in errors:
            if expected := _expected_values(error):
                place = tuple(error.instance_path)
                count, constants = refusals.get(place, (0, 0))
                refusals[place] = count + 1, constants + (len(expected) == 1)
    best = [place for place in refusals if refusals[place] == max(refusals.values())]
    if len(best) != 1:
        return (), branches
    place = best[0]
    beside = [errors for errors in branches if not _refuses(errors, place)]
    same_type = [errors for errors in branches if not _is_of_another_type(errors, place[:-1])]
    return place, beside or ([] if refusals[place][0] == len(same_type) else branches)


def _expected_values(error: ValidationError) -> list[Any]:
    """The values that `error` expects, where these are listed."""
    match error.kind:
        case ValidationErrorKind.Constant(value):
            return [value]
        case ValidationErrorKind.Enum(options):
            return list(options)
    return []


def _refuses(errors: list[ValidationError], place: _Place) -> bool:
    """Whether a branch refuses the value at `place`, or what holds it."""
    at_place = any(tuple(error.instance_path) == place for error in errors)
    return at_place or _is_of_another_type(errors, place[:-1])


def _is_of_another_type(errors: list[ValidationError], place: _Place) -> bool:
    return any(
        tuple(error.instance_path) == place and isinstance(error.kind, ValidationErrorKind.Type)
        for error in errors
    )


def _no_branch(
    place: _Place, branches: list[list[ValidationError]], *, secret: bool
) -> ArgumentProblem:
    errors = [e for errors in branches for e in errors if tuple(e.instance_path) == place]
    options = dict.fromkeys(
        _excerpt(value) for error in errors for value in _expected_values(error)
    )
    got = "" if secret else f", got {_excerpt(errors[0].instance)}"
    return ArgumentProblem(place, f"expected one of {', '.join(list(options)[:NAMES_SHOWN])}{got}")


def _nearest(branches: Iterable[list[ValidationError]]) -> list[ValidationError]:
    """Errors of the best match among alternatives that all failed."""

    def distance(errors: list[ValidationError]) -> tuple[int, int]:
        deepest = max((len(error.instance_path) for error in errors), default=0)
        return -deepest, len(errors)

    return min(branches, key=distance, default=[])


def _not_known(name: str, known_names: list[str]) -> str:
    close = difflib.get_close_matches(name[:VALUE_SHOWN], known_names[:NAMES_COMPARED], n=1)
    if close:
        return f"is not known; did you mean {close[0]!r}?"
    return f"is not known; expected: {', '.join(known_names[:NAMES_SHOWN]) or 'nothing more'}"


def _path(steps: Iterable[str | int]) -> str:
    path = ""
    for step in steps:
        path = f"{path}[{step}]" if isinstance(step, int) else _join(path, step)
    return path


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _excerpt(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    if isinstance(value, dict | list):
        return json_type(value)
    if isinstance(value, str):
        return _cut(f'"{without_credentials(value)}"', VALUE_SHOWN)
    return _cut(str(value), VALUE_SHOWN)


def _shorten(text: str) -> str:
    """A message with its middle left out: it begins with the value and ends with the reason."""
    if len(text) <= MESSAGE_SHOWN:
        return text
    return f"{text[:VALUE_SHOWN]}…{text[VALUE_SHOWN - MESSAGE_SHOWN :]}"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
