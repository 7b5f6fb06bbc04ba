"""Narrowing: whether a schema still accepts all values that another one accepted, and where not.
Pure.

In doubt it does not: a finding may be harmless, but no finding means no value is lost.
One assumption: where an object describes properties and leaves `additionalProperties` open, callers
send no others. So a new property there is not breaking.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import msgspec

from registry.sources.compat import keywords
from registry.sources.compat.schemas import (
    DEPTH,
    OF_TYPE,
    At,
    FoundChanges,
    Gathered,
    Sameness,
    Weight,
    declared,
    finite,
    gather,
    joined,
    listed,
    lost,
    members,
    stated_types,
    types,
    unions,
)
from schemas.jsonschema import Checker

BRANCHES = 64  # alternatives compared separately


def by_type(part: At) -> Iterator[list[At]]:
    """A schema of several types as one alternative for each."""
    said = part.schema.get("type")
    if isinstance(said, list) and len(said) > 1 and all(name in OF_TYPE for name in said):
        yield [part.of(OF_TYPE[name]) for name in said]


def ignored(
    was: Gathered, now: Gathered, where: str, around: frozenset[str]
) -> Iterator[FoundChanges]:
    """Properties that were described before and are not any more."""
    if any("additionalProperties" in one.schema for one in now.parts):
        return  # its values are compared by that
    patterns = any("patternProperties" in one.schema for one in now.parts)
    before = {name for one in was.parts for name in members(one.schema, "properties")}
    for name in sorted(before - around) if not patterns else ():
        if not gather(property_of(was, name)).never:
            yield FoundChanges("argument", joined(where, name), weight=Weight.IGNORED)


def ids_of(gathered: Gathered) -> tuple[frozenset[int], bool]:
    return frozenset(id(one.schema) for one in gathered.parts), gathered.never


def item_of(was: Gathered, place: int) -> list[At]:
    found = []
    for one in was.parts:
        prefix = listed(one.schema.get("prefixItems"))
        rest = one.schema.get("items", True)
        found.append(one.of(prefix[place] if place < len(prefix) else rest))
    return found


def property_of(was: Gathered, name: str) -> list[At]:
    """The schemas that applied to a property, except those of `patternProperties`."""
    found = []
    for one in was.parts:
        own = members(one.schema, "properties")
        if name in own:
            found.append(one.of(own[name]))
        elif not members(one.schema, "patternProperties"):
            found.append(one.of(one.schema.get("additionalProperties", True)))
    return found


def is_undescribed(was: Gathered, name: str) -> bool:
    """Whether callers do not send it: it is not described where others are."""
    if any(
        "additionalProperties" in one.schema or "patternProperties" in one.schema
        for one in was.parts
    ):
        return False
    names = declared(was.parts)
    return bool(names) and name not in names


def exclusive(branches: Sequence[At]) -> bool:
    """Whether the alternatives are mutually exclusive."""
    if len(branches) > BRANCHES:
        return False
    return all(_disjoint(one, other) for one, other in combinations(branches, 2))


def _disjoint(one: At, other: At) -> bool:
    here, there = types([one]), types([other])
    if not here & there:
        return True
    if here & there != {"object"}:
        return False
    a, b = _tags(one), _tags(other)
    return any(not a[name] & b[name] for name in a.keys() & b.keys())


def _tags(at: At) -> dict[str, set[bytes]]:
    """Discriminators: the required properties with an enumeration of values."""
    found: dict[str, set[bytes]] = {}
    for part in gather([at]).parts:
        needed = keywords.required([one.schema for one in gather([at]).parts])
        for name, schema in members(part.schema, "properties").items():
            for inner in gather([part.of(schema)]).parts if name in needed else ():
                if (values := finite(inner.schema)) is not None:
                    found[name] = {keywords.canonical(value) for value in values}
    return found


STEPS = 20_000  # comparisons for one pair of schemas; Stripe's largest tool takes 2,000
# Compared verbatim: with their sibling keywords they mean more than a walk could follow.
VERBATIM = (
    ("if", "then", "else"),
    ("contains", "minContains", "maxContains"),
    ("dependentSchemas",),
    ("dependencies",),
    ("propertyNames",),
    ("patternProperties",),
)
UNFOLLOWED = ("unevaluatedProperties", "unevaluatedItems", "$recursiveRef")
TOLD = 1000  # findings in one schema: shared parts would double them level by level


Mark = tuple[int, int, int]  # identifies a union of alternatives


class Narrowing:
    """Comparison of two documents."""

    def __init__(self) -> None:
        self.same = Sameness()
        self._left = STEPS
        self._open: dict[Any, int] = {}  # pairs being compared, by depth
        self._known: dict[Any, list[FoundChanges]] = {}
        self._leaned = DEPTH  # the outermost open comparison that one inside it assumed true
        self._checkers: dict[int, Checker | None] = {}

    def __call__(
        self,
        before: Sequence[At],
        after: At,
        where: str = "",
        around: frozenset[str] = frozenset(),
        spent: frozenset[Mark] = frozenset(),
    ) -> list[FoundChanges]:
        """The values accepted by all of `before` and rejected by `after`.

        `around`: properties described beside `after`. `spent`: unions of `before` of which one
        alternative is among `before` already.
        """
        if after.schema is True or after.schema == {}:
            return []
        if any(self.same(one, after) for one in before):
            return []
        was, now = gather(before), gather([after])
        key = (ids_of(was), ids_of(now), around, spent)
        if key in self._known:
            return self._known[key]
        if key in self._open:  # coinduction: it holds if all else does, as JSON values are finite
            self._leaned = min(self._leaned, self._open[key])
            return []
        depth = len(self._open)
        self._left -= 1
        if self._left < 0 or depth >= DEPTH:
            return [FoundChanges("schema", where, after="too large to be compared")]
        self._open[key] = depth
        found = _few(self._narrowed(tuple(before), after, was, now, where, around, spent))
        del self._open[key]
        if self._leaned >= depth:
            self._known[key] = found
            self._leaned = DEPTH
        return found

    def _narrowed(
        self,
        before: tuple[At, ...],
        after: At,
        was: Gathered,
        now: Gathered,
        where: str,
        around: frozenset[str],
        spent: frozenset[Mark],
    ) -> list[FoundChanges]:
        if was.never:
            return []
        if now.never:
            return [FoundChanges("schema", where, after="nothing is accepted")]
        if now.unread or any(name in one.schema for one in now.parts for name in UNFOLLOWED):
            return [FoundChanges("schema", where, after="cannot be compared")]
        values = [one for part in was.parts if (one := finite(part.schema)) is not None]
        if values and (refused := self._refused(values[0], before, after)) is not None:
            return [FoundChanges("enum", where, after=refused)] if refused else []
        found = self._directly(before, was, now, where, around, spent)
        if not lost(found):
            return found
        apart = self._by_branch(before, was, after, where, around, spent)
        return found if apart is None or (lost(apart) and len(apart) >= len(found)) else apart

    def _refused(self, values: list[Any], before: Sequence[At], after: At) -> str | None:
        """The enumerated values that are rejected now; None when that is undecidable."""
        judge, were = self._checker(after), [self._checker(one) for one in before]
        if judge is None or None in were:
            return None
        try:
            gone = [
                value
                for value in values
                if all(one.accepts(value) for one in were if one) and not judge.accepts(value)
            ]
        except ValueError:  # nested too deeply
            return None
        return keywords.shown(gone)

    def _checker(self, at: At) -> Checker | None:
        key = id(at.schema)
        if key not in self._checkers:
            root = at.root if isinstance(at.root, dict) else {}
            around = {name: root[name] for name in ("$defs", "definitions") if name in root}
            try:
                schema = msgspec.json.encode({"allOf": [at.schema]})
                if b'"$ref"' in schema:
                    schema = msgspec.json.encode({**around, "allOf": [at.schema]})
                self._checkers[key] = Checker(schema)
            except ValueError:
                self._checkers[key] = None
        return self._checkers[key]

    def _by_branch(
        self,
        before: tuple[At, ...],
        was: Gathered,
        after: At,
        where: str,
        around: frozenset[str],
        spent: frozenset[Mark],
    ) -> list[FoundChanges] | None:
        """The comparison of each alternative of `before` on its own; None when there are none."""
        for part in was.parts:
            for union in (*unions(part), *by_type(part)):
                mark = (id(part.schema), id(union[0].schema), len(union))
                if mark not in spent and len(union) <= BRANCHES:
                    return [
                        one
                        for branch in union
                        for one in self((*before, branch), after, where, around, spent | {mark})
                    ]
        return None

    def _directly(
        self,
        before: tuple[At, ...],
        was: Gathered,
        now: Gathered,
        where: str,
        around: frozenset[str],
        spent: frozenset[Mark],
    ) -> list[FoundChanges]:
        had = types(before)
        if not had:
            return []
        if not all(had <= stated_types(one.schema) for one in now.parts):
            return [
                FoundChanges("type", where, keywords.types(had), keywords.types(types(now.parts)))
            ]
        around |= declared(now.parts)
        found: list[FoundChanges] = []
        for part in now.parts:
            schema = part.schema
            if (values := finite(schema)) is not None:
                found += self._to_values(had, values, where)
            found += [
                FoundChanges(kind, where, *change)
                for kind, change in keywords.bounds(had, [one.schema for one in was.parts], schema)
            ]
            found += self._verbatim(was, part, where)
            found += self._negated(was, had, part, where)
            found += self._alternatives(before, was, part, where, around, spent)
            if "array" in had:
                found += self._items(was, part, where)
            if "object" in had:
                found += self._properties(was, part, where)
        if "object" in had:
            found += ignored(was, now, where, around)
        return found

    def _to_values(
        self, had: frozenset[str], values: list[Any], where: str
    ) -> Iterator[FoundChanges]:
        few = [*([None] if "null" in had else []), *([True, False] if "boolean" in had else [])]
        left = {keywords.canonical(value) for value in values}
        if not had <= {"null", "boolean"} or any(keywords.canonical(v) not in left for v in few):
            yield FoundChanges("enum", where, "any value", keywords.shown(values))

    def _verbatim(self, was: Gathered, part: At, where: str) -> Iterator[FoundChanges]:
        for group in VERBATIM:
            if not any(name in part.schema for name in group):
                continue
            wanted = part.of({name: part.schema[name] for name in group if name in part.schema})
            if not any(self._has(one, group, wanted) for one in was.parts):
                yield FoundChanges("schema", where, after=f"`{group[0]}` is other than it was")

    def _has(self, one: At, group: Sequence[str], wanted: At) -> bool:
        own = {name: one.schema[name] for name in group if name in one.schema}
        # member by member: these two objects are made here, and freed when the next ones are
        return own.keys() == wanted.schema.keys() and all(
            self.same(one.of(own[name]), wanted.of(wanted.schema[name])) for name in own
        )

    def _negated(
        self, was: Gathered, had: frozenset[str], part: At, where: str
    ) -> Iterator[FoundChanges]:
        if "not" not in part.schema:
            return
        refused = part.of(part.schema["not"])
        if not had & types([refused]):
            return
        for one in was.parts:
            if "not" in one.schema and not self([refused], one.of(one.schema["not"])):
                return
        yield FoundChanges("schema", where, after="`not` is other than it was")

    def _alternatives(
        self,
        before: tuple[At, ...],
        was: Gathered,
        part: At,
        where: str,
        around: frozenset[str],
        spent: frozenset[Mark],
    ) -> list[FoundChanges]:
        found: list[FoundChanges] = []
        if branches := [part.of(one) for one in listed(part.schema.get("anyOf"))]:
            found += self._one_of_them(before, branches, where, around, spent)
        if branches := [part.of(one) for one in listed(part.schema.get("oneOf"))]:
            if exclusive(branches):
                found += self._one_of_them(before, branches, where, around, spent)
            elif not self._paired(was, branches):
                found.append(FoundChanges("schema", where, after="its alternatives are others"))
        return found

    def _one_of_them(
        self,
        before: tuple[At, ...],
        branches: Sequence[At],
        where: str,
        around: frozenset[str],
        spent: frozenset[Mark],
    ) -> list[FoundChanges]:
        """The findings for the alternative that fits best."""
        if len(branches) > BRANCHES:
            return [FoundChanges("schema", where, after="too many alternatives to be compared")]
        had = types(before)
        likely = [one for one in branches if had & types([one])] or branches
        best: list[FoundChanges] | None = None
        for branch in likely:
            found = self(before, branch, where, around, spent)
            if not found:
                return []
            if best is None or (lost(found), len(found)) < (lost(best), len(best)):
                best = found
        return best or []

    def _paired(self, was: Gathered, branches: Sequence[At]) -> bool:
        """Whether as many mutually exclusive alternatives existed before, each as wide as the one
        at its index."""
        for one in was.parts:
            old = [one.of(branch) for branch in listed(one.schema.get("oneOf"))]
            if len(old) == len(branches) and all(
                not lost(self([a], b)) and not lost(self([b], a))
                for a, b in zip(old, branches, strict=True)
            ):
                return True
        return False

    def _items(self, was: Gathered, part: At, where: str) -> Iterator[FoundChanges]:
        prefix = listed(part.schema.get("prefixItems"))
        longest = max((len(listed(one.schema.get("prefixItems"))) for one in was.parts), default=0)
        rest = part.schema.get("items", True)
        for place in range(max(len(prefix), longest if "items" in part.schema else 0)):
            wanted = part.of(prefix[place] if place < len(prefix) else rest)
            yield from self(item_of(was, place), wanted, f"{where}[{place}]")
        if "items" in part.schema:
            yield from self(item_of(was, longest), part.of(rest), f"{where}[]")

    def _properties(self, was: Gathered, part: At, where: str) -> Iterator[FoundChanges]:
        schemas = [one.schema for one in was.parts]
        for kind, name, change in keywords.demands(schemas, part.schema):
            if not (kind == "dependent" and self._cannot_be(was, change[1])):
                yield FoundChanges("required", joined(where, name), *change)
        wanted = members(part.schema, "properties")
        for name, schema in wanted.items():
            if is_undescribed(was, name):
                yield FoundChanges("argument", joined(where, name), weight=Weight.NEW)
            else:
                yield from self(property_of(was, name), part.of(schema), joined(where, name))
        if "additionalProperties" not in part.schema:
            return
        rest = part.of(part.schema["additionalProperties"])
        for name in sorted({n for one in schemas for n in members(one, "properties")} - {*wanted}):
            if rest.schema is False:
                if not gather(property_of(was, name)).never:
                    yield FoundChanges("argument", joined(where, name))
            else:
                yield from self(property_of(was, name), rest, joined(where, name))
        others = [one.of(one.schema.get("additionalProperties", True)) for one in was.parts]
        if rest.schema is False:
            if not gather(others).never:
                yield FoundChanges("constraint", where, "other properties", "none")
        else:
            yield from self(others, rest, joined(where, "*"))

    def _cannot_be(self, was: Gathered, name: str) -> bool:
        return gather(property_of(was, name)).never


def _few(found: list[FoundChanges]) -> list[FoundChanges]:
    """Findings without duplicates; of too many, the important ones."""
    if len(found) > TOLD:
        found = sorted(dict.fromkeys(found), key=lambda one: not lost([one]))[:TOLD]
    return found
