"""A description of what is seldom used and easily got wrong: OpenAPI 3.1 and 3.2."""

from typing import Any

Json = dict[str, Any]

_TEXT: Json = {"type": "string"}
_WHOLE: Json = {"type": "integer"}
_BYTES: Json = {"type": "string", "format": "binary"}
_TEXTS: Json = {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}
_POINT: Json = {
    "type": "object",
    "required": ["x"],
    "properties": {"x": _WHOLE, "label": {"type": "string", "minLength": 1}},
    "additionalProperties": False,
}
_FORM = "application/x-www-form-urlencoded"
_MULTI = "multipart/form-data"

_SCHEMAS: Json = {
    "Book": {
        "type": "object",
        "required": ["title"],
        "xml": {"name": "book", "namespace": "urn:books", "prefix": "b"},
        "properties": {
            "id": {"type": "integer", "xml": {"attribute": True}},
            "lang": {
                "type": "string",
                "minLength": 1,
                "xml": {"attribute": True, "name": "xml-lang"},
            },
            "title": {**_TEXT, "xml": {"namespace": "urn:books", "prefix": "b"}},
            "authors": {
                "type": "array",
                "minItems": 1,
                "items": {"$ref": "#/components/schemas/Author"},
            },
            "chapters": {
                "type": "array",
                "minItems": 1,
                "xml": {"wrapped": True, "name": "contents"},
                "items": {**_TEXT, "xml": {"name": "chapter"}},
            },
            "sequel": {"$ref": "#/components/schemas/Book"},
            "draft": {"type": "boolean"},
        },
    },
    "Author": {
        "type": "object",
        "required": ["name"],
        "properties": {"name": _TEXT, "born": {"type": "integer"}},
    },
    "Base": {"type": "object", "properties": {"id": {**_WHOLE, "readOnly": True}, "name": _TEXT}},
    "Derived": {
        "allOf": [
            {"$ref": "#/components/schemas/Base"},
            {
                "type": "object",
                "required": ["id", "kind"],
                "properties": {"kind": _TEXT, "stamp": {**_TEXT, "readOnly": True}},
            },
        ]
    },
}


def odd(version: str = "3.1") -> Json:
    paths = {**_parameters(), **_json(), **_forms(), **_parts(), **_others(), **_methods()}
    if version == "3.2":
        paths["/any"]["additionalOperations"] = {"COPY": _operation("copy", body=_one(_POINT))}
    return {
        "openapi": f"{version}.0",
        "info": {"title": "Odd things", "version": "1"},
        "servers": [{"url": "https://example.com"}],
        "paths": paths,
        "components": {
            "schemas": _SCHEMAS,
            "parameters": {"Shared": _at("query", "shared", _TEXTS, explode=False)},
        },
    }


def _parameters() -> Json:
    json_header = {
        "name": "X-Json",
        "in": "header",
        "content": {"application/json": {"schema": _POINT}},
    }
    json_cookie = {
        "name": "state",
        "in": "cookie",
        "content": {"application/json": {"schema": _POINT}},
    }
    json_path = {
        "name": "p",
        "in": "path",
        "required": True,
        "content": {"application/json": {"schema": _POINT}},
    }
    return {
        "/over/{id}": {
            "parameters": [
                _at("path", "id", _WHOLE),
                _at("query", "mode", _TEXT),
                {"$ref": "#/components/parameters/Shared"},
            ],
            "get": _operation(
                "over", [_at("query", "mode", _TEXTS, style="pipeDelimited", explode=False)]
            ),
        },
        "/five/{id}": {
            "post": _operation(
                "five",
                [_at(place, "id", _TEXT) for place in ("path", "query", "header", "cookie")],
                _one(
                    {
                        "type": "object",
                        "required": ["id"],
                        "properties": {"id": _WHOLE, "body": _TEXT},
                    }
                ),
            )
        },
        "/contents/{p}": {"get": _operation("contents", [json_path, json_header, json_cookie])},
        "/reserved": {
            "get": _operation(
                "reserved",
                [
                    _at("query", "path", _TEXT, allowReserved=True),
                    _at("query", "list", _TEXTS, allowReserved=True),
                    _at("query", "filter", _POINT, style="deepObject", allowReserved=True),
                ],
            )
        },
        "/nullable": {
            "get": _operation(
                "nullable",
                [
                    _at("query", "n", {"type": ["integer", "null"]}),
                    _at("query", "e", {"enum": ["a b", "c&d", 7, True, None]}),
                    _at("query", "u", {"oneOf": [_WHOLE, _TEXTS]}),
                    _at("header", "X-U", {"anyOf": [{"type": "boolean"}, _WHOLE]}),
                ],
            )
        },
        "/matrix{;m}/{.l}": {"get": _operation("rfc6570")},
        "/m/{m}/{l}": {
            "get": _operation(
                "styled",
                [
                    _at("path", "m", _POINT, style="matrix", explode=True),
                    _at("path", "l", _TEXTS, style="label", explode=False),
                ],
            )
        },
        "/pair/{a},{b}": {"get": _operation("pair", [_at("path", n, _WHOLE) for n in "ab"])},
        "/fixed?kind=a%20b": {"get": _operation("fixed", [_at("query", "more", _TEXT)])},
        "/names": {
            "get": _operation(
                "names",
                [
                    _at("query", name, _TEXT)
                    for name in (
                        "filter[name]",
                        "$select",
                        "a.b",
                        "ü",
                        "with space",
                        "x-y",
                        "q+r",
                        "1",
                    )
                ],
            )
        },
        "/bracket": {"get": _operation("bracket", [_at("query", "ids[]", _TEXTS)])},
    }


def _json() -> Json:
    derived = {"$ref": "#/components/schemas/Derived"}
    cases: dict[str, Json] = {
        "derived": _one(derived),
        "scalar": _one(_TEXT),
        "number": _one({"type": "number"}),
        "array": _one({"type": "array", "items": {"type": ["integer", "null"]}}),
        "union": _one({"oneOf": [_POINT, _TEXTS, {"type": "null"}]}),
        "map": _one({"type": "object", "additionalProperties": {"type": ["string", "null"]}}),
        "any": _one({}),
        "charset": _one(_POINT, "application/json; charset=utf-8"),
        "vendor": _one(_POINT, "application/vnd.example.v2+json"),
        "odata": _one(_POINT, "application/json;odata=verbose"),
        "range": _one(_POINT, "application/*"),
        "patch": _one(
            {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["op", "path"],
                    "properties": {"op": {"enum": ["add", "remove"]}, "path": _TEXT, "value": {}},
                },
            },
            "application/json-patch+json",
        ),
        "nulls": _one(
            {
                "type": "object",
                "required": ["a"],
                "properties": {
                    "a": {"type": ["string", "null"]},
                    "b": {"type": "array", "items": {}},
                },
            }
        ),
    }
    return {f"/json/{name}": {"post": _operation(name, body=body)} for name, body in cases.items()}


def _forms() -> Json:
    schema = {
        "type": "object",
        "required": ["plain"],
        "properties": {
            "plain": _TEXT,
            "json": _POINT,
            "piped": _TEXTS,
            "commas": _TEXTS,
            "deep": {"type": "object", "properties": {"in": _POINT, "list": _TEXTS}},
            "spread": _POINT,
            "raw": _TEXT,
            "points": {"type": "array", "items": _POINT, "minItems": 1},
        },
    }
    encoding = {
        "json": {"contentType": "application/json"},
        "piped": {"style": "pipeDelimited", "explode": False},
        "commas": {"explode": False},
        "deep": {"style": "deepObject", "explode": True},
        "raw": {"allowReserved": True},
        "points": {"style": "deepObject", "explode": True},
    }
    body = _one(schema, _FORM)
    body["content"][_FORM]["encoding"] = encoding
    union = {
        "oneOf": [
            {**_POINT, "title": "Point"},
            {"type": "object", "required": ["t"], "properties": {"t": _TEXT}},
        ]
    }
    return {
        "/form/encoded": {"post": _operation("form-encoded", body=body)},
        "/form/union": {"post": _operation("form-union", body=_one(union, _FORM))},
        "/form/map": {
            "post": _operation(
                "form-map", body=_one({"type": "object", "additionalProperties": _TEXT}, _FORM)
            )
        },
        "/form/ref": {
            "put": _operation(
                "form-ref", body=_one({"$ref": "#/components/schemas/Derived"}, _FORM)
            )
        },
    }


def _parts() -> Json:
    schema = {
        "type": "object",
        "required": ["picture"],
        "properties": {
            "picture": {"type": "string", "contentMediaType": "image/png"},
            "scans": {"type": "array", "items": _BYTES, "minItems": 1},
            "encoded": {"type": "string", "contentEncoding": "base64", "format": "byte"},
            "about": {"$ref": "#/components/schemas/Author"},
            "many": {"type": "array", "items": _POINT, "minItems": 1},
            "note": _TEXT,
            "count": _WHOLE,
            "any": {},
            "commas": _TEXTS,
            "deep": _POINT,
        },
    }
    body = _one(schema, _MULTI)
    body["content"][_MULTI]["encoding"] = {
        "picture": {"contentType": "image/png, image/jpeg"},
        "about": {"contentType": "application/json; charset=utf-8"},
        "commas": {"style": "form", "explode": False},
        "deep": {"style": "deepObject", "explode": True},
    }
    return {
        "/parts": {"post": _operation("parts", body=body)},
        "/parts/ref": {
            "post": _operation(
                "parts-ref",
                body=_one(
                    {
                        "allOf": [
                            {"type": "object", "required": ["f"], "properties": {"f": _BYTES}},
                            {"$ref": "#/components/schemas/Base"},
                        ]
                    },
                    _MULTI,
                ),
            )
        },
    }


def _others() -> Json:
    book = {"$ref": "#/components/schemas/Book"}
    books = {
        "type": "array",
        "xml": {"name": "books", "wrapped": True},
        "minItems": 1,
        "items": book,
    }
    cases: dict[str, Json] = {
        "book": _one(book, "application/xml"),
        "books": _one(books, "text/xml"),
        "atom": _one(book, "application/atom+xml"),
        "csv": _one(_TEXT, "text/csv"),
        "markdown": _one(_TEXT, "text/markdown; charset=utf-8"),
        "image": _one(_BYTES, "image/*"),
        "everything": _one(_BYTES, "*/*"),
        "zip": _one({}, "application/zip"),
        "optional": {"content": {"application/octet-stream": {"schema": _BYTES}}},
        "unstated": {"required": True, "content": {"application/pdf": {}}},
    }
    return {f"/other/{name}": {"post": _operation(name, body=body)} for name, body in cases.items()}


def _methods() -> Json:
    parameters = [_at("query", "q", _TEXT)]
    verbs = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
    bodied = ("put", "post", "delete", "patch")
    return {
        "/any": {
            verb: _operation(f"any-{verb}", parameters, _one(_POINT) if verb in bodied else None)
            for verb in verbs
        }
    }


def _at(location: str, name: str, schema: Json, **more: Any) -> Json:
    parameter = {"name": name, "in": location, "schema": schema, **more}
    return {**parameter, "required": True} if location == "path" else parameter


def _one(schema: Json, media_type: str = "application/json") -> Json:
    return {"required": True, "content": {media_type: {"schema": schema}}}


def _operation(name: str, parameters: list[Json] | None = None, body: Json | None = None) -> Json:
    operation = {
        "operationId": name,
        "parameters": parameters or [],
        "responses": {"200": {"description": "Done"}},
    }
    return {**operation, "requestBody": body} if body else operation
