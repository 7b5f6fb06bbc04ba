"""Removes from a schema the patterns that only some engines of regular expressions read. Pure.

A provider that compiles patterns refuses a whole request for one of them: `\\p{..}`, look-around,
back-references, named groups and flags are written differently, or not at all, in the engines of
ECMAScript, Python, Rust and RE2. The result accepts whatever the schema accepts.
"""

import re
from functools import lru_cache
from typing import Any

from schemas.json_schema.keywords import REFERENCE_KEYWORDS, Json
from schemas.json_schema.validators import compile_validator, patterns_in
from schemas.json_schema.walk import map_subschemas, nodes

_ESCAPE = r"\\(?:[dDwWsSbBtnrfv]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[^0-9A-Za-z\s])"
_SET = rf"\[\^?(?!\])(?:[^\\\[\]]|{_ESCAPE})*\]"  # engines read `[]` and nested sets differently
_PORTABLE = re.compile(  # `a++` is possessive in some
    rf"(?:[^\\(\[*+?}}]|[*+?}}](?!\+)|{_ESCAPE}|\((?!\?)|\(\?:|{_SET})*"
)
# Keywords that widening inside would narrow, and those that mean nothing without them.
_GROUPS = (
    ("not",),
    ("propertyNames",),
    ("if", "then", "else"),
    ("contains", "minContains", "maxContains"),
)

_REFERENCES = frozenset(REFERENCE_KEYWORDS)


@lru_cache(maxsize=1024)
def is_portable(pattern: str) -> bool:
    """Whether all engines read the pattern, and alike."""
    if _PORTABLE.fullmatch(pattern) is None:
        return False
    try:
        compile_validator({"pattern": pattern})
    except ValueError:
        return False
    return True


def with_portable_patterns(schema: Json) -> Json:
    """The schema without other patterns; itself if it has none."""
    return schema if _all_portable(schema) else _schema(schema)


def _all_portable(value: Any) -> bool:
    return all(is_portable(pattern) for _, pattern in patterns_in(value))


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(item) for item in value]
    return _schema(value) if isinstance(value, dict) else value


def _schema(schema: Json) -> Json:
    gone = {keyword for group in _GROUPS if _is_narrowed(schema.get(group[0])) for keyword in group}
    pattern, by_name = schema.get("pattern"), schema.get("patternProperties")
    if isinstance(pattern, str) and not is_portable(pattern):
        gone.add("pattern")
    if isinstance(by_name, dict) and not all(map(is_portable, by_name)):
        portable = {name: inner for name, inner in by_name.items() if is_portable(name)}
        schema = {**schema, "patternProperties": portable}
        gone |= {"additionalProperties", "unevaluatedProperties"}
    if _is_narrowed(schema.get("oneOf")):  # more than one branch may fit then
        schema = {"anyOf": schema["oneOf"], **schema}
        gone.add("oneOf")
    return {
        keyword: map_subschemas(keyword, value, _value)
        for keyword, value in schema.items()
        if keyword not in gone
    }


def _is_narrowed(value: Any) -> bool:
    """Whether a schema, or what it may refer to, has patterns that are removed."""
    return value is not None and (not _all_portable(value) or _refers(value))


def _refers(value: Any) -> bool:
    return any(isinstance(node, dict) and not _REFERENCES.isdisjoint(node) for node in nodes(value))
