"""Messages of other servers: what is carried, what is refused."""

import pytest
from msgspec import UNSET, Raw

from gateway.upstreams.mcp import message_parsers
from gateway.upstreams.mcp.message_parsers import MalformedMessage
from schemas.errors import InvalidParams, RelayedFault


def test_the_members_of_a_result_stay_unchanged():
    [message] = message_parsers.decode(
        b'{"jsonrpc":"2.0","id":7,"result":{"a": [1, 1.0 ],"b":null}}'
    )
    assert message.answers(7)
    assert message.members() == {"a": Raw(b"[1, 1.0 ]"), "b": Raw(b"null")}


def test_an_error_keeps_its_code_and_data():
    [message] = message_parsers.decode(b'{"id":7,"error":{"code":-5,"message":"m","data":[1]}}')
    with pytest.raises(RelayedFault) as caught:
        message.members()
    assert (caught.value.code, caught.value.message, caught.value.data) == (-5, "m", [1])


def test_an_array_is_as_many_messages():
    one, two = message_parsers.decode(b' [{"id":1,"result":{}},{"method":"x"}]')
    assert one.answers(1)
    assert (two.method, two.id) == ("x", UNSET)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>",
        b"1",
        b'{"id":1,',
        b'{"id":1,"result":{"a":"\xff"}}',  # not UTF-8, where nothing is built
        b'{"id":1,"result":{"a":"\\ud800"}}',  # half a character
        b'{"id":1,"result":' + b'{"a":' * 1_000_000 + b"1" + b"}" * 1_000_000 + b"}",
        b"[" * 100_000,
    ],
)
def test_invalid_messages_are_malformed(text):
    with pytest.raises(MalformedMessage):
        message_parsers.decode(text)


def test_a_whole_surrogate_pair_is_a_character():
    [message] = message_parsers.decode(b'{"id":1,"result":{"a":"\\ud83d\\ude00"}}')
    assert message.answers(1)


@pytest.mark.parametrize(
    "text",
    [
        b'{"id":1,"result":[]}',
        b'{"id":1,"result":null}',
        b'{"id":1,"result":"x"}',
        b'{"id":1}',
        b'{"id":1,"error":"no"}',
        b'{"id":1,"error":{"code":"x"}}',
    ],
)
def test_an_answer_that_is_none_is_still_known_by_its_id(text):
    [message] = message_parsers.decode(text)
    assert message.answers(1)
    with pytest.raises(MalformedMessage):
        message.members()


@pytest.mark.parametrize(
    "text",
    [b'{"id":true,"result":{}}', b'{"id":"1","result":{}}', b'{"id":null,"result":{}}', b"{}",
     b'{"id":1,"method":5}', b'{"id":1,"method":"x","params":[]}', b'{"id":[1],"result":{}}'],
)  # fmt: skip
def test_invalid_answers_answer_no_request(text):
    assert not any(message.answers(1) for message in message_parsers.decode(text))


def test_a_refusal_carries_the_fault():
    body = message_parsers.refusal("a", InvalidParams("wrong", {"x": 1}))
    assert body == (
        b'{"jsonrpc":"2.0","id":"a","error":{"code":-32602,"message":"wrong","data":{"x":1}}}'
    )


def test_an_array_has_so_many_messages_and_no_more():
    assert (
        len(message_parsers.decode(b"[" + b"{}," * (message_parsers.BATCH - 1) + b"{}]"))
        == message_parsers.BATCH
    )
    with pytest.raises(
        MalformedMessage, match=f"sent more than {message_parsers.BATCH} messages at once"
    ):
        message_parsers.decode(b"[" + b"{}," * message_parsers.BATCH + b"{}]")


@pytest.mark.parametrize("text", [b"[{},", b"[{}]x", b"[" + b"{}," * message_parsers.BATCH, b"[,]"])
def test_an_array_that_is_none_is_refused(text):
    with pytest.raises(MalformedMessage):
        message_parsers.decode(text)
