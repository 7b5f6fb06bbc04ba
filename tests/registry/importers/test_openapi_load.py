import json

import pytest

from registry.documents.yaml_and_json import DEPTH_LIMIT, merge_duplicates
from registry.importers.openapi import parse
from schemas.errors import ImportRejected


def refusal(data: bytes, location: str = "api") -> str:
    with pytest.raises(ImportRejected) as caught:
        parse(data, location)
    return str(caught.value)


def test_json_and_yaml_give_the_same():
    text = {"openapi": "3.1.0", "paths": {"/a": {"get": {"tags": ["x", "y"], "deprecated": True}}}}
    yaml = b"""
openapi: 3.1.0
paths:
  /a:
    get: {tags: [x, 'y'], deprecated: true}
"""
    assert parse(json.dumps(text).encode(), "a.json") == parse(yaml, "a.yaml") == text


@pytest.mark.parametrize(
    ("scalar", "expected"),
    [
        ("2024-01-01", "2024-01-01"),  # a date to YAML 1.1
        ("no", "no"),  # Norway, or False to YAML 1.1
        ("12:30:00", "12:30:00"),  # 45,000 to YAML 1.1
        ("01234", "01234"),  # a post code
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("5", 5),
        ("-5.5e1", -55.0),
        ("0x1F", 31),
        ("0o17", 15),
        ("true", True),
        ("null", None),
        ("~", None),
        ("", None),
        (".inf", ".inf"),  # JSON has no such number
        ("1e400", "1e400"),
        ("!include other.yaml", "other.yaml"),
    ],
)
def test_yaml_scalars_are_read_like_json(scalar, expected):
    value = parse(f"a: {scalar}".encode(), "a.yaml")["a"]
    assert value == expected
    assert type(value) is type(expected)


def test_yaml_keys_are_always_text():
    assert parse(b"{200: a, null: b, 1.0: c, on: d}", "a.yaml") == {
        "200": "a",
        "null": "b",
        "1.0": "c",
        "on": "d",
    }


def test_anchors_aliases_and_merge_keys():
    yaml = b"""
base: &base {a: 1, b: &b [x]}
more: &more {b: 2, c: 3}
one: {<<: *base, a: 9}
two: {<<: [*base, *more]}
list: *b
&key named: 1
again: {*key : 2}
"""
    document = parse(yaml, "a.yaml")
    assert document["one"] == {"a": 9, "b": ["x"]}
    assert document["two"] == {"a": 1, "b": ["x"], "c": 3}
    assert document["list"] == ["x"]
    assert document["again"] == {"named": 2}


def test_byte_order_marks_are_understood():
    assert parse('{"a": "é"}'.encode("utf-8-sig"), "a") == {"a": "é"}
    assert parse("a: é".encode("utf-16"), "a") == {"a": "é"}


def test_yaml_that_starts_like_json_is_read_as_yaml_by_its_name():
    assert parse(b"{a: b}", "http://example.com/a.yaml") == {"a": "b"}
    assert "not valid JSON" in refusal(b"{a: b}")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1,\n "b": }', "api, line 2, column 7: not valid JSON: Expecting value"),
        (b'{"a": 1', "api, line 1, column 8: not valid JSON: Expecting ',' delimiter"),
        (b"a:\n  - b\n c: d", "api, line 3, column 2: not valid YAML: did not find expected"),
        (b"a: [1", "not valid YAML"),
        (b"a: \x01", "not valid YAML"),
        (b"a: *b", "api, line 1, column 4: alias *b stands before or inside its anchor"),
        (b"a: &a [*a]", "alias *a stands before or inside its anchor"),
        (b"a: {<<: 1}", "`<<` must name an object"),
        (b"? [1]\n: 2", "a key must be text"),
        (b"a: 1\n---\nb: 2", "line 2, column 1: a second YAML document begins"),
        (b"a: 1\nb: \xe9", "api, line 2: not valid utf-8"),
        (b'{"a": NaN}', "not valid JSON (RFC 8259)"),
        (b"", "api is empty; expected an OpenAPI description"),
        (b"  \n", "is empty"),
        (b"<!doctype html>", "is HTML or XML"),
        (b'<w:definitions xmlns:w="http://schemas.xmlsoap.org/wsdl/"/>', "is a WSDL document"),
        (b"[1]", "holds a list; expected an OpenAPI description, a JSON or YAML object"),
        (b"- 1", "holds a list"),
        (b"just words", "holds a text"),
        (b"true", "holds a boolean"),
        (b"~", "holds a null"),
        (b"42", "holds a number"),
    ],
)
def test_unreadable_documents_are_refused_with_the_place(data, message):
    assert message in refusal(data)


@pytest.mark.parametrize("data", [b'{"a":' * 5000, b"[" * 5000 + b"]" * 5000])
def test_json_nested_5000_deep_is_refused(data):
    assert "nested too deeply" in refusal(data)


@pytest.mark.parametrize("depth", [DEPTH_LIMIT, 5000, 200_000])
def test_yaml_nested_too_deep_is_refused(depth):
    assert f"nested deeper than {DEPTH_LIMIT} levels" in refusal(b"a: " + b"[" * depth)


def test_large_yaml_merges_are_refused_early():
    """`<<` copies: 10,000 members 30 times a line are refused at the line, not at the end."""
    base = ["base: &base", *(f"  k{number}: 1" for number in range(10_000))]
    merges = [f"  - {{<<: [{', '.join(['*base'] * 30)}]}}"] * 1000
    said = refusal("\n".join([*base, "list:", *merges]).encode())
    assert "aliases expand it more than 10 times" in said
    assert "line 10004," in said


def test_aliases_that_expand_to_a_billion_values_are_refused():
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert "aliases expand it" in refusal("\n".join(["a0: &a0 x", *levels]).encode())


@pytest.mark.parametrize("member", ["{0}", "{{{0}: 1}}"], ids=["text", "key"])
def test_aliases_that_expand_to_a_gigabyte_of_text_are_refused(member):
    text = member.format("x" * 1000)
    levels = [f"a: &a {text}", f"b: &b [{', '.join(['*a'] * 1000)}]", f"c: [{'*b, ' * 1000}]"]
    assert "aliases expand it" in refusal("\n".join(levels).encode())
    assert parse("\n".join(levels[:2]).encode(), "api")["b"][999]


def test_a_key_given_twice_keeps_its_last_value_in_both_formats():
    assert parse(b'{"a": 1, "a": 2}', "a") == parse(b"a: 1\na: 2", "a") == {"a": 2}


@pytest.mark.parametrize(
    ("data", "location", "message"),
    [
        (b"a: 1\nb: {c: 1, c: 2}", "a.yaml", "a.yaml, line 2, column 14: the key 'c' stands twice"),
        (b"a: 1\n? a\n: 2", "a.yaml", "the key 'a' stands twice"),
        (b'{"a": {"b": 1, "b": 2}}', "a.json", "a.json: An object has the member 'b' twice"),
        (b"{a: 1, a: 2}", "a.yaml", "a.yaml, line 1, column 11: the key 'a' stands twice"),
    ],
)
def test_a_duplicate_key_is_refused_if_keys_are_unique(data, location, message):
    with pytest.raises(ImportRejected) as caught:
        parse(data, location, unique=True)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [b"a: &a {c: 1}\nb: {<<: *a, c: 2}", b'{"a": {"c": 1}, "b": {"c": 2}}'],
)
def test_keys_of_different_objects_and_merged_keys_are_no_duplicates(data):
    assert parse(data, "a.yaml", unique=True) == {"a": {"c": 1}, "b": {"c": 2}}


@pytest.mark.parametrize("data", [b'{"a": 1,}', b"{" * 5000, b'{"a": NaN}', b'{"a": "\\ud800"}'])
def test_invalid_json_gets_the_same_error_with_unique_keys(data):
    with pytest.raises(ImportRejected) as strict:
        parse(data, "api", unique=True)
    assert str(strict.value).split(":")[0] == refusal(data).split(":")[0]


def test_text_of_yaml_keeps_its_spelling_where_the_schema_says_text():
    """Enums, defaults and server variables are sent as they are written (mending 28)."""
    description = b"""
info: {title: Versions, version: 2.10}
servers:
- {url: 'https://{edition}.example.com', variables: {edition: {default: 3.20, enum: [3.20, 4e1]}}}
components:
  schemas:
    Code: {type: string, enum: [1.50, 0x2A, 2e3, .25, true, 010, ~], default: 1.50, example: 7}
    Optional: {type: [string, 'null'], const: 5.00}
    Number: {type: number, enum: [1.50, 0x2A], default: 2e3}
    Either: {type: [string, integer], enum: [1.50]}
"""
    document = parse(description, "a.yaml")
    schemas = document["components"]["schemas"]
    assert schemas["Code"]["enum"] == ["1.50", "0x2A", "2e3", ".25", "true", "010", None]
    assert (schemas["Code"]["default"], schemas["Code"]["example"]) == ("1.50", "7")
    assert schemas["Optional"]["const"] == "5.00"
    assert schemas["Number"] == {"type": "number", "enum": [1.5, 42], "default": 2000.0}
    assert schemas["Either"]["enum"] == [1.5]  # a number is among what it may be
    variable = document["servers"][0]["variables"]["edition"]
    assert variable == {"default": "3.20", "enum": ["3.20", "4e1"]}
    assert document["info"]["version"] == "2.10"


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"/a: {get: {x: 1}}\n/a: {post: 2, get: {x: 3}}\nb: 1\nb: 2\n", "line"),
        (b'{"/a":{"get":{"x":1}},"/a":{"post":2,"get":{"x":3}},"b":1,"b":2}', "the key"),
    ],
)
def test_duplicate_keys_are_merged_or_reported(data, where):
    """Two objects of one key are both read, and every duplicate is named (mending 28)."""
    notes: list[str] = []
    value = parse(data, "a.yaml" if where == "line" else "a.json", notes=notes)
    assert value == {"/a": {"get": {"x": 3}, "post": 2}, "b": 2}
    first, second = notes
    assert first.startswith(where)
    assert first.endswith("the key '/a' stands twice in one object; both are read")
    assert second.endswith("the key 'b' stands twice in one object; the last one counts")


def test_documents_without_duplicates_have_no_notes():
    notes: list[str] = []
    parse(b'{"a": {"b": "c\\"d"}, "e": ["a", "a"]}', "a.json", notes=notes)
    parse(b"a: {b: c}\ne: [a, a]\n", "a.yaml", notes=notes)
    assert notes == []


def test_one_key_many_times_is_not_copied_each_time():
    """Copies for each duplicate would take the square of their number (mending 10)."""
    many = "\n".join(f"a: {{b{number}: 1}}" for number in range(3000))
    assert "duplicate keys expand it more than 10 times" in refusal(many.encode(), "a.yaml")
    earlier = {"b": 1}
    assert merge_duplicates("a", earlier, {"c": 2}, []) is earlier
    many = ",".join(f'"a":{{"b{number}":1}}' for number in range(3000))
    assert len(parse(f"{{{many}}}".encode(), "a.json")["a"]) == 3000


def test_anchored_objects_keep_their_members_beside_duplicates():
    value = parse(b"base: &b {k: 1}\na: *b\na: {m: 2}\n", "a.yaml")
    assert value == {"base": {"k": 1}, "a": {"k": 1, "m": 2}}
