"""What those who read the answers of a tool miss when its output schema changes. Pure."""

from collections.abc import Iterator, Sequence

from registry.sources.compat import keywords
from registry.sources.compat.change import SchemaChange
from registry.sources.compat.reading import (
    DEPTH,
    At,
    declared,
    finite,
    gather,
    members,
    types,
    unions,
)

STEPS = 20_000


class AnswerComparison:
    """One comparison of two output schemas, place by place."""

    def __init__(self) -> None:
        self._met: set[tuple[frozenset[int], frozenset[int]]] = set()

    def __call__(
        self, before: Sequence[At], after: Sequence[At], where: str = "", depth: int = DEPTH
    ) -> Iterator[SchemaChange]:
        pair = (_ids(before), _ids(after))
        if pair in self._met or depth == 0 or len(self._met) >= STEPS:
            return
        self._met.add(pair)
        was, now = _parts(before), _parts(after)
        had, has = types(was), types(now)
        if not has <= had:
            text = f"was {keywords.types(had)}, may be {keywords.types(has)}"
            yield SchemaChange("output", where, True, text)
            return
        yield from _values(was, now, where)
        yield from self._properties(was, now, where, depth)
        here, there = _below(was, "items"), _below(now, "items")
        if here and there:
            yield from self(here, there, f"{where}[]", depth - 1)

    def _properties(
        self, was: list[At], now: list[At], where: str, depth: int
    ) -> Iterator[SchemaChange]:
        before, after = declared(was), declared(now)
        for name in sorted(before - after):
            yield SchemaChange("output", _join(where, name), True, "is described no longer")
        for name in sorted(after - before):
            yield SchemaChange("output", _join(where, name), False, "is new")
        missed = keywords.required(one.schema for one in was) - keywords.required(
            one.schema for one in now
        )
        for name in sorted(missed & after):
            yield SchemaChange("output", _join(where, name), True, "may be missing now")
        for name in sorted(before & after):
            here, there = _named(was, name), _named(now, name)
            yield from self(here, there, _join(where, name), depth - 1)


def _values(was: list[At], now: list[At], where: str) -> Iterator[SchemaChange]:
    """Values that an answer may have now and had not before."""
    before = [value for one in was for value in finite(one.schema) or ()]
    after = [value for one in now for value in finite(one.schema) or ()]
    known = {keywords.canonical(value) for value in before}
    if new := [one for one in after if keywords.canonical(one) not in known] if before else []:
        yield SchemaChange("output", where, False, f"may also be {keywords.shown(new)}")


def _parts(schemas: Sequence[At]) -> list[At]:
    """What is said of a value, that of all its alternatives included."""
    found: dict[int, At] = {}
    left = list(schemas)
    while left:
        for part in gather([left.pop()]).parts:
            if id(part.schema) not in found:
                found[id(part.schema)] = part
                left += [branch for union in unions(part) for branch in union]
    return list(found.values())


def _named(parts: list[At], name: str) -> list[At]:
    all_ = ((one, members(one.schema, "properties")) for one in parts)
    return [one.of(own[name]) for one, own in all_ if name in own]


def _below(parts: list[At], keyword: str) -> list[At]:
    return [one.of(one.schema[keyword]) for one in parts if keyword in one.schema]


def _ids(schemas: Sequence[At]) -> frozenset[int]:
    return frozenset(id(one.schema) for one in schemas)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
