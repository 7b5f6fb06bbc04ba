"""Single keywords of JSON Schema: whether the old value implies the new one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from registry.sources.compat.schemas import TYPES, canonical, listed, members

__all__ = ["bounds", "canonical", "demands", "required", "shown", "types"]

Schema = dict[str, Any]
Said = tuple[str, str]  # before, and now

SHOWN = 8  # values
VALUE_SHOWN = 40  # characters

# The subject of a keyword, and which of several values wins: the most restrictive one.
LENGTHS: dict[str, tuple[str, Callable[..., Any]]] = {
    "minLength": ("string", max), "maxLength": ("string", min),
    "minItems": ("array", max), "maxItems": ("array", min),
    "minProperties": ("object", max), "maxProperties": ("object", min),
}  # fmt: skip
RANGES = {
    "minimum": ("exclusiveMinimum", max),
    "maximum": ("exclusiveMaximum", min),
}


def bounds(had: frozenset[str], was: Sequence[Schema], now: Schema) -> Iterator[tuple[str, Said]]:
    """Bounds that are new or narrower, for values of the types that they `had`."""
    for keyword, (type_, least) in LENGTHS.items():
        if type_ in had and (limit := _number(now.get(keyword))) is not None:
            before = _strictest(was, keyword, least)
            implied = before is not None and least(before, limit) == before
            if not implied and (limit > 0 or keyword.startswith("max")):
                yield "constraint", _told(keyword, before, limit)
    if "number" in had or "integer" in had:
        yield from _numeric(had, was, now)
    if "string" in had and "pattern" in now:
        patterns = [one["pattern"] for one in was if "pattern" in one]
        if now["pattern"] not in patterns:
            before = patterns[0] if patterns else None
            yield "constraint", _told("pattern", before, now["pattern"])
    if "array" in had and _is_unique([now]) and not _is_unique(was):
        yield "constraint", _told("uniqueItems", None, True)


def _is_unique(schemas: Iterable[Schema]) -> bool:
    return any(one.get("uniqueItems") is True for one in schemas)


def _numeric(had: frozenset[str], was: Sequence[Schema], now: Schema) -> Iterator[tuple[str, Said]]:
    for plain, (exclusive, least) in RANGES.items():
        sign = 1 if least is max else -1
        limits = [_edge(one, plain, exclusive, sign) for one in was]
        before = max((one for one in limits if one is not None), default=None)
        limit = _edge(now, plain, exclusive, sign)
        if limit is not None and (before is None or before < limit):
            told = None if before is None else _readable(before[0] * sign)
            keyword = exclusive if limit[1] else plain
            yield "constraint", _told(keyword, told, _readable(limit[0] * sign))
    step = _number(now.get("multipleOf"))
    if step and not (step == 1 and "number" not in had):
        steps = [found for one in was if (found := _number(one.get("multipleOf")))]
        if not any((one / step).denominator == 1 for one in steps):
            before_step = _readable(steps[0]) if steps else None
            yield "constraint", _told("multipleOf", before_step, _readable(step))


def _edge(schema: Schema, plain: str, exclusive: str, sign: int) -> tuple[Fraction, bool] | None:
    """The stricter of the two bounds, larger for a stricter one; with whether it is exclusive."""
    found = [
        (value * sign, excluded)
        for keyword, excluded in ((plain, False), (exclusive, True))
        if (value := _number(schema.get(keyword))) is not None
    ]
    return max(found, default=None)


def _strictest(was: Iterable[Schema], keyword: str, least: Callable[..., Any]) -> Fraction | None:
    found = [value for one in was if (value := _number(one.get(keyword))) is not None]
    return least(found) if found else None


def _number(value: object) -> Fraction | None:
    """The exact number: 0.1 is a tenth, as it was written."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return Fraction(str(value)) if value == value and abs(value) != float("inf") else None


def _readable(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else str(float(value))


def _told(keyword: str, before: object, now: object) -> Said:
    values = (_readable(one) if isinstance(one, Fraction) else one for one in (before, now))
    was, is_ = ("unset" if one is None else shown([one]) for one in values)
    return f"{keyword} {was}", f"{keyword} {is_}"


def demands(was: Sequence[Schema], now: Schema) -> Iterator[tuple[str, str, Said]]:
    """Properties newly required: ("required", name, ...), or only beside another, ("dependent",
    name, ("", the other))."""
    needed = required(was)
    for name in map(str, listed(now.get("required"))):
        if name not in needed:
            yield "required", name, ("", "")
    for other, names in members(now, "dependentRequired").items():
        for name in map(str, listed(names)):
            if name not in needed and name != other and not _goes_with(was, other, name):
                yield "dependent", name, ("", other)


def required(schemas: Iterable[Schema]) -> set[str]:
    return {str(name) for one in schemas for name in listed(one.get("required"))}


def _goes_with(was: Sequence[Schema], other: str, name: str) -> bool:
    return any(name in listed(members(one, "dependentRequired").get(other)) for one in was)


def types(found: frozenset[str]) -> str:
    if found >= TYPES:
        return "anything"
    names = found - {"integer"} if "number" in found else found
    return " or ".join(sorted(names)) or "nothing"


def shown(values: Sequence[Any]) -> str:
    """A few values in readable form; empty for none."""
    texts = [one if isinstance(one, str) else _encoded(one) for one in values[:SHOWN]]
    cut = [one if len(one) <= VALUE_SHOWN else f"{one[:VALUE_SHOWN]}…" for one in texts]
    more = [f"and {len(values) - SHOWN} more"] if len(values) > SHOWN else []
    return ", ".join([*(one or '""' for one in cut), *more])


def _encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()
