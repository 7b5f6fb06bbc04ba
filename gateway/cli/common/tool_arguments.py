"""A tool's arguments: explained to people, and parsed from the shell."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gateway.cli.common.failure import USAGE, fail
from schemas.errors import ParseError
from schemas.json_schema.checker import Checker
from schemas.json_schema.references import find, reference_of
from schemas.jsonrpc import decode_json

OBJECT = """expected a JSON object, as in '{"limit": 3}'"""
OPTIONS_SHOWN = 8
DEPTH = 4  # maximum depth of references and alternatives followed to name a type
SAMPLES = {"integer": "1", "number": "1.5", "boolean": "true", "array": "'[]'", "object": "'{}'"}


class Argument(Struct, frozen=True):
    name: str
    kind: str  # "integer", "one of cat, dog", "array of string"
    required: bool
    description: str


def arguments_of(schema: Mapping[str, Any]) -> list[Argument]:
    """The properties of a tool's input schema, required ones first."""
    required = schema.get("required", [])
    arguments = [
        Argument(
            name,
            _kind(schema_, schema),
            name in required,
            str(schema_.get("description", "")) if isinstance(schema_, dict) else "",
        )
        for name, schema_ in schema.get("properties", {}).items()
    ]
    return sorted(arguments, key=lambda argument: not argument.required)


def example(name: str, arguments: Sequence[Argument]) -> str:
    """A command that calls the tool with its required arguments."""
    pairs = [
        f"{argument.name}={_sample(argument.kind)}" for argument in arguments if argument.required
    ]
    return " ".join(["toolgate tools call", name, *pairs])


def _sample(kind: str) -> str:
    if kind.startswith("one of "):
        return kind.removeprefix("one of ").partition(",")[0]
    return SAMPLES.get(kind.partition(" ")[0], "TEXT")


def _kind(schema: Any, root: Mapping[str, Any], depth: int = DEPTH) -> str:
    if not isinstance(schema, dict) or depth == 0:
        return "any"
    if (reference := reference_of(schema)) is not None:
        return _kind(find(root, reference), root, depth - 1)
    if options := schema.get("enum"):
        more = ", …" if len(options) > OPTIONS_SHOWN else ""
        named = map(_option_text, options[:OPTIONS_SHOWN])
        return f"one of {', '.join(named)}{more}"
    if kinds := list(dict.fromkeys(_alternatives(schema, root, depth))):
        return " or ".join(kinds)
    return "any"


def _option_text(option: Any) -> str:
    return "null" if option is None else str(option) or '""'


def _alternatives(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Iterator[str]:
    types = schema.get("type", [])
    for type_ in [types] if isinstance(types, str) else types:
        inner = _kind(schema.get("items"), root, depth - 1) if type_ == "array" else "any"
        yield type_ if inner == "any" else f"array of {inner}"
    for keyword in ("anyOf", "oneOf"):
        for branch in schema.get(keyword, []):
            yield _kind(branch, root, depth - 1)


def read_object(text: str, option: str = "--args") -> dict[str, Any]:
    """Parsed value of an option."""
    try:
        value = decode_json(text.encode())
    except ParseError as error:
        fail(f"{option}: {error}; {OBJECT}", USAGE)
    if not isinstance(value, dict):
        fail(f"{option}: {OBJECT}", USAGE)
    return value


def read_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE pairs, with unparsed values."""
    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            fail(f"{pair!r}: expected NAME=VALUE, as in limit=3", USAGE)
        if name in values:
            fail(f'{name} is given twice. A list is one value: {name}=\'["a", "b"]\'', USAGE)
        values[name] = value
    return values


def parse_arguments(
    pairs: Mapping[str, str], members: Mapping[str, Any], checker: Checker
) -> dict[str, Any]:
    """`members` and `pairs`, whose values are parsed as JSON except where the schema wants text."""
    arguments = {**members, **{name: json_or_text(text) for name, text in pairs.items()}}
    for name in _rejected_arguments(checker, arguments) & pairs.keys():
        as_text = {**arguments, name: pairs[name]}
        if name not in _rejected_arguments(checker, as_text):
            arguments = as_text
    return arguments


def _rejected_arguments(checker: Checker, arguments: Mapping[str, Any]) -> set[str]:
    try:
        return {problem.argument for problem in checker.explain(arguments)}
    except ValueError:  # not validated here; the call reports it
        return set()


def json_or_text(text: str) -> Any:
    try:
        return decode_json(text.encode())
    except ParseError:
        return text
