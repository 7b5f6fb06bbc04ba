"""REST tools made by hand: a request to a binding and an input schema. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import SplitResult, parse_qsl, urlsplit

from msgspec import Raw
from msgspec.structs import replace

from registry.tools.editable_columns import check_schema
from registry.tools.tool_errors import ToolRefused
from schemas.binding import Body, OpenAPIBinding, Parameter
from schemas.errors import ImportRejected
from schemas.jsonrpc import encode
from schemas.tool import Annotations

Json = dict[str, Any]

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
_WITH_BODY = ("POST", "PUT", "PATCH")
_REQUEST = re.compile(r"(?P<method>[A-Za-z]+)\s+(?P<target>\S+)")
_PLACEHOLDER = re.compile(r"\{([^{}/]+)\}")
_PART = re.compile(r"\{\w+\}")  # a placeholder of an argument; other braces are literal, as of JSON


@dataclass(frozen=True, slots=True)
class RestRequest:
    binding: OpenAPIBinding
    input_schema: Json
    annotations: Annotations
    base_url: str | None  # None: the target was a path


def read_request(name: str, text: str, schema: Mapping[str, Any] | None) -> RestRequest:
    """Arguments fill the placeholders in the target; the others go into the query, or into a JSON
    body where the method has one. Raises ToolRefused."""
    match = _REQUEST.fullmatch(text.strip())
    method = match["method"].upper() if match else ""
    if match is None or method not in METHODS:
        raise ToolRefused(
            f'{name}: expected a request such as "GET https://api.example.com/pets/{{id}}", '
            f"with one of {', '.join(METHODS)}"
        )
    base_url, path, query = _split(name, match["target"])
    in_path = _PLACEHOLDER.findall(path)
    if set("{}") & set(_PLACEHOLDER.sub("", path)):
        raise ToolRefused(f"{name}: a brace in the path {path} has no other, or nothing in it")
    in_query = {wire: placeholder for wire, value in query if (placeholder := _placeholder(value))}
    fixed = [(wire, value) for wire, value in query if not _placeholder(value)]
    for wire, value in fixed:
        if _PART.search(value):
            raise ToolRefused(f"{name}: an argument has to be all of {wire}, not a part of {value}")
    required_names = list(
        dict.fromkeys([*in_path, *in_query.values()] if schema is None else in_path)
    )
    full = _full_schema(name, schema, [*in_path, *in_query.values()], required_names)
    wires = in_query | _rest_of_query(method, full, [*in_path, *in_query.values()])
    binding, annotations = _imported_binding(name, method, path, full, wires=wires)
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


def _placeholder(value: str) -> str | None:
    """The argument of a placeholder."""
    match = _PLACEHOLDER.fullmatch(value)
    return match[1] if match else None


def _full_schema(
    name: str, schema: Mapping[str, Any] | None, placeholders: list[str], required_names: list[str]
) -> Json:
    if schema is None:
        properties = {placeholder: {"type": "string"} for placeholder in placeholders}
        full_schema: Json = {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
        }
        return full_schema | ({"required": required_names} if required_names else {})
    check_schema(name, schema)
    missing = [
        placeholder
        for placeholder in placeholders
        if placeholder not in schema.get("properties", {})
    ]
    if missing:
        raise ToolRefused(
            f"{name}: the request has a place for {', '.join(missing)}, which the input schema "
            "does not describe"
        )
    required = list(dict.fromkeys([*schema.get("required", []), *required_names]))
    return {**schema, **({"required": required} if required else {})}


def _rest_of_query(method: str, schema: Json, placeholders: list[str]) -> dict[str, str]:
    if method in _WITH_BODY:
        return {}
    return {name: name for name in schema.get("properties", {}) if name not in placeholders}


def _imported_binding(
    name: str, method: str, path: str, schema: Json, *, wires: Mapping[str, str]
) -> tuple[OpenAPIBinding, Annotations]:
    """The binding and annotations of the generated description; `wires`: names of arguments, by
    those of query parameters."""
    from registry.importers.openapi import read  # with the first tool made by hand

    properties, required = schema.get("properties", {}), schema.get("required", [])
    in_path = dict.fromkeys(_PLACEHOLDER.findall(path))
    parameters = [
        {"name": argument, "in": "path", "required": True, "schema": properties[argument]}
        for argument in in_path
    ] + [
        {
            "name": wire,
            "in": "query",
            "required": argument in required,
            "schema": properties[argument],
        }
        for wire, argument in wires.items()
    ]
    in_body = [
        argument
        for argument in properties
        if argument not in in_path and argument not in wires.values()
    ]
    operation: Json = {"operationId": name, "parameters": parameters, "responses": {}}
    if in_body:
        body = {
            "type": "object",
            "properties": {argument: properties[argument] for argument in in_body},
            "required": [argument for argument in required if argument in in_body],
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
    return _rename_arguments(name, binding, wires), draft.annotations


def _rename_arguments(
    name: str, binding: OpenAPIBinding, wires: Mapping[str, str]
) -> OpenAPIBinding:
    """The binding with the argument names of the input schema, which the importer may have
    changed."""
    parameters = tuple(
        replace(
            parameter,
            argument=wires[parameter.name] if parameter.location == "query" else parameter.name,
        )
        for parameter in binding.parameters
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
