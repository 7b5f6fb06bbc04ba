"""Two flat schemas as one that demands what both demand, as far as a generator has to know."""

from typing import Any

Json = dict[str, Any]

_MOST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")


class Impossible(Exception):
    """Nothing fits, or nothing that this generator can find."""


def merge(one: Json, other: Json) -> Json:
    both = dict(_list_pattern(one))
    for key, value in _list_pattern(other).items():
        both[key] = _join_keyword(key, both[key], value) if key in both else value
    return both


def _list_pattern(schema: Json) -> Json:
    """With `pattern` as one of `patterns`."""
    if "pattern" not in schema:
        return schema
    rest = {key: value for key, value in schema.items() if key != "pattern"}
    return {**rest, "patterns": [*rest.get("patterns", []), schema["pattern"]]}


def _join_keyword(key: str, one: Any, other: Any) -> Any:
    if key == "properties":
        return {
            **one,
            **other,
            **{name: _all(one[name], other[name]) for name in one if name in other},
        }
    if key in ("required", "patterns"):
        return [*one, *other]
    if key in _MOST:
        return min(one, other)
    if key in _LEAST:
        return max(one, other)
    if key == "type":
        return _types(one, other)
    if key == "enum":
        return [value for value in one if value in other] or _nothing()
    if key == "const" and one != other:
        _nothing()
    if key == "additionalProperties":
        return other if one is True else one if other is True else _close_objects(one, other)
    return _all(one, other) if key == "items" else other


def _close_objects(one: Any, other: Any) -> Any:
    return False if one is False or other is False else _all(one, other)


def _all(one: Any, other: Any) -> Any:
    return one if one == other else {"allOf": [one, other]}


def _types(one: Any, other: Any) -> Any:
    ours, theirs = ([kind] if isinstance(kind, str) else list(kind) for kind in (one, other))
    if "integer" in ours and "number" in theirs:
        theirs.append("integer")
    if "integer" in theirs and "number" in ours:
        ours.append("integer")
    shared = [kind for kind in ours if kind in theirs] or _nothing()
    return shared[0] if len(shared) == 1 else shared


def _nothing() -> Any:
    raise Impossible("two demands that exclude one another")
