"""Selection sets of a root field: chosen, parsed from text, printed.

Deterministic: the same schema always gives the same selection.

The JSON Schema of an answer follows from its selection set. No member is required: a caller may
select less, and a failed field nulls its parents. Enums, which a service may extend, and custom
scalars are unconstrained as well: no valid answer may fail.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import merge
from itertools import chain, islice
from math import ceil
from typing import Any

from graphql import GraphQLError, parse, print_ast
from graphql.language import ast

from registry.importers.graphql.schema import COMPOSITE, Field, Ref, Schema, Type, leaf_schema

PAGE_ARGUMENTS = ("first", "limit")
INNER_ENTRIES = 10  # of nested lists, where the service takes a bound

TYPENAME = "__typename"


@dataclass(slots=True)
class SelectedField:
    """One field of a selection. Without `field` it is `__typename`."""

    field: Field | None
    inner: "Selection | None" = None
    arguments: str = ""  # printed, with parentheses
    alias: str = ""

    @property
    def name(self) -> str:
        return self.field.name if self.field else TYPENAME

    @property
    def key(self) -> str:
        """The response key."""
        return self.alias or self.name


@dataclass(slots=True)
class Selection:
    type: Type
    fields: list[SelectedField] = field(default_factory=list)
    fragments: list["Selection"] = field(default_factory=list)  # `... on` their types

    def print(self) -> str:
        return f"{{ {' '.join(self._parts())} }}"

    def _parts(self) -> Iterator[str]:
        for schema_field in self.fields:
            alias = f"{schema_field.alias}: " if schema_field.alias else ""
            inner = f" {schema_field.inner.print()}" if schema_field.inner else ""
            yield f"{alias}{schema_field.name}{schema_field.arguments}{inner}"
        for fragment in self.fragments:
            yield f"... on {fragment.type.name} {fragment.print()}"

    def prune(self) -> bool:
        """Remove fields with empty selections; whether any field is left."""
        self.fields = [
            fragment for fragment in self.fields if fragment.inner is None or fragment.inner.prune()
        ]
        self.fragments = [fragment for fragment in self.fragments if fragment.prune()]
        return bool(self.fields or self.fragments)


@dataclass(frozen=True, slots=True)
class Connection:
    """A page of a list (the GraphQL Cursor Connections Specification of Relay)."""

    path: tuple[Field, ...]  # to the entries: (nodes,) or (edges, node)
    entry: Type
    page_info: Field | None  # whether more follows, and the next cursor
    total: Field | None


def connection(schema: Schema, type_: Type) -> Connection | None:
    """`type_` as a connection, recognized by its shape, not its name."""
    info = type_.fields.get("pageInfo")
    path = _entries(schema, type_)
    if info is None or path is None:
        return None
    entry = schema.of(path[-1].type)
    has_cursor = {"hasNextPage", "endCursor"} <= schema.of(info.type).fields.keys()
    total = type_.fields.get("totalCount")
    is_number = total is not None and schema.of(total.type).kind == "scalar" and not total.args
    return Connection(path, entry, info if has_cursor else None, total if is_number else None)


def _entries(schema: Schema, type_: Type) -> tuple[Field, ...] | None:
    nodes = type_.fields.get("nodes")
    if nodes and nodes.type.lists and schema.of(nodes.type).kind in COMPOSITE:
        return (nodes,)
    edges = type_.fields.get("edges")
    if edges is None or not edges.type.lists:
        return None
    node = schema.of(edges.type).fields.get("node")
    if node is None or schema.of(node.type).kind not in COMPOSITE:
        return None
    return (edges, node)


def bounding(schema_field: Field) -> str | None:
    """Printed arguments of a nested field, which no caller can set: a page size for a list, if it
    takes one. None for a field with other required arguments."""
    page = ""
    for name in PAGE_ARGUMENTS:
        argument = schema_field.args.get(name)
        if argument and argument.type.named_type == "Int" and not argument.type.lists:
            page = name
            break
    if any(value.is_demanded and value.name != page for value in schema_field.args.values()):
        return None
    return f"({page}: {INNER_ENTRIES})" if page else ""


LIST_WEIGHT = 4  # cost factor of fields inside a list of objects
FRAGMENTS = 6  # maximum object types for fragments of an interface; beyond, only its shared fields
UNION_FRAGMENTS = 12  # fragments of a union
OBJECT_COST = 3  # fields that make an object worth selecting
SHARE = 0.6  # of the remaining budget, for one level while there are further levels
MISSES = 200  # objects that are looked at after the budget has become too small for them

# fields that identify and rate things for people
_NAMES = frozenset(
    {"name", "title", "login", "username", "email", "key", "slug", "code", "number", "label",
     "status", "state", "type", "kind", "message", "url"}
)  # fmt: skip


@dataclass(slots=True)
class _Node:
    """An object in a selection that can get fields."""

    selection: Selection
    fields: "_Fields"
    weight: int
    ancestors: frozenset[str]  # names of its type and its ancestors
    keys: dict[str, str] | None = None  # of a fragment: types by field name, shared by siblings


_Candidate = tuple[_Node, Field, str]  # a composite field, and its printed arguments


class Chooser:
    def __init__(self, schema: Schema, depth: int, cost: int) -> None:
        self._schema = schema
        self._depth = depth
        self._cost = cost
        self._left = 0
        # By the name of a type: each is looked at once, however many fields lead to it.
        self._selections: dict[str, Selection] = {}
        self._pages: dict[str, Connection | None] = {}
        self._worths: dict[str, int] = {}
        self._fields: dict[tuple[str, str], _Fields] = {}  # by type, and interface around it

    def choose(self, type_: Type) -> Selection:
        """A selection of `type_`, an object, an interface or a union; never empty."""
        if type_.name not in self._selections:
            self._selections[type_.name] = self._choose(type_)
        return self._selections[type_.name]

    def _page(self, type_: Type) -> Connection | None:
        if type_.name not in self._pages:
            self._pages[type_.name] = connection(self._schema, type_)
        return self._pages[type_.name]

    def _fields_of(self, type_: Type, around: Type | None = None) -> "_Fields":
        """The fields of a type, without those of the interface or union `around` its fragment."""
        key = (type_.name, around.name if around else "")
        if key not in self._fields:
            shared = around.fields if around else {}
            own_fields = [field for name, field in type_.fields.items() if name not in shared]
            self._fields[key] = _Fields(self._schema, own_fields, self._is_many)
        return self._fields[key]

    def _choose(self, type_: Type) -> Selection:
        self._left = self._cost
        root = Selection(type_)
        level = self._enter(root, 1, frozenset(), is_root=True)
        for depth in range(self._depth, 0, -1):
            candidates = iter(()) if depth == 1 else self._candidates(level)
            first = next(candidates, None)
            self._fill(level, self._left if first is None else ceil(self._left * SHARE))
            level = [] if first is None else self._descend(chain([first], candidates))
            if not level:
                break
        if not root.prune():
            root.fields.append(SelectedField(None))
        return root

    def _enter(
        self, selection: Selection, weight: int, ancestors: frozenset[str], *, is_root: bool = False
    ) -> list[_Node]:
        """The nodes to which fields can be added after entering `selection`."""
        type_ = selection.type
        ancestors |= {type_.name}
        page = self._page(type_)
        if page is not None:
            return self._enter_page(selection, page, weight, ancestors, is_root=is_root)
        if type_.kind == "object":
            return [_Node(selection, self._fields_of(type_), weight, ancestors)]
        selection.fields.append(SelectedField(None))
        fields = self._fields_of(type_)
        nodes = [_Node(selection, fields, weight, ancestors)] if type_.fields else []
        members = self._members(type_, is_root)
        shared = type_.fields.items() if members else ()
        keys = {name: str(schema_field.type) for name, schema_field in shared}
        for member in members:
            fragment = Selection(member)
            selection.fragments.append(fragment)
            own_fields = self._fields_of(member, around=type_)
            nodes.append(_Node(fragment, own_fields, weight, ancestors | {member.name}, keys=keys))
        return nodes

    def _members(self, type_: Type, is_root: bool) -> list[Type]:
        """The object types that get a fragment; nested interfaces use their shared fields only."""
        if type_.fields and not is_root:
            return []
        members = (self._schema.types[name] for name in type_.members if name in self._schema.types)
        if not type_.fields:
            return list(islice(members, UNION_FRAGMENTS))
        first = list(islice(members, FRAGMENTS + 1))
        return first if len(first) <= FRAGMENTS else []

    def _enter_page(
        self,
        selection: Selection,
        page: Connection,
        weight: int,
        ancestors: frozenset[str],
        *,
        is_root: bool,
    ) -> list[_Node]:
        if page.total is not None:
            selection.fields.append(SelectedField(page.total))
            self._left -= weight
        *wrappers, last = page.path
        inner, at = Selection(page.entry), selection
        for wrapper in wrappers:
            below = Selection(self._schema.of(wrapper.type))
            at.fields.append(SelectedField(wrapper, below))
            at = below
        at.fields.append(SelectedField(last, inner))
        if page.page_info is not None:
            info = self._schema.of(page.page_info.type)
            names = ("hasNextPage", "endCursor") if is_root else ("hasNextPage",)
            page_info = Selection(info, [SelectedField(info.fields[name]) for name in names])
            selection.fields.append(SelectedField(page.page_info, page_info))
            self._left -= weight * len(names)
        return self._enter(inner, weight, ancestors, is_root=is_root)

    def _fill(self, nodes: list[_Node], budget: int) -> None:
        """Add leaf fields round-robin, so that each object gets its first ones."""
        queue = deque((node, iter(self._leaves(node))) for node in nodes)
        while queue:
            node, leaves = queue.popleft()
            leaf = next(leaves, None)
            if leaf is None or node.weight > min(budget, self._left):
                continue
            node.selection.fields.append(SelectedField(leaf))
            budget -= node.weight
            self._left -= node.weight
            queue.append((node, leaves))

    def _leaves(self, node: _Node) -> Iterator[Field]:
        for leaf in node.fields.leaves:
            if node.keys is None or node.keys.setdefault(leaf.name, str(leaf.type)) == str(
                leaf.type
            ):
                yield leaf

    def _candidates(self, nodes: list[_Node]) -> Iterator[_Candidate]:
        """Composite fields: round-robin over the nodes, lists last. Lazy, as a level of hundreds of
        types with hundreds of fields each has more of them than any budget takes."""
        ranked = merge(*map(self._rank_objects, nodes), key=lambda entry: entry[:2])
        return (candidate for *_, candidate in ranked)

    def _rank_objects(self, node: _Node) -> Iterator[tuple[bool, int, _Candidate]]:
        fields = (field for field in node.fields.objects if self._is_new(node, field))
        for turn, schema_field in enumerate(fields):
            if (arguments := bounding(schema_field)) is not None:
                yield self._is_many(schema_field), turn, (node, schema_field, arguments)

    def _is_new(self, node: _Node, schema_field: Field) -> bool:
        type_ = self._schema.of(schema_field.type)
        if type_.name in node.ancestors:
            return False
        page = self._page(type_)
        return page is None or page.entry.name not in node.ancestors

    def _is_many(self, schema_field: Field) -> bool:
        type_ = schema_field.type
        return bool(type_.lists) or self._page(self._schema.of(type_)) is not None

    def _descend(self, candidates: Iterator[_Candidate]) -> list[_Node]:
        """Enter as many objects as the budget gives a few fields each."""
        level: list[_Node] = []
        planned = misses = 0
        for node, schema_field, arguments in candidates:
            weight = node.weight * (LIST_WEIGHT if self._is_many(schema_field) else 1)
            cost = weight * self._worth(schema_field)
            if planned + cost > self._left or not self._merges(node, schema_field):
                misses += 1
                if misses > MISSES or planned >= self._left:
                    break
                continue
            planned += cost
            inner = Selection(self._schema.of(schema_field.type))
            node.selection.fields.append(SelectedField(schema_field, inner, arguments))
            level += self._enter(inner, weight, node.ancestors)
        return level

    def _worth(self, schema_field: Field) -> int:
        """Minimum number of fields that make selecting an object worthwhile."""
        type_ = self._schema.of(schema_field.type)
        if type_.name not in self._worths:
            self._worths[type_.name] = self._worth_of(type_)
        return self._worths[type_.name]

    def _worth_of(self, type_: Type) -> int:
        if type_.kind != "object" or self._page(type_):
            return OBJECT_COST
        plain = (
            schema_field
            for schema_field in type_.fields.values()
            if self._schema.of(schema_field.type).kind in ("scalar", "enum")
        )
        return max(1, len(list(islice(plain, OBJECT_COST))))  # types can have hundreds of fields

    def _merges(self, node: _Node, schema_field: Field) -> bool:
        """Whether sibling fragments can share the field (5.3.2: fields of one name have one
        shape)."""
        if node.keys is None:
            return True
        if schema_field.name not in node.keys:
            node.keys[schema_field.name] = str(schema_field.type)
            return True
        plain = self._schema.of(schema_field.type).kind == "object"
        return plain and node.keys[schema_field.name] == str(schema_field.type)


class _Fields:
    """Fields of a type that a selection may have, sorted once for all selections with it."""

    def __init__(
        self, schema: Schema, fields: Sequence[Field], is_many: Callable[[Field], bool]
    ) -> None:
        self._schema = schema
        self._fields = [field for field in fields if field.deprecated is None]
        self._is_many = is_many

    @cached_property
    def leaves(self) -> Sequence[Field]:
        """Fields without fields of their own, which need no argument, the most telling first."""
        leaves = (
            field
            for field in self._fields
            if self._schema.of(field.type).kind in ("scalar", "enum")
            and not any(value.is_demanded for value in field.args.values())
        )
        return sorted(leaves, key=_rank)

    @cached_property
    def objects(self) -> Sequence[Field]:
        """Composite fields, lists last."""
        objects = (field for field in self._fields if self._schema.of(field.type).kind in COMPOSITE)
        return sorted(objects, key=self._is_many)


def _rank(leaf: Field) -> int:
    if leaf.name == "id":
        return 0
    if leaf.type.lists:
        return 3
    return 1 if leaf.name.lower() in _NAMES else 2


DEPTH_LIMIT = 20
TOKENS_LIMIT = 5_000


class Unselectable(ValueError):
    """A selection is invalid; `str()` is the reason."""


def read_selection(schema: Schema, type_: Type, text: str) -> Selection:
    """Parse a selection set: `{ id name owner { login } }`. Raises Unselectable."""
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
    for node_ in node.selections:
        if node_.directives:
            raise Unselectable("directives are not taken")
        match node_:
            case ast.FieldNode():
                selection.fields.append(_select_field(schema, type_, node_, depth))
            case ast.InlineFragmentNode():
                name = node_.type_condition.name.value if node_.type_condition else type_.name
                inner = schema.types.get(name)
                if inner is None or inner.kind not in COMPOSITE:
                    raise Unselectable(f"there is no object type {name}")
                fragment = _selection(schema, inner, node_.selection_set, depth - 1)
                selection.fragments.append(fragment)
            case _:
                raise Unselectable("named fragments are not taken; write `... on Type { }`")
    if not selection.fields and not selection.fragments:
        raise Unselectable(f"nothing of {type_.name} is selected")
    return selection


def _select_field(schema: Schema, type_: Type, node: Any, depth: int) -> SelectedField:
    alias = node.alias.value if node.alias else ""
    name = node.name.value
    if name == TYPENAME:
        return SelectedField(None, alias=alias)
    if name not in type_.fields:
        raise Unselectable(f"{type_.name} has no field {name}")
    field = type_.fields[name]
    arguments = {argument.name.value: argument for argument in node.arguments or ()}
    for unknown in arguments.keys() - field.args.keys():
        raise Unselectable(f"{type_.name}.{name} has no argument {unknown}")
    for value in field.args.values():
        if value.is_demanded and value.name not in arguments:
            raise Unselectable(f"{type_.name}.{name} needs the argument {value.name}")
    if any(_varies(argument.value) for argument in arguments.values()):
        raise Unselectable(f"{type_.name}.{name}: variables are not taken")
    printed = ", ".join(print_ast(argument) for argument in arguments.values())
    inner_type = schema.of(field.type)
    if (inner_type.kind in COMPOSITE) != (node.selection_set is not None):
        fault = "needs a selection" if node.selection_set is None else "has no fields to select"
        raise Unselectable(f"{type_.name}.{name} {fault}")
    inner = None
    if node.selection_set is not None:
        inner = _selection(schema, inner_type, node.selection_set, depth - 1)
    return SelectedField(field, inner, f"({printed})" if printed else "", alias)


def _varies(value: Any) -> bool:
    match value:
        case ast.VariableNode():
            return True
        case ast.ListValueNode():
            return any(_varies(item) for item in value.values)
        case ast.ObjectValueNode():
            return any(_varies(schema_field.value) for schema_field in value.fields)
    return False


FURTHER = 40  # names listed of fields that could be selected besides
CHOICES = 30


def output_schema(schema: Schema, ref: Ref, selection: Selection | None) -> dict[str, Any]:
    schema_value = _non_null(schema, ref.nullable, selection)
    if ref.is_required or "type" not in schema_value:
        return schema_value
    kinds = (
        schema_value["type"] if isinstance(schema_value["type"], list) else [schema_value["type"]]
    )
    return {**schema_value, "type": [*kinds, "null"]}


def _non_null(schema: Schema, ref: Ref, selection: Selection | None) -> dict[str, Any]:
    if ref.wrap == "list" and ref.of is not None:
        return {"type": "array", "items": output_schema(schema, ref.of, selection)}
    if selection is not None:
        return _object(schema, selection)
    type_ = schema.of(ref)
    if type_.kind != "enum":
        return leaf_schema(type_)
    names = ", ".join(islice(type_.choices, CHOICES))
    return {"type": "string", "description": f"{type_.name}: {names}"}


def _object(schema: Schema, selection: Selection) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    _gather(schema, selection, properties)
    object_schema: dict[str, Any] = {"type": "object", "properties": properties}
    own_names = (name for name in _selectable(selection.type) if name not in properties)
    further = list(islice(chain(own_names, _of_members(schema, selection)), FURTHER + 1))
    if further:
        more = ", …" if len(further) > FURTHER else ""
        object_schema["description"] = f"Not selected: {', '.join(further[:FURTHER])}{more}"
    return object_schema


def _selectable(type_: Type) -> Iterator[str]:
    for name, schema_field in type_.fields.items():
        if not any(value.is_demanded for value in schema_field.args.values()):
            yield name


def _of_members(schema: Schema, selection: Selection) -> Iterator[str]:
    """Paths of the fields that single types of a union or an interface have besides the selected
    ones, as `_fields` takes them."""
    type_ = selection.type
    if type_.kind == "object":
        return
    selected = {
        (fragment.type.name, chosen.name)
        for fragment in selection.fragments
        for chosen in fragment.fields
    }
    members = (schema.types[name] for name in type_.members if name in schema.types)
    for member in islice(members, UNION_FRAGMENTS):
        for name in _selectable(member):
            if name not in type_.fields and (member.name, name) not in selected:
                yield f"on {member.name}.{name}"


def _gather(schema: Schema, selection: Selection, properties: dict[str, Any]) -> None:
    for schema_field in selection.fields:
        if schema_field.field is None:
            property_schema: dict[str, Any] = {"type": "string"}
        else:
            property_schema = output_schema(schema, schema_field.field.type, schema_field.inner)
        earlier = properties.setdefault(schema_field.key, property_schema)
        if (
            earlier is not property_schema
            and "properties" in earlier
            and "properties" in property_schema
        ):
            earlier["properties"] = {**property_schema["properties"], **earlier["properties"]}
    for fragment in selection.fragments:
        _gather(schema, fragment, properties)
