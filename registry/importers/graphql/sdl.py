"""Schema definition language to a Schema (GraphQL October 2021, section 3, and @oneOf)."""

from collections.abc import Iterable
from typing import Any

import msgspec
from graphql import GraphQLError, parse, value_from_ast_untyped
from graphql.language import ast
from msgspec import UNSET

from registry.importers.graphql.schema import Choice, Field, InputValue, Kind, Ref, Schema, Type
from schemas.errors import ImportRejected

TOKENS_LIMIT = 3_000_000  # GitHub's schema, of 1,600 types, has 160,000
DEFAULT_BYTES = 2_000  # of a default in a description; longer ones are omitted

_KINDS: dict[type, Kind] = {
    ast.ScalarTypeDefinitionNode: "scalar",
    ast.ScalarTypeExtensionNode: "scalar",
    ast.ObjectTypeDefinitionNode: "object",
    ast.ObjectTypeExtensionNode: "object",
    ast.InterfaceTypeDefinitionNode: "interface",
    ast.InterfaceTypeExtensionNode: "interface",
    ast.UnionTypeDefinitionNode: "union",
    ast.UnionTypeExtensionNode: "union",
    ast.EnumTypeDefinitionNode: "enum",
    ast.EnumTypeExtensionNode: "enum",
    ast.InputObjectTypeDefinitionNode: "input",
    ast.InputObjectTypeExtensionNode: "input",
}


def read_sdl(text: str, location: str) -> Schema:
    """Raises ImportRejected with line and column."""
    try:
        document = parse(text, no_location=True, max_tokens=TOKENS_LIMIT)
    except GraphQLError as error:
        at = error.locations[0] if error.locations else None
        where = f"{location}, line {at.line}, column {at.column}" if at else location
        problem = error.message.removeprefix("Syntax Error: ").rstrip(".")
        raise ImportRejected(f"{where}: not a GraphQL schema (SDL): {problem}.") from error
    except RecursionError as error:
        raise ImportRejected(f"{location} is nested too deeply to be read.") from error
    schema = Schema()
    implementing: list[tuple[str, str]] = []
    for node in document.definitions:
        if type(node) in _KINDS:
            _take(schema, node, implementing)
        elif isinstance(node, ast.SchemaDefinitionNode | ast.SchemaExtensionNode):
            schema.description = schema.description or _text(getattr(node, "description", None))
            for root in node.operation_types or ():
                schema.roots[root.operation.value] = root.type.name.value
    for name, interface in dict.fromkeys(implementing):
        interface_type = schema.types.get(interface)
        if interface_type is not None and interface_type.kind == "interface":
            interface_type.members.append(name)
    return schema.finish()


def _take(schema: Schema, node: Any, implementing: list[tuple[str, str]]) -> None:
    """Add a type definition or an extension, in either order."""
    name, kind = node.name.value, _KINDS[type(node)]
    defined_type = schema.types.setdefault(name, Type(name, kind))
    if defined_type.kind != kind:
        schema.notes.append(
            f"type {name} is defined as {defined_type.kind} and {kind}: the first holds"
        )
        return
    defined_type.description = defined_type.description or _text(getattr(node, "description", None))
    match kind:
        case "object" | "interface":
            for value in node.fields or ():
                defined_type.fields.setdefault(value.name.value, _field(value))
            if kind == "object":
                implementing += [
                    (name, interface.name.value) for interface in node.interfaces or ()
                ]
        case "input":
            for value in node.fields or ():
                defined_type.inputs.setdefault(value.name.value, _value(value))
            defined_type.one_of = defined_type.one_of or _directive(node, "oneOf") is not None
        case "enum":
            for value in node.values or ():
                choice = Choice(
                    value.name.value, _text(value.description), _deprecation_reason(value)
                )
                defined_type.choices.setdefault(choice.name, choice)
        case "union":
            defined_type.members += [type_.name.value for type_ in node.types or ()]
        case "scalar" if (stated := _directive(node, "specifiedBy")) is not None:
            defined_type.specified_by = stated.get("url")


def _field(node: Any) -> Field:
    args = {argument.name.value: _value(argument) for argument in node.arguments or ()}
    return Field(
        node.name.value,
        _ref(node.type),
        args,
        _text(node.description),
        deprecated=_deprecation_reason(node),
    )


def _value(node: Any) -> InputValue:
    return InputValue(
        node.name.value,
        _ref(node.type),
        _text(node.description),
        default_of(node.default_value),
        deprecated=_deprecation_reason(node),
    )


def _ref(node: Any) -> Ref:
    wraps: list[str] = []
    while not isinstance(node, ast.NamedTypeNode):
        wraps.append("list" if isinstance(node, ast.ListTypeNode) else "required")
        node = node.type
    return wrap_ref(node.name.value, reversed(wraps))


def wrap_ref(name: str, wraps: Iterable[str]) -> Ref:
    """A `Ref` from its wrappers, innermost first."""
    ref = Ref(name)
    for wrap in wraps:
        ref = Ref(of=ref, wrap="list" if wrap == "list" else "required")
    return ref


def default_of(node: Any) -> Any:
    """A literal as JSON; UNSET if it is absent or JSON cannot express it."""
    if node is None:
        return UNSET
    try:
        value = value_from_ast_untyped(node)
        encoded = msgspec.json.encode(value)
        same = msgspec.json.decode(encoded) == value  # 1e400 becomes null
    except (GraphQLError, TypeError, ValueError, OverflowError, RecursionError):
        return UNSET
    return value if same and len(encoded) <= DEFAULT_BYTES else UNSET


def _text(node: Any) -> str:
    return str(node.value).strip() if node is not None else ""


def _deprecation_reason(node: Any) -> str | None:
    stated = _directive(node, "deprecated")
    return None if stated is None else str(stated.get("reason") or "No longer supported")


def _directive(node: Any, name: str) -> dict[str, Any] | None:
    """The text arguments of the directive `name`; None without it."""
    for directive in node.directives or ():
        if directive.name.value == name:
            return {
                argument.name.value: argument.value.value
                for argument in directive.arguments or ()
                if isinstance(argument.value, ast.StringValueNode)
            }
    return None
