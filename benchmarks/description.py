"""Generator of OpenAPI descriptions of any size, such as a service with 1,000 operations."""

from typing import Any

import msgspec

Json = dict[str, Any]

_COMPONENTS: Json = {
    "schemas": {
        "Item": {
            "type": "object",
            "required": ["id", "name"],
            "properties": {
                "id": {"type": "integer"},
                "name": {"type": "string"},
                "description": {"type": "string"},
                "price": {"type": "number"},
                "currency": {"type": "string", "enum": ["EUR", "USD", "CHF"]},
                "in_stock": {"type": "boolean"},
                "warehouse": {"type": "string"},
                "updated": {"type": "string", "format": "date-time"},
            },
        },
        "NewItem": {
            "type": "object",
            "required": ["name", "price"],
            "properties": {
                "name": {"type": "string", "maxLength": 200},
                "price": {"type": "number", "minimum": 0},
                "related": {"type": "array", "items": {"$ref": "#/components/schemas/NewItem"}},
            },
        },
    }
}
_ID: Json = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "Number of the item",
    "schema": {"type": "integer", "minimum": 1},
}
_FIELDS: Json = {
    "name": "fields",
    "in": "query",
    "description": "Names of the fields to return, separated by commas; all when absent",
    "schema": {"type": "string"},
}
_ANSWER: Json = {
    "200": {
        "description": "The item",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Item"}}},
    }
}


def describe(operations: int, base_url: str) -> bytes:
    """An OpenAPI 3.0 document as JSON. The first operation is `getItem`, `GET /items/{id}`."""
    paths = {_path(number): _operation(number) for number in range(1, operations + 1)}
    return msgspec.json.encode(
        {
            "openapi": "3.0.3",
            "info": {"title": "Items", "version": "1.0.0"},
            "servers": [{"url": base_url}],
            "paths": paths,
            "components": _COMPONENTS,
        }
    )


def _path(number: int) -> str:
    return "/items/{id}" if number == 1 else f"/shelves/{number}/items/{{id}}"


def _operation(number: int) -> Json:
    """Every fourth one writes, so that bodies and references have their share."""
    if number % 4:
        return {"get": _verb(f"getItem{number}" if number > 1 else "getItem", "Read")}
    body = {"application/json": {"schema": {"$ref": "#/components/schemas/NewItem"}}}
    return {"put": {**_verb(f"putItem{number}", "Replace"), "requestBody": {"content": body}}}


def _verb(operation_id: str, summary: str) -> Json:
    return {
        "operationId": operation_id,
        "summary": f"{summary} one item",
        "description": f"{summary} one item of the catalogue by its number.",
        "parameters": [_ID, _FIELDS],
        "responses": _ANSWER,
    }
