"""Replies and refusals in raw ASGI."""

import pytest

from gateway.transports.http_messages import Responder
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
from tests.gateway.asgi import Wire

pytestmark = pytest.mark.anyio

REALM = 'Bearer realm="toolgate"'
INVALID_TOKEN = f'{REALM}, error="invalid_token", error_description='


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


async def test_method_not_allowed_names_the_allowed_methods():
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
async def test_refusals_challenge_with_the_required_token(fault, challenge):
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
