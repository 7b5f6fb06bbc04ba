"""Narrowing: whether a schema still accepts all values that another one accepted, and where not.
Pure.

In doubt it does not: a finding may be harmless, but no finding means no value is lost. One
assumption: where an object describes properties and leaves `additionalProperties` open, callers
send no others. So a new property there is not breaking.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import msgspec

from registry.sources.compatibility.keyword_implication import (
    bounds,
    format_values,
    new_requirements,
    required_names,
    types_text,
)
from registry.sources.compatibility.prepared_schemas import (
    DEPTH,
    OF_TYPE,
    AcceptanceFinding,
    Effect,
    RootedSchema,
    SchemaConjunction,
    SchemaIdentity,
    any_lost,
    canonical,
    declared_properties,
    finite,
    gather,
    join_path,
    stated_types,
    types,
    unions,
)
from schemas.json_schema.checker import Checker
from schemas.json_schema.keywords import DEFINITION_KEYWORDS
from schemas.json_schema.references import has_references
from schemas.json_schema.walk import subschemas
from schemas.untrusted_json import mapping, sequence

BRANCHES = 64  # alternatives compared separately

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
UNSUPPORTED = ("unevaluatedProperties", "unevaluatedItems", "$recursiveRef")
FINDINGS_LIMIT = 1000  # findings in one schema: shared parts would double them level by level


def by_type(part: RootedSchema) -> Iterator[list[RootedSchema]]:
    """A schema of several types as one alternative for each."""
    stated = part.schema.get("type")
    if isinstance(stated, list) and len(stated) > 1 and all(name in OF_TYPE for name in stated):
        yield [part.of(OF_TYPE[name]) for name in stated]


def newly_ignored(
    was: SchemaConjunction, now: SchemaConjunction, where: str, described_names: frozenset[str]
) -> Iterator[AcceptanceFinding]:
    """Findings of properties that were described before and are not any more."""
    if any("additionalProperties" in part.schema for part in now.parts):
        return  # its values are compared by that
    patterns = any("patternProperties" in part.schema for part in now.parts)
    before = {name for part in was.parts for name in mapping(part.schema.get("properties"))}
    for name in sorted(before - described_names) if not patterns else ():
        if not gather(property_of(was, name)).accepts_none:
            yield AcceptanceFinding("argument", join_path(where, name), effect=Effect.IGNORED)


def ids_of(conjunction: SchemaConjunction) -> tuple[frozenset[int], bool]:
    return frozenset(id(part.schema) for part in conjunction.parts), conjunction.accepts_none


def item_of(was: SchemaConjunction, place: int) -> list[RootedSchema]:
    items = []
    for part in was.parts:
        prefix = sequence(part.schema.get("prefixItems"))
        items_schema = part.schema.get("items", True)
        items.append(part.of(prefix[place] if place < len(prefix) else items_schema))
    return items


def property_of(was: SchemaConjunction, name: str) -> list[RootedSchema]:
    """The schemas that applied to a property, except those of `patternProperties`."""
    properties = []
    for part in was.parts:
        declared = mapping(part.schema.get("properties"))
        if name in declared:
            properties.append(part.of(declared[name]))
        elif not mapping(part.schema.get("patternProperties")):
            properties.append(part.of(part.schema.get("additionalProperties", True)))
    return properties


def is_undescribed(was: SchemaConjunction, name: str) -> bool:
    """Whether callers do not send it: it is not described where others are."""
    if any(
        "additionalProperties" in part.schema or "patternProperties" in part.schema
        for part in was.parts
    ):
        return False
    names = declared_properties(was.parts)
    return bool(names) and name not in names


def exclusive(branches: Sequence[RootedSchema]) -> bool:
    """Whether the alternatives are mutually exclusive."""
    if len(branches) > BRANCHES:
        return False
    return all(_disjoint(first, second) for first, second in combinations(branches, 2))


def _disjoint(first: RootedSchema, second: RootedSchema) -> bool:
    first_types, second_types = types([first]), types([second])
    if not first_types & second_types:
        return True
    if first_types & second_types != {"object"}:
        return False
    a, b = _tags(first), _tags(second)
    return any(not a[name] & b[name] for name in a.keys() & b.keys())


def _tags(at: RootedSchema) -> dict[str, set[bytes]]:
    """Discriminators: the required properties with an enumeration of values."""
    tags: dict[str, set[bytes]] = {}
    for part in gather([at]).parts:
        needed = required_names([schema.schema for schema in gather([at]).parts])
        for name, schema in mapping(part.schema.get("properties")).items():
            for inner in gather([part.of(schema)]).parts if name in needed else ():
                if (values := finite(inner.schema)) is not None:
                    tags[name] = {canonical(value) for value in values}
    return tags


UnionId = tuple[int, int, int]  # identifies a union of alternatives


class DocumentComparison:
    """Comparison of two documents."""

    def __init__(self) -> None:
        self.same = SchemaIdentity()
        self._steps_left = STEPS
        self._in_progress: dict[Any, int] = {}  # pairs being compared, by depth
        self._results: dict[Any, list[AcceptanceFinding]] = {}
        self._lowest_assumed = (
            DEPTH  # the outermost open comparison that one inside it assumed true
        )
        self._checkers: dict[int, Checker | None] = {}

    def __call__(
        self,
        before: Sequence[RootedSchema],
        after: RootedSchema,
        where: str = "",
        described_names: frozenset[str] = frozenset(),
        *,
        used_unions: frozenset[UnionId] = frozenset(),
    ) -> list[AcceptanceFinding]:
        """Findings of the values accepted by all of `before` and rejected by `after`.

        `described_names`: properties described beside `after`. `used_unions`: unions of `before` of
        which one alternative is among `before` already.
        """
        if after.schema is True or after.schema == {}:
            return []
        if any(self.same(schema, after) for schema in before):
            return []
        was, now = gather(before), gather([after])
        key = (ids_of(was), ids_of(now), described_names, used_unions)
        if key in self._results:
            return self._results[key]
        if (
            key in self._in_progress
        ):  # coinduction: it holds if all else does, as JSON values are finite
            self._lowest_assumed = min(self._lowest_assumed, self._in_progress[key])
            return []
        depth = len(self._in_progress)
        self._steps_left -= 1
        if self._steps_left < 0 or depth >= DEPTH:
            return [AcceptanceFinding("schema", where, after="too large to be compared")]
        self._in_progress[key] = depth
        findings = _without_duplicates(
            self._narrow(
                tuple(before),
                after,
                was,
                now,
                where=where,
                described_names=described_names,
                used_unions=used_unions,
            )
        )
        del self._in_progress[key]
        if self._lowest_assumed >= depth:
            self._results[key] = findings
            self._lowest_assumed = DEPTH
        return findings

    def _narrow(
        self,
        before: tuple[RootedSchema, ...],
        after: RootedSchema,
        was: SchemaConjunction,
        now: SchemaConjunction,
        *,
        where: str,
        described_names: frozenset[str],
        used_unions: frozenset[UnionId],
    ) -> list[AcceptanceFinding]:
        if was.accepts_none:
            return []
        if now.accepts_none:
            return [AcceptanceFinding("schema", where, after="nothing is accepted")]
        if now.is_incomplete or any(
            name in part.schema for part in now.parts for name in UNSUPPORTED
        ):
            return [AcceptanceFinding("schema", where, after="cannot be compared")]
        values = [value for part in was.parts if (value := finite(part.schema)) is not None]
        if values and (refused := self._refused_values(values[0], before, after)) is not None:
            return [AcceptanceFinding("enum", where, after=refused)] if refused else []
        findings = self._compare_parts(
            before, was, now, where, described_names=described_names, used_unions=used_unions
        )
        if not any_lost(findings):
            return findings
        by_branch = self._by_branch(
            before, was, after, where, described_names=described_names, used_unions=used_unions
        )
        return (
            findings
            if by_branch is None or (any_lost(by_branch) and len(by_branch) >= len(findings))
            else by_branch
        )

    def _refused_values(
        self, values: list[Any], before: Sequence[RootedSchema], after: RootedSchema
    ) -> str | None:
        """The enumerated values that are rejected now; None when that is undecidable."""
        new_checker, old_checkers = (
            self._checker(after),
            [self._checker(schema) for schema in before],
        )
        if new_checker is None or None in old_checkers:
            return None
        try:
            lost_values = [
                value
                for value in values
                if all(checker.accepts(value) for checker in old_checkers if checker)
                and not new_checker.accepts(value)
            ]
        except ValueError:  # nested too deeply
            return None
        return format_values(lost_values)

    def _checker(self, at: RootedSchema) -> Checker | None:
        key = id(at.schema)
        if key not in self._checkers:
            root = at.root if isinstance(at.root, dict) else {}
            definitions = {name: root[name] for name in DEFINITION_KEYWORDS if name in root}
            try:
                schema = msgspec.json.encode({"allOf": [at.schema]})
                if has_references(schema):
                    schema = msgspec.json.encode({**definitions, "allOf": [at.schema]})
                self._checkers[key] = Checker(schema)
            except ValueError:
                self._checkers[key] = None
        return self._checkers[key]

    def _by_branch(
        self,
        before: tuple[RootedSchema, ...],
        was: SchemaConjunction,
        after: RootedSchema,
        where: str,
        *,
        described_names: frozenset[str],
        used_unions: frozenset[UnionId],
    ) -> list[AcceptanceFinding] | None:
        """The comparison of each alternative of `before` on its own; None when there are none."""
        for part in was.parts:
            for union in (*unions(part), *by_type(part)):
                union_id = (id(part.schema), id(union[0].schema), len(union))
                if union_id not in used_unions and len(union) <= BRANCHES:
                    return [
                        finding
                        for branch in union
                        for finding in self(
                            (*before, branch),
                            after,
                            where,
                            described_names,
                            used_unions=used_unions | {union_id},
                        )
                    ]
        return None

    def _compare_parts(
        self,
        before: tuple[RootedSchema, ...],
        was: SchemaConjunction,
        now: SchemaConjunction,
        where: str,
        *,
        described_names: frozenset[str],
        used_unions: frozenset[UnionId],
    ) -> list[AcceptanceFinding]:
        old_types = types(before)
        if not old_types:
            return []
        if not all(old_types <= stated_types(part.schema) for part in now.parts):
            return [
                AcceptanceFinding(
                    "type",
                    where,
                    types_text(old_types),
                    types_text(types(now.parts)),
                )
            ]
        described_names |= declared_properties(now.parts)
        findings: list[AcceptanceFinding] = []
        for part in now.parts:
            schema = part.schema
            if (values := finite(schema)) is not None:
                findings += self._enum_findings(old_types, values, where)
            findings += [
                AcceptanceFinding(kind, where, *change)
                for kind, change in bounds(old_types, [part.schema for part in was.parts], schema)
            ]
            findings += self._verbatim(was, part, where)
            findings += self._negation_findings(was, old_types, part, where)
            findings += self._alternatives(
                before, was, part, where, described_names=described_names, used_unions=used_unions
            )
            if "array" in old_types:
                findings += self._items(was, part, where)
            if "object" in old_types:
                findings += self._properties(was, part, where)
        if "object" in old_types:
            findings += newly_ignored(was, now, where, described_names)
        return findings

    def _enum_findings(
        self, old_types: frozenset[str], values: list[Any], where: str
    ) -> Iterator[AcceptanceFinding]:
        simple_values = [
            *([None] if "null" in old_types else []),
            *([True, False] if "boolean" in old_types else []),
        ]
        remaining = {canonical(value) for value in values}
        if not old_types <= {"null", "boolean"} or any(
            canonical(v) not in remaining for v in simple_values
        ):
            yield AcceptanceFinding("enum", where, "any value", format_values(values))

    def _verbatim(
        self, was: SchemaConjunction, part: RootedSchema, where: str
    ) -> Iterator[AcceptanceFinding]:
        for group in VERBATIM:
            if not any(name in part.schema for name in group):
                continue
            expected = part.of({name: part.schema[name] for name in group if name in part.schema})
            if not any(self._has_group(part, group, expected) for part in was.parts):
                yield AcceptanceFinding("schema", where, after=f"`{group[0]}` is other than it was")

    def _has_group(self, part: RootedSchema, group: Sequence[str], expected: RootedSchema) -> bool:
        keywords = {name: part.schema[name] for name in group if name in part.schema}
        # member by member: these two objects are made here, and freed when the next ones are
        return keywords.keys() == expected.schema.keys() and all(
            self.same(part.of(keywords[name]), expected.of(expected.schema[name]))
            for name in keywords
        )

    def _negation_findings(
        self, was: SchemaConjunction, old_types: frozenset[str], part: RootedSchema, where: str
    ) -> Iterator[AcceptanceFinding]:
        if "not" not in part.schema:
            return
        refused = part.of(part.schema["not"])
        if not old_types & types([refused]):
            return
        for old_part in was.parts:
            if "not" in old_part.schema and not self(
                [refused], old_part.of(old_part.schema["not"])
            ):
                return
        yield AcceptanceFinding("schema", where, after="`not` is other than it was")

    def _alternatives(
        self,
        before: tuple[RootedSchema, ...],
        was: SchemaConjunction,
        part: RootedSchema,
        where: str,
        *,
        described_names: frozenset[str],
        used_unions: frozenset[UnionId],
    ) -> list[AcceptanceFinding]:
        findings: list[AcceptanceFinding] = []
        if branches := [*map(part.of, subschemas(part.schema, ["anyOf"]))]:
            findings += self._best_branch(
                before, branches, where, described_names, used_unions=used_unions
            )
        if branches := [*map(part.of, subschemas(part.schema, ["oneOf"]))]:
            if exclusive(branches):
                findings += self._best_branch(
                    before, branches, where, described_names, used_unions=used_unions
                )
            elif not self._has_pairs(was, branches):
                findings.append(
                    AcceptanceFinding("schema", where, after="its alternatives are others")
                )
        return findings

    def _best_branch(
        self,
        before: tuple[RootedSchema, ...],
        branches: Sequence[RootedSchema],
        where: str,
        described_names: frozenset[str],
        *,
        used_unions: frozenset[UnionId],
    ) -> list[AcceptanceFinding]:
        """The findings for the alternative that fits best."""
        if len(branches) > BRANCHES:
            return [
                AcceptanceFinding("schema", where, after="too many alternatives to be compared")
            ]
        old_types = types(before)
        likely = [branch for branch in branches if old_types & types([branch])] or branches
        best: list[AcceptanceFinding] | None = None
        for branch in likely:
            branch_findings = self(before, branch, where, described_names, used_unions=used_unions)
            if not branch_findings:
                return []
            if best is None or (any_lost(branch_findings), len(branch_findings)) < (
                any_lost(best),
                len(best),
            ):
                best = branch_findings
        return best or []

    def _has_pairs(self, was: SchemaConjunction, branches: Sequence[RootedSchema]) -> bool:
        """Whether as many mutually exclusive alternatives existed before, each as wide as the one
        at its index."""
        for part in was.parts:
            old = [*map(part.of, subschemas(part.schema, ["oneOf"]))]
            if len(old) == len(branches) and all(
                not any_lost(self([a], b)) and not any_lost(self([b], a))
                for a, b in zip(old, branches, strict=True)
            ):
                return True
        return False

    def _items(
        self, was: SchemaConjunction, part: RootedSchema, where: str
    ) -> Iterator[AcceptanceFinding]:
        prefix = sequence(part.schema.get("prefixItems"))
        longest = max(
            (len(sequence(part.schema.get("prefixItems"))) for part in was.parts), default=0
        )
        items_schema = part.schema.get("items", True)
        for place in range(max(len(prefix), longest if "items" in part.schema else 0)):
            expected = part.of(prefix[place] if place < len(prefix) else items_schema)
            yield from self(item_of(was, place), expected, f"{where}[{place}]")
        if "items" in part.schema:
            yield from self(item_of(was, longest), part.of(items_schema), f"{where}[]")

    def _properties(
        self, was: SchemaConjunction, part: RootedSchema, where: str
    ) -> Iterator[AcceptanceFinding]:
        schemas = [part.schema for part in was.parts]
        for kind, name, change in new_requirements(schemas, part.schema):
            if not (kind == "dependent" and self._never_sent(was, change[1])):
                yield AcceptanceFinding("required", join_path(where, name), *change)
        expected = mapping(part.schema.get("properties"))
        for name, schema in expected.items():
            if is_undescribed(was, name):
                yield AcceptanceFinding("argument", join_path(where, name), effect=Effect.NEW)
            else:
                yield from self(property_of(was, name), part.of(schema), join_path(where, name))
        if "additionalProperties" not in part.schema:
            return
        additional = part.of(part.schema["additionalProperties"])
        for name in sorted(
            {n for schema in schemas for n in mapping(schema.get("properties"))} - {*expected}
        ):
            if additional.schema is False:
                if not gather(property_of(was, name)).accepts_none:
                    yield AcceptanceFinding("argument", join_path(where, name))
            else:
                yield from self(property_of(was, name), additional, join_path(where, name))
        others = [part.of(part.schema.get("additionalProperties", True)) for part in was.parts]
        if additional.schema is False:
            if not gather(others).accepts_none:
                yield AcceptanceFinding("constraint", where, "other properties", "none")
        else:
            yield from self(others, additional, join_path(where, "*"))

    def _never_sent(self, was: SchemaConjunction, name: str) -> bool:
        return gather(property_of(was, name)).accepts_none


def _without_duplicates(findings: list[AcceptanceFinding]) -> list[AcceptanceFinding]:
    """Findings without duplicates; of too many, the important ones."""
    if len(findings) > FINDINGS_LIMIT:
        findings = sorted(dict.fromkeys(findings), key=lambda finding: not any_lost([finding]))[
            :FINDINGS_LIMIT
        ]
    return findings
