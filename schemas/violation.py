"""Error messages for schema violations in hybrid data, in the wording of light-hybrid-4j.

light-hybrid-4j reports the first violation as its validator words it: a path that begins with $,
then the rule. A `message` keyword in the violated schema replaces all of that (a text, or one text
for each keyword).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from schemas.validators import ValidationError

SHOWN = 300  # characters of a message: patterns and enumerations may be long

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


def describe(error: ValidationError, schema: Mapping[str, Any], below: str | None = None) -> str:
    """`error` as a sentence; `schema` is the whole one that it comes from.

    `below` is the argument that holds all of the data, and is not part of the client's path.
    """
    keyword, parent = _violated(error, schema)
    custom = parent.get("message")
    text = custom.get(keyword) if isinstance(custom, dict) else custom
    if isinstance(text, str):
        return text
    steps = list(error.instance_path)
    if below is not None and steps[:1] == [below]:
        del steps[0]
    return f"{_hybrid_path(steps)}: {_words(error, keyword, parent)}"[:SHOWN]


def _violated(error: ValidationError, schema: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The violated keyword and the schema that contains it; {} where an embedded `$id`
    makes the path start elsewhere."""
    steps = list(error.schema_path) or [""]
    found: Any = schema
    try:
        for step in steps[:-1]:
            found = found[str(step) if isinstance(found, dict) else step]  # a property "0" is 0
    except (LookupError, TypeError):
        found = {}
    return str(steps[-1]), found if isinstance(found, dict) else {}


def _words(error: ValidationError, keyword: str, parent: dict[str, Any]) -> str:
    kind, value = error.kind, error.instance
    match keyword:
        case "required":
            return f"required property '{getattr(kind, 'property', '')}' not found"
        case "type":
            wanted = parent.get("type", getattr(kind, "types", ""))
            expected = wanted if isinstance(wanted, str) else f"[{', '.join(wanted)}]"
            return f"{_NAMES.get(type(value), 'value')} found, {expected} expected"
        case "additionalProperties" | "unevaluatedProperties":
            names = getattr(kind, "unexpected", [""])
            return (
                f"property '{names[0]}' is not defined in the schema and the schema does not "
                "allow additional properties"
            )
    if keyword not in parent or keyword not in _WORDS:
        return error.message[:SHOWN]
    return _WORDS[keyword].replace("{limit}", _parameter(parent[keyword]))


def _parameter(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _hybrid_path(steps: Iterable[str | int]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
