"""Schema keywords without subschemas: validation of their values, and repair.

JSON Schema 2020-12, "Validation", sections 6 to 9. A keyword that is not here and holds no schema
(`xml`, `discriminator`, `externalDocs`, `x-...`, any other) does not constrain arguments and is
dropped; `x-mask` is kept, which marks what to mask (schemas/masking.py).
"""

import re
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from registry.importers.plain_text import plain
from schemas.json_schema.validators import compile_validator
from schemas.masking import KEYWORD
from schemas.untrusted_json import nested_at_most

ABSENT: Final = object()
VALUE_DEPTH_LIMIT = 32  # nesting levels in a default, an example or an enumerated value

QUOTED_BOOLEANS: Final = {"true": True, "false": False}  # booleans in quotes

# A value to keep, or ABSENT; and the problem found, or None.
ValueAndProblem = tuple[Any, str | None]

TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
# seen in public descriptions
_TYPE_SYNONYMS = {
    "file": "string",
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
}


def _text(value: Any) -> ValueAndProblem:
    return (value, None) if isinstance(value, str) else (ABSENT, "is not text")


def _prose(value: Any) -> ValueAndProblem:
    return (plain(value), None) if isinstance(value, str) else (ABSENT, "is not text")


def _flag(value: Any) -> ValueAndProblem:
    if isinstance(value, bool):
        return value, None
    if isinstance(value, str) and value in QUOTED_BOOLEANS:
        return QUOTED_BOOLEANS[value], None  # lossless
    return ABSENT, "is not true or false"


def _number(value: Any) -> ValueAndProblem:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value, None
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", value):
        return (float(value) if "." in value else int(value)), None
    return ABSENT, "is not a number"


def _positive(value: Any) -> ValueAndProblem:
    number, problem = _number(value)
    return (number, problem) if number is ABSENT or number > 0 else (ABSENT, "is not above 0")


def _count(value: Any) -> ValueAndProblem:
    number, problem = _number(value)
    if number is ABSENT or number < 0 or number != int(number):
        return ABSENT, "is not a whole number from 0"
    return int(number), problem


def _type(value: Any) -> ValueAndProblem:
    stated = value if isinstance(value, list) else [value]
    names = list(dict.fromkeys(_type_name(name) for name in stated))
    is_known = all(str(name) in TYPES or str(name).lower() in _TYPE_SYNONYMS for name in stated)
    problem = None if is_known else f"{value!r:.60} is unknown"
    if not names:
        return ABSENT, "is empty"
    if not TYPES.issuperset(names):
        return ABSENT, problem  # an unknown alternative could allow anything
    return (names if isinstance(value, list) else names[0]), problem


def _type_name(value: Any) -> str:
    name = str(value)
    return name if name in TYPES else _TYPE_SYNONYMS.get(name.lower(), name.lower())


def _names(value: Any) -> ValueAndProblem:
    if not isinstance(value, list):
        return ABSENT, "is not a list"
    names = list(dict.fromkeys(name for name in value if isinstance(name, str)))
    return names or ABSENT, None if len(names) == len(value) else "has members that are no names"


def _names_by_name(value: Any) -> ValueAndProblem:
    if not isinstance(value, dict):
        return ABSENT, "is not an object"
    checked = {key: _names(names)[0] for key, names in value.items()}
    valid = {key: names for key, names in checked.items() if names is not ABSENT}
    return valid or ABSENT, None


def _mask(value: Any) -> ValueAndProblem:
    value = QUOTED_BOOLEANS.get(value, value) if isinstance(value, str) else value
    if isinstance(value, bool | str):
        return value, None
    return True, "is neither true nor a text"  # fail closed: its author wanted something masked


def _values(value: Any) -> ValueAndProblem:
    if not isinstance(value, list) or not value:
        return ABSENT, "is not a list of values"
    return (value, None) if nested_at_most(value, VALUE_DEPTH_LIMIT) else (ABSENT, "is too deep")


def _examples(value: Any) -> ValueAndProblem:
    values, _ = _values(value)
    return values, None  # display only


def _anything(value: Any) -> ValueAndProblem:
    return (value, None) if nested_at_most(value, VALUE_DEPTH_LIMIT) else (ABSENT, "is too deep")


def _pattern(value: Any) -> ValueAndProblem:
    if not isinstance(value, str):
        return ABSENT, "is not text"
    return (value, None) if compiles(value) else (ABSENT, f"{value[:80]!r} cannot be compiled")


@lru_cache(maxsize=4096)
def compiles(pattern: str) -> bool:
    """Whether both validators accept `pattern`: jsonschema-rs checks, jsonschema explains."""
    try:
        compile_validator({"pattern": pattern})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # "[[" may change its meaning one day
            re.compile(pattern)
    except (ValueError, re.error, RecursionError, OverflowError):
        return False
    return True


CHECKS: Final[dict[str, Callable[[Any], ValueAndProblem]]] = {
    "type": _type,
    "enum": _values,
    "const": _anything,
    "title": _text,
    "description": _prose,
    "default": _anything,
    "examples": _examples,
    "deprecated": _flag,
    "format": _text,
    "pattern": _pattern,
    "contentEncoding": _text,
    "contentMediaType": _text,
    "multipleOf": _positive,
    "maximum": _number,
    "exclusiveMaximum": _number,
    "minimum": _number,
    "exclusiveMinimum": _number,
    **dict.fromkeys(("maxLength", "minLength", "maxItems", "minItems"), _count),
    **dict.fromkeys(("maxProperties", "minProperties", "maxContains", "minContains"), _count),
    "uniqueItems": _flag,
    "required": _names,
    "dependentRequired": _names_by_name,
    KEYWORD: _mask,
}

ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated"})
