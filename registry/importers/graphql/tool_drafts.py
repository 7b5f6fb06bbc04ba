"""One field of Query or Mutation to one tool draft.

Arguments are converted to JSON Schema 2020-12; input objects become `$defs`, each converted once.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from msgspec import UNSET, Raw, UnsetType

from registry.importers.drafts import plain_description, truncate
from registry.importers.generated_descriptions import field_description
from registry.importers.graphql.overlays import FieldMarks
from registry.importers.graphql.schema import (
    COMPOSITE,
    Field,
    InputValue,
    Operation,
    Ref,
    Schema,
    Type,
    is_upload,
    scalar,
)
from registry.importers.graphql.selection import (
    Chooser,
    Selection,
    Unselectable,
    connection,
    output_schema,
    read_selection,
)
from registry.importers.openapi.document import SkipOperation
from registry.importers.openapi.schema_budgets import SizeBudget
from registry.importers.openapi.x_toolgate import ArgumentMarks
from registry.importers.plain_text import plain
from registry.names.tool_names import legal
from schemas.binding import GraphQLBinding, Pagination, Variable
from schemas.json_schema.references import definition_name, refer_to
from schemas.jsonrpc import encode
from schemas.tool import Annotations, ToolDraft

# Services with generated table filters link each type to all others: Hasura has thousands.
DEFINITIONS_LIMIT = 100
INLINE_CHOICES = 12  # a longer enum, or one with descriptions, becomes a definition


@dataclass(slots=True)
class Needs:
    """Dependencies of one tool's schemas, and notes on losses."""

    names: dict[str, None] = field(default_factory=dict)  # of definitions, ordered
    notes: dict[str, None] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of the notes, which count as schemas do: there may be one for each member."""
        return sum(map(len, self.notes))

    def add(self, needs: "Needs") -> None:
        self.names |= needs.names
        self.notes |= needs.notes


@dataclass(frozen=True, slots=True)
class Definition:
    """An input type as a member of `$defs`."""

    schema: dict[str, Any]
    needs: Needs
    size: int  # of the schema and its notes, in bytes


class GraphQLInputs:
    """Converts the input types of one schema."""

    def __init__(self, schema: Schema, budget: SizeBudget) -> None:
        """`budget` is that of all input schemas."""
        self._schema = schema
        self._budget = budget
        self._definitions: dict[str, Definition] = {}
        self._leaves: dict[str, tuple[dict[str, Any] | None, str | None]] = {}
        self._unsendable = _unsendable(schema)

    def sendable(self, value: InputValue) -> bool:
        """Whether the value can be sent as JSON: files need multipart requests."""
        return not self._is_unsendable(value.type)

    def value(self, value: InputValue, needs: Needs) -> dict[str, Any]:
        """The schema of an argument or field, with its description."""
        return self._value(value, needs, nullable=not value.type.is_required)

    def argument(self, value: InputValue, needs: Needs) -> dict[str, Any]:
        """The schema of an argument. Raises SkipOperation when the budget is exhausted."""
        schema = self.value(value, needs)
        self._budget.take(len(value.name) + len(encode(schema)))
        return schema

    def definitions(self, needs: Needs) -> dict[str, Any]:
        """`$defs`: everything reachable, the nearest first if that is too much. Raises
        SkipOperation when the budget is exhausted."""
        self._budget.take(needs.size)
        reached: dict[str, Any] = {}
        queue = deque(needs.names)
        while queue:
            name = queue.popleft()
            if name in reached:
                continue
            if len(reached) >= DEFINITIONS_LIMIT:
                reached[name] = self._unread(name)
                self._budget.take(len(name) + len(encode(reached[name])))
                needs.notes[
                    f"its arguments need more than {DEFINITIONS_LIMIT} types: what lies further in"
                    " is not checked here"
                ] = None
                continue
            definition = self._definition(name)
            reached[name] = definition.schema
            needs.notes |= definition.needs.notes
            queue.extend(definition.needs.names)
        return {name: reached[name] for name in sorted(reached)}

    def _unread(self, name: str) -> dict[str, Any]:
        kind = "string" if self._schema.types[name].kind == "enum" else "object"
        return {"type": kind}

    def _definition(self, name: str) -> Definition:
        if name in self._definitions:
            self._budget.take(self._definitions[name].size)
        else:
            self._definitions[name] = self._convert(self._schema.types[name])
        return self._definitions[name]

    def _convert(self, type_: Type) -> Definition:
        if type_.kind == "enum":
            schema, needs = _enum(type_), Needs()
            size = len(encode(schema))
            self._budget.take(size)
        else:
            needs = Needs()
            schema, size = self._object(type_, needs)
        return Definition(schema, needs, size)

    def _object(self, type_: Type, needs: Needs) -> tuple[dict[str, Any], int]:
        """The schema, and its size with that of its notes. Members use up the budget one by one, as
        each may repeat a long scalar."""
        properties: dict[str, Any] = {}
        required: list[str] = []
        size = 0
        for name, value in type_.inputs.items():
            if self._is_unsendable(value.type):
                note = f"{type_.name}.{name} takes a file, which is not sent"
                needs.notes[note] = None
                member_size = len(note)
            else:
                # 3.10.1: of a @oneOf type the one field that is given is not null
                nullable = not type_.one_of and not value.type.is_required
                properties[name] = self._value(value, needs, nullable)
                required += [name] if value.is_demanded else []
                member_size = len(name) + len(encode(properties[name]))
            self._budget.take(member_size)
            size += member_size
        schema: dict[str, Any] = {"type": "object"}
        if type_.description:
            schema["description"] = plain_description(type_.description)
        schema["properties"] = properties
        if required:
            schema["required"] = required
        if type_.one_of:
            schema |= {"minProperties": 1, "maxProperties": 1}
        return {**schema, "additionalProperties": False}, size

    def _value(self, value: InputValue, needs: Needs, nullable: bool) -> dict[str, Any]:
        schema = self._of(value.type.nullable, needs)
        schema = _nullable(schema) if nullable else _not_null(schema)
        if value.description:
            schema = {**schema, "description": plain_description(value.description)}
        if value.default is not UNSET:
            schema = {**schema, "default": value.default}
        if value.deprecated is not None:
            schema = {**schema, "deprecated": True}
        return schema

    def _of(self, ref: Ref, needs: Needs) -> dict[str, Any]:
        """Schema of a type without null."""
        if ref.wrap == "list" and ref.of is not None:
            items = self._of(ref.of.nullable, needs)
            return {"type": "array", "items": items if ref.of.is_required else _nullable(items)}
        type_ = self._schema.of(ref)
        match type_.kind:
            case "scalar" | "enum":
                schema, unknown = self._leaf(type_)
                needs.notes |= {unknown: None} if unknown else {}
                if schema is not None:
                    return dict(schema)
                needs.names[type_.name] = None
                return refer_to(type_.name)
            case "input":
                needs.names[type_.name] = None
                return refer_to(type_.name)
        needs.notes[f"type {type_.name} is not defined: any value is let through"] = None
        return {}

    def _leaf(self, type_: Type) -> tuple[dict[str, Any] | None, str | None]:
        """The schema of a scalar or a small enum, made once, and a note; None for a larger enum."""
        if type_.name not in self._leaves:
            if type_.kind == "scalar":
                self._leaves[type_.name] = scalar(type_)
            else:
                self._leaves[type_.name] = (_enum(type_) if _is_small(type_) else None), None
        return self._leaves[type_.name]

    def _is_unsendable(self, ref: Ref) -> bool:
        type_ = self._schema.of(ref)
        return is_upload(type_) or type_.name in self._unsendable


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """`schema` without null, which one that takes any value would let through."""
    if not schema.keys() <= {"description"}:
        return schema
    return {"type": ["object", "array", "string", "number", "boolean"], **schema}


def _unsendable(schema: Schema) -> frozenset[str]:
    """Input objects that require a file."""
    unsendable: set[str] = set()
    inputs = [type_ for type_ in schema.types.values() if type_.kind == "input"]
    users: Mapping[str, list[str]] = _users(inputs)
    queue = [
        input_type.name
        for input_type in inputs
        if any(is_upload(schema.of(v.type)) for v in _demanded_inputs(input_type))
    ]
    while queue:
        name = queue.pop()
        if name not in unsendable:
            unsendable.add(name)
            queue.extend(users.get(name, ()))
    return frozenset(unsendable)


def _users(inputs: Iterable[Type]) -> dict[str, list[str]]:
    """Reverse index: names of input objects by the type that they require."""
    users: dict[str, list[str]] = {}
    for type_ in inputs:
        for value in _demanded_inputs(type_):
            users.setdefault(value.type.named_type, []).append(type_.name)
    return users


def _demanded_inputs(type_: Type) -> list[InputValue]:
    return [value for value in type_.inputs.values() if value.is_demanded]


def _is_small(type_: Type) -> bool:
    text = any(choice.description for choice in type_.choices.values())
    return len(type_.choices) <= INLINE_CHOICES and not text and not type_.description


def _enum(type_: Type) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if type_.choices:
        schema["enum"] = list(type_.choices)
    lines = [type_.description] if type_.description else []
    for choice in type_.choices.values():
        text = f"deprecated: {choice.deprecated}" if choice.deprecated else choice.description
        lines += [f"{choice.name}: {' '.join(text.split())}"] if text else []
    if lines:
        schema["description"] = plain_description("\n".join(lines))
    return schema


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if "enum" in schema:
        schema = {**schema, "enum": [*schema["enum"], None]}
    match schema.get("type"):
        case str(kind):
            return {**schema, "type": [kind, "null"]}
        case list(kinds):
            return {**schema, "type": [*kinds, "null"]}
    return {"anyOf": [schema, {"type": "null"}]} if definition_name(schema) else schema


PAGE_SIZE = 20  # default page size of a connection; GitHub and others require one

OPERATIONS: tuple[Operation, ...] = get_args(Operation)

# October 2021, section 6.2: queries have no side effects, mutations are supposed to have some.
_ANNOTATIONS = {
    "query": Annotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True
    ),
    "mutation": Annotations(read_only_hint=False, idempotent_hint=False, open_world_hint=True),
}


class SkipField(SkipOperation):
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

    def __init__(self, schema: Schema, budget: SizeBudget, *, depth: int, cost: int) -> None:
        """`budget` is the size budget of all input schemas."""
        self._schema = schema
        self._budget = budget
        self._inputs = GraphQLInputs(schema, budget)
        self._chooser = Chooser(schema, depth, cost)

    def draft(self, root: Root, name: str, marks: FieldMarks) -> tuple[ToolDraft, list[str]]:
        """The tool and notes on losses. Raises SkipOperation."""
        self._budget.take(0)  # stop early when the budget is exhausted
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
            selection.print() if selection else "",
            pagination=pagination,
            page_size=page_size,
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
            output_schema=self._budget.outputs.take(
                output_schema(self._schema, root.field.type, selection), notes
            ),
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
        """Add an argument. Raises SkipOperation."""
        marks = self._marks.get(value.name, _NO_MARKS)
        if marks.hide:
            self._hide(value, marks)
            return
        if not self._inputs.sendable(value):
            if value.is_demanded:
                raise SkipField(f"{value.name} takes a file, which is not sent")
            self.needs.notes[f"{value.name} takes a file, which is not sent"] = None
            return
        name = legal(marks.name or value.name)
        if not name or name in self.properties:
            self.needs.notes[f"the name {marks.name!r} cannot be given to {value.name}"] = None
            name = legal(value.name)
        schema = self._inputs.argument(value, self.needs)
        if marks.description:
            schema["description"] = marks.description
        self.names[value.name] = name
        self.properties[name] = schema
        self._required += [name] if value.is_demanded else []
        # 5.8.5: nullable where the service has a default, used if the argument is absent
        declared = value.type if value.is_demanded else value.type.nullable
        self.variables.append(Variable(name, value.name, str(declared)))

    def _hide(self, value: InputValue, marks: ArgumentMarks) -> None:
        default: Any = value.default if marks.value is UNSET else marks.value
        if default is UNSET:
            if value.is_demanded:
                raise SkipField(f"{value.name} is hidden, required, and has no value")
            return
        if marks.value is not UNSET or value.type.is_required:
            fixed: Raw | UnsetType = Raw(encode(default))
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
    plain = (
        first.type.named_type == "Int"
        and not first.type.is_required
        and first.default in (UNSET, None)
    )
    return PAGE_SIZE if plain and not first.type.lists else None


def _description(root: Root, marks: FieldMarks, schema: dict[str, Any]) -> str:
    field = root.field
    text = marks.description or plain(field.description)
    text = text or field_description(root.operation, field.name, str(field.type), schema)
    if root.field.deprecated is not None:
        text = f"Deprecated: {root.field.deprecated}\n\n{text}"
    return truncate(text)
