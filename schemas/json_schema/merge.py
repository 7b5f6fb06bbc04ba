"""Conjunction and disjunction of schemas, as one schema without `allOf`, `anyOf` and `oneOf`.

To omit one of several conjunctive rules widens; so where two rules clash, the first stays.
"""

from collections.abc import Callable, Sequence
from typing import Any

from schemas.json_schema.keywords import Json

_GROUPS = (("if", "then", "else"), ("contains", "minContains", "maxContains"))
_UNEVALUATED_KEYWORDS = ("unevaluatedProperties", "unevaluatedItems")
_TEXTS = ("title", "description")


def conjoin(left: Json, right: Json) -> Json:
    """A schema that accepts at least what both accept: their conjunction, perhaps widened."""
    merged = {key: value for key, value in left.items() if key not in _UNEVALUATED_KEYWORDS}
    skipped = {key for group in _GROUPS if not merged.keys().isdisjoint(group) for key in group}
    for key, value in right.items():
        if key in skipped or key in _UNEVALUATED_KEYWORDS:
            continue
        merged[key] = _both(key, merged[key], value) if key in merged else value
    return merged


def _both(key: str, left: Any, right: Any) -> Any:
    match key, left, right:
        case "properties", dict(), dict():
            return {**right, **{name: _property(left[name], right.get(name)) for name in left}}
        case "patternProperties" | "$defs" | "definitions", dict(), dict():
            return {**right, **left}
        case "required", list(), list():
            return [*left, *(name for name in right if name not in left)]
        case "additionalProperties", _, False:
            return False
        case "type", _, _:
            return _type(_types(left) & _types(right)) or left
        case "enum", list(), list():
            return [value for value in left if value in right] or left
    return left


def _property(left: Any, right: Any) -> Any:
    return conjoin(left, right) if isinstance(left, dict) and isinstance(right, dict) else left


def disjoin(branches: Sequence[Any], union: Callable[[list[Any]], Any]) -> Json:
    """A schema that accepts whatever any branch accepts, and perhaps more. `union` combines several
    schemas of the same property."""
    schemas = [branch for branch in branches if isinstance(branch, dict)]
    if len(schemas) < len(branches):
        schemas += [{} for branch in branches if branch is True]
    merged: Json = {}
    types = [_types(schema["type"]) if "type" in schema else None for schema in schemas]
    if types and all(type_names is not None for type_names in types):
        merged["type"] = _type(frozenset[str]().union(*(type_names or () for type_names in types)))
    objects = [
        schema for schema in schemas if "type" not in schema or "object" in _types(schema["type"])
    ]
    arrays = [
        schema for schema in schemas if "type" not in schema or "array" in _types(schema["type"])
    ]
    if objects:
        merged |= _objects(objects, union)
    if arrays and all("items" in schema and "prefixItems" not in schema for schema in arrays):
        merged["items"] = _unite([schema["items"] for schema in arrays], union)
    if schemas and (values := _values(schemas)) is not None:
        merged["enum"] = values
    for key in (*_TEXTS, "format"):
        if len({str(schema.get(key)) for schema in schemas}) == 1 and key in schemas[0]:
            merged[key] = schemas[0][key]
    return merged


def _objects(schemas: list[Json], union: Callable[[list[Any]], Any]) -> Json:
    merged: Json = {}
    names = list(
        dict.fromkeys(name for schema in schemas for name in schema.get("properties") or {})
    )
    if names:
        merged["properties"] = {name: _united_property(name, schemas, union) for name in names}
    lists = [schema.get("required") or [] for schema in schemas]
    if shared := [name for name in lists[0] if all(name in each for each in lists)]:
        merged["required"] = shared
    if all(_is_closed(schema) for schema in schemas):
        merged["additionalProperties"] = False
    return merged


def _united_property(name: str, schemas: list[Json], union: Callable[[list[Any]], Any]) -> Any:
    stated = [
        schema["properties"][name] for schema in schemas if name in (schema.get("properties") or {})
    ]
    if any(
        name not in (stated_schema.get("properties") or {}) and not _is_closed(stated_schema)
        for stated_schema in schemas
    ):
        texts = (
            stated_schema.get("description")
            for stated_schema in stated
            if isinstance(stated_schema, dict)
        )
        text = next((text for text in texts if text), None)
        return {"description": text} if text else {}
    return _unite(stated, union)


def _unite(schemas: list[Any], union: Callable[[list[Any]], Any]) -> Any:
    first = schemas[0]
    return first if all(schema == first for schema in schemas) else union(schemas)


def _is_closed(schema: Json) -> bool:
    return schema.get("additionalProperties") is False and "patternProperties" not in schema


def _values(schemas: list[Json]) -> list[Any] | None:
    """Union of all enumerated values; None if one schema has no enumeration."""
    values: list[Any] = []
    for schema in schemas:
        if "const" not in schema and not isinstance(schema.get("enum"), list):
            return None
        stated = [schema["const"]] if "const" in schema else schema["enum"]
        values += [
            value for value in stated if not any(_same(value, present) for present in values)
        ]
    return values


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and bool(left == right)


def _types(value: Any) -> frozenset[str]:
    names = frozenset([value] if isinstance(value, str) else value)
    return names | {"integer"} if "number" in names else names


def _type(names: frozenset[str]) -> Any:
    """The value of `type`; None: any type."""
    plain = sorted(names - {"integer"} if "number" in names else names)
    return plain[0] if len(plain) == 1 else plain or None
