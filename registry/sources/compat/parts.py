"""What applied to the parts of a value, and which alternatives exclude one another. Pure."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from registry.sources.compat import keywords
from registry.sources.compat.found import FoundChanges, Weight, joined
from registry.sources.compat.reading import (
    OF_TYPE,
    At,
    Gathered,
    declared,
    finite,
    gather,
    listed,
    members,
    types,
)

BRANCHES = 64  # alternatives that are told apart


def by_type(part: At) -> Iterator[list[At]]:
    """A schema of several types as one alternative for each."""
    said = part.schema.get("type")
    if isinstance(said, list) and len(said) > 1 and all(name in OF_TYPE for name in said):
        yield [part.of(OF_TYPE[name]) for name in said]


def ignored(
    was: Gathered, now: Gathered, where: str, around: frozenset[str]
) -> Iterator[FoundChanges]:
    """Properties that were described and that nothing describes any more."""
    if any("additionalProperties" in one.schema for one in now.parts):
        return  # they are judged by that
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
    """What had to hold of a property. What patterns say of it besides is left out."""
    found = []
    for one in was.parts:
        own = members(one.schema, "properties")
        if name in own:
            found.append(one.of(own[name]))
        elif not members(one.schema, "patternProperties"):
            found.append(one.of(one.schema.get("additionalProperties", True)))
    return found


def is_undescribed(was: Gathered, name: str) -> bool:
    """Whether nobody sends it: it is not described where others are."""
    if any(
        "additionalProperties" in one.schema or "patternProperties" in one.schema
        for one in was.parts
    ):
        return False
    names = declared(was.parts)
    return bool(names) and name not in names


def exclusive(branches: Sequence[At]) -> bool:
    """Whether no value can be of two of these."""
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
    """The properties that have to be there, and to be one of a few values."""
    found: dict[str, set[bytes]] = {}
    for part in gather([at]).parts:
        needed = keywords.required([one.schema for one in gather([at]).parts])
        for name, schema in members(part.schema, "properties").items():
            for inner in gather([part.of(schema)]).parts if name in needed else ():
                if (values := finite(inner.schema)) is not None:
                    found[name] = {keywords.canonical(value) for value in values}
    return found
