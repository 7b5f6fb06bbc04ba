"""Schemas of others that are made to take long, with as many arguments as a body may hold.

The time is that of the processor, and far more than it takes: without bounds it is minutes.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from msgspec.json import encode

from registry.importers.mcp import read_snapshot
from schemas.json_schema.checker import Checker
from schemas.json_schema.validators import (
    CHEAP,
    Meter,
    SchemaTooCostly,
    compile_validator,
    is_cheap,
    pattern_cost,
)
from tests.registry.servers import snapshot, tool

Json = dict[str, Any]
BODY = 4 << 20  # server.body_limit_bytes
SECONDS = 20


@contextmanager
def limit_time() -> Iterator[None]:
    begun = time.process_time()
    yield
    assert time.process_time() - begun < SECONDS


def nest_value(levels: int, value: Any = 1) -> Any:
    for _ in range(levels):
        value = {"a": value}
    return value


def twice(target: str, keyword: str = "allOf") -> Json:
    """Two schemas that both look at the member `a`."""
    branch = {"properties": {"a": {"$ref": target}}}
    return {"type": "object", keyword: [branch, {**branch, "minProperties": 0}]}


def chain(length: int, keyword: str = "allOf") -> Json:
    links = {f"A{i}": twice(f"#/$defs/A{i + 1}", keyword) for i in range(length)}
    return {"$ref": "#/$defs/A0", "$defs": {**links, f"A{length}": {"type": "string"}}}


def circle(length: int, keyword: str = "allOf") -> Json:
    links = {f"A{i}": twice(f"#/$defs/A{(i + 1) % length}", keyword) for i in range(length)}
    return {"$ref": "#/$defs/A0", "$defs": links}


def double_references(length: int, keyword: str = "allOf") -> Json:
    """2^length looks at one value."""
    links = {
        f"A{i}": {keyword: [{"$ref": f"#/$defs/A{i + 1}"}, {"$ref": f"#/$defs/A{i + 1}"}]}
        for i in range(length)
    }
    return {"items": {"$ref": "#/$defs/A0"}, "$defs": {**links, f"A{length}": {"type": "integer"}}}


def dependent(keyword: str, length: int) -> Json:
    links = {
        f"A{i}": {keyword: {one: {"$ref": f"#/$defs/A{i + 1}"} for one in "abc"}}
        for i in range(length)
    }
    return {"allOf": [{"$ref": "#/$defs/A0"}], "$defs": {**links, f"A{length}": {"maxLength": 1}}}


NESTED_COUNTS = "(x{1,100}){1,100}y"
AMBIGUOUS = "(a|b)*a(a|b){15}c"
TEXT, PIECES = "x" * BODY, ["ab" * 50] * (BODY // 100)
RECURSIVE = nest_value(150)

PATTERNS = {
    "nested counts": (NESTED_COUNTS, TEXT),
    "nested counts, short texts": (f"^({NESTED_COUNTS})*$", ["x" * 100] * (BODY // 100)),
    "states of an automaton": (AMBIGUOUS, "ab" * (BODY // 2)),
    "states of an automaton, short texts": (AMBIGUOUS, PIECES),
    "class of Unicode": (r"\w{1000}$", TEXT),
    "letters of Unicode": (r"\p{L}{250}$", "é" * (BODY // 2)),
    "alternatives": ("|".join(f"{i}x*y" for i in range(2000)), TEXT),
    "look-ahead": ("(?=.*y)x", TEXT),
    "look-ahead, short texts": ("(?=.*y)x", ["x" * 1000] * (BODY // 1000)),
    "counts in look-ahead": ("(?=(x{1,30}){1,30}y)x", TEXT),
    "look-behind": ("(?<=x.{3})y", TEXT),
    "reference to a group": (r"(\w+)\1z", TEXT),
    "nested stars": (r"(x*)*\1y", TEXT),
    "look-ahead in a count": ("((?!y)x){1,500}z", TEXT),
    "no case": (r"(?i)\w{500}$", TEXT),
}
SCHEMAS: dict[str, tuple[Json, Any]] = {
    "patterns of names": ({"patternProperties": {NESTED_COUNTS: True}}, {TEXT: 1}),
    "patterns of many names": (
        {"patternProperties": {f"(x{{1,50}}){{1,{n}}}y": True for n in range(50)}},
        {f"{'x' * 40}{i}": 1 for i in range(50_000)},
    ),
    "look-ahead at names": ({"patternProperties": {"(?=.*y)x": True}}, {TEXT: 1}),
    "propertyNames": ({"propertyNames": {"pattern": NESTED_COUNTS}}, {TEXT: 1}),
    "pattern in many alternatives": (
        {"items": {"anyOf": [{"pattern": f"{AMBIGUOUS}{i}"} for i in range(200)]}},
        PIECES,
    ),
    "uniqueItems": ({"uniqueItems": True}, [{"a": i} for i in range(BODY // 16)]),
    "allOf of references": (double_references(13), list(range(BODY // 8))),
    "anyOf of references": (double_references(11, "anyOf"), ["a"] * (BODY // 4)),
    "too many references": (double_references(40), [1]),
    "chain down the levels": (chain(12), nest_value(12)),
    "longer chain down the levels": (chain(40), nest_value(40)),
    "circle": (circle(1), RECURSIVE),
    "circle of anyOf": (circle(1, "anyOf"), RECURSIVE),
    "circle of oneOf": (circle(2, "oneOf"), RECURSIVE),
    "longer circle": (circle(13), RECURSIVE),
    "much longer circle": (circle(40), RECURSIVE),
    "dynamic circle": (
        {"$id": "https://a.example/b", "$dynamicAnchor": "n"}
        | {"allOf": [{"properties": {"a": {"$dynamicRef": "#n"}}}] * 2},
        RECURSIVE,
    ),
    "dependentSchemas": (dependent("dependentSchemas", 30), {"a": 1, "b": 2, "c": 3}),
    "dependencies": (
        {"$schema": "http://json-schema.org/draft-07/schema#", **dependent("dependencies", 30)},
        {"a": 1, "b": 2, "c": 3},
    ),
    "unevaluatedProperties": (
        {"allOf": [{"$ref": "#/$defs/A"}] * 2, "$defs": {"A": circle(1)["$defs"]["A0"]}}
        | {"unevaluatedProperties": {"$ref": "#"}},
        RECURSIVE,
    ),
    "many unevaluated properties": (
        {"allOf": [{"properties": {f"p{i}": True}} for i in range(5_000)]}
        | {"unevaluatedProperties": False},
        {f"p{i}": 1 for i in range(5_000)},
    ),
    "alternatives told of many values": (
        {"items": {"anyOf": [{"const": str(i)} for i in range(500)]}},
        [1] * 4_000,
    ),
}  # fmt: skip


def check(schema: Json, value: Any) -> None:
    """As a call does, and as hybrid services do."""
    with limit_time(), suppress(ValueError):
        checker = Checker(encode(schema))
        for _ in range(2):
            checker.accepts(value)
            checker.explain(value)
            checker.violation(value)


@pytest.mark.parametrize(("pattern", "value"), PATTERNS.values(), ids=PATTERNS)
def test_foreign_patterns_are_bounded(pattern: str, value: Any) -> None:
    check({"anyOf": [{"items": {"pattern": pattern}, "pattern": pattern}]}, value)


@pytest.mark.parametrize(("schema", "value"), SCHEMAS.values(), ids=SCHEMAS)
def test_foreign_schemas_are_bounded(schema: Json, value: Any) -> None:
    check(schema, value)


@pytest.mark.parametrize(("schema", "value"), SCHEMAS.values(), ids=SCHEMAS)
def test_reasons_are_bounded(schema: Json, value: Any) -> None:
    with limit_time(), suppress(ValueError):
        Checker(encode(schema)).explain(value)
    with limit_time(), suppress(ValueError):
        Checker(encode(schema)).violation(value)


@pytest.mark.parametrize("pattern", [f"(?=a)(\\w{{{n}}})" for n in (95, 300)] + [r"\p{L}{99}"])
def test_many_patterns_are_not_compiled(pattern: str) -> None:
    many = [{"pattern": f"{pattern}{i}"} for i in range(1000)]
    with limit_time(), pytest.raises(SchemaTooCostly, match="takes too long to compile"):
        compile_validator({"anyOf": many})
    with limit_time():
        imported = read_snapshot(
            snapshot(tool(inputSchema={"type": "object", "anyOf": many})).encode()
        )
    assert len(imported.drafts) == 1
    (outcome,) = imported.outcomes
    assert "arguments are not checked before its server gets them" in str(outcome.reason)


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("^.{1,2048}$", "x" * 2048, "x" * 2049),
        ("^[a-z0-9-]{1,63}(\\.[a-z0-9-]{1,63}){1,8}$", "a.b", "a"),
        (r"^(?=.*[A-Z])(?=.*\d)[A-Za-z\d]{8,64}$", "aB345678", "ab345678"),
        (r"^(['\"])\w+\1$", "'a'", "'a\""),
        (NESTED_COUNTS, "x" * 99 + "y", "x" * 99),
    ],
)
def test_usual_patterns_are_matched_all_the_same(pattern: str, good: str, bad: str) -> None:
    checker = Checker(encode({"properties": {"a": {"pattern": pattern}}}))
    assert checker.accepts({"a": good, "b": "y" * BODY})  # b has no pattern
    assert not checker.accepts({"a": bad})
    (problem,) = checker.explain({"a": bad})
    assert (problem.argument, "does not match" in problem.message) == ("a", True)
    assert checker.violation({"a": bad}) == f"$.a: does not match the regex pattern {pattern}"


def test_a_text_that_is_too_long_for_its_pattern_is_refused_by_name_of_the_pattern() -> None:
    checker = Checker(encode({"items": {"anyOf": [{"pattern": NESTED_COUNTS}, {}]}}))
    with pytest.raises(SchemaTooCostly, match=r"a text of 60,000 characters .* pattern .*1,100"):
        checker.accepts(["x" * 60_000])
    assert checker.accepts(["x" * 60])  # the next one is not refused for it


def test_patterns_share_one_text_budget() -> None:
    meter = Meter()
    validator = compile_validator({"items": {"pattern": NESTED_COUNTS}}, meter)
    validator.is_valid([f"{'x' * 1000}y"] * 100)
    assert meter.refused == "there is too much text to be checked against patterns"


def test_cheap_patterns_are_not_counted() -> None:
    plain = pattern_cost({"pattern": "^[a-z]+$"}).texts
    assert is_cheap(plain, 1)
    assert not is_cheap(plain, CHEAP)
    assert not is_cheap(pattern_cost({"pattern": "(?=a)b"}).texts, 1)
