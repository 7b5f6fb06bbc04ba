"""Which fields to select: identity and scalars first, then objects level by level, within a depth
and a cost. The same schema always gives the same selection."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import ceil

from registry.importers.graphql.schema import COMPOSITE, Field, Schema, Type
from registry.importers.graphql.selection import (
    Connection,
    Selected,
    Selection,
    bounding,
    connection,
)

LIST_WEIGHT = 4  # a field inside a list of objects costs as much more
FRAGMENTS = 6  # an interface that more objects implement is asked for what all of them have
UNION_FRAGMENTS = 12  # objects that a union is asked for by name
OBJECT_COST = 3  # fields that make an object worth asking for
SHARE = 0.6  # of what is left, for the fields of one level while there are further levels

# what people call things by, and judge them by
_NAMES = frozenset(
    {"name", "title", "login", "username", "email", "key", "slug", "code", "number", "label",
     "status", "state", "type", "kind", "message", "url"}
)  # fmt: skip


@dataclass(slots=True)
class _Node:
    """An object in a selection that may get fields."""

    selection: Selection
    fields: Iterable[Field]
    weight: int
    above: frozenset[str]  # names of the types around it, and its own
    keys: dict[str, str] | None = None  # of a fragment: types by name, shared by its siblings


class Chooser:
    def __init__(self, schema: Schema, depth: int, cost: int) -> None:
        self._schema = schema
        self._depth = depth
        self._cost = cost
        self._left = 0

    def choose(self, type_: Type) -> Selection:
        """A selection of `type_`, an object, an interface or a union; never an empty one."""
        self._left = self._cost
        root = Selection(type_)
        level = self._enter(root, 1, frozenset(), is_root=True)
        for depth in range(self._depth, 0, -1):
            candidates = [] if depth == 1 else self._candidates(level)
            self._fill(level, ceil(self._left * SHARE) if candidates else self._left)
            level = self._descend(candidates)
            if not level:
                break
        if not root.prune():
            root.fields.append(Selected(None))
        return root

    def _enter(
        self, selection: Selection, weight: int, above: frozenset[str], *, is_root: bool = False
    ) -> list[_Node]:
        """The objects in which fields can be selected once `selection` is entered."""
        type_ = selection.type
        above |= {type_.name}
        page = connection(self._schema, type_)
        if page is not None:
            return self._enter_page(selection, page, weight, above, is_root)
        if type_.kind == "object":
            return [_Node(selection, type_.fields.values(), weight, above)]
        selection.fields.append(Selected(None))
        nodes = [_Node(selection, type_.fields.values(), weight, above)] if type_.fields else []
        keys = {name: str(one.type) for name, one in type_.fields.items()}
        for member in self._members(type_, is_root):
            fragment = Selection(member)
            selection.fragments.append(fragment)
            own = [one for name, one in member.fields.items() if name not in type_.fields]
            nodes.append(_Node(fragment, own, weight, above | {member.name}, keys))
        return nodes

    def _members(self, type_: Type, is_root: bool) -> list[Type]:
        """The objects that are asked for by name; what all of them have says enough further in."""
        known = [self._schema.types[name] for name in type_.members if name in self._schema.types]
        if not type_.fields:
            return known[:UNION_FRAGMENTS]
        return known if is_root and len(known) <= FRAGMENTS else []

    def _enter_page(
        self,
        selection: Selection,
        page: Connection,
        weight: int,
        above: frozenset[str],
        is_root: bool,
    ) -> list[_Node]:
        if page.total is not None:
            selection.fields.append(Selected(page.total))
            self._left -= weight
        *wrappers, last = page.path
        inner, at = Selection(page.entry), selection
        for wrapper in wrappers:
            below = Selection(self._schema.of(wrapper.type))
            at.fields.append(Selected(wrapper, below))
            at = below
        at.fields.append(Selected(last, inner))
        if page.page_info is not None:
            info = self._schema.of(page.page_info.type)
            names = ("hasNextPage", "endCursor") if is_root else ("hasNextPage",)
            told = Selection(info, [Selected(info.fields[name]) for name in names])
            selection.fields.append(Selected(page.page_info, told))
            self._left -= weight * len(names)
        return self._enter(inner, weight, above, is_root=is_root)

    def _fill(self, nodes: list[_Node], budget: int) -> None:
        """Fields without fields of their own: in turn, so that each object gets its first ones."""
        queue = deque((node, iter(self._leaves(node))) for node in nodes)
        while queue:
            node, leaves = queue.popleft()
            leaf = next(leaves, None)
            if leaf is None or node.weight > min(budget, self._left):
                continue
            node.selection.fields.append(Selected(leaf))
            budget -= node.weight
            self._left -= node.weight
            queue.append((node, leaves))

    def _leaves(self, node: _Node) -> Iterator[Field]:
        leaves = (
            one
            for one in node.fields
            if self._schema.of(one.type).kind in ("scalar", "enum")
            and one.deprecated is None
            and not any(value.demanded for value in one.args.values())
        )
        for leaf in sorted(leaves, key=_rank):
            if node.keys is None or node.keys.setdefault(leaf.name, str(leaf.type)) == str(
                leaf.type
            ):
                yield leaf

    def _candidates(self, nodes: list[_Node]) -> list[tuple[_Node, Field, str]]:
        """Fields that hold objects: of each node in turn, those that hold many last."""
        found = []
        for node in nodes:
            fields = [one for one in node.fields if self._is_new(node, one)]
            for turn, one in enumerate(sorted(fields, key=self._is_many)):
                if (arguments := bounding(one)) is not None:
                    found.append((self._is_many(one), turn, (node, one, arguments)))
        return [candidate for *_, candidate in sorted(found, key=lambda entry: entry[:2])]

    def _is_new(self, node: _Node, one: Field) -> bool:
        type_ = self._schema.of(one.type)
        if type_.kind not in COMPOSITE or one.deprecated is not None or type_.name in node.above:
            return False
        page = connection(self._schema, type_)
        return page is None or page.entry.name not in node.above

    def _is_many(self, one: Field) -> bool:
        return (
            bool(one.type.lists) or connection(self._schema, self._schema.of(one.type)) is not None
        )

    def _descend(self, candidates: list[tuple[_Node, Field, str]]) -> list[_Node]:
        """Enter as many objects as can get a few fields each."""
        level: list[_Node] = []
        planned = 0
        for node, one, arguments in candidates:
            weight = node.weight * (LIST_WEIGHT if self._is_many(one) else 1)
            cost = weight * self._worth(one)
            if planned + cost > self._left or not self._merges(node, one):
                continue
            planned += cost
            inner = Selection(self._schema.of(one.type))
            node.selection.fields.append(Selected(one, inner, arguments))
            level += self._enter(inner, weight, node.above)
        return level

    def _worth(self, one: Field) -> int:
        """How many fields an object should get, not to be asked for in vain."""
        type_ = self._schema.of(one.type)
        if type_.kind != "object" or connection(self._schema, type_):
            return OBJECT_COST
        plain = (
            one
            for one in type_.fields.values()
            if self._schema.of(one.type).kind in ("scalar", "enum")
        )
        return max(1, len(list(islice(plain, OBJECT_COST))))  # types have hundreds of fields

    def _merges(self, node: _Node, one: Field) -> bool:
        """Whether fragments side by side may all have it (5.3.2: fields of one name have one
        shape)."""
        if node.keys is None:
            return True
        if one.name not in node.keys:
            node.keys[one.name] = str(one.type)
            return True
        plain = self._schema.of(one.type).kind == "object"
        return plain and node.keys[one.name] == str(one.type)


def _rank(leaf: Field) -> int:
    if leaf.name == "id":
        return 0
    if leaf.type.lists:
        return 3
    return 1 if leaf.name.lower() in _NAMES else 2
