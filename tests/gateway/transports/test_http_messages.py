"""What is read of a request in raw ASGI: headers, the query, bodies."""

import pytest

from gateway.context import Identity, Principal
from gateway.transports.http_messages import (
    RequestHeaders,
    call_headers,
    caller,
    header,
    query_value,
    read_body,
    read_headers,
    require_json,
)
from schemas.errors import InvalidRequest, PayloadTooLarge, UnsupportedMediaType
from schemas.hybrid import MISSING_AUTH_TOKEN, StatusFault
from tests.gateway.asgi import DISCONNECT, Wire, http, part

pytestmark = pytest.mark.anyio


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
    assert read_headers(scope) == RequestHeaders(
        version="2026-07-28",
        session="s",
        method="tools/call",
        name="=?base64?w6k=?=",
        mirrored={"x": "1"},
        accept="*/*",
    )
    assert read_headers(http()) == RequestHeaders()


def test_of_repeated_headers_the_first_or_the_last_counts():
    names = ["Accept", "Content-Type", "X-Correlation-Id"]
    found = read_headers(http(headers=[(name, value) for name in names for value in "ab"]))
    assert (found.accept, found.content_type, found.correlation_id) == ("a", "a", "b")
    assert found.duplicated is None


def test_a_repeated_idempotency_key_is_refused():
    scope = http(headers=[("Idempotency-Key", "a"), ("Idempotency-Key", "a")])
    with pytest.raises(InvalidRequest, match="more than once"):
        call_headers(read_headers(scope), scope)


def test_headers_that_mirror_arguments_are_kept_by_the_rest_of_their_names():
    scope = http(headers=[("Mcp-Param-Region", " eu \t"), ("MCP-PARAM-Dry-Run", "true")])
    found = read_headers(scope)
    assert found.mirrored == {"region": "eu", "dry-run": "true"}
    assert call_headers(found, scope, routing_headers=found.mirrored).mirrored == found.mirrored
    assert call_headers(found, scope).mirrored == {}


@pytest.mark.parametrize(
    "name", ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Param-Region"]
)
@pytest.mark.parametrize("values", [("a", "b"), ("a", "a"), ("", "a")])
def test_a_deciding_header_that_comes_twice_is_named(name, values):
    found = read_headers(http(headers=[(name, value) for value in values]))
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
    require_json(found)


@pytest.mark.parametrize(
    "found",
    [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data",
     "application/jsonp", "text/plain; a=application/json"],
)  # fmt: skip
def test_anything_else_is_refused(found):
    with pytest.raises(UnsupportedMediaType, match="must be application/json"):
        require_json(found)


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
    return await read_body(length, Wire().arrive(*messages).receive, limit)


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
