"""Index from policy rules to matching catalog entries: computed once, for all callers.

Sets of entries are bitmaps in an integer, so that the hidden ones of ten thousand tools take some
microseconds. Results equal `Engine.verdict` of each entry; tests compare the two.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, reduce
from operator import or_

from gateway.policy.engine import CallerStanding, Engine
from gateway.policy.rules import CompiledRule, Subject
from registry.catalog.catalog import Catalog


class Reach:
    def __init__(self, engine: Engine, catalog: Catalog) -> None:
        """Bits index the catalog's tools, then its items."""
        self._engine = engine
        self._subjects: Sequence[Subject] = [
            *map(Subject.of, catalog.tools),
            *map(Subject.of_item, catalog.items),
        ]
        self._all = (1 << len(self._subjects)) - 1
        self._tools = (1 << len(catalog.tools)) - 1
        self._of_rules: dict[str, int] = {}
        self._alike: dict[str, Sequence[tuple[Subject, list[int]]]] = {}  # by rule; see _grouped

    def hidden(self, standing: CallerStanding) -> int:
        denied, opened = self._above.get(standing.clearance, 0), 0
        for rule in standing.rules:
            fitting = self._fitting(rule)
            if rule.by_principal and rule.by_subject:
                fitting = self._holding(rule, fitting, standing)
            if rule.effect == "deny":
                denied |= 0 if rule.by_arguments else fitting
            elif rule.effect == "approve":
                opened |= fitting & self._tools
                denied |= fitting & ~self._tools
            else:
                opened |= fitting
        if self._engine.policy.default == "deny":
            denied |= self._all & ~opened
        return denied

    def _fitting(self, rule: CompiledRule) -> int:
        """Entries that a rule matches, for any caller."""
        bits = self._of_rules.get(rule.name)
        if bits is None:
            bits = self._about(rule)
            if rule.rule.tools:
                bits = self._where(bits, rule.names)
            if rule.by_subject and not rule.by_principal:
                bits = self._holding(rule, bits, None)
            self._of_rules[rule.name] = bits
        return bits

    def _about(self, rule: CompiledRule) -> int:
        """Entries matching the rule's sources, tiers and `destructive`, for any name."""
        said, bits = rule.rule, self._tools if rule.by_arguments else self._all
        if said.sources:
            bits &= self._having("source", said.sources)
        if said.tiers:
            bits &= self._having("tier", said.tiers)
        if said.destructive is not None:
            bits &= self._having("destroys", [said.destructive])
        return bits

    def _having(self, fact: str, values: Iterable[str | bool]) -> int:
        return reduce(or_, (self._facts.get((fact, value), 0) for value in values), 0)

    @cached_property
    def _facts(self) -> Mapping[tuple[str, str | bool], int]:
        """Entries by fact: (kind, value)."""
        places: dict[tuple[str, str | bool], list[int]] = {}
        for place, one in enumerate(self._subjects):
            places.setdefault(("source", one.source), []).append(place)
            places.setdefault(("tier", self._engine.tier(one)), []).append(place)
            places.setdefault(("destroys", one.destructive), []).append(place)
        return {fact: _at(found) for fact, found in places.items()}

    def _holding(self, rule: CompiledRule, among: int, standing: CallerStanding | None) -> int:
        """Entries where the rule's expression holds: evaluated once per group of `_grouped`."""

        def holds(subject: Subject) -> bool:
            if standing is None:
                return rule.holds(subject.values(self._engine.tier(subject)))
            return rule.holds(self._engine.values(standing, subject))

        alike = self._alike.get(rule.name)
        if alike is None:
            alike = self._alike[rule.name] = self._grouped(rule, among)
        return _at([place for first, places in alike if holds(first) for place in places])

    def _grouped(self, rule: CompiledRule, among: int) -> Sequence[tuple[Subject, list[int]]]:
        """Entries of `among` grouped by the values a rule reads: (first entry, all positions)."""
        groups: dict[str, tuple[Subject, list[int]]] = {}
        fitting = flags(among, len(self._subjects))
        for place, (subject, fits) in enumerate(zip(self._subjects, fitting, strict=True)):
            if fits:
                seen = rule.seen(subject.values(self._engine.tier(subject)))
                groups.setdefault(seen, (subject, []))[1].append(place)
        return list(groups.values())

    def _where(self, among: int, holds: Callable[[Subject], bool]) -> int:
        fitting = flags(among, len(self._subjects))
        pairs = zip(self._subjects, fitting, strict=True)
        return _bits([fits and holds(subject) for subject, fits in pairs])

    @cached_property
    def _above(self) -> dict[int, int]:
        """By clearance, the entries above it."""
        ranks = [self._engine.rank(subject) for subject in self._subjects]
        highest = max(ranks, default=0)
        return {at: _bits([rank > at for rank in ranks]) for at in range(-1, highest)}


def flags(bits: int, count: int) -> list[bool]:
    """The lowest `count` bits, as booleans."""
    return [one == "1" for one in reversed(f"{bits:0{max(count, 1)}b}")][:count]


def _at(places: Sequence[int]) -> int:
    found = bytearray(max(places, default=0) // 8 + 1)
    for place in places:
        found[place // 8] |= 1 << place % 8
    return int.from_bytes(found, "little")


def _bits(found: Sequence[bool]) -> int:
    text = "".join("1" if one else "0" for one in reversed(found))
    return int(text, 2) if text else 0
