from typing import Any

import pytest
from msgspec.json import encode

from schemas.json_schema.checker import PROBLEMS_SHOWN, ArgumentProblem, Checker

PET = {
    "type": "object",
    "required": ["name", "kind"],
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "kind": {"enum": ["cat", "dog", None]},
        "age": {"type": ["integer", "null"], "minimum": 0},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "owner": {"$ref": "#/$defs/Owner"},
    },
    "additionalProperties": False,
    "$defs": {
        "Owner": {
            "type": "object",
            "required": ["id"],
            "properties": {"id": {"type": "integer"}, "pets": {"items": {"$ref": "#"}}},
        }
    },
}
RIGHT = {"name": "Rex", "kind": "dog"}


def checker(schema):
    return Checker(encode(schema))


def explain_problems(schema, value):
    """argument -> message, after checking that the two validators agree that it is wrong."""
    compiled = checker(schema)
    assert not compiled.accepts(value)
    problems = compiled.explain(value)
    assert problems
    return {problem.argument: problem.message for problem in problems}


@pytest.mark.parametrize(
    "arguments",
    [
        RIGHT,
        {**RIGHT, "age": None},
        {**RIGHT, "age": 3.0},  # JSON has one kind of number
        {**RIGHT, "age": 2**70},
        {**RIGHT, "kind": None, "tags": []},
        {**RIGHT, "owner": {"id": 1, "pets": [RIGHT], "more": 1}},
    ],
)
def test_right_arguments_pass_and_have_no_problems(arguments):
    assert checker(PET).accepts(arguments)
    assert checker(PET).explain(arguments) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, {"name": "is required", "kind": "is required"}),
        ({"name": 5, "kind": "cat"}, {"name": "expected string, got 5"}),
        ({"name": True, "kind": "cat"}, {"name": "expected string, got true"}),
        ({"name": None, "kind": "cat"}, {"name": "expected string, got null"}),
        ({"name": {"a": 1}, "kind": "cat"}, {"name": "expected string, got an object"}),
        ({**RIGHT, "age": "3"}, {"age": 'expected integer or null, got "3"'}),
        ({**RIGHT, "kind": "fox"}, {"kind": 'expected one of "cat", "dog", null, got "fox"'}),
        ({**RIGHT, "tags": ["a", 2]}, {"tags[1]": "expected string, got 2"}),
        ({**RIGHT, "owner": {}}, {"owner.id": "is required"}),
        (
            {**RIGHT, "owner": {"id": 1, "pets": [{**RIGHT, "age": 1.5}]}},
            {"owner.pets[0].age": "expected integer or null, got 1.5"},
        ),
        ({**RIGHT, "nmae": 1}, {"nmae": "is not known; did you mean 'name'?"}),
        (
            {**RIGHT, "zzz": 1},
            {"zzz": "is not known; expected: name, kind, age, tags, owner"},
        ),
    ],
)
def test_a_problem_names_the_argument_and_the_expected_value(arguments, expected):
    assert explain_problems(PET, arguments) == expected


def test_other_problems_use_the_words_of_the_validator():
    problems = explain_problems(PET, {**RIGHT, "age": -1, "tags": ["a", "b", "c", "d"]})
    assert problems["age"] == "-1 is less than the minimum of 0"
    assert problems["tags"] == '["a","b","c","d"] has more than 3 items'


def test_of_a_long_message_the_reason_is_kept():
    text = explain_problems({"minProperties": 5}, {"k": "x" * 10_000})[""]
    assert text.startswith('{"k":"xxx')
    assert text.endswith("has less than 5 properties")
    assert len(text) < 300


def test_arguments_that_are_no_object_are_a_problem_of_the_whole():
    assert checker(PET).explain([1]) == [ArgumentProblem((), "expected object, got an array")]


def test_the_closest_alternative_is_explained():
    schema = {
        "properties": {
            "where": {
                "anyOf": [
                    {"type": "object", "required": ["city"], "properties": {"city": {}}},
                    {"type": "string"},
                ]
            }
        }
    }
    assert explain_problems(schema, {"where": {"town": "x"}}) == {"where.city": "is required"}


def test_values_are_cut_and_problems_counted():
    schema = {"additionalProperties": {"type": "integer"}}
    problems = explain_problems(schema, {f"a{n}": "x" * 1000 for n in range(50)})
    assert len(problems) == PROBLEMS_SHOWN
    assert all(len(text) < 100 and text.endswith("…") for text in problems.values())


def test_a_name_that_a_pattern_allows_is_not_called_unknown():
    schema = {
        "properties": {"id": {}},
        "patternProperties": {"^x-": {}},
        "additionalProperties": False,
    }
    assert explain_problems(schema, {"x-trace": 1, "y": 2}) == {"y": "is not known; expected: id"}


def test_behind_a_reference_the_names_are_known_too():
    schema = {
        "properties": {"owner": {"$ref": "#/$defs/Owner"}},
        "$defs": {"Owner": {"properties": {"name": {}}, "additionalProperties": False}},
    }
    problems = explain_problems(schema, {"owner": {"nmae": 1, "x": 1}})
    assert problems == {
        "owner.nmae": "is not known; did you mean 'name'?",
        "owner.x": "is not known; expected: name",
    }


@pytest.mark.parametrize(
    ("pattern", "wrong"),
    [
        (r"^\p{Lu}", "é"),  # Python's `re` has no \p
        (r"^\d$", "٣"),  # ECMA-262: ASCII digits only
        (r"^a$", "a\n"),  # ECMA-262: $ is the very end
    ],
)
def test_explained_patterns_follow_ecma_262(pattern, wrong):
    schema = {"properties": {"a": {"type": "string", "pattern": pattern}}}
    assert "does not match" in explain_problems(schema, {"a": wrong})["a"]


def test_a_pattern_that_backtracks_is_explained_at_once():
    schema = {"properties": {"a": {"pattern": "^(a+)+$"}}}
    assert "does not match" in explain_problems(schema, {"a": "a" * 50 + "b"})["a"]


def test_a_pattern_of_names_that_python_cannot_read_still_gives_a_reason():
    schema = {"patternProperties": {r"^\p{Lu}": {"type": "string"}}}
    assert "string" in explain_problems(schema, {"Äpfel": 1})["Äpfel"]


def test_decimal_fractions_are_multiples_as_in_decimal_arithmetic():
    schema = {"properties": {"price": {"multipleOf": 0.01}}}
    assert checker(schema).accepts({"price": 0.07})  # 0.07 % 0.01 is not 0 in binary
    assert explain_problems(schema, {"price": 0.075})


def test_deep_values_are_checked_and_explained():
    schema = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    right, wrong = {}, {"a": 1}
    for _ in range(500):
        right, wrong = {"a": right}, {"a": wrong}
    assert checker(schema).accepts(right)
    assert explain_problems(schema, wrong)


@pytest.mark.parametrize(("member", "argument"), [("x", "a[0]"), (1, "a[100000]")])
def test_of_large_arguments_the_first_problem_is_told(member, argument):
    schema = {"properties": {"a": {"type": "array", "items": {"type": "integer"}}}}
    assert list(explain_problems(schema, {"a": [member] * 100_000 + ["x"]})) == [argument]


def test_a_schema_that_only_refers_to_itself_ends():
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}
    assert checker(schema).explain({"a": 1}) == []


def test_format_is_an_annotation():
    schema = {"properties": {"when": {"type": "string", "format": "date-time"}}}
    assert checker(schema).accepts({"when": "tomorrow"})
    assert checker(schema).explain({"when": "tomorrow"}) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nope"},
        {"properties": {"a": {"pattern": "("}}},
        {"minimum": "1"},
        {"$ref": "#/$defs/missing"},
        {"$ref": "https://example.com/schema.json"},  # never fetched
        {"$ref": "file:///etc/passwd"},
    ],
)
def test_a_bad_schema_is_refused_at_compilation(schema):
    with pytest.raises(ValueError, match=r"\S"):
        checker(schema)


def test_a_schema_that_is_no_json_is_refused_alike():
    with pytest.raises(ValueError, match="Not JSON"):
        Checker(b"{")


@pytest.mark.parametrize(
    ("dialect", "schema", "good", "bad"),
    [
        ("http://json-schema.org/draft-04/schema#", {"maximum": 3, "exclusiveMaximum": True}, 2, 3),
        ("http://json-schema.org/draft-06/schema#", {"exclusiveMaximum": 3}, 2, 3),
        ("http://json-schema.org/draft-07/schema#", {"items": [{"type": "string"}]}, ["a"], [1]),
        ("https://json-schema.org/draft/2019-09/schema", {"items": [{"const": 1}]}, [1], [2]),
        ("https://json-schema.org/draft/2020-12/schema", {"prefixItems": [{"const": 1}]}, [1], [2]),
        (None, {"prefixItems": [{"const": 1}]}, [1], [2]),
    ],
)
def test_a_schema_is_read_in_its_declared_dialect(
    dialect: str | None, schema: dict[str, Any], good: Any, bad: Any
) -> None:
    head = {} if dialect is None else {"$schema": dialect}
    checker = Checker(encode({**head, "properties": {"v": schema}}))
    assert checker.accepts({"v": good})
    assert not checker.accepts({"v": bad})
    assert checker.explain({"v": bad})


@pytest.mark.parametrize("schema", [{"prefixItems": [{"const": 1}]}, {"maximum": "three"}])
def test_a_schema_of_an_unknown_dialect_accepts_anything(schema: dict[str, Any]) -> None:
    """Keywords of an unknown dialect are not read as those of 2020-12 (mending 22)."""
    named = {"$schema": "https://example.com/own", "properties": {"v": schema}, "required": 1}
    checker = Checker(encode(named))
    assert checker.accepts({"v": [2]})
    assert checker.explain({"v": [2]}) == []


def test_a_keyword_of_another_dialect_is_no_valid_schema() -> None:
    with pytest.raises(ValueError, match="number"):
        Checker(b'{"maximum": 3, "exclusiveMaximum": true}')


def multiply_references(keyword, levels, times):
    """Each level applies the next one several times to the same value."""
    inner = {f"L{n}": {keyword: [{"$ref": f"#/$defs/L{n + 1}"}] * times} for n in range(levels)}
    return {"$ref": "#/$defs/L0", "$defs": {**inner, f"L{levels}": {"type": "string"}}}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_a_schema_that_nobody_could_check_in_time_is_refused(keyword):
    with pytest.raises(ValueError, match="more often than can be checked"):
        checker(multiply_references(keyword, 40, 2))
    names = [f"N{n}" for n in range(30)]
    each = {one: {keyword: [{"$ref": f"#/$defs/{other}"} for other in names]} for one in names}
    with pytest.raises(ValueError, match="more often than can be checked"):
        checker({"$ref": "#/$defs/N0", "$defs": each})
    assert checker(multiply_references(keyword, 40, 1)).accepts("x")


@pytest.mark.parametrize("reference", ["#/%24defs/L{}", "#L{}", "urn:l{}"])
def test_any_kind_of_reference_counts_towards_the_limit(reference):
    inner = {
        f"L{n}": {
            "$id": f"urn:l{n}",
            "allOf": [{"$ref": reference.format(n + 1)}] * 2,
        }
        for n in range(30)
    }
    if reference.startswith("#L"):
        for name, one in inner.items():
            del one["$id"]
            one["$anchor"] = name
    if reference.startswith("#/"):
        for one in inner.values():
            del one["$id"]
    with pytest.raises(ValueError, match="more often than can be checked"):
        checker({"$ref": reference.format(0), "$defs": inner})


def share_object(places, members):
    """Each place refers to the same object with many members."""
    one = {"type": "object", "properties": {f"q{n}": {"type": "string"} for n in range(members)}}
    properties = {f"p{n}": {"$ref": "#/$defs/one"} for n in range(places)}
    return {"type": "object", "properties": properties, "$defs": {"one": one}}


def test_a_schema_whose_references_repeat_millions_of_members_is_refused_at_once():
    with pytest.raises(ValueError, match="repeat more members than can be checked"):
        checker(share_object(2000, 2000))
    assert checker(share_object(100, 100)).accepts({"p1": {"q1": "x"}})


def test_a_schema_that_comes_back_below_a_value_is_no_circle():
    tree = {"type": "object", "properties": {"inner": {"anyOf": [{"$ref": "#"}] * 3}}}
    assert checker(tree).accepts({"inner": {"inner": {}}})


def test_a_schema_with_many_alternatives_of_its_own_is_checked():
    many = {"anyOf": [{"const": number, "title": "x"} for number in range(20_000)]}
    assert checker(many).accepts(19_999)
