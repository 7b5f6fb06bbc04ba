"""Checks whether an answer is what a vector expects. Pure.

Expected JSON may hold matchers, objects with one member that begins with $; they are described in
tests/vectors/hybrid/README.md.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET

from gateway.parity.vector_requests import VectorAnswer
from gateway.parity.vectors import Expect
from schemas.errors import ToolgateError

BODY_SHOWN = 500  # bytes of an answer that are shown
TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None),
    "array": list, "object": dict,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Deviation:
    """One deviation from the expected answer."""

    where: str  # status, header content-type, body.error.code
    expected: str
    actual: str


class _Missing:
    def __repr__(self) -> str:
        return "(missing)"


MISSING = _Missing()


def judge(expect: Expect, answer: VectorAnswer, *, lenient_type: bool = False) -> list[Deviation]:
    """Deviations of `answer`; empty when it matches. `lenient_type` accepts an answer without a
    media type."""
    deviations = list(_status(expect, answer))
    for name, expected in expect.headers.items():
        actual = answer.headers.get(name.lower(), MISSING)
        if name.lower() == "content-type":
            if actual is MISSING and lenient_type:
                continue
            actual = media_type(actual) if isinstance(actual, str) else actual
        deviations += differences(expected, actual, f"header {name}")
    return deviations + list(_body(expect, answer))


def media_type(value: str) -> str:
    return value.partition(";")[0].strip().lower()


def _status(expect: Expect, answer: VectorAnswer) -> Iterator[Deviation]:
    allowed = expect.status if isinstance(expect.status, tuple) else (expect.status,)
    if answer.status not in allowed:
        body = answer.body[:BODY_SHOWN].decode(errors="replace")
        yield Deviation("status", " or ".join(map(str, allowed)), f"{answer.status} {body}".strip())


def _body(expect: Expect, answer: VectorAnswer) -> Iterator[Deviation]:
    text = answer.body.decode(errors="replace")
    if expect.empty:
        yield from differences("", text, "body")
    elif expect.text is not UNSET:
        yield from differences(expect.text, text, "body")
    elif expect.body is not UNSET or expect.match is not UNSET:
        exact = expect.match is UNSET
        try:
            value = parse(answer.body)
        except ValueError as error:
            yield Deviation("body", "JSON", f"{text[:BODY_SHOWN] or '(empty)'} ({error})")
            return
        yield from differences(expect.body if exact else expect.match, value, "body", exact=exact)


def parse(body: bytes) -> Any:
    """Strictly parsed JSON. Raises ValueError."""
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def differences(
    expected: Any, actual: Any, where: str, *, exact: bool = False, matchers: bool = True
) -> Iterator[Deviation]:
    """Where `actual` differs from `expected`; members that `expected` lacks count if `exact`."""
    options = {"exact": exact, "matchers": matchers}
    if matchers and (matcher := _matcher(expected)) is not None:
        if not _matches(*matcher, actual):
            yield Deviation(where, format_value(expected), format_value(actual))
    elif isinstance(expected, dict) and isinstance(actual, dict):
        names = [*expected, *(actual.keys() - expected.keys() if exact else ())]
        for name in names:
            expected_value, present = expected.get(name, MISSING), actual.get(name, MISSING)
            yield from differences(expected_value, present, f"{where}.{name}", **options)
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            yield Deviation(where, format_value(expected), format_value(actual))
            return
        for index, (wanted_item, actual_item) in enumerate(zip(expected, actual, strict=True)):
            yield from differences(wanted_item, actual_item, f"{where}[{index}]", **options)
    elif not same(expected, actual):
        yield Deviation(where, format_value(expected), format_value(actual))


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal: true is not 1, and 1.0 is."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


def fits(expected: Any, actual: Any) -> bool:
    return next(differences(expected, actual, ""), None) is None


def _matcher(expected: Any) -> tuple[str, Any] | None:
    if not isinstance(expected, dict) or len(expected) != 1:
        return None
    [(name, value)] = expected.items()
    if not name.startswith("$"):
        return None
    if name not in MATCHERS:
        raise ToolgateError(f"There is no matcher {name}; there are {', '.join(MATCHERS)}")
    return name, value


def _matches(name: str, value: Any, actual: Any) -> bool:
    if actual is MISSING:
        return name == "$absent"
    return MATCHERS[name](value, actual)


def _type(value: str, actual: Any) -> bool:
    if isinstance(actual, bool) and value != "boolean":
        return False
    return isinstance(actual, TYPES[value])


def _contains(value: str | list[str], actual: Any) -> bool:
    parts = [value] if isinstance(value, str) else value
    return isinstance(actual, str) and all(part in actual for part in parts)


def _includes(value: list[Any], actual: Any) -> bool:
    return isinstance(actual, list) and all(any(fits(item, a) for a in actual) for item in value)


def _match_unordered(value: list[Any], actual: Any) -> bool:
    """Whether the members can be matched in pairs; several may fit the same one."""
    if not isinstance(actual, list) or len(actual) != len(value):
        return False
    if not value:
        return True
    first, *rest = value
    return any(
        fits(first, candidate) and _match_unordered(rest, actual[:index] + actual[index + 1 :])
        for index, candidate in enumerate(actual)
    )


MATCHERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "$any": lambda _value, _actual: True,
    "$absent": lambda _value, _actual: False,
    "$type": _type,
    "$starts": lambda value, actual: isinstance(actual, str) and actual.startswith(value),
    "$contains": _contains,
    "$length": lambda value, actual: isinstance(actual, str | list) and len(actual) == value,
    "$one_of": lambda value, actual: any(fits(choice, actual) for choice in value),
    "$includes": _includes,
    "$unordered": _match_unordered,
}


def format_value(value: Any) -> str:
    """A value in readable form; texts without quotes, matchers by their meaning."""
    if value is MISSING or isinstance(value, str):
        return str(value)
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)) in MATCHERS:
        [(name, inner)] = value.items()
        plain = name.removeprefix("$").replace("_", " ")
        return plain if inner is True else f"{plain} {format_value(inner)}"
    return json.dumps(value, ensure_ascii=False)
