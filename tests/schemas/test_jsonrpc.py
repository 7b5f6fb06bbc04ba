import msgspec
import pytest
from msgspec import UNSET, Raw

from schemas.errors import InvalidRequest, ParseError, UnsupportedProtocolVersion
from schemas.jsonrpc import (
    LARGE_RESULT_BYTES,
    ErrorObject,
    ErrorReply,
    Invalid,
    Notification,
    Reply,
    Request,
    Response,
    decode,
    encode,
    error_reply,
    json_type,
    pieces,
)


def message(**members):
    return msgspec.json.encode({"jsonrpc": "2.0", **members})


def refusal(body):
    """(id, text) of the one message in `body`, which is none."""
    invalid = decode(body, 100)
    assert isinstance(invalid, Invalid)
    assert isinstance(invalid.fault, InvalidRequest)
    return invalid.id, invalid.fault.message


@pytest.mark.parametrize("id_", [0, 1, -7, 2**53, 2**70, "", "1", "b0f3", 1.5, 1.0, None])
def test_an_id_is_kept_with_its_type(id_):
    request = decode(message(method="m", id=id_), 100)
    assert (request.id, type(request.id)) == (id_, type(id_))
    answered = msgspec.json.decode(encode(Reply(request.id, Raw(b"1"))))["id"]
    assert (answered, type(answered)) == (id_, type(id_))


def test_a_message_without_id_is_a_notification():
    assert decode(message(method="m"), 100) == Request("2.0", "m", UNSET, UNSET)


@pytest.mark.parametrize("params", [{}, [], {"a": {"b": [1, None]}}, [1, "x"]])
def test_params_are_an_object_or_an_array(params):
    assert decode(message(method="m", params=params, id=1), 100).params == params


def test_unknown_members_are_ignored():
    assert decode(message(method="m", id=1, extra={"deep": [1]}), 100) == Request(
        "2.0", "m", UNSET, 1
    )


def test_null_params_are_none() -> None:
    """A message with `params: null` is a message without them (mending 19)."""
    assert decode(message(method="m", params=None, id=6), 100) == Request("2.0", "m", UNSET, 6)
    assert decode(message(method="m", params=None), 100) == Request("2.0", "m")


@pytest.mark.parametrize(
    ("body", "id_", "text"),
    [
        (b"1", None, "A message is an object, not a number"),
        (b"null", None, "A message is an object, not null"),
        (b'"text"', None, "A message is an object, not a string"),
        (b"true", None, "A message is an object, not a boolean"),
        (b"{}", None, '"jsonrpc" must be exactly "2.0"'),
        (b'{"jsonrpc":"1.0","method":"m","id":3}', 3, '"jsonrpc" must be exactly "2.0"'),
        (b'{"jsonrpc":2.0,"method":"m","id":3}', 3, '"jsonrpc" must be exactly "2.0"'),
        (b'{"jsonrpc":["2.0"],"method":"m","id":3}', 3, '"jsonrpc" must be exactly "2.0"'),
        (b'{"method":"m","id":"x"}', "x", '"jsonrpc" must be exactly "2.0"'),
        (message(id=4), 4, '"method" is missing'),
        (message(id=4, result=1, error={}), 4, '"method" is missing'),
        (message(result=1), None, '"method" is missing'),
        (message(method=1, params="bar"), None, '"method" must be a string, not a number'),
        (message(method=None, id=5), 5, '"method" must be a string, not null'),
        (message(method="m", params="bar", id=6), 6, "not a string"),
        (message(method="m", params=5, id=6), 6, "not a number"),
        (message(method="m", id=True), None, '"id" must be a string or a number, not a boolean'),
        (message(method="m", id={"a": 1}), None, "not an object"),
        (message(method="m", id=[1]), None, "not an array"),
    ],
)
def test_invalid_messages_have_a_reason_and_keep_a_readable_id(body, id_, text):
    found_id, found_text = refusal(body)
    assert found_id == id_
    assert text in found_text


@pytest.mark.parametrize(
    ("body", "response"),
    [
        (message(id=1, result=None), Response(1, None, UNSET)),
        (message(id="a", result={"x": 1}), Response("a", {"x": 1}, UNSET)),
        (message(id=None, error={"code": 1}), Response(None, UNSET, {"code": 1})),
    ],
)
def test_a_response_of_the_client_is_told_from_a_request(body, response):
    assert decode(body, 100) == response


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "The body is empty"),
        (b" \r\n\t", "The body is empty"),
        (b"{", "Not JSON"),
        (b'{"jsonrpc": "2.0"} x', "Not JSON"),
        (b"{'jsonrpc': '2.0'}", "Not JSON"),
        (b"NaN", "Not JSON"),
        (b'{"jsonrpc":"2.0","method":"a\nb"}', "Not JSON"),
        (b'{"jsonrpc":"2.0","method":"\\ud800"}', "half of a surrogate pair"),
        (b'{"jsonrpc":"2.0","method":"\\uD800\\uD800"', "Not JSON"),  # and truncated, too
        (b"\xef\xbb\xbf{}", "Not JSON"),  # RFC 8259, 8.1: no byte order mark
        ('{"jsonrpc":"2.0"}'.encode("utf-16"), "Not JSON"),
        (b'{"jsonrpc":"2.0","method":"\xff"}', "not valid UTF-8"),
        (b'{"jsonrpc":"2.0","method":"m","params":{"\xff":1}}', "not valid UTF-8"),
        (b'{"jsonrpc":"2.0","method":"m","id":1e400}', "out of range"),
        (b'{"jsonrpc":"2.0","method":"m","params":[' + b"9" * 5000 + b"]}", "out of range"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"jsonrpc":"2.0","method":"m","x":' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_invalid_json_is_a_parse_error(body, text):
    with pytest.raises(ParseError, match=text):
        decode(body, 100)


def test_a_batch_keeps_its_order_and_judges_each_member():
    body = b"[%b, 1, %b, [], %b]" % (
        message(method="a", id=1),
        message(method="b"),
        message(id=2, result=1),
    )
    first, number, second, array, response = decode(b" \n" + body, 100)
    assert first == Request("2.0", "a", UNSET, 1)
    assert second == Request("2.0", "b", UNSET, UNSET)
    assert response == Response(2, 1, UNSET)
    assert number.fault.message == "A message is an object, not a number"
    assert array.fault.message == "A message is an object, not an array"


def test_an_empty_batch_is_a_batch():
    assert decode(b"[]", 100) == []


def test_replies_have_the_version_and_carry_their_result_verbatim():
    assert encode(Reply(1, Raw(b'{"a": 1.0}'))) == b'{"jsonrpc":"2.0","id":1,"result":{"a": 1.0}}'
    error = encode(ErrorReply(None, ErrorObject(-32700, "Parse error")))
    assert error == b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}'
    assert encode(Notification("n")) == b'{"jsonrpc":"2.0","method":"n"}'
    assert encode(Notification("n", {})) == b'{"jsonrpc":"2.0","method":"n","params":{}}'


@pytest.mark.parametrize(
    ("data", "request_id", "expected"),
    [
        (None, None, UNSET),
        (None, "r-1", {"requestId": "r-1"}),
        ({"requested": "x"}, None, {"requested": "x"}),
        ({"requested": "x"}, "r-1", {"requested": "x", "requestId": "r-1"}),
    ],
)
def test_a_fault_becomes_an_error_that_names_the_request(data, request_id, expected):
    reply = error_reply("a", UnsupportedProtocolVersion("No", data), request_id)
    assert reply == ErrorReply("a", ErrorObject(-32022, "No", expected))


def test_the_types_of_json_have_names():
    values = [None, False, 0, 1.5, "", [], (), {}]
    names = ["null", "a boolean", "a number", "a number", "a string", "an array", "an array"]
    assert [json_type(value) for value in values] == [*names, "an object"]


@pytest.mark.parametrize("size", [10, LARGE_RESULT_BYTES - 1, LARGE_RESULT_BYTES, 200_000])
@pytest.mark.parametrize("id_", [1, "a", None, 2**70])
def test_a_large_result_is_a_piece_of_its_own(size, id_):
    reply = Reply(id_, Raw(b'"' + b"x" * (size - 2) + b'"'))
    parts = pieces(reply)
    assert b"".join(parts) == encode(reply)
    assert (len(parts) > 1) is (size >= LARGE_RESULT_BYTES)


def test_an_error_is_one_piece():
    reply = ErrorReply(1, ErrorObject(-32603, "x" * 2 * LARGE_RESULT_BYTES))
    assert pieces(reply) == [encode(reply)]
