"""A selection that a person wrote for one operation: read, and held against the schema."""

from typing import Any

from graphql import GraphQLError, parse, print_ast
from graphql.language import ast

from registry.importers.graphql.schema import COMPOSITE, Schema, Type
from registry.importers.graphql.selection import TYPENAME, Selected, Selection

DEPTH_LIMIT = 20
TOKENS_LIMIT = 5_000


class Unselectable(ValueError):
    """Says what is wrong with a selection."""


def read_selection(schema: Schema, type_: Type, text: str) -> Selection:
    """`text` is a selection set: `{ id name owner { login } }`. Raises Unselectable."""
    try:
        document = parse(text, no_location=True, max_tokens=TOKENS_LIMIT)
    except GraphQLError as error:
        at = error.locations[0] if error.locations else None
        where = f"line {at.line}, column {at.column}: " if at else ""
        raise Unselectable(f"{where}{error.message.removeprefix('Syntax Error: ')}") from error
    match document.definitions:
        case [ast.OperationDefinitionNode(selection_set=chosen, name=None) as node] if (
            node.operation is ast.OperationType.QUERY
        ):
            return _selection(schema, type_, chosen, DEPTH_LIMIT)
    raise Unselectable("expected one selection set, as in { id name }")


def _selection(schema: Schema, type_: Type, node: Any, depth: int) -> Selection:
    if depth == 0:
        raise Unselectable(f"it is more than {DEPTH_LIMIT} levels deep")
    selection = Selection(type_)
    for one in node.selections:
        if one.directives:
            raise Unselectable("directives are not taken")
        match one:
            case ast.FieldNode():
                selection.fields.append(_selected(schema, type_, one, depth))
            case ast.InlineFragmentNode():
                name = one.type_condition.name.value if one.type_condition else type_.name
                inner = schema.types.get(name)
                if inner is None or inner.kind not in COMPOSITE:
                    raise Unselectable(f"there is no object type {name}")
                fragment = _selection(schema, inner, one.selection_set, depth - 1)
                selection.fragments.append(fragment)
            case _:
                raise Unselectable("named fragments are not taken; write `... on Type { }`")
    if not selection.fields and not selection.fragments:
        raise Unselectable(f"nothing of {type_.name} is selected")
    return selection


def _selected(schema: Schema, type_: Type, node: Any, depth: int) -> Selected:
    alias = node.alias.value if node.alias else ""
    name = node.name.value
    if name == TYPENAME:
        return Selected(None, alias=alias)
    if name not in type_.fields:
        raise Unselectable(f"{type_.name} has no field {name}")
    field = type_.fields[name]
    given = {argument.name.value: argument for argument in node.arguments or ()}
    for unknown in given.keys() - field.args.keys():
        raise Unselectable(f"{type_.name}.{name} has no argument {unknown}")
    for value in field.args.values():
        if value.demanded and value.name not in given:
            raise Unselectable(f"{type_.name}.{name} needs the argument {value.name}")
    if any(_varies(argument.value) for argument in given.values()):
        raise Unselectable(f"{type_.name}.{name}: variables are not taken")
    printed = ", ".join(print_ast(argument) for argument in given.values())
    inner_type = schema.of(field.type)
    if (inner_type.kind in COMPOSITE) != (node.selection_set is not None):
        wanted = "needs a selection" if node.selection_set is None else "has no fields to select"
        raise Unselectable(f"{type_.name}.{name} {wanted}")
    inner = None
    if node.selection_set is not None:
        inner = _selection(schema, inner_type, node.selection_set, depth - 1)
    return Selected(field, inner, f"({printed})" if printed else "", alias)


def _varies(value: Any) -> bool:
    match value:
        case ast.VariableNode():
            return True
        case ast.ListValueNode():
            return any(_varies(one) for one in value.values)
        case ast.ObjectValueNode():
            return any(_varies(one.value) for one in value.fields)
    return False
