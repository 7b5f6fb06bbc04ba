"""Converts `GET https://api.example.com/pets/{id}?limit={limit}` and an input schema to a request.
Pure.

A description with one operation is generated and imported, so that a tool made by hand is called
exactly like an imported one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import SplitResult, parse_qsl, urlsplit

from msgspec import Raw
from msgspec.structs import replace

from registry.importers.openapi import read
from registry.tools.by_hand.changes import ToolRefused, check_schema
from schemas.binding import Body, OpenAPIBinding, Parameter
from schemas.errors import ImportRejected
from schemas.jsonrpc import encode
from schemas.tool import Annotations

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
_WITH_BODY = ("POST", "PUT", "PATCH")
_REQUEST = re.compile(r"(?P<method>[A-Za-z]+)\s+(?P<target>\S+)")
_PLACE = re.compile(r"\{([^{}/]+)\}")
_PART = re.compile(r"\{\w+\}")  # a placeholder of an argument; other braces are literal, as of JSON

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RestRequest:
    binding: OpenAPIBinding
    input_schema: Json
    annotations: Annotations
    base_url: str | None  # None: the target was a path


def read_request(name: str, text: str, schema: Mapping[str, Any] | None) -> RestRequest:
    """Arguments fill the placeholders in the target; the others go into the query, or into a JSON
    body where the method has one. Raises ToolRefused."""
    found = _REQUEST.fullmatch(text.strip())
    method = found["method"].upper() if found else ""
    if found is None or method not in METHODS:
        raise ToolRefused(
            f'{name}: expected a request such as "GET https://api.example.com/pets/{{id}}", '
            f"with one of {', '.join(METHODS)}"
        )
    base_url, path, query = _split(name, found["target"])
    in_path = _PLACE.findall(path)
    if set("{}") & set(_PLACE.sub("", path)):
        raise ToolRefused(f"{name}: a brace in the path {path} has no other, or nothing in it")
    in_query = {wire: place for wire, value in query if (place := _place(value))}
    fixed = [(wire, value) for wire, value in query if not _place(value)]
    for wire, value in fixed:
        if _PART.search(value):
            raise ToolRefused(f"{name}: an argument has to be all of {wire}, not a part of {value}")
    demanded = list(dict.fromkeys([*in_path, *in_query.values()] if schema is None else in_path))
    full = _full_schema(name, schema, [*in_path, *in_query.values()], demanded)
    wires = in_query | _rest_of_query(method, full, [*in_path, *in_query.values()])
    binding, annotations = _imported(name, method, path, full, wires)
    return RestRequest(
        replace(binding, parameters=(*binding.parameters, *map(_constant, fixed))),
        full,
        annotations,
        base_url,
    )


def _split(name: str, target: str) -> tuple[str | None, str, list[tuple[str, str]]]:
    """Base URL, path and query."""
    try:
        parts = urlsplit(target)
    except ValueError:  # brackets without a valid IPv6 address
        parts = SplitResult("", "", "", "", "")
    is_path = target.startswith("/") and not parts.netloc
    if parts.fragment or (not parts.scheme and not is_path):
        raise ToolRefused(f"{name}: expected a URL, or a path that begins with /, to call")
    base_url = f"{parts.scheme}://{parts.netloc}" if parts.scheme else None
    return base_url, parts.path or "/", parse_qsl(parts.query, keep_blank_values=True)


def _place(value: str) -> str | None:
    """The argument of a placeholder."""
    found = _PLACE.fullmatch(value)
    return found[1] if found else None


def _full_schema(
    name: str, given: Mapping[str, Any] | None, placed: list[str], demanded: list[str]
) -> Json:
    if given is None:
        properties = {one: {"type": "string"} for one in placed}
        made: Json = {"type": "object", "properties": properties, "additionalProperties": False}
        return made | ({"required": demanded} if demanded else {})
    check_schema(name, given)
    missing = [one for one in placed if one not in given.get("properties", {})]
    if missing:
        raise ToolRefused(
            f"{name}: the request has a place for {', '.join(missing)}, which the input schema "
            "does not describe"
        )
    required = list(dict.fromkeys([*given.get("required", []), *demanded]))
    return {**given, **({"required": required} if required else {})}


def _rest_of_query(method: str, schema: Json, placed: list[str]) -> dict[str, str]:
    if method in _WITH_BODY:
        return {}
    return {one: one for one in schema.get("properties", {}) if one not in placed}


def _imported(
    name: str, method: str, path: str, schema: Json, wires: Mapping[str, str]
) -> tuple[OpenAPIBinding, Annotations]:
    """The binding and annotations of the generated description; `wires`: names of arguments, by
    those of query parameters."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    in_path = dict.fromkeys(_PLACE.findall(path))
    parameters = [
        {"name": one, "in": "path", "required": True, "schema": properties[one]} for one in in_path
    ] + [
        {"name": wire, "in": "query", "required": one in required, "schema": properties[one]}
        for wire, one in wires.items()
    ]
    inside = [one for one in properties if one not in in_path and one not in wires.values()]
    operation: Json = {"operationId": name, "parameters": parameters, "responses": {}}
    if inside:
        body = {
            "type": "object",
            "properties": {one: properties[one] for one in inside},
            "required": [one for one in required if one in inside],
        }
        content = {"application/json": {"schema": body}}
        operation["requestBody"] = {"required": bool(body["required"]), "content": content}
    document = {
        "openapi": "3.1.0",
        "info": {"title": name, "version": "1"},
        "paths": {path: {method.lower(): operation}},
        "$defs": schema.get("$defs", {}),
    }
    try:
        imported = read(document)
    except ImportRejected as error:
        raise ToolRefused(f"{name}: {error}") from error
    if not imported.drafts:
        raise ToolRefused(f"{name}: {imported.outcomes[0].reason}")
    draft = imported.drafts[0]
    binding = cast("OpenAPIBinding", draft.binding)  # made by that importer
    return _renamed(name, binding, wires), draft.annotations


def _renamed(name: str, binding: OpenAPIBinding, wires: Mapping[str, str]) -> OpenAPIBinding:
    """The binding with the argument names of the input schema, which the importer may have
    changed."""
    parameters = tuple(
        replace(one, argument=wires[one.name] if one.location == "query" else one.name)
        for one in binding.parameters
    )
    return replace(binding, parameters=parameters, body=_body(name, binding.body))


def _body(name: str, body: Body | None) -> Body | None:
    if body is None:
        return None
    if body.properties is None:
        raise ToolRefused(f"{name}: its body cannot be made of the arguments")
    return replace(body, properties=tuple((wire, wire) for _, wire in body.properties))


def _constant(pair: tuple[str, str]) -> Parameter:
    wire, value = pair
    return Parameter("", wire, "query", "form", explode=True, fixed=Raw(encode(value)))
