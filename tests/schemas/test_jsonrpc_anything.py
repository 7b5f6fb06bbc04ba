"""Whatever arrives, `decode` gives messages or raises ParseError."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import DuplicateKeys, ParseError
from schemas.jsonrpc import Invalid, Request, Response, classify, decode
from tests.properties import examples

bounded = settings(max_examples=examples(150), derandomize=True, deadline=None)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abid\u00e9", max_size=6), inner)
    ),
    max_leaves=8,
)
# mostly right, each member wrong or missing now and then
messages = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | values,
        "method": st.sampled_from(["tools/list", "tools/call", "ping"]) | values,
        "params": st.dictionaries(st.text("ab"), values, max_size=3) | values,
        "id": st.integers(0, 9) | values,
        "result": values,
        "error": values,
    },
)
bodies = (messages | st.lists(messages | values, max_size=4)).map(lambda v: json.dumps(v).encode())


def judge_body(body: bytes) -> Any:
    """Result of `decode`, checked to be what it promises; None for text that it refuses."""
    try:
        found = decode(body, 100)
    except (DuplicateKeys, ParseError):  # a lost byte can make two members of one name
        return None
    for message in found if isinstance(found, list) else [found]:
        assert isinstance(message, Request | Response | Invalid)
    return found


@bounded
@given(st.binary(max_size=64) | st.text(max_size=32).map(lambda text: text.encode("utf-16")))
def test_any_bytes(body):
    judge_body(body)


@bounded
@given(bodies)
def test_any_json_is_judged(body):
    assert judge_body(body) is not None


@bounded
@given(messages)
def test_the_typed_path_and_the_second_look_agree(value):
    """The fast decoder may only know fewer messages than `classify`, never other ones."""
    found, expected = decode(json.dumps(value).encode(), 100), classify(value)
    if isinstance(expected, Invalid):
        assert (found.id, found.fault.message) == (expected.id, expected.fault.message)
    else:
        assert found == expected


@bounded
@given(bodies, st.data())
def test_messages_with_a_broken_byte(body, data):
    position = data.draw(st.integers(0, len(body) - 1))
    byte = data.draw(st.sampled_from([b"", b"\x00", b"\xff", b'"', b"{", b"]", b"\\", b"9"]))
    judge_body(body[:position] + byte + body[position + 1 :])
    judge_body(body[:position])
