"""The examples of the JSON-RPC 2.0 specification, section 7, from body to body."""

import json

import pytest
from starlette.types import Message

from gateway.protocol.batches import Batches, BatchLimits
from gateway.protocol.dialects import Rules
from gateway.transports.jsonrpc_http import Front, JsonRpcHTTP
from schemas.mcp.revisions import JSON_RPC
from tests.gateway.protocol.conftest import IDENTITY

pytestmark = pytest.mark.anyio

ERROR = {
    -32700: "Not JSON",
    -32600: "",
    -32601: "Method not found",
}


async def answer(verbs, body):
    """(HTTP status, decoded body) that `/rpc` gives to `body`."""
    sent: list[Message] = []
    arriving = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return arriving.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    batches = Batches(
        BatchLimits(items=100, concurrency=4, timeout_s=5, answer_bytes=1_000_000, connections=100)
    )

    async def identify(_scope):
        return IDENTITY

    parts = Front(
        dispatcher=verbs.dispatcher(),
        identify=identify,
        batches=batches,
        body_limit_bytes=100_000,
        unauthenticated_body_bytes=100_000,
    )
    front = JsonRpcHTTP(parts, Rules(JSON_RPC, spec=True))
    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "headers": headers, "query_string": b""}
    await front(scope, receive, send)
    text = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], json.loads(text) if text else None


def result(value, id_):
    return {"jsonrpc": "2.0", "result": value, "id": id_}


def check_failure(reply, code, id_):
    assert reply["jsonrpc"] == "2.0"
    assert reply["id"] == id_
    assert reply["error"]["code"] == code
    assert reply["error"]["message"].startswith(ERROR[code])
    assert "result" not in reply


@pytest.mark.parametrize(
    ("params", "id_", "difference"),
    [
        ("[42, 23]", 1, 19),
        ("[23, 42]", 2, -19),
        ('{"subtrahend": 23, "minuend": 42}', 3, 19),
        ('{"minuend": 42, "subtrahend": 23}', 4, 19),
    ],
)
async def test_params_by_position_and_by_name(verbs, params, id_, difference):
    body = f'{{"jsonrpc": "2.0", "method": "subtract", "params": {params}, "id": {id_}}}'
    assert await answer(verbs, body.encode()) == (200, result(difference, id_))


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc": "2.0", "method": "update", "params": [1,2,3,4,5]}',
        b'{"jsonrpc": "2.0", "method": "foobar"}',
    ],
)
async def test_a_notification(verbs, body):
    assert await answer(verbs, body) == (204, None)


async def test_a_method_that_does_not_exist(verbs):
    status, reply = await answer(verbs, b'{"jsonrpc": "2.0", "method": "foobar", "id": "1"}')
    assert status == 200
    check_failure(reply, -32601, "1")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]', -32700),
        (b'{"jsonrpc": "2.0", "method": 1, "params": "bar"}', -32600),
        (b'[{"jsonrpc": "2.0", "method": "sum", "id": "1"}, {"jsonrpc": "2.0", "method"]', -32700),
        (b"[]", -32600),
    ],
)
async def test_invalid_requests_are_answered_by_one_error(verbs, body, code):
    status, reply = await answer(verbs, body)
    assert status == 200
    check_failure(reply, code, None)


@pytest.mark.parametrize("body", [b"[1]", b"[1,2,3]"])
async def test_a_batch_of_no_requests_is_answered_by_an_error_for_each(verbs, body):
    _, replies = await answer(verbs, body)
    assert len(replies) == len(json.loads(body))
    for reply in replies:
        check_failure(reply, -32600, None)


async def test_a_batch(verbs):
    body = b"""[
        {"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},
        {"jsonrpc": "2.0", "method": "notify_hello", "params": [7]},
        {"jsonrpc": "2.0", "method": "subtract", "params": [42,23], "id": "2"},
        {"foo": "boo"},
        {"jsonrpc": "2.0", "method": "foo.get", "params": {"name": "myself"}, "id": "5"},
        {"jsonrpc": "2.0", "method": "get_data", "id": "9"}
    ]"""
    _, (total, difference, nothing, missing, data) = await answer(verbs, body)
    assert (total, difference) == (result(7, "1"), result(19, "2"))
    check_failure(nothing, -32600, None)
    check_failure(missing, -32601, "5")
    assert data == result(["hello", 5], "9")
    assert [call.params for call in verbs.calls] == [[7]]


async def test_a_batch_of_notifications(verbs):
    body = b"""[
        {"jsonrpc": "2.0", "method": "notify_sum", "params": [1,2,4]},
        {"jsonrpc": "2.0", "method": "notify_hello", "params": [7]}
    ]"""
    assert await answer(verbs, body) == (204, None)


async def test_a_batch_inside_a_batch_is_no_request(verbs):
    nested = b'[[{"jsonrpc": "2.0", "method": "sum", "id": 1}]]'
    _, [reply] = await answer(verbs, nested)
    check_failure(reply, -32600, None)


async def test_an_id_of_null_is_answered(verbs):
    body = b'{"jsonrpc": "2.0", "method": "sum", "params": [1], "id": null}'
    assert await answer(verbs, body) == (200, result(1, None))
