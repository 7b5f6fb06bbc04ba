"""One field of Query or Mutation to one tool draft."""

from dataclasses import dataclass
from typing import Any, get_args

from msgspec import UNSET, Raw, UnsetType

from registry.importers.graphql.inputs import GraphQLInputs, Needs
from registry.importers.graphql.marks import FieldMarks
from registry.importers.graphql.outputs import output_schema
from registry.importers.graphql.schema import COMPOSITE, Field, InputValue, Operation, Schema
from registry.importers.graphql.selection import (
    Chooser,
    Selection,
    Unselectable,
    connection,
    read_selection,
)
from registry.importers.imported import cut
from registry.importers.openapi.marks import ArgumentMarks
from registry.importers.plain import plain
from registry.importers.untold import of_field
from registry.names.tool_names import legal
from schemas.binding import GraphQLBinding, Pagination, Variable
from schemas.jsonrpc import encode
from schemas.tool import Annotations, ToolDraft

PAGE_SIZE = 20  # default page size of a connection; GitHub and others require one

OPERATIONS: tuple[Operation, ...] = get_args(Operation)

# October 2021, section 6.2: queries have no side effects, mutations are supposed to have some.
_ANNOTATIONS = {
    "query": Annotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True
    ),
    "mutation": Annotations(read_only_hint=False, idempotent_hint=False, open_world_hint=True),
}


class SkipField(Exception):
    """The field cannot become a tool; `str()` is the reason."""


@dataclass(frozen=True, slots=True)
class Root:
    """A field of Query or Mutation."""

    operation: Operation
    field: Field

    @property
    def label(self) -> str:
        return f"{self.operation.capitalize()}.{self.field.name}"

    @property
    def key(self) -> str:
        return f"{self.label}@{self.operation}"


class GraphQLDrafts:
    """Makes drafts; input types are converted once per schema."""

    def __init__(self, schema: Schema, depth: int, cost: int) -> None:
        self._schema = schema
        self._inputs = GraphQLInputs(schema)
        self._chooser = Chooser(schema, depth, cost)

    def draft(self, root: Root, name: str, marks: FieldMarks) -> tuple[ToolDraft, list[str]]:
        """The tool and notes on losses. Raises SkipField."""
        notes: list[str] = []
        selection = self._selection(root.field, marks, notes)
        arguments = _Arguments(self._inputs, marks)
        for value in root.field.args.values():
            arguments.take(value)
        pagination = self._pagination(root.field, arguments.names)
        page_size = _page_size(root.field, pagination)
        binding = GraphQLBinding(
            root.operation,
            root.field.name,
            tuple(arguments.variables),
            selection.printed() if selection else "",
            pagination,
            page_size,
        )
        if pagination and pagination.limit and page_size:
            arguments.properties[pagination.limit].setdefault("default", page_size)
        input_schema = arguments.schema(marks)
        draft = ToolDraft(
            key=root.key,
            name=name,
            title=marks.title,
            description=_description(root, marks, input_schema),
            input_schema=input_schema,
            binding=binding,
            output_schema=output_schema(self._schema, root.field.type, selection),
            annotations=_ANNOTATIONS[root.operation],
            tags=(root.operation,),
            toolsets=marks.toolsets,
        )
        return draft, [*notes, *arguments.needs.notes]

    def _selection(self, field: Field, marks: FieldMarks, notes: list[str]) -> Selection | None:
        type_ = self._schema.of(field.type)
        if type_.kind not in COMPOSITE:
            if type_.kind == "missing":
                raise SkipField(f"its type {type_.name} is not defined")
            if marks.selection:
                notes.append(f"its selection is ignored: {type_.name} has no fields")
            return None
        if marks.selection:
            try:
                return read_selection(self._schema, type_, marks.selection)
            except Unselectable as error:
                notes.append(f"its selection is replaced by a chosen one: {error}")
        return self._chooser.choose(type_)

    def _pagination(self, field: Field, names: dict[str, str]) -> Pagination | None:
        """Pagination of a connection that takes `after`, by arguments that callers may set."""
        page = connection(self._schema, self._schema.of(field.type))
        if page is None or page.page_info is None or field.type.lists or "after" not in names:
            return None
        return Pagination(
            "cursor",
            names["after"],
            ("pageInfo", "endCursor"),
            ("pageInfo", "hasNextPage"),
            limit=names.get("first"),
        )


class _Arguments:
    """The arguments of one tool, and the GraphQL variables that they become."""

    def __init__(self, inputs: GraphQLInputs, marks: FieldMarks) -> None:
        self.needs = Needs()
        self.variables: list[Variable] = []
        self.names: dict[str, str] = {}  # argument names, by names in the schema
        self.properties: dict[str, dict[str, Any]] = {}
        self._required: list[str] = []
        self._inputs = inputs
        self._marks = marks.arguments

    def take(self, value: InputValue) -> None:
        """Add an argument. Raises SkipField."""
        marks = self._marks.get(value.name, _NO_MARKS)
        if marks.hide:
            self._hide(value, marks)
            return
        if not self._inputs.sendable(value):
            if value.demanded:
                raise SkipField(f"{value.name} takes a file, which is not sent")
            self.needs.notes[f"{value.name} takes a file, which is not sent"] = None
            return
        name = legal(marks.name or value.name)
        if not name or name in self.properties:
            self.needs.notes[f"the name {marks.name!r} cannot be given to {value.name}"] = None
            name = legal(value.name)
        schema = self._inputs.value(value, self.needs)
        if marks.description:
            schema["description"] = marks.description
        self.names[value.name] = name
        self.properties[name] = schema
        self._required += [name] if value.demanded else []
        # 5.8.5: nullable where the service has a default, used if the argument is absent
        declared = value.type if value.demanded else value.type.nullable
        self.variables.append(Variable(name, value.name, str(declared)))

    def _hide(self, value: InputValue, marks: ArgumentMarks) -> None:
        given: Any = value.default if marks.value is UNSET else marks.value
        if given is UNSET:
            if value.demanded:
                raise SkipField(f"{value.name} is hidden, required, and has no value")
            return
        if marks.value is not UNSET or value.type.required:
            fixed: Raw | UnsetType = Raw(encode(given))
            self.variables.append(Variable("", value.name, str(value.type), fixed))

    def schema(self, marks: FieldMarks) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "object", "properties": self.properties}
        if self._required:
            schema["required"] = self._required
        schema["additionalProperties"] = False
        if marks.examples:
            schema["examples"] = list(marks.examples)
        if definitions := self._inputs.definitions(self.needs):
            schema["$defs"] = definitions
        return schema


_NO_MARKS = ArgumentMarks()


def _page_size(field: Field, pagination: Pagination | None) -> int | None:
    if pagination is None or pagination.limit is None:
        return None
    first = field.args["first"]
    plain = first.type.named == "Int" and not first.type.required and first.default in (UNSET, None)
    return PAGE_SIZE if plain and not first.type.lists else None


def _description(root: Root, marks: FieldMarks, schema: dict[str, Any]) -> str:
    field = root.field
    told = marks.description or plain(field.description)
    told = told or of_field(root.operation, field.name, str(field.type), schema)
    if root.field.deprecated is not None:
        told = f"Deprecated: {root.field.deprecated}\n\n{told}"
    return cut(told)
