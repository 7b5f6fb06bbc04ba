"""How deep the JSON of a client may nest: told without recursion, before anything is built."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.dialects import Rules, read
from schemas import jsonrpc
from schemas.errors import ParseError
from schemas.jsonrpc import DEPTH, decode, nests_within
from schemas.mcp.revisions import JSON_RPC, PORTAL

TEXT = st.text(alphabet='[]{}"\\ a', max_size=10)
VALUES = st.recursive(
    TEXT | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=40,
)


def levels(value):
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(levels, inner), default=0)


@given(VALUES, st.integers(0, 8))
def test_levels_are_counted_as_a_reader_does(value, limit):
    assert nests_within(json.dumps(value).encode(), limit) == (levels(value) <= limit)


@given(VALUES, st.integers(0, 8), st.integers(1, 9))
def test_levels_of_texts_read_in_pieces_are_the_same(value, limit, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonrpc, "_PIECE_BYTES", size)
        assert nests_within(json.dumps(value).encode(), limit) == (levels(value) <= limit)


def test_a_long_text_is_read_in_pieces(monkeypatch):
    """One step over all of it would hold up other threads, the event loop among them."""
    monkeypatch.setattr(jsonrpc, "_PIECE_BYTES", 10_000)
    text = b"[" + b'{"a": 1},' * 200_000 + b"{}]"
    tracemalloc.start()
    try:
        assert nests_within(text, 2)
        assert tracemalloc.get_traced_memory()[1] < len(text)
    finally:
        tracemalloc.stop()


def call(depth, **more):
    """A request whose params nest so deep that all of it has `depth` levels."""
    inner = b"[" * (depth - 2) + b"]" * (depth - 2)
    head = {"jsonrpc": "2.0", "id": 1, "method": "m", **more}
    return json.dumps(head).encode()[:-1] + b',"params":{"a":' + inner + b"}}"


@pytest.mark.parametrize("wrap", [b"%s", b"[%s]"], ids=["single", "batch"])
def test_a_message_of_a_level_too_many_is_refused(wrap):
    most = DEPTH - wrap.count(b"[")
    decode(wrap % call(most), 10)
    with pytest.raises(ParseError, match=r"more than 200 levels \(limits\.json_depth\)"):
        decode(wrap % call(most + 1), 10)
    with pytest.raises(ParseError, match="more than 5 levels"):
        decode(wrap % call(6), 10, 5)


@pytest.mark.parametrize("revision", [JSON_RPC, PORTAL], ids=["rpc", "portal"])
@pytest.mark.parametrize(
    "body",
    [call(6), b'{"host":"h","service":"s","action":"a","version":"1","data":[[[[[1]]]]]}'],
    ids=["json-rpc", "legacy"],
)
def test_deep_bodies_of_both_dialects_are_refused(revision, body):
    rules = Rules(revision, spec=revision is JSON_RPC)
    read(body, rules, 10, 6)
    with pytest.raises(ParseError, match="more than 5 levels"):
        read(body, rules, 10, 5)


def test_brackets_in_strings_are_none():
    decode(json.dumps({"jsonrpc": "2.0", "method": "m", "params": ['\\"[{' * 500]}).encode(), 10)
    assert not nests_within(b'["\\\\", [[]]]', 2)
    assert nests_within(b'["\\\\", [[]]]', 3)
