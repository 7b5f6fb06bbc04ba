"""Schemas without unions: what several of them accept, in one that accepts no less. Pure.

To leave out one of several rules that all hold widens; so where two rules clash, the first stays.
"""

from collections.abc import Callable, Sequence
from typing import Any

Json = dict[str, Any]

_GROUPS = (("if", "then", "else"), ("contains", "minContains", "maxContains"))
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_TEXTS = ("title", "description")


def conjoined(one: Json, other: Json) -> Json:
    """What both accept, and perhaps more."""
    merged = {key: value for key, value in one.items() if key not in _UNEVALUATED}
    skipped = {key for group in _GROUPS if not merged.keys().isdisjoint(group) for key in group}
    for key, value in other.items():
        if key in skipped or key in _UNEVALUATED:
            continue
        merged[key] = _both(key, merged[key], value) if key in merged else value
    return merged


def _both(key: str, one: Any, other: Any) -> Any:
    match key, one, other:
        case "properties", dict(), dict():
            return {**other, **{name: _property(one[name], other.get(name)) for name in one}}
        case "patternProperties" | "$defs" | "definitions", dict(), dict():
            return {**other, **one}
        case "required", list(), list():
            return [*one, *(name for name in other if name not in one)]
        case "additionalProperties", _, False:
            return False
        case "type", _, _:
            return _type(_types(one) & _types(other)) or one
        case "enum", list(), list():
            return [value for value in one if value in other] or one
    return one


def _property(one: Any, other: Any) -> Any:
    return conjoined(one, other) if isinstance(one, dict) and isinstance(other, dict) else one


def disjoined(branches: Sequence[Any], union: Callable[[list[Any]], Any]) -> Json:
    """What any of them accepts, and perhaps more. `union` makes one of several schemas of the same
    property."""
    schemas = [branch for branch in branches if isinstance(branch, dict)]
    if len(schemas) < len(branches):
        schemas += [{} for branch in branches if branch is True]
    merged: Json = {}
    types = [_types(one["type"]) if "type" in one else None for one in schemas]
    if types and all(one is not None for one in types):
        merged["type"] = _type(frozenset[str]().union(*(one or () for one in types)))
    objects = [one for one in schemas if "type" not in one or "object" in _types(one["type"])]
    arrays = [one for one in schemas if "type" not in one or "array" in _types(one["type"])]
    if objects:
        merged |= _objects(objects, union)
    if arrays and all("items" in one and "prefixItems" not in one for one in arrays):
        merged["items"] = _united([one["items"] for one in arrays], union)
    if schemas and (values := _values(schemas)) is not None:
        merged["enum"] = values
    for key in (*_TEXTS, "format"):
        if len({str(one.get(key)) for one in schemas}) == 1 and key in schemas[0]:
            merged[key] = schemas[0][key]
    return merged


def _objects(schemas: list[Json], union: Callable[[list[Any]], Any]) -> Json:
    merged: Json = {}
    names = list(dict.fromkeys(name for one in schemas for name in one.get("properties") or {}))
    if names:
        merged["properties"] = {name: _united_property(name, schemas, union) for name in names}
    lists = [one.get("required") or [] for one in schemas]
    if shared := [name for name in lists[0] if all(name in each for each in lists)]:
        merged["required"] = shared
    if all(_closed(one) for one in schemas):
        merged["additionalProperties"] = False
    return merged


def _united_property(name: str, schemas: list[Json], union: Callable[[list[Any]], Any]) -> Any:
    stated = [one["properties"][name] for one in schemas if name in (one.get("properties") or {})]
    if any(name not in (one.get("properties") or {}) and not _closed(one) for one in schemas):
        texts = (one.get("description") for one in stated if isinstance(one, dict))
        text = next((text for text in texts if text), None)
        return {"description": text} if text else {}
    return _united(stated, union)


def _united(schemas: list[Any], union: Callable[[list[Any]], Any]) -> Any:
    first = schemas[0]
    return first if all(one == first for one in schemas) else union(schemas)


def _closed(schema: Json) -> bool:
    return schema.get("additionalProperties") is False and "patternProperties" not in schema


def _values(schemas: list[Json]) -> list[Any] | None:
    """All values of enumerations; None where one of the schemas has none."""
    values: list[Any] = []
    for one in schemas:
        if "const" not in one and not isinstance(one.get("enum"), list):
            return None
        found = [one["const"]] if "const" in one else one["enum"]
        values += [value for value in found if not any(_same(value, had) for had in values)]
    return values


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _types(stated: Any) -> frozenset[str]:
    names = frozenset([stated] if isinstance(stated, str) else stated)
    return names | {"integer"} if "number" in names else names


def _type(names: frozenset[str]) -> Any:
    """As it is written; None: there is none."""
    plain = sorted(names - {"integer"} if "number" in names else names)
    return plain[0] if len(plain) == 1 else plain or None
