"""Keywords of older dialects of JSON Schema in those of 2020-12.

A single schema is read as stated in OpenAPI 3.0 (4.7.24, an extended subset of the Wright draft 00)
and drafts 4 to 7, in 3.1 documents as well: many were converted by changing the version only.
"""

from typing import Any

from schemas.json_schema.keywords import COMPOSITIONS

_COMPOSITION = frozenset({"$ref", *COMPOSITIONS, "not", "if"})
_ANNOTATIONS = frozenset({"title", "description", "default", "example", "examples", "deprecated"})
_MARKERS = frozenset(
    {"nullable", "exclusiveMinimum", "exclusiveMaximum", "example", "dependencies", "items"}
    | {"x-nullable"}  # Swagger 2.0 has no `nullable`
)


def modernise(schema: dict[str, Any]) -> dict[str, Any]:
    """Convert old keywords; returns `schema` itself if it has none. Subschemas are unchanged."""
    if _MARKERS.isdisjoint(schema):
        return schema
    modern = dict(schema)
    _convert_bound(modern, "maximum", "exclusiveMaximum")
    _convert_bound(modern, "minimum", "exclusiveMinimum")
    _example(modern)
    _tuple(modern)
    _dependencies(modern)
    stated = modern.pop("nullable", None), modern.pop("x-nullable", None)
    return _nullable(modern) if True in stated else modern


def _convert_bound(schema: dict[str, Any], limit: str, exclusive: str) -> None:
    """Draft 4: `maximum: 5, exclusiveMaximum: true` is `exclusiveMaximum: 5`."""
    flag = schema.get(exclusive)
    if isinstance(flag, bool):
        del schema[exclusive]
        if flag and limit in schema:
            schema[exclusive] = schema.pop(limit)


def _example(schema: dict[str, Any]) -> None:
    if "example" in schema:
        example = schema.pop("example")
        schema.setdefault("examples", [example])


def _tuple(schema: dict[str, Any]) -> None:
    """Up to 2019-09, `items` could be a list, one schema per position."""
    if isinstance(schema.get("items"), list):
        schema["prefixItems"] = schema.pop("items")
        if "additionalItems" in schema:
            schema["items"] = schema.pop("additionalItems")


def _dependencies(schema: dict[str, Any]) -> None:
    """Up to draft 7, one keyword for property names and schemas."""
    dependencies = schema.pop("dependencies", None)
    if isinstance(dependencies, dict):
        names = {key: value for key, value in dependencies.items() if isinstance(value, list)}
        schemas = {key: value for key, value in dependencies.items() if key not in names}
        schema.update({"dependentRequired": names} if names else {})
        schema.update({"dependentSchemas": schemas} if schemas else {})


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """3.0's `nullable`, read as meant: beside `enum` and `$ref` it is often written alone, where
    3.0.3 would give it no effect. Accepting null too much costs a 400, too little a call."""
    if not _COMPOSITION.isdisjoint(schema):
        return _or_null(schema)
    if isinstance(schema.get("type"), str | list):
        stated = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        schema["type"] = stated if "null" in stated else [*stated, "null"]
    if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    if "const" in schema:
        schema["enum"] = [schema.pop("const"), None]
    return schema


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    inner = {key: value for key, value in schema.items() if key not in _ANNOTATIONS}
    outer = {key: value for key, value in schema.items() if key in _ANNOTATIONS}
    return {"anyOf": [inner, {"type": "null"}], **outer}
