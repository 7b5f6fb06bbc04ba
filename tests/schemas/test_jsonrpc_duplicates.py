"""An object that names a member twice is refused, however it is spelled; no other JSON text is."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.errors import DuplicateKeys, ParseError
from schemas.jsonrpc import NAME_BYTES, Request, decode, decode_plain, decode_strict
from tests.properties import examples

bounded = settings(max_examples=examples(250), derandomize=True, deadline=None)

SHORT = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\t": "\\t"}
MEMBERS = ["jsonrpc", "method", "params", "id", "a", "", '"', "\\", "a\\", '\\"', "é", "😀"]


@st.composite
def spell_text(draw: st.DrawFn, text: str) -> str:
    """`text` as a JSON string, each character as it is or escaped in one of the ways there are."""
    parts = []
    for character in text:
        utf16 = character.encode("utf-16-be")
        units = [int.from_bytes(utf16[at : at + 2], "big") for at in range(0, len(utf16), 2)]
        ways = ["".join(f"\\u{unit:04x}" for unit in units)]
        ways += ["".join(f"\\u{unit:04X}" for unit in units)]
        ways += [SHORT[character]] if character in SHORT else []
        ways += [character] * 3 if character >= " " and character not in '"\\' else []
        parts.append(draw(st.sampled_from(ways)))
    return '"' + "".join(parts) + '"'


def join_parts(parts: list[str], ends: str, blank: str) -> str:
    return ends[0] + blank + f"{blank},{blank}".join(parts) + blank + ends[1]


blanks = st.sampled_from(["", "", " ", "\n", "\t\r\n "])
texts = (st.sampled_from(MEMBERS) | st.text(st.characters(exclude_categories=["Cs"]))).flatmap(
    spell_text
)
leaves = texts | st.sampled_from(["0", "-1.5e3", "1e2", str(2**70), "true", "null", "{}", "[]"])


def objects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Few names, so that some come twice."""
    names = st.sampled_from(MEMBERS).flatmap(spell_text)
    members = st.lists(st.tuples(names, inner), max_size=5)
    return st.builds(
        lambda pairs, blank: join_parts([f"{n}{blank}:{blank}{v}" for n, v in pairs], "{}", blank),
        members,
        blanks,
    )


def arrays(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(join_parts, st.lists(inner, max_size=3), st.just("[]"), blanks)


values = st.recursive(leaves, lambda inner: objects(inner) | arrays(inner), max_leaves=12)


@st.composite
def requests(draw: st.DrawFn) -> str:
    """A well-formed request, whose members are now and then there a second time, or others too."""
    id_ = draw(leaves)
    pairs = [
        ("jsonrpc", '"2.0"'),
        ("method", '"m"'),
        ("params", draw(objects(values))),
        ("id", id_),
    ]
    pairs += draw(st.lists(st.sampled_from([*pairs, ("x", id_)]), max_size=1))
    members = [f"{draw(spell_text(name))}:{value}" for name, value in draw(st.permutations(pairs))]
    return join_parts(members, "{}", draw(blanks))


bodies = values | requests() | arrays(requests() | values)


def names_twice(text: str) -> bool:
    """The judge: another decoder, which shows every member."""
    found = False

    def look(pairs: list[tuple[str, Any]]) -> None:
        nonlocal found
        found = found or len({name for name, _ in pairs}) < len(pairs)

    json.loads(text, object_pairs_hook=look)
    return found


def is_refused(body: bytes, read: Any) -> bool:
    try:
        read(body)
    except DuplicateKeys:
        return True
    return False


@bounded
@given(bodies)
@example('{"a":1,"\\u0061":2}')
@example('[{"jsonrpc":"2.0","method":"m","id":1},{"jsonrpc":"2.0","method":"m","id":1,"id":2}]')
@example('{"a\\\\":"\\\\\\"","a":"\\\\"}')
def test_the_scan_agrees_with_a_decoder_that_shows_every_member(text: str) -> None:
    twice, body = names_twice(text), text.encode()
    assert is_refused(body, decode_strict) is twice
    assert is_refused(body, lambda body: decode(body, 100)) is twice
    if twice:
        assert decode_plain(body, 100) is None
    else:
        assert decode_strict(body) == json.loads(text)


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","method":"a","method":"b","id":1}',
        b'{"jsonrpc":"2.0","method":"a","m\\u0065thod":"b","id":1}',
        b'{"jsonrpc":"2.0","method":"a","params":{"x":1,"x":1},"id":1}',
        b'{"jsonrpc":"2.0","method":"a","params":[[{"x":1,"x":1}]],"id":1}',
        b'{"jsonrpc":"2.0","method":"a","id":1,"other":{"x":1,"x":1}}',
        b'[1,{"jsonrpc":"2.0","method":"a","id":1,"id":1}]',
        b'{"":1,"":2}',
    ],
)
def test_a_member_named_twice_is_named_in_the_refusal(body: bytes) -> None:
    with pytest.raises(DuplicateKeys, match=r"An object has the member '\w*' twice"):
        decode(body, 100)


@pytest.mark.parametrize("id_", [b'"\\u005c"', b'"\\\\"', b'"\\u0022"', b'"\\\\\\""', b'"\\/\\n"'])
def test_escapes_do_not_cost_a_well_formed_request_its_short_way(id_: bytes) -> None:
    assert decode_plain(b'{"jsonrpc":"2.0","method":"m","id":%b}' % id_, 100) is not None


def test_a_duplicate_in_a_large_body_is_refused_without_its_name() -> None:
    body = b'{"text":"%b","a":1,"a":2}' % (b"x" * NAME_BYTES)
    with pytest.raises(DuplicateKeys) as caught:
        decode_strict(body)
    assert caught.value.message == "An object has a member twice"


def test_a_long_name_is_not_repeated_whole() -> None:
    name = "n" * 5000
    with pytest.raises(DuplicateKeys) as caught:
        decode_strict(f'{{"{name}":1,"{name}":1}}'.encode())
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","method":"a","id":1,"more":{"a":1},"and":["jsonrpc","jsonrpc"]}',
        b'{"jsonrpc":"2.0","method":"\\"\\\\","params":{"\\\\\\"":"\\\\"},"id":"\\\\\\\\"}',
        b'{"jsonrpc":"2.0","method":"a","params":{"x":{"x":{"x":"x"}}},"id":"x"}',
    ],
)
def test_equal_names_in_different_objects_are_no_duplicates(body: bytes) -> None:
    assert isinstance(decode(body, 100), Request)


def test_deep_text_is_refused_before_scanning() -> None:
    with pytest.raises(ParseError, match="nested too deeply"):
        decode_strict(b'{"a":' * 100_000 + b"1" + b"}" * 100_000)
