"""What repeats the body of a request in its headers, and what must not."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.binding import MirroredArgument
from schemas.errors import HeaderMismatch
from schemas.mcp.headers import (
    check_params,
    decode_header,
    encode_header,
    mirrored_in,
    param_headers,
)


def schema(**properties):
    return {"type": "object", "properties": properties}


def mirrored_schema(header, type_="string", **more):
    return {"type": type_, "x-mcp-header": header, **more}


def mirrors(**headers):
    """Top-level arguments, and their headers."""
    return tuple(MirroredArgument((name,), header) for name, header in headers.items())


@pytest.mark.parametrize("text", ["", "x", "é", "a b", "日本", "=?base64?x?=", "line\nbreak"])
def test_an_encoded_header_value_is_read_back(text):
    encoded = base64.b64encode(text.encode()).decode()
    assert decode_header(f"=?base64?{encoded}?=") == text


@pytest.mark.parametrize("value", [None, "", "x", "=?base64?", "?=", "=?base64?=", "=?b64?eA==?="])
def test_a_header_value_that_is_not_encoded_stands_for_itself(value):
    assert decode_header(value) == value


@pytest.mark.parametrize("inner", ["eA", "eA=", "eB==", "e A==", "eA==\n", "/w==", "_w==", "é"])
def test_a_header_value_that_is_badly_encoded_matches_nothing(inner):
    assert decode_header(f"=?base64?{inner}?=") is None


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_through_a_header(text):
    value = encode_header(text)
    assert value.isascii()
    assert value == value.strip()
    assert not value or value.isprintable()
    assert decode_header(value) == text


@pytest.mark.parametrize("text", ["", "x", "get pet", 'a,b;c="d"', "=?b64?x?=", "toolgate://a/b"])
def test_a_plain_value_is_not_encoded(text):
    assert encode_header(text) == text


@pytest.mark.parametrize("text", [" x", "x ", "a\tb", "é", "\n", "=?base64?eA==?=", "=?base64??="])
def test_values_unsafe_in_headers_are_encoded(text):
    assert encode_header(text) == f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def test_marked_arguments_are_found_at_any_depth_of_properties():
    nested = {"type": "object", "properties": {"id": mirrored_schema("Region-Id", "integer")}}
    found = mirrored_in(
        schema(zone=mirrored_schema("Zone"), region=nested, dry=mirrored_schema("Dry", "boolean"))
    )
    assert found == (
        MirroredArgument(("zone",), "Zone"),
        MirroredArgument(("region", "id"), "Region-Id"),
        MirroredArgument(("dry",), "Dry"),
    )


@pytest.mark.parametrize(
    "plain",
    [
        None,
        True,
        {},
        schema(),
        schema(**{"x-mcp-header": {"type": "string"}}),  # the name of an argument
        schema(a={"type": "string", "default": {"x-mcp-header": 1}, "enum": [mirrored_schema("")]}),
        {
            "properties": [mirrored_schema("A")],
            "allOf": {"x-mcp-header": 1},
            "items": 1,
        },  # no schemas
    ],
)
def test_a_schema_without_marks_has_none(plain):
    assert mirrored_in(plain) == ()


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (schema(a=mirrored_schema("")), "'' cannot be part of a header's name"),
        (schema(a=mirrored_schema("a b")), "'a b' cannot be"),
        (schema(a=mirrored_schema("Région")), "'Région' cannot be"),
        (schema(a=mirrored_schema("A\r\nX: y")), "cannot be"),
        (schema(a=mirrored_schema("A\n")), "cannot be"),
        (schema(a=mirrored_schema(1)), "must be a string, not a number"),
        (schema(a=mirrored_schema(None)), "must be a string, not null"),
        (schema(a=mirrored_schema("A", "number")), "string, integer, boolean, not 'number'"),
        (schema(a=mirrored_schema("A", "object")), "not 'object'"),
        (schema(a=mirrored_schema("A", ["string", "null"])), "not an array"),
        (schema(a={"x-mcp-header": "A"}), "not null"),
        (
            schema(a=mirrored_schema("Same"), b=mirrored_schema("sAME")),
            "of the argument 'b' .* header of 'a' already",
        ),
        (mirrored_schema("A", "object"), "`properties` alone"),
        (schema(a={"type": "array", "items": mirrored_schema("A")}), "`properties` alone"),
        (schema(a={"items": [mirrored_schema("A")]}), "`properties` alone"),
        (schema(a={"oneOf": [mirrored_schema("A")]}), "`properties` alone"),
        ({"allOf": [schema(a=mirrored_schema("A"))]}, "`properties` alone"),
        ({"if": {"not": schema(a=mirrored_schema("A"))}}, "`properties` alone"),
        ({"$defs": {"x": mirrored_schema("A")}}, "`properties` alone"),
        ({"patternProperties": {"^a": mirrored_schema("A")}}, "`properties` alone"),
        ({"additionalProperties": mirrored_schema("A")}, "`properties` alone"),
    ],
)
def test_a_bad_mark_is_named_with_its_reason(bad, reason):
    with pytest.raises(ValueError, match=f"^x-mcp-header .*{reason}"):
        mirrored_in(bad)


def test_a_schema_may_have_any_depth():
    deep = mirrored_schema("Deep")
    for _ in range(20_000):
        deep = schema(a=deep)
    ((path),) = (one.path for one in mirrored_in(deep))
    assert len(path) == 20_000


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("eu-1", "eu-1"),
        ("", ""),
        (" é", "=?base64?IMOp?="),
        (42, "42"),
        (42.0, "42"),
        (-1, "-1"),
        (True, "true"),
        (False, "false"),
    ],
)
def test_an_argument_is_repeated_in_its_header(value, header):
    assert param_headers(mirrors(a="Region"), {"a": value}) == {"Mcp-Param-Region": header}


@pytest.mark.parametrize(
    "arguments", [{}, {"a": None}, {"a": ["x"]}, {"a": {"b": "x"}}, {"b": "x"}]
)
def test_an_argument_that_is_not_there_has_no_header(arguments):
    assert param_headers(mirrors(a="Region"), arguments) == {}
    check_params(mirrors(a="Region"), {}, arguments)


@pytest.mark.parametrize("arguments", [{}, {"a": None}, {"a": "text"}, {"a": {}}])
def test_an_argument_below_a_missing_argument_has_no_header(arguments):
    assert param_headers((MirroredArgument(("a", "b"), "B"),), arguments) == {}


@given(
    st.dictionaries(
        st.sampled_from("abc"),
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    )
)
def test_the_headers_that_we_send_pass_our_own_check(arguments):
    mirrored = mirrors(a="A", b="B", c="C")
    headers = param_headers(mirrored, arguments)
    check_params(mirrored, {k.lower()[10:]: v for k, v in headers.items()}, arguments)


@pytest.mark.parametrize(
    ("sent", "value"),
    [("42.0", 42), ("42", 42.0), ("42.000", 42), ("-0", 0), ("=?base64?NDI=?=", 42)],
)
def test_integers_are_compared_as_numbers(sent, value):
    check_params(mirrors(a="A"), {"a": sent}, {"a": value})


@pytest.mark.parametrize(
    ("sent", "arguments"),
    [
        ({}, {"a": "x"}),  # missing
        ({}, {"a": 0}),
        ({}, {"a": False}),
        ({"a": "x"}, {}),  # for an argument that is not there
        ({"a": "null"}, {"a": None}),
        ({"a": "[]"}, {"a": []}),
        ({"a": "X"}, {"a": "x"}),
        ({"a": "True"}, {"a": True}),
        ({"a": "1"}, {"a": True}),
        ({"a": "true"}, {"a": "true "}),
        ({"a": "42.5"}, {"a": 42}),
        ({"a": "4_2"}, {"a": 42}),
        ({"a": "٤٢"}, {"a": 42}),
        ({"a": "NaN"}, {"a": 42}),
        ({"a": ""}, {"a": 42}),
        ({"a": "9" * 5000}, {"a": 42}),
        ({"a": "=?base64?eA?="}, {"a": "x"}),  # badly encoded
    ],
)
def test_a_header_that_contradicts_the_body_is_refused(sent, arguments):
    with pytest.raises(HeaderMismatch, match=r"^Mcp-Param-A (is missing|says)"):
        check_params(mirrors(a="A"), sent, arguments)


def test_headers_that_no_argument_declares_are_let_through():
    check_params(mirrors(a="A"), {"b": "x", "a": "x"}, {"a": "x"})
