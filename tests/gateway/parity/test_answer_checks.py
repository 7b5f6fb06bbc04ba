"""Whether an answer is what a vector expects."""

import json
from typing import Any

import msgspec
import pytest

from gateway.parity.answer_checks import MISSING, Deviation, differences, fits, judge, parse
from gateway.parity.vector_requests import VectorAnswer
from gateway.parity.vectors import Expect
from schemas.errors import ToolgateError


def answer(body: Any, status: int = 200, **headers: str) -> VectorAnswer:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return VectorAnswer(
        status, {name.replace("_", "-"): text for name, text in headers.items()}, content
    )


def expect(**members: Any) -> Expect:
    return msgspec.convert({"status": 200, **members}, Expect)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 2, "d": 3}]}}),
        (1, 1.0),
        (9007199254740993, 9007199254740993),
        ({"$any": True}, None),
        ({"a": {"$absent": True}}, {"b": 1}),
        ({"$type": "integer"}, 5),
        ({"$type": "number"}, 1.5),
        ({"$type": "null"}, None),
        ({"$type": "boolean"}, True),
        ({"$starts": "Schema"}, "Schema Validation Error"),
        ({"$contains": "Valid"}, "Schema Validation Error"),
        ({"$contains": ["Error", "Schema"]}, "Schema Validation Error"),
        ({"$length": 2}, "ab"),
        ({"$length": 2}, [1, 2]),
        ({"$one_of": [None, 7]}, 7),
        ({"$includes": [{"id": 2}]}, [{"id": 1}, {"id": 2, "more": 0}]),
        ({"$unordered": [{"id": 1}, {"id": 2}]}, [{"id": 2}, {"id": 1}]),
        ({"$unordered": [{"$any": True}, 1]}, [1, 2]),  # the first pairing is not the only one
        ({"$unordered": []}, []),
        ({"$starts": "a", "more": 1}, {"$starts": "a", "more": 1}),  # two members: no matcher
    ],
)
def test_fitting_values_match(expected: Any, actual: Any) -> None:
    assert fits(expected, actual)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, {"a": 2}),
        ({"a": None}, {}),
        ({"a": 1}, [1]),
        ([1], [1, 2]),
        ([1, 2], [2, 1]),
        (1, True),
        (0, False),
        (None, MISSING),
        ("1", 1),
        (9007199254740993, 9007199254740992),
        ({"a": {"$any": True}}, {}),
        ({"a": {"$absent": True}}, {"a": None}),
        ({"$type": "integer"}, True),
        ({"$type": "integer"}, 1.5),
        ({"$type": "string"}, None),
        ({"$starts": "Schema"}, "A Schema"),
        ({"$starts": "1"}, 1),
        ({"$contains": ["Error", "Scheme"]}, "Schema Error"),
        ({"$length": 2}, "abc"),
        ({"$length": 1}, {"a": 1}),
        ({"$one_of": [None, 7]}, 8),
        ({"$includes": [{"id": 3}]}, [{"id": 1}]),
        ({"$includes": []}, "text"),
        ({"$unordered": [1, 1]}, [1, 2]),
        ({"$unordered": [1, 2]}, [1, 2, 3]),
        ({"$unordered": [1]}, {"a": 1}),
    ],
)
def test_unfitting_values_do_not_match(expected: Any, actual: Any) -> None:
    assert not fits(expected, actual)


def test_a_finding_names_the_place_and_both_values() -> None:
    expected = {"error": {"code": -32602, "data": {"a": [1, {"$starts": "x"}]}}}
    actual = {"error": {"code": -32600, "data": {"a": [1, "y"]}}}
    assert list(differences(expected, actual, "body")) == [
        Deviation("body.error.code", "-32602", "-32600"),
        Deviation("body.error.data.a[1]", "starts x", "y"),
    ]


def test_an_exact_body_has_no_further_members_at_any_depth() -> None:
    actual = {"a": {"b": 1, "c": 2}}
    assert judge(expect(match={"a": {"b": 1}}), answer(actual)) == []
    assert judge(expect(body={"a": {"b": 1}}), answer(actual)) == [
        Deviation("body.a.c", "(missing)", "2")
    ]


def test_a_wrong_status_shows_the_answer() -> None:
    [found] = judge(expect(status=[200, 204]), answer(b"what?", 500))
    assert found == Deviation("status", "200 or 204", "500 what?")


def test_of_a_media_type_the_parameters_do_not_count() -> None:
    wanted = expect(headers={"content-type": "text/plain"})
    assert judge(wanted, answer(b"", content_type="Text/Plain; charset=utf-8")) == []
    assert judge(wanted, answer(b"", content_type="application/json")) != []


def test_a_missing_media_type_is_forgiven_only_to_light_hybrid_4j() -> None:
    wanted = expect(headers={"content-type": "text/plain"})
    assert judge(wanted, answer(b"")) == [
        Deviation("header content-type", "text/plain", "(missing)")
    ]
    assert judge(wanted, answer(b""), lenient_type=True) == []
    other = answer(b"", content_type="text/html")
    assert judge(wanted, other, lenient_type=True) != []


def test_headers_can_be_matched_and_forbidden() -> None:
    wanted = expect(headers={"allow": {"$contains": ["GET", "POST"]}, "x-a": {"$absent": True}})
    assert judge(wanted, answer(b"", allow="POST, GET")) == []
    found = judge(wanted, answer(b"", allow="POST", x_a="1"))
    assert [one.where for one in found] == ["header allow", "header x-a"]


@pytest.mark.parametrize(
    ("wanted", "body", "fine"),
    [
        ({"empty": True}, b"", True),
        ({"empty": True}, b" ", False),
        ({"text": "OK"}, b"OK", True),
        ({"text": "OK"}, b'"OK"', False),
        ({"text": {"$contains": "K"}}, b"OK", True),
        ({"body": "OK"}, b'"OK"', True),
        ({"body": "OK"}, b"OK", False),
        ({"body": None}, b"null", True),
        ({"body": None}, b"", False),
        ({}, b"anything", True),
    ],
)
def test_bodies(wanted: dict[str, Any], body: bytes, fine: bool) -> None:
    assert (judge(expect(**wanted), answer(body)) == []) is fine


@pytest.mark.parametrize("body", [b"NaN", b"[Infinity]", b"{", b"\xff", b'{"a":1,}', b"[" * 99999])
def test_invalid_json_is_reported(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(body)
    [found] = judge(expect(match={}), answer(body))
    assert (found.where, found.expected) == ("body", "JSON")


def test_a_matcher_that_does_not_exist_is_a_mistake_in_the_vector() -> None:
    with pytest.raises(ToolgateError, match=r"There is no matcher \$begins; there are \$any"):
        fits({"$begins": "x"}, "x")


def test_answers_are_never_taken_for_matchers() -> None:
    one, other = {"a": {"$any": True}}, {"a": 5}
    assert list(differences(one, other, "body", matchers=False)) != []
