"""Validators of `jsonschema_rs`, which are made here and nowhere else: import-linter sees to that.

The library, left to itself, fetches what `$schema`, `$ref` and `$id` lead to, follows redirects,
and holds the interpreter until an answer has come. Here nothing is ever fetched: the metaschemas of
the drafts 4 to 2020-12 are built in, and any other reference that leads out of a schema is an
error.

Nothing stops a validator that has begun either. So schemas whose patterns would take too long to
compile are refused, and patterns that may take long to match are matched by ours, which counts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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

from schemas.pattern_cost import MOST, SchemaPattern, schema_pattern

__all__ = ["ValidationError", "ValidationErrorKind", "Validator"]

DIALECTS = frozenset(
    {
        *("json-schema.org/draft-04/schema", "json-schema.org/draft-06/schema"),
        *("json-schema.org/draft-07/schema", "json-schema.org/draft/2019-09/schema"),
        *("json-schema.org/draft/2020-12/schema", "json-schema.org/schema"),
    }
)
# 2020-12 with four keywords that say nothing of values; its metaschema is not built in.
OPENAPI_DIALECT = "spec.openapis.org/oas/3.1/dialect/base"
# In the steps of `schemas.pattern_cost`, a ten-millionth of a second each where it compiles, and a
# hundred-millionth where it matches. `.{1,2048}` takes 120,000 to compile.
COMPILING = 1_000_000  # one pattern: the library itself ends soon after
COMPILING_ALL = 5_000_000  # those of a schema
MATCHING = 20_000_000  # one pattern in one text
MATCHING_ALL = 100_000_000  # all that a validator matches at a time
CHEAP = 24  # letters of all patterns of a schema, which nobody counts: 4 MB of text take a second
BACKTRACKS = 100_000  # of look-around and references to groups


class SchemaTooCostly(ValueError):
    """Why a schema, or a value, is not checked: it would take too long."""


def is_cheap(cost: SchemaPattern, looks: int) -> bool:
    """Whether nobody needs to count, where a text is looked at so often."""
    return not cost.looked and cost.letters * looks <= CHEAP


@dataclass(frozen=True, slots=True)
class PatternCost:
    """What the patterns of a schema may take together."""

    texts: SchemaPattern  # of `pattern`
    names: SchemaPattern  # of `patternProperties`


class Meter:
    """Steps of the patterns of one validation. What is more than MATCHING_ALL is not matched."""

    __slots__ = ("refused", "spent")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.spent = 0
        self.refused = ""  # why the answer of the validator says nothing

    def take(self, cost: SchemaPattern, pattern: str, text: str) -> bool:
        """Whether the pattern may be matched."""
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


def compiled(schema: Mapping[str, Any] | bool, meter: Meter | None = None) -> Validator:
    """A validator by the dialect that `$schema` names; without one, or with one that is not known,
    by 2020-12. `format` is an annotation. `meter` counts what patterns take. Raises ValueError for
    what is no JSON Schema, or refers to something outside itself; SchemaTooCostly for patterns."""
    pattern_cost(schema)
    read = _readable(schema)
    return validator_cls_for(read)(
        read,
        validate_formats=False,
        retriever=_refuse,
        pattern_options=_PATTERNS,
        keywords=None if meter is None else {"pattern": _metered(meter)},
    )


def compiled_as_2020(schema: Mapping[str, Any] | bool) -> Validator:
    """The same, by 2020-12 whatever `$schema` names."""
    pattern_cost(schema)
    return Draft202012Validator(
        _readable(schema),
        validate_formats=False,
        retriever=_refuse,
        pattern_options=_PATTERNS,
    )


def pattern_cost(schema: Any) -> PatternCost:
    """Raises SchemaTooCostly for patterns that take too long to compile."""
    compiling, costs = 0, {"pattern": _NO_PATTERN, "patternProperties": _NO_PATTERN}
    for keyword, pattern in _patterns(schema):
        cost = _schema_pattern(pattern)
        compiling += cost.compiling
        if cost.compiling > COMPILING or compiling > COMPILING_ALL:
            raise SchemaTooCostly(f"the pattern {pattern[:80]!r} takes too long to compile")
        so_far = costs[keyword]
        letters, looked = so_far.letters + cost.letters, so_far.looked + cost.looked
        costs[keyword] = SchemaPattern(compiling, min(letters, MOST), min(looked, MOST))
    return PatternCost(costs["pattern"], costs["patternProperties"])


def check_by_metaschema(schema: Mapping[str, Any]) -> None:
    """Raises ValueError for what the metaschema of its dialect does not accept, SchemaTooCostly for
    patterns; what references lead to is not looked at."""
    pattern_cost(schema)
    try:
        meta.validate(_readable(schema), _NOTHING_ELSE)
    except ReferencingError as error:
        raise ValueError(str(error)) from error


def unknown_dialect(schema: Mapping[str, Any]) -> str | None:
    """What `$schema` names, where it is no dialect that is known: the schema is read as 2020-12."""
    named = schema.get("$schema")
    if not isinstance(named, str) or _plain(named) in {*DIALECTS, OPENAPI_DIALECT}:
        return None
    return named


def _patterns(schema: Any) -> Iterator[tuple[str, str]]:
    """With the keyword that each stands in; perhaps some that are only values of other keywords."""
    left = [schema]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            if isinstance(pattern := node.get("pattern"), str):
                yield "pattern", pattern
            if isinstance(by_pattern := node.get("patternProperties"), dict):
                yield from (("patternProperties", one) for one in by_pattern)
            left.extend(one for one in node.values() if isinstance(one, dict | list))
        elif isinstance(node, list):
            left.extend(one for one in node if isinstance(one, dict | list))


def _metered(meter: Meter) -> type[Any]:
    class Pattern:
        """The keyword `pattern`, as the library has it but for what it takes."""

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


def _plain(named: str) -> str:
    return named.removesuffix("#").removeprefix("https://").removeprefix("http://")


def _refuse(uri: str) -> Any:
    raise LookupError(f"{uri[:200]} is outside the schema, and schemas are self-contained")


_NOTHING_ELSE = Registry([], retriever=_refuse)
_NO_PATTERN = SchemaPattern(0, 0, 0)
_PATTERNS = FancyRegexOptions(backtrack_limit=BACKTRACKS)
