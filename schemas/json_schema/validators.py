"""Factory of `jsonschema_rs` validators, the only one: enforced by import-linter.

By default the library fetches the targets of `$schema`, `$ref` and `$id`, follows redirects,
and blocks the interpreter meanwhile. Here it never fetches anything: the metaschemas of drafts 4 to
2020-12 are built in, and any other reference to outside a schema is an error.

A running validator cannot be interrupted either. So schemas whose patterns would take too long to
compile are refused, and patterns that may be slow to match use our own metered matcher.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from jsonschema_rs import (
    Draft202012Validator,
    FancyRegexOptions,
    ReferencingError,
    Registry,
    ValidationError,
    ValidationErrorKind,
    Validator,
    meta,
    validator_cls_for,
)
from msgspec import Struct

from schemas.json_schema.pattern_cost import SATURATION, SchemaPattern, schema_pattern
from schemas.json_schema.walk import nodes

__all__ = ["ValidationError", "ValidationErrorKind", "Validator"]

DIALECTS = frozenset(
    {
        *("json-schema.org/draft-04/schema", "json-schema.org/draft-06/schema"),
        *("json-schema.org/draft-07/schema", "json-schema.org/draft/2019-09/schema"),
        *("json-schema.org/draft/2020-12/schema", "json-schema.org/schema"),
    }
)
# 2020-12 with four annotation-only keywords; its metaschema is not built in.
OPENAPI_DIALECT = "spec.openapis.org/oas/3.1/dialect/base"
# In the steps of `pattern_cost.py`, a ten-millionth of a second each where it compiles, and a
# hundred-millionth where it matches. `.{1,2048}` takes 120,000 to compile.
COMPILING = 1_000_000  # one pattern: the library's own limit is not much higher
COMPILING_ALL = 5_000_000  # all patterns of a schema
MATCHING = 20_000_000  # one pattern in one text
MATCHING_ALL = 100_000_000  # all patterns in one validation
CHEAP = 24  # letters of all patterns of a schema that are not metered: 4 MB of text take a second
BACKTRACKS = 100_000  # limit for look-around and back-references

_NO_PATTERN = SchemaPattern(0, 0, 0)
_PATTERNS = FancyRegexOptions(backtrack_limit=BACKTRACKS)


class SchemaTooCostly(ValueError):
    """A schema or a value is not checked because that would take too long; with the reason."""


def is_cheap(cost: SchemaPattern, evaluations: int) -> bool:
    """Whether patterns of this cost need no meter when a text is evaluated `evaluations` times."""
    return not cost.lookaround_letters and cost.letters * evaluations <= CHEAP


class PatternCost(Struct, frozen=True):
    """Total cost of the patterns of a schema."""

    texts: SchemaPattern  # of `pattern`
    names: SchemaPattern  # of `patternProperties`


class Meter:
    """Step budget of patterns in one validation. Beyond MATCHING_ALL patterns are not matched."""

    __slots__ = ("refused", "spent")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.spent = 0
        self.refused = ""  # reason why the result of the validator is void

    def take(self, cost: SchemaPattern, pattern: str, text: str) -> bool:
        """Take steps from the budget; returns whether the pattern may be matched."""
        steps = cost.matching(len(text))
        self.spent += steps
        if steps > MATCHING:
            self.refused = (
                f"a text of {len(text):,} characters takes too long to be checked against the "
                f"pattern {pattern[:80]!r}"
            )
        elif self.spent > MATCHING_ALL:
            self.refused = "there is too much text to be checked against patterns"
        return not self.refused


def compile_validator(schema: Mapping[str, Any] | bool, meter: Meter | None = None) -> Validator:
    """A validator for the dialect that `$schema` names; 2020-12 for a missing or unknown one.
    `format` is an annotation. `meter` counts the steps of patterns. Raises ValueError for
    an invalid JSON Schema or a reference to outside it; SchemaTooCostly for patterns."""
    pattern_cost(schema)
    readable_schema = _readable(schema)
    return validator_cls_for(readable_schema)(
        readable_schema,
        validate_formats=False,
        retriever=_refuse,
        pattern_options=_PATTERNS,
        keywords=None if meter is None else {"pattern": _metered_pattern(meter)},
    )


def compiled_as_2020(schema: Mapping[str, Any] | bool) -> Validator:
    """Like `compiled`, always as 2020-12: `$schema` is ignored."""
    pattern_cost(schema)
    return Draft202012Validator(
        _readable(schema),
        validate_formats=False,
        retriever=_refuse,
        pattern_options=_PATTERNS,
    )


def pattern_cost(schema: Any) -> PatternCost:
    """The cost of all patterns. Raises SchemaTooCostly for those that take too long to compile."""
    compiling, costs = 0, {"pattern": _NO_PATTERN, "patternProperties": _NO_PATTERN}
    for keyword, pattern in patterns_in(schema):
        cost = _schema_pattern(pattern)
        compiling += cost.compiling
        if cost.compiling > COMPILING or compiling > COMPILING_ALL:
            raise SchemaTooCostly(f"the pattern {pattern[:80]!r} takes too long to compile")
        so_far = costs[keyword]
        letters, lookaround_letters = (
            so_far.letters + cost.letters,
            so_far.lookaround_letters + cost.lookaround_letters,
        )
        costs[keyword] = SchemaPattern(
            compiling, min(letters, SATURATION), min(lookaround_letters, SATURATION)
        )
    return PatternCost(costs["pattern"], costs["patternProperties"])


def check_by_metaschema(schema: Mapping[str, Any]) -> None:
    """Validate a schema against the metaschema of its dialect. Raises ValueError, and
    SchemaTooCostly for patterns; targets of references are not checked."""
    pattern_cost(schema)
    try:
        meta.validate(_readable(schema), _EMPTY_REGISTRY)
    except ReferencingError as error:
        raise ValueError(str(error)) from error


def unknown_dialect(schema: Mapping[str, Any]) -> str | None:
    """The value of `$schema` if it is an unknown dialect, which is read as 2020-12; else None."""
    named = schema.get("$schema")
    if not isinstance(named, str) or _plain(named) in {*DIALECTS, OPENAPI_DIALECT}:
        return None
    return named


def patterns_in(schema: Any) -> Iterator[tuple[str, str]]:
    """(keyword, pattern) pairs; may include values that only look like patterns."""
    for node in nodes(schema):
        if isinstance(node, dict):
            if isinstance(pattern := node.get("pattern"), str):
                yield "pattern", pattern
            if isinstance(by_pattern := node.get("patternProperties"), dict):
                yield from (("patternProperties", pattern) for pattern in by_pattern)


def _metered_pattern(meter: Meter) -> type[Any]:
    class Pattern:
        """The keyword `pattern` with the library's semantics, metered."""

        def __init__(self, _parent: Any, value: Any, _path: Any) -> None:
            self._pattern = value
            self._cost = _schema_pattern(value)
            self._matches = _matcher(value).is_valid

        def validate(self, instance: Any) -> None:
            """Raises ValueError for a text that does not match."""
            if not isinstance(instance, str):
                return
            if not meter.take(self._cost, self._pattern, instance) or not self._matches(instance):
                raise ValueError(f'"{instance}" does not match "{self._pattern}"')

    return Pattern


@lru_cache(maxsize=1024)
def _matcher(pattern: str) -> Validator:
    return Draft202012Validator({"pattern": pattern}, pattern_options=_PATTERNS)


@lru_cache(maxsize=4096)
def _schema_pattern(pattern: str) -> SchemaPattern:
    return schema_pattern(pattern)


def _readable(schema: Mapping[str, Any] | bool) -> dict[str, Any] | bool:
    """`schema` without a `$schema` whose metaschema is not built in."""
    if isinstance(schema, bool):
        return schema
    named = schema.get("$schema")
    if isinstance(named, str) and _plain(named) not in DIALECTS:
        return {keyword: value for keyword, value in schema.items() if keyword != "$schema"}
    return dict(schema)


def _plain(uri: str) -> str:
    return uri.removesuffix("#").removeprefix("https://").removeprefix("http://")


def _refuse(uri: str) -> Any:
    raise LookupError(f"{uri[:200]} is outside the schema, and schemas are self-contained")


_EMPTY_REGISTRY = Registry([], retriever=_refuse)
