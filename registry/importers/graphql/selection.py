"""What is asked of a root field: a tree of fields, printed as a GraphQL selection set."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from registry.importers.graphql.schema import COMPOSITE, Field, Schema, Type

PAGE_ARGUMENTS = ("first", "limit")
INNER_ENTRIES = 10  # of a list further in, where the service lets us say how many

TYPENAME = "__typename"


@dataclass(slots=True)
class Selected:
    """One field of a selection. Without `field` it is `__typename`."""

    field: Field | None
    inner: "Selection | None" = None
    arguments: str = ""  # printed, with their parentheses
    alias: str = ""

    @property
    def name(self) -> str:
        return self.field.name if self.field else TYPENAME

    @property
    def key(self) -> str:
        """The name of its value in the answer."""
        return self.alias or self.name


@dataclass(slots=True)
class Selection:
    type: Type
    fields: list[Selected] = field(default_factory=list)
    fragments: list["Selection"] = field(default_factory=list)  # `... on` their types

    def printed(self) -> str:
        return f"{{ {' '.join(self._parts())} }}"

    def _parts(self) -> Iterator[str]:
        for one in self.fields:
            alias = f"{one.alias}: " if one.alias else ""
            inner = f" {one.inner.printed()}" if one.inner else ""
            yield f"{alias}{one.name}{one.arguments}{inner}"
        for fragment in self.fragments:
            yield f"... on {fragment.type.name} {fragment.printed()}"

    def prune(self) -> bool:
        """Take out what nothing is selected of; whether anything is left."""
        self.fields = [one for one in self.fields if one.inner is None or one.inner.prune()]
        self.fragments = [one for one in self.fragments if one.prune()]
        return bool(self.fields or self.fragments)


@dataclass(frozen=True, slots=True)
class Connection:
    """A page of a list (the GraphQL Cursor Connections Specification of Relay)."""

    path: tuple[Field, ...]  # to the entries: (nodes,) or (edges, node)
    entry: Type
    page_info: Field | None  # where it says whether more follows, and from where
    total: Field | None


def connection(schema: Schema, type_: Type) -> Connection | None:
    """`type_` as a connection, if it has the shape of one; its name says nothing."""
    info = type_.fields.get("pageInfo")
    path = _entries(schema, type_)
    if info is None or path is None:
        return None
    entry = schema.of(path[-1].type)
    whole = {"hasNextPage", "endCursor"} <= schema.of(info.type).fields.keys()
    total = type_.fields.get("totalCount")
    is_number = total is not None and schema.of(total.type).kind == "scalar" and not total.args
    return Connection(path, entry, info if whole else None, total if is_number else None)


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


def bounding(one: Field) -> str | None:
    """The arguments of a field inside a selection, which nobody is there to choose: a bound on a
    list, if it takes one. None for a field that cannot do without others."""
    page = ""
    for name in PAGE_ARGUMENTS:
        argument = one.args.get(name)
        if argument and argument.type.named == "Int" and not argument.type.lists:
            page = name
            break
    if any(value.demanded and value.name != page for value in one.args.values()):
        return None
    return f"({page}: {INNER_ENTRIES})" if page else ""
