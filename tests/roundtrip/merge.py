"""Two flat schemas as one that demands what both demand, as far as a generator has to know."""

from typing import Any

Json = dict[str, Any]

_MOST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")


class Impossible(Exception):
    """Nothing fits, or nothing that this generator can find."""


def merge(left: Json, right: Json) -> Json:
    both = dict(_list_pattern(left))
    for key, value in _list_pattern(right).items():
        both[key] = _join_keyword(key, both[key], value) if key in both else value
    return both


def _list_pattern(schema: Json) -> Json:
    """With `pattern` as one of `patterns`."""
    if "pattern" not in schema:
        return schema
    rest = {key: value for key, value in schema.items() if key != "pattern"}
    return {**rest, "patterns": [*rest.get("patterns", []), schema["pattern"]]}


def _join_keyword(key: str, left: Any, right: Any) -> Any:
    if key == "properties":
        return {
            **left,
            **right,
            **{name: _all(left[name], right[name]) for name in left if name in right},
        }
    if key in ("required", "patterns"):
        return [*left, *right]
    if key in _MOST:
        return min(left, right)
    if key in _LEAST:
        return max(left, right)
    if key == "type":
        return _types(left, right)
    if key == "enum":
        return [value for value in left if value in right] or _nothing()
    if key == "const" and left != right:
        _nothing()
    if key == "additionalProperties":
        return right if left is True else left if right is True else _close_objects(left, right)
    return _all(left, right) if key == "items" else right


def _close_objects(left: Any, right: Any) -> Any:
    return False if left is False or right is False else _all(left, right)


def _all(left: Any, right: Any) -> Any:
    return left if left == right else {"allOf": [left, right]}


def _types(left: Any, right: Any) -> Any:
    ours, theirs = ([kind] if isinstance(kind, str) else list(kind) for kind in (left, right))
    if "integer" in ours and "number" in theirs:
        theirs.append("integer")
    if "integer" in theirs and "number" in ours:
        ours.append("integer")
    shared = [kind for kind in ours if kind in theirs] or _nothing()
    return shared[0] if len(shared) == 1 else shared


def _nothing() -> Any:
    raise Impossible("two demands that exclude one another")
