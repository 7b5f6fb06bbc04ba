"""GraphQL tools made by hand: a document with one field to a binding and an input schema. Pure."""

from typing import Any, cast

from graphql import (
    FieldNode,
    GraphQLError,
    ListTypeNode,
    NamedTypeNode,
    NonNullTypeNode,
    OperationDefinitionNode,
    TypeNode,
    VariableNode,
    Visitor,
    parse,
    print_ast,
    visit,
)

from registry.tools.tool_errors import ToolRefused
from schemas.binding import GraphQLBinding, Variable

_SCALARS = {
    "String": "string", "ID": "string", "Int": "integer", "Float": "number", "Boolean": "boolean"
}  # fmt: skip
_DOCUMENT_EXPECTED = (
    "expected one operation with one field, such as query ($id: ID!) { pet(id: $id) { name } }"
)
TOKENS_LIMIT = 5000

Json = dict[str, Any]


def read_document(name: str, document: str) -> tuple[GraphQLBinding, Json]:
    """Parse the document. Raises ToolRefused."""
    operation, root = _operation(name, document)
    types = {
        definition.variable.name.value: definition
        for definition in operation.variable_definitions or ()
    }
    if any(definition.default_value is not None for definition in types.values()):
        raise ToolRefused(f"{name}: give defaults in the input schema, not in the document")
    variables = []
    for argument in root.arguments or ():
        if not isinstance(argument.value, VariableNode):
            raise ToolRefused(f"{name}: give {argument.name.value} as a variable")
        variable = argument.value.name.value
        if variable not in types:
            raise ToolRefused(f"{name}: the document does not declare ${variable}")
        kind = print_ast(types[variable].type)
        variables.append(Variable(variable, argument.name.value, kind))
    selection = print_ast(root.selection_set) if root.selection_set else ""
    if unused := types.keys() - {variable.argument for variable in variables}:
        listed = ", ".join(sorted(unused))
        raise ToolRefused(f"{name}: arguments of the field alone can be variables, not {listed}")
    if root.selection_set and _has_variables(root):
        raise ToolRefused(f"{name}: arguments of the field alone can be variables")
    operator = cast("Any", operation.operation.value)  # checked in _operation
    binding = GraphQLBinding(operator, root.name.value, tuple(variables), selection)
    return binding, _argument_schema(
        {variable.argument: types[variable.argument].type for variable in variables}
    )


def _operation(name: str, document: str) -> tuple[OperationDefinitionNode, FieldNode]:
    try:
        parsed = parse(document, no_location=True, max_tokens=TOKENS_LIMIT)
    except (GraphQLError, RecursionError) as error:
        reason = error.message if isinstance(error, GraphQLError) else "it is nested too deeply"
        raise ToolRefused(f"{name}: {_DOCUMENT_EXPECTED}: {reason}") from error
    definitions = parsed.definitions
    if len(definitions) != 1 or not isinstance(definitions[0], OperationDefinitionNode):
        raise ToolRefused(f"{name}: {_DOCUMENT_EXPECTED}")
    operation = definitions[0]
    fields = operation.selection_set.selections
    if operation.operation.value not in ("query", "mutation") or len(fields) != 1:
        raise ToolRefused(f"{name}: {_DOCUMENT_EXPECTED}")
    field = fields[0]
    if not isinstance(field, FieldNode) or field.alias or field.directives:
        raise ToolRefused(f"{name}: {_DOCUMENT_EXPECTED}")
    return operation, field


def _has_variables(root: FieldNode) -> bool:
    class Finder(Visitor):
        has_variables = False

        def enter_variable(self, *_: Any) -> None:
            self.has_variables = True

    finder = Finder()
    if root.selection_set:
        visit(root.selection_set, finder)
    return finder.has_variables


def _argument_schema(types: dict[str, TypeNode]) -> Json:
    required = [name for name, type_ in types.items() if isinstance(type_, NonNullTypeNode)]
    schema: Json = {"type": "object", "properties": {n: _type(type_) for n, type_ in types.items()}}
    schema |= {"required": required} if required else {}
    return schema | {"additionalProperties": False}


def _type(node: TypeNode) -> Json:
    if isinstance(node, NonNullTypeNode):
        return _type(node.type)
    if isinstance(node, ListTypeNode):
        return {"type": "array", "items": _type(node.type)}
    name = node.name.value if isinstance(node, NamedTypeNode) else ""
    if name in _SCALARS:
        return {"type": _SCALARS[name]}
    return {"description": f"GraphQL type {name}"}
