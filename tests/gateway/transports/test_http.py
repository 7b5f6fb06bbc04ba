"""Headers, bodies and replies in raw ASGI."""

import pytest

from gateway.context import Identity, Principal
from gateway.protocol.admission import Headers
from gateway.transports.http import (
    Responder,
    caller,
    header,
    letter,
    query_value,
    read_body,
    require_json,
    routing_headers,
)
from schemas.errors import (
    Forbidden,
    InvalidParams,
    InvalidRequest,
    MethodNotAllowed,
    PayloadTooLarge,
    SessionNotFound,
    TooManyRequests,
    Unavailable,
    UnknownToolset,
    UnsupportedMediaType,
)
from schemas.hybrid import (
    AUTH_TOKEN_EXPIRED,
    AUTH_TOKEN_SCOPE_MISMATCH,
    MISSING_AUTH_TOKEN,
    SCOPE_TOKEN_EXPIRED,
    UNAVAILABLE,
    ServiceFailed,
    StatusFault,
)
from tests.gateway.asgi import DISCONNECT, Wire, http, part

pytestmark = pytest.mark.anyio

REALM = 'Bearer realm="toolgate"'
INVALID_TOKEN = f'{REALM}, error="invalid_token", error_description='


def test_the_headers_that_decide():
    scope = http(
        headers=[
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Session-Id", " s \t"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "=?base64?w6k=?="),
            ("Mcp-Param-X", "1"),
            ("Accept", "*/*"),
        ]
    )
    expected = Headers("2026-07-28", "s", "tools/call", "=?base64?w6k=?=", None, {"x": "1"})
    assert routing_headers(scope) == expected
    assert routing_headers(http()) == Headers()


def test_headers_that_mirror_arguments_are_kept_by_the_rest_of_their_names():
    scope = http(headers=[("Mcp-Param-Region", " eu \t"), ("MCP-PARAM-Dry-Run", "true")])
    found = routing_headers(scope)
    assert found.mirrored == {"region": "eu", "dry-run": "true"}
    assert letter(scope, mirrored=found.mirrored).mirrored == found.mirrored
    assert letter(scope).mirrored == {}


@pytest.mark.parametrize(
    "name", ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Param-Region"]
)
@pytest.mark.parametrize("values", [("a", "b"), ("a", "a"), ("", "a")])
def test_a_deciding_header_that_comes_twice_is_named(name, values):
    found = routing_headers(http(headers=[(name, value) for value in values]))
    assert found.duplicated == name.lower()


def test_a_header_is_found_by_its_name():
    scope = http(headers=[("Accept", "a"), ("Accept", "b"), ("X", "\xe9")])
    assert header(scope, b"accept") == "a"
    assert header(scope, b"x") == "\xe9"
    assert header(scope, b"y") == ""


@pytest.mark.parametrize(
    "found", ["application/json", "Application/JSON", "application/json; charset=utf-8"]
)
def test_json_is_required(found):
    require_json(http(headers=[("Content-Type", found)]))


@pytest.mark.parametrize(
    "found",
    [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data",
     "application/jsonp", "text/plain; a=application/json"],
)  # fmt: skip
def test_anything_else_is_refused(found):
    headers = [] if found is None else [("Content-Type", found)]
    with pytest.raises(UnsupportedMediaType, match="must be application/json"):
        require_json(http(headers=headers))


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ("session_id=abc", "abc"),
        ("a=1&session_id=abc&b=2", "abc"),
        ("session_id=a&session_id=b", "b"),
        ("session_id=a%20b", "a b"),
        ("session_id=", None),
        ("", None),
        ("other=1", None),
    ],
)
def test_a_value_of_the_query(query, value):
    assert query_value(http(query=query), "session_id") == value


async def read(*messages, limit=10, length=None):
    headers = [] if length is None else [("Content-Length", length)]
    return await read_body(http(headers=headers), Wire().arrive(*messages).receive, limit)


@pytest.mark.parametrize(
    ("messages", "body"),
    [
        ([part(b"0123456789")], b"0123456789"),
        ([part(b"")], b""),
        ([{"type": "http.request"}], b""),
        ([part(b"01", True), part(b"23", True), part(b"45")], b"012345"),
        ([part(b"", True), part(b"0123456789", True), part(b"")], b"0123456789"),
    ],
)
async def test_a_body_is_read_whole(messages, body):
    assert await read(*messages) == body
    assert await read(*messages, length=str(len(body))) == body


@pytest.mark.parametrize(
    ("messages", "length"),
    [
        ([], "11"),  # not a byte of it is read
        ([], "99999999999999999999"),
        ([part(b"0" * 11)], None),
        ([part(b"0" * 11)], "3"),  # servers cut it there, but this is not their test
        ([part(b"0" * 11, True)], None),  # as soon as it is known
        ([part(b"0" * 10, True), part(b"0", True)], None),
        ([part(b"0" * 6, True), part(b"0" * 6)], None),
    ],
)
async def test_a_body_that_is_too_large_is_refused_at_once(messages, length):
    with pytest.raises(PayloadTooLarge, match="exceeds 10 bytes"):
        await read(*messages, length=length)


@pytest.mark.parametrize("length", ["", "x", "-1", "+1", "1.0", "\xb2"])
async def test_a_length_that_is_no_number_says_nothing(length):
    assert await read(part(b"{}"), length=length) == b"{}"


@pytest.mark.parametrize(
    "messages",
    [[DISCONNECT], [part(b'{"a":1}', True), DISCONNECT], [part(b"", True), DISCONNECT]],
)
async def test_a_body_that_breaks_off_is_no_body(messages):
    with pytest.raises(InvalidRequest, match="before its body was complete"):
        await read(*messages)


async def test_an_answer_names_its_request():
    wire = Wire()
    responder = Responder(wire.send)
    assert not responder.started
    await responder.json(b"{}", 201, [(b"x-a", b"1")])
    assert responder.started
    assert wire.status == 201
    assert wire.headers == {
        "content-type": "application/json",
        "content-length": "2",
        "x-a": "1",
        "x-request-id": responder.request_id,
    }
    assert wire.body == b"{}"


async def test_an_answer_of_pieces_is_sent_piece_by_piece():
    wire = Wire()
    await Responder(wire.send).json([b'{"a":', memoryview(b"[1]"), b"}"])
    assert wire.headers["content-length"] == "9"
    assert wire.body == b'{"a":[1]}'
    assert [m.get("more_body", False) for m in wire.sent[1:]] == [True, True, False]


async def test_an_empty_answer_has_no_type():
    wire = Wire()
    await Responder(wire.send).empty(202)
    assert (wire.status, wire.body) == (202, b"")
    assert wire.headers["content-length"] == "0"
    assert "content-type" not in wire.headers


@pytest.mark.parametrize(
    ("fault", "status", "extra"),
    [
        (InvalidRequest("x"), 400, {}),
        (InvalidParams("x"), 400, {}),  # the HTTP request failed, so 200 it cannot be
        (Forbidden("x"), 403, {}),
        (SessionNotFound("x"), 404, {}),
        (PayloadTooLarge("x"), 413, {}),
        (Unavailable("x"), 503, {"retry-after": "1"}),
        (TooManyRequests("x", 0.2), 429, {"retry-after": "1"}),
        (TooManyRequests("x", 59.1), 429, {"retry-after": "60"}),
        (UnknownToolset("x"), 404, {}),
    ],
)
async def test_a_refusal_has_the_status_of_its_fault(fault, status, extra):
    wire = Wire()
    responder = Responder(wire.send)
    await responder.fault(fault, 7)
    assert wire.status == status
    assert wire.headers.items() >= extra.items()
    assert wire.json == {
        "jsonrpc": "2.0",
        "id": 7,
        "error": {
            "code": fault.code,
            "message": "x",
            "data": {**(fault.data or {}), "requestId": responder.request_id},
        },
    }


async def test_a_method_that_is_not_allowed_says_which_are():
    wire = Wire()
    await Responder(wire.send).fault(MethodNotAllowed("x", "GET, POST"))
    assert wire.status == 405
    assert wire.headers["allow"] == "GET, POST"


@pytest.mark.parametrize(
    ("fault", "challenge"),
    [
        (StatusFault(MISSING_AUTH_TOKEN), REALM),  # RFC 6750, 3.1: no error where no token came
        (
            StatusFault(AUTH_TOKEN_EXPIRED),
            INVALID_TOKEN + '"Jwt token in authorization header expired"',
        ),
        (
            StatusFault(SCOPE_TOKEN_EXPIRED),
            INVALID_TOKEN + '"Jwt token in X-Scope-Token expired"',
        ),
        (
            StatusFault(AUTH_TOKEN_EXPIRED._replace(description='a "b" \\ \r\nX: \xe9')),
            INVALID_TOKEN + "\"a 'b' ' ''X: '\"",
        ),
        (
            StatusFault(AUTH_TOKEN_SCOPE_MISMATCH, "[a]", '["b]'),
            f'{REALM}, error="insufficient_scope"',
        ),
        # a service's own 401: its words are no header of ours
        (ServiceFailed(401, {"code": "ERR10000", "description": "a\r\nb"}), REALM),
    ],
)
async def test_who_may_not_is_told_which_token_would_do(fault, challenge):
    wire = Wire()
    await Responder(wire.send).fault(fault)
    assert wire.status == fault.status
    assert wire.headers["www-authenticate"] == challenge


@pytest.mark.parametrize(
    "fault",
    [Forbidden("x"), InvalidRequest("x"), ServiceFailed(403, "x"), StatusFault(UNAVAILABLE, "x")],
)
async def test_no_token_would_help_with_other_refusals(fault):
    wire = Wire()
    await Responder(wire.send).fault(fault)
    assert "www-authenticate" not in wire.headers


async def test_a_front_gets_the_caller_or_the_reason_why_there_is_none():
    nobody = Principal("anonymous", "tenant")
    known, refused = Identity(nobody), Identity(nobody, StatusFault(MISSING_AUTH_TOKEN))

    def as_(identity):
        async def identify(_scope):
            return identity

        return identify

    assert await caller(as_(known), http()) is known
    with pytest.raises(StatusFault, match="No Authorization header"):
        await caller(as_(refused), http())


async def test_a_stream_is_not_buffered():
    wire = Wire()
    responder = Responder(wire.send)
    await responder.stream([(b"mcp-session-id", b"s")])
    await responder.chunk(b"a")
    await responder.chunk(b"b", more=False)
    assert wire.headers["content-type"] == "text/event-stream"
    assert wire.headers["x-accel-buffering"] == "no"
    assert "content-length" not in wire.headers
    assert [message["more_body"] for message in wire.sent[1:]] == [True, False]
