"""Cost of schemas: an upper bound on how many subschemas a validator evaluates per value. Pure.

Schemas that apply to it and are referenced more than once multiply, also from level to level. One
kilobyte can cause 2^40 evaluations, and a running validator cannot be interrupted.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from schemas.json_schema.keywords import (
    COMPOSITIONS,
    CONDITIONS,
    ITEM_KEYWORDS,
    MEMBER_KEYWORDS,
    REFERENCE_KEYWORDS,
)
from schemas.json_schema.references import SchemaDocument
from schemas.json_schema.walk import nodes, subschemas

LIMIT = 10_000  # evaluations of one value; GitHub's worst takes 46
MERGED_LIMIT = 2**18  # members that references repeat; more take seconds and gigabytes to count
LEVELS = 200  # of nested values; deeper ones are treated as this deep
_SATURATION = 1 << 60
_SAME_VALUE_KEYWORDS = ("not", *CONDITIONS, *COMPOSITIONS)
_DEPENDENT = ("dependentSchemas", "dependencies")  # the latter up to draft 7
_REFERENCES = frozenset(REFERENCE_KEYWORDS)
_ANY, _ITEM = "*", "[]"  # keys for members without fixed names, and for items


def check_cost(schema: Any) -> "Cost":
    """Check the cost of a schema. Raises ValueError for one whose parts multiply beyond LIMIT; a
    long schema without multiplication passes."""
    parts, refers = _count_parts(schema)
    cost = Cost(schema, parts if not refers else None)
    if cost.at_most > max(LIMIT, parts):
        raise ValueError("its schemas apply one another more often than can be checked")
    return cost


def _count_parts(schema: Any) -> tuple[int, bool]:
    """How many objects, lists and booleans a schema has, and whether some refer to others."""
    parts, refers = 0, False
    for node in nodes(schema):
        inner = node.values() if isinstance(node, dict) else node
        parts += 1 + sum(isinstance(member, bool) for member in inner)
        refers = refers or not _REFERENCES.isdisjoint(node if isinstance(node, dict) else ())
    return parts, refers


class Cost:
    """Evaluations per value: `evaluations` follows each reference cycle once, as the library does
    when it only checks validity; `at_most` is a bound that costs nothing to ask for."""

    def __init__(self, schema: Any, parts: int | None) -> None:
        """`parts`: how many the schema has, if none refers to others; then each applies once to a
        value at most, and `evaluations` are counted on demand."""
        self._schema = schema
        self.at_most = max(parts, 1) if parts is not None else self.evaluations

    @cached_property
    def _costs(self) -> "_Costs":
        return _Costs(self._schema)

    @cached_property
    def evaluations(self) -> int:
        """Raises ValueError where it cannot be counted."""
        costs, worst = self._costs, 1
        try:
            for node in nodes(self._schema):
                worst = max(worst, costs.of(node), costs.inside(node))
        except RecursionError as error:
            raise ValueError("its schemas apply one another too many levels deep") from error
        return worst

    def with_errors(self, levels: int) -> int:
        """Evaluations per value when errors are collected from a value `levels` deep: reference
        cycles are followed on each level."""
        return self._by_levels[min(levels, len(self._by_levels) - 1)]

    @cached_property
    def _by_levels(self) -> list[int]:
        """`with_errors` by levels, up to the level where it no longer grows."""
        return self._costs.by_levels(self._schema)


class _Costs:
    def __init__(self, root: Any) -> None:
        self._document = SchemaDocument(root)
        if not self._document.has_known_bases:
            raise ValueError("too many of its schemas have an $id of their own")
        self._known: dict[int, int] = {}
        self._insides: dict[int, int] = {}
        self._belows: dict[int, _Below] = {}
        self._nodes: dict[int, Any] = {}  # by identity
        self._merged = 0

    def of(self, node: Any) -> int:
        if not isinstance(node, dict):
            return 1
        cost = self._known.get(id(node))
        if cost is None:
            self._known[id(node)] = 1  # ends recursion: validators detect cycles
            cost = min(_SATURATION, 1 + sum(map(self.of, self._applied_schemas(node))))
            self._known[id(node)] = cost
        return cost

    def inside(self, node: Any) -> int:
        """Evaluations per value inside the one that the schema applies to."""
        if not isinstance(node, dict):
            return 1
        cost = self._insides.get(id(node))
        if cost is None:
            self._insides[id(node)] = 1
            cost = self._next(node, lambda child: max(self.of(child), self.inside(child)))
            self._insides[id(node)] = cost
        return cost

    def by_levels(self, node: Any) -> list[int]:
        """Evaluations per value by depth inside, until LIMIT or until they stop growing."""
        reached = self._reachable_schemas(node)
        evaluations = {id(schema): self.of(schema) for schema in reached}
        evaluations_by_level = [self.of(node)]
        while len(evaluations_by_level) < LEVELS and evaluations_by_level[-1] <= LIMIT:
            following = self._next_level(reached, evaluations)
            if following == evaluations:
                break
            evaluations = following
            evaluations_by_level.append(evaluations.get(id(node), 1))
        return evaluations_by_level

    def _next_level(self, level: list[Any], evaluations: dict[int, int]) -> dict[int, int]:
        return {
            id(schema): max(
                self.of(schema), self._next(schema, lambda inner: evaluations[id(inner)])
            )
            for schema in level
        }

    def _reachable_schemas(self, node: Any) -> list[dict[str, Any]]:
        reachable: dict[int, dict[str, Any]] = {}
        pending = [node] if isinstance(node, dict) else []
        while pending:
            schema = pending.pop()
            if id(schema) not in reachable:
                reachable[id(schema)] = schema
                pending.extend(
                    self._nodes[key] for of in self._below(schema).values() for key in of
                )
        return list(reachable.values())

    def _next(self, node: dict[str, Any], evaluations: Callable[[Any], int]) -> int:
        """The maximum over members and items of the sum of `evaluations` over their schemas."""
        below = self._below(node)
        sums = {
            key: sum(times * evaluations(self._nodes[node]) for node, times in inner.items())
            for key, inner in below.items()
        }
        any_, item = sums.pop(_ANY, 0), sums.pop(_ITEM, 0)
        member = any_ + max((sums[key] for key in sums if key[0] == "."), default=0)
        item += max((sums[key] for key in sums if key[0] == "["), default=0)
        return min(_SATURATION, max(1, member, item))

    def _below(self, node: dict[str, Any]) -> "_Below":
        """The schemas of its members and items by key, with how often each applies."""
        children = self._belows.get(id(node))
        if children is None:
            self._belows[id(node)] = {}
            children = self._children(node)
            for applied in self._applied_schemas(node):
                if isinstance(applied, dict):
                    below = self._below(applied)
                    self._count(len(below))
                    for key, inner in below.items():
                        into = children.setdefault(key, Counter())
                        for target, times in inner.items():
                            into[target] = min(_SATURATION, into[target] + times)
            self._belows[id(node)] = children
        return children

    def _count(self, members: int) -> None:
        """Raises ValueError beyond MERGED_LIMIT."""
        self._merged += members
        if self._merged > MERGED_LIMIT:
            raise ValueError("its references repeat more members than can be checked")

    def _children(self, node: dict[str, Any]) -> "_Below":
        below: _Below = {}
        for key, schema in _parts(node):
            if isinstance(schema, dict):
                self._nodes[id(schema)] = schema
                below.setdefault(key, Counter())[id(schema)] += 1
        return below

    def _applied_schemas(self, node: dict[str, Any]) -> Iterator[Any]:
        """The schemas that apply to the same value."""
        yield from self._document.targets(node)
        yield from subschemas(node, _SAME_VALUE_KEYWORDS)
        dependent = subschemas(node, _DEPENDENT)
        yield from (schema for schema in dependent if isinstance(schema, dict))


def _parts(node: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The schemas that apply to members and items, with their keys."""
    if isinstance(properties := node.get("properties"), dict):
        yield from ((f".{name}", schema) for name, schema in properties.items())
    if isinstance(by_pattern := node.get("patternProperties"), dict):
        yield from ((_ANY, schema) for schema in by_pattern.values())
    yield from ((_ANY, node[name]) for name in MEMBER_KEYWORDS if name in node)
    yield from ((_ITEM, node[name]) for name in ITEM_KEYWORDS if name in node)
    for name in ("prefixItems", "items"):
        if isinstance(listed := node.get(name), list):
            yield from ((f"[{number}]", schema) for number, schema in enumerate(listed))


_Below = dict[str, Counter[int]]
