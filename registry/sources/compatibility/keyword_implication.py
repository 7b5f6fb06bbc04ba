"""Single keywords of JSON Schema: whether the old value implies the new one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from registry.sources.compatibility.prepared_schemas import TYPES
from schemas.untrusted_json import mapping, sequence

Schema = dict[str, Any]
BeforeAfter = tuple[str, str]  # before, and now

VALUES_SHOWN = 8  # values
VALUE_CHARACTERS = 40  # characters

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


def bounds(
    old_types: frozenset[str], was: Sequence[Schema], now: Schema
) -> Iterator[tuple[str, BeforeAfter]]:
    """Bounds that are new or narrower, for values of `old_types`."""
    for keyword, (type_, strictest_of) in LENGTHS.items():
        if type_ in old_types and (limit := _number(now.get(keyword))) is not None:
            before = _strictest(was, keyword, strictest_of)
            implied = before is not None and strictest_of(before, limit) == before
            if not implied and (limit > 0 or keyword.startswith("max")):
                yield "constraint", _change_text(keyword, before, limit)
    if "number" in old_types or "integer" in old_types:
        yield from _numeric(old_types, was, now)
    if "string" in old_types and "pattern" in now:
        patterns = [schema["pattern"] for schema in was if "pattern" in schema]
        if now["pattern"] not in patterns:
            before = patterns[0] if patterns else None
            yield "constraint", _change_text("pattern", before, now["pattern"])
    if "array" in old_types and _is_unique([now]) and not _is_unique(was):
        yield "constraint", _change_text("uniqueItems", None, True)


def _is_unique(schemas: Iterable[Schema]) -> bool:
    return any(schema.get("uniqueItems") is True for schema in schemas)


def _numeric(
    old_types: frozenset[str], was: Sequence[Schema], now: Schema
) -> Iterator[tuple[str, BeforeAfter]]:
    for plain, (exclusive, strictest_of) in RANGES.items():
        sign = 1 if strictest_of is max else -1
        limits = [_strictest_bound(limit, plain, exclusive, sign) for limit in was]
        before = max((limit for limit in limits if limit is not None), default=None)
        limit = _strictest_bound(now, plain, exclusive, sign)
        if limit is not None and (before is None or before < limit):
            before_text = None if before is None else _readable(before[0] * sign)
            keyword = exclusive if limit[1] else plain
            yield "constraint", _change_text(keyword, before_text, _readable(limit[0] * sign))
    step = _number(now.get("multipleOf"))
    if step and not (step == 1 and "number" not in old_types):
        steps = [step_ for limit in was if (step_ := _number(limit.get("multipleOf")))]
        if not any((limit / step).denominator == 1 for limit in steps):
            before_step = _readable(steps[0]) if steps else None
            yield "constraint", _change_text("multipleOf", before_step, _readable(step))


def _strictest_bound(
    schema: Schema, plain: str, exclusive: str, sign: int
) -> tuple[Fraction, bool] | None:
    """The stricter of the two bounds, larger for a stricter one; with whether it is exclusive."""
    bounds = [
        (value * sign, excluded)
        for keyword, excluded in ((plain, False), (exclusive, True))
        if (value := _number(schema.get(keyword))) is not None
    ]
    return max(bounds, default=None)


def _strictest(
    was: Iterable[Schema], keyword: str, strictest_of: Callable[..., Any]
) -> Fraction | None:
    values = [value for schema in was if (value := _number(schema.get(keyword))) is not None]
    return strictest_of(values) if values else None


def _number(value: object) -> Fraction | None:
    """The exact number: 0.1 is a tenth, as it was written."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return Fraction(str(value)) if value == value and abs(value) != float("inf") else None


def _readable(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else str(float(value))


def _change_text(keyword: str, before: object, now: object) -> BeforeAfter:
    values = (_readable(value) if isinstance(value, Fraction) else value for value in (before, now))
    was, is_ = ("unset" if value is None else format_values([value]) for value in values)
    return f"{keyword} {was}", f"{keyword} {is_}"


def new_requirements(was: Sequence[Schema], now: Schema) -> Iterator[tuple[str, str, BeforeAfter]]:
    """Properties newly required: ("required", name, ...), or only beside another, ("dependent",
    name, ("", the other))."""
    needed = required_names(was)
    for name in map(str, sequence(now.get("required"))):
        if name not in needed:
            yield "required", name, ("", "")
    for argument, names in mapping(now.get("dependentRequired")).items():
        for name in map(str, sequence(names)):
            if name not in needed and name != argument and not _requires(was, argument, name):
                yield "dependent", name, ("", argument)


def required_names(schemas: Iterable[Schema]) -> set[str]:
    return {str(name) for schema in schemas for name in sequence(schema.get("required"))}


def _requires(was: Sequence[Schema], argument: str, name: str) -> bool:
    return any(
        name in sequence(mapping(schema.get("dependentRequired")).get(argument)) for schema in was
    )


def types_text(type_names: frozenset[str]) -> str:
    if type_names >= TYPES:
        return "anything"
    names = type_names - {"integer"} if "number" in type_names else type_names
    return " or ".join(sorted(names)) or "nothing"


def format_values(values: Sequence[Any]) -> str:
    """A few values in readable form; empty for none."""
    texts = [
        value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for value in values[:VALUES_SHOWN]
    ]
    cut = [
        text if len(text) <= VALUE_CHARACTERS else f"{text[:VALUE_CHARACTERS]}…" for text in texts
    ]
    more = [f"and {len(values) - VALUES_SHOWN} more"] if len(values) > VALUES_SHOWN else []
    return ", ".join([*(text or '""' for text in cut), *more])
