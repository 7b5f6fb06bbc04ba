"""Descriptions of our own: every place, style and body there is, in each version. They stand in for
real ones where there are none, and for what real ones do not use."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests.roundtrip.odd import odd

Json = dict[str, Any]

_TEXT: Json = {"type": "string"}
_SHAPES: dict[str, Json] = {
    "scalar": _TEXT,
    "whole": {"type": "integer"},
    "share": {"type": "number"},
    "switch": {"type": "boolean"},
    "array": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "numbers": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
    "object": {
        "type": "object",
        "properties": {"red": {"type": "integer"}, "blue": {"type": "string", "minLength": 1}},
        "additionalProperties": False,
        "required": ["red"],
    },
}
_STYLES: dict[str, tuple[str, ...]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
_DEEP: Json = {
    "type": "object",
    "properties": {
        "at": {"type": "object", "properties": {"gte": {"type": "integer"}, "lt": _TEXT}},
        "of": {"type": "array", "items": {"type": "object", "properties": {"id": _TEXT}}},
    },
}
_SCHEMAS: Json = {
    "Pet": {
        "type": "object",
        "required": ["name", "kind"],
        "properties": {
            "id": {"type": "integer", "readOnly": True},
            "name": {"type": "string", "maxLength": 400},
            "kind": {"type": "string", "enum": ["cat", "dog", "a b&c"]},
            "born": {"type": "string", "format": "date"},
            "weight": {"type": "number", "minimum": 0.5, "maximum": 90},
            "chip": {"type": "string", "pattern": "^[0-9]{3}-[a-f]{4,}$"},
            "parents": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}},
            "owner": {"allOf": [{"$ref": "#/components/schemas/Person"}]},
            "tags": {"type": "object", "additionalProperties": {"type": "string"}},
            "home": {"oneOf": [{"type": "string"}, {"$ref": "#/components/schemas/Person"}]},
        },
    },
    "Person": {
        "type": "object",
        "required": ["mail"],
        "properties": {
            "mail": {"type": "string", "format": "email"},
            "pets": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}},
        },
    },
}
_FLAT: Json = {
    "type": "object",
    "required": ["title"],
    "properties": {
        "title": _TEXT,
        "count": {"type": "integer"},
        "open": {"type": "boolean"},
        "labels": {"type": "array", "items": _TEXT, "minItems": 1},
    },
}
_UPLOAD: Json = {
    "type": "object",
    "required": ["file", "title"],
    "properties": {
        **_FLAT["properties"],
        "file": {"type": "string", "format": "binary"},
        "more": {"type": "array", "items": {"type": "string", "format": "binary"}, "minItems": 1},
        "about": {"type": "object", "properties": {"size": {"type": "integer"}}},
    },
}
_XML_PET: Json = {
    "type": "object",
    "xml": {"name": "pet"},
    "required": ["name"],
    "properties": {
        "id": {"type": "integer", "xml": {"attribute": True}},
        "name": _TEXT,
        "size": {"type": "integer", "xml": {"name": "how-big"}},
        "friend": {"type": "array", "items": _TEXT, "minItems": 1},
        "toys": {
            "type": "array",
            "minItems": 1,
            "xml": {"wrapped": True},
            "items": {"type": "string", "xml": {"name": "toy"}},
        },
        "home": {"type": "object", "properties": {"city": _TEXT}, "required": ["city"]},
    },
}


def write_all(directory: Path) -> list[Path]:
    """One file for each version."""
    return [_write_json(directory / f"ours-{name}.json", one) for name, one in all_versions()]


def all_versions() -> Iterator[tuple[str, Json]]:
    for version in ("3.0", "3.1", "3.2"):
        yield version, describe_api(version)
    yield "2.0", swagger()
    for version in ("3.1", "3.2"):
        yield f"odd-{version}", odd(version)


def describe_api(version: str) -> Json:
    """OpenAPI 3.x."""
    paths = dict(_parameters()) | dict(_bodies(version))
    if version == "3.2":
        paths["/querystring"] = {"get": _querystring()}
        paths["/search"] = {"query": _operation("search", body={"application/json": _FLAT})}
    return {
        "openapi": f"{version}.{1 if version == '3.1' else 0}",
        "info": {"title": f"Everything in {version}", "version": "1"},
        "servers": [{"url": "https://example.com"}],
        "paths": paths,
        "components": {"schemas": _SCHEMAS},
    }


def _parameters() -> Iterator[tuple[str, Json]]:
    for location, styles in _STYLES.items():
        for style in styles:
            for explode in (False, True):
                for shape, schema in _SHAPES.items():
                    if _legal(style, explode, shape):
                        yield _one(location, style, explode, shape, schema)
    yield (
        "/deep",
        {"get": _operation("deep", [_query("deep", _DEEP, style="deepObject", explode=True)])},
    )
    reserved = _query("reserved", _TEXT, allowReserved=True)
    yield "/reserved", {"get": _operation("reserved", [reserved])}
    content = {"name": "in", "in": "query", "content": {"application/json": {"schema": _FLAT}}}
    yield "/content", {"get": _operation("content", [content])}
    both = [_query("id", _TEXT), {**_query("id", _TEXT), "in": "header"}, _path("id", _TEXT)]
    yield "/same/{id}", {"put": _operation("same", both, {"application/json": _with_id()})}
    parts = [_path("from", {"type": "integer"}), _path("to", {"type": "integer"})]
    yield "/range/{from}..{to}", {"parameters": parts, "get": _operation("range")}
    odd = [_query("x[]", _TEXT), _query("$top", {"type": "integer"}), _query("a b&c", _TEXT)]
    yield "/odd names/ü", {"get": _operation("odd", odd)}


def _legal(style: str, explode: bool, shape: str) -> bool:
    if style in ("spaceDelimited", "pipeDelimited"):
        return not explode and shape in ("array", "numbers", "object")
    return style != "deepObject" or (explode and shape == "object")


def _one(location: str, style: str, explode: bool, shape: str, schema: Json) -> tuple[str, Json]:
    name = f"{location}-{style}-{'explode-' if explode else ''}{shape}"
    parameter = {
        "name": "color",
        "in": location,
        "style": style,
        "explode": explode,
        "required": location == "path",
        "schema": schema,
    }
    path = f"/{name}/{{color}}" if location == "path" else f"/{name}"
    return path, {"get": _operation(name, [parameter])}


def _bodies(version: str) -> Iterator[tuple[str, Json]]:
    pet = {"$ref": "#/components/schemas/Pet"}
    form = "application/x-www-form-urlencoded"
    bodies: dict[str, dict[str, Json]] = {
        "json": {"application/json": pet},
        "array": {"application/json": {"type": "array", "items": pet}},
        "merge": {"application/merge-patch+json": pet},
        "anything": {"application/json": {}},
        "text": {"text/plain": _TEXT},
        "bytes": {"application/octet-stream": {"type": "string", "format": "binary"}},
        "form": {form: _FLAT},
        "upload": {"multipart/form-data": _UPLOAD},
        "xml": {"application/xml": _XML_PET},
    }
    if version != "3.0":
        bodies["image"] = {"image/png": {}}
        bodies["nullable"] = {"application/json": {"type": ["object", "null"], **_without_type()}}
    for name, content in bodies.items():
        yield f"/body/{name}", {"post": _operation(f"body-{name}", body=content)}
    styled = {"style": "deepObject", "explode": True}
    deep = {"type": "object", "properties": {"deep": _DEEP, "title": _TEXT}}
    operation = _operation("body-styled", body={form: deep})
    operation["requestBody"]["content"][form]["encoding"] = {"deep": styled}
    yield "/body/styled", {"post": operation}


def _without_type() -> Json:
    return {key: value for key, value in _FLAT.items() if key != "type"}


def _with_id() -> Json:
    return {"type": "object", "properties": {"id": _TEXT, "name": _TEXT}}


def _querystring() -> Json:
    form = {"application/x-www-form-urlencoded": {"schema": _FLAT}}
    return _operation("querystring", [{"name": "all", "in": "querystring", "content": form}])


def _query(name: str, schema: Json, **more: Any) -> Json:
    return {"name": name, "in": "query", "schema": schema, **more}


def _path(name: str, schema: Json) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _operation(
    name: str, parameters: list[Json] | None = None, body: dict[str, Json] | None = None
) -> Json:
    operation: Json = {
        "operationId": name,
        "summary": f"What {name} does",
        "parameters": parameters or [],
        "responses": {"200": {"description": "Done"}},
    }
    if body:
        content = {media_type: {"schema": schema} for media_type, schema in body.items()}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def swagger() -> Json:
    """Swagger 2.0."""
    return {
        "swagger": "2.0",
        "info": {"title": "Everything in 2.0", "version": "1"},
        "host": "example.com",
        "basePath": "/",
        "schemes": ["https"],
        "consumes": ["application/json"],
        "paths": dict(_collections()) | dict(_old_bodies()),
        "definitions": msgspec.json.decode(
            msgspec.json.encode(_SCHEMAS).replace(b"#/components/schemas/", b"#/definitions/")
        ),
    }


def _collections() -> Iterator[tuple[str, Json]]:
    for location in ("path", "query", "header"):
        for collection in (
            "csv",
            "ssv",
            "tsv",
            "pipes",
            *(["multi"] if location == "query" else []),
        ):
            name = f"{location}-{collection}"
            parameter = {
                "name": "color",
                "in": location,
                "type": "array",
                "items": {"type": "string", "minLength": 1},
                "minItems": 1,
                "collectionFormat": collection,
                "required": location == "path",
            }
            path = f"/{name}/{{color}}" if location == "path" else f"/{name}"
            yield path, {"get": _operation(name, [parameter])}


def _old_bodies() -> Iterator[tuple[str, Json]]:
    pet = {"name": "pet", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Pet"}}
    yield "/body/json", {"post": _operation("body-json", [pet])}
    for name, media_type in (
        ("form", "application/x-www-form-urlencoded"),
        ("upload", "multipart/form-data"),
    ):
        fields = [
            {"name": "title", "in": "formData", "type": "string", "required": True},
            {"name": "count", "in": "formData", "type": "integer"},
            {"name": "tags", "in": "formData", "type": "array", "items": _TEXT, "minItems": 1,
             "collectionFormat": "multi"},
        ]  # fmt: skip
        if name == "upload":
            fields.append({"name": "file", "in": "formData", "type": "file", "required": True})
        operation = {**_operation(f"body-{name}", fields), "consumes": [media_type]}
        yield f"/body/{name}", {"post": operation}


def _write_json(path: Path, document: Json) -> Path:
    path.write_bytes(msgspec.json.encode(document))
    return path
