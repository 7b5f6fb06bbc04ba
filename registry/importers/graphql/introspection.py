"""Bytes to a Schema: SDL or the JSON of an introspection, detected by content.

The shape of every part of an introspection is checked.
"""

import re
from collections.abc import Mapping
from typing import Any

from graphql import GraphQLError, parse_const_value
from msgspec import UNSET

from registry.importers.graphql.schema import Choice, Field, InputValue, Kind, Ref, Schema, Type
from registry.importers.graphql.sdl import default_of, read_sdl, wrap_ref
from registry.importers.openapi import parse
from schemas.errors import ImportRejected
from schemas.untrusted_json import mapping, sequence, text

_KINDS: Mapping[str, Kind] = {
    "SCALAR": "scalar",
    "OBJECT": "object",
    "INTERFACE": "interface",
    "UNION": "union",
    "ENUM": "enum",
    "INPUT_OBJECT": "input",
}
_WRAPS = {"LIST": "list", "NON_NULL": "required"}
_WRAPS_LIMIT = 32
_NAME = re.compile(r"[_A-Za-z][_0-9A-Za-z]*")  # 2.1.9; names become text of our own requests
_EXPECTED = "expected GraphQL SDL, or the JSON answer of an introspection"


def read_introspection(document: Mapping[str, Any], location: str) -> Schema:
    """`document` as answered or saved: `__schema`, at the top or under `data`. Raises
    ImportRejected."""
    node = mapping(mapping(document.get("data")).get("__schema") or document.get("__schema"))
    if not sequence(node.get("types")):
        if "openapi" in document or "swagger" in document:
            raise ImportRejected(
                f"{location}: this is an OpenAPI description; use `toolgate import openapi`."
            )
        raise ImportRejected(f"{location}: it holds no `__schema` with types; {_EXPECTED}.")
    schema = Schema(description=text(node.get("description")))
    for type_ in sequence(node["types"]):
        _take(schema, mapping(type_))
    for operation in ("query", "mutation", "subscription"):
        root = mapping(node.get(f"{operation}Type"))
        if _is_named(root):
            schema.roots[operation] = root["name"]
    return schema.finish()


def _take(schema: Schema, node: dict[str, Any]) -> None:
    kind = _KINDS.get(str(node.get("kind")))
    if kind is None or not _is_named(node) or node["name"].startswith("__"):
        return
    name = node["name"]
    type_ = schema.types.setdefault(name, Type(name, kind, text(node.get("description"))))
    type_.fields.update(_read_named(_field, node.get("fields")))
    type_.inputs.update(_read_named(_value, node.get("inputFields")))
    type_.choices.update(_read_named(_choice, node.get("enumValues")))
    type_.members += [
        member["name"] for member in sequence(node.get("possibleTypes")) if _is_named(member)
    ]
    type_.one_of = node.get("isOneOf") is True
    type_.specified_by = text(node.get("specifiedByURL") or node.get("specifiedByUrl")) or None


def _read_named(read_definition: Any, nodes: object) -> dict[str, Any]:
    """`nodes` converted by `read_definition`, by name; those without a name or type are omitted."""
    definitions = (read_definition(mapping(node)) for node in sequence(nodes) if _is_named(node))
    return {definition.name: definition for definition in definitions if definition is not None}


def _is_named(node: object) -> bool:
    name = mapping(node).get("name")
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _field(node: dict[str, Any]) -> Field | None:
    ref = _ref(node.get("type"))
    if ref is None:
        return None
    args = _read_named(_value, node.get("args"))
    return Field(
        node["name"], ref, args, text(node.get("description")), deprecated=_deprecation_reason(node)
    )


def _value(node: dict[str, Any]) -> InputValue | None:
    ref = _ref(node.get("type"))
    if ref is None:
        return None
    default = _default(node.get("defaultValue"))
    return InputValue(
        node["name"],
        ref,
        text(node.get("description")),
        default,
        deprecated=_deprecation_reason(node),
    )


def _choice(node: dict[str, Any]) -> Choice:
    return Choice(node["name"], text(node.get("description")), _deprecation_reason(node))


def _deprecation_reason(node: dict[str, Any]) -> str | None:
    if node.get("isDeprecated") is not True:
        return None
    return text(node.get("deprecationReason")) or "No longer supported"


def _ref(node: object) -> Ref | None:
    """The type reference; None if the introspection query was not deep enough."""
    wraps: list[str] = []
    while len(wraps) < _WRAPS_LIMIT:
        mapping_ = mapping(node)
        wrap = _WRAPS.get(str(mapping_.get("kind")))
        if wrap is None:
            return wrap_ref(mapping_["name"], reversed(wraps)) if _is_named(mapping_) else None
        wraps.append(wrap)
        node = mapping_.get("ofType")
    return None


def _default(literal: object) -> Any:
    if not isinstance(literal, str):
        return UNSET
    try:
        return default_of(parse_const_value(literal))
    except (GraphQLError, RecursionError):
        return UNSET


# Shopify's admin API has about 3,500
TYPES_LIMIT = 20_000


def load(data: bytes, location: str) -> Schema:
    """Parse `data`; `location` (path or URL) is for messages. Raises ImportRejected."""
    head = data[:256].removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith((b"{", b"\xff\xfe", b"\xfe\xff")):
        schema = read_introspection(parse(data, location, _EXPECTED), location)
    else:
        schema = read_sdl(_text(data, location), location)
    if len(schema.types) > TYPES_LIMIT:
        raise ImportRejected(f"{location} has more than {TYPES_LIMIT:,} types, the limit.")
    return schema


def _text(data: bytes, location: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ImportRejected(f"{location}, line {line}: not valid UTF-8.") from error
    if not text.strip():
        raise ImportRejected(f"{location} is empty; {_EXPECTED}.")
    if text.lstrip().startswith("<"):
        raise ImportRejected(f"{location} is HTML or XML; {_EXPECTED}.")
    if text.lstrip().startswith(("openapi:", "swagger:")):
        raise ImportRejected(
            f"{location}: this is an OpenAPI description; use `toolgate import openapi`."
        )
    return text
