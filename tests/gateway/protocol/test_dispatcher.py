import json
import logging

import pytest
from msgspec import Raw

from gateway.protocol.dispatcher import UnknownMethod, check_id
from schemas.errors import InvalidRequest
from schemas.jsonrpc import ErrorObject, ErrorReply, Reply, encode
from schemas.mcp.messages import (
    META_CAPABILITIES,
    META_CLIENT,
    META_LOG_LEVEL,
    META_RELATED_TASK,
    META_VERSION,
)
from schemas.mcp.revisions import HANDSHAKE, JSON_RPC, V2025_06_18, V2026_07_28
from tests.gateway.protocol.conftest import context, notification, request

pytestmark = pytest.mark.anyio


async def test_a_result_becomes_a_reply_with_the_id_of_its_request(verbs):
    reply = await verbs.dispatcher().dispatch(context(), request("subtract", [42, 23], "x"))
    assert reply == Reply("x", Raw(b"19"))


async def test_a_result_that_is_encoded_already_is_carried(verbs):
    reply = await verbs.dispatcher().dispatch(context(), request("get_data"))
    assert reply == Reply(1, Raw(b'["hello",5]'))


async def test_a_fault_becomes_an_error_that_names_the_request(verbs):
    reply = await verbs.dispatcher().dispatch(context(), request("subtract", [1]))
    assert reply == ErrorReply(1, ErrorObject(-32602, "two numbers", {"requestId": "r-1"}))


@pytest.mark.parametrize("method", ["crash", "unwritable", "half_a_character"])
async def test_unexpected_errors_are_logged_and_not_revealed(verbs, caplog, method):
    caplog.set_level(logging.ERROR)
    reply = await verbs.dispatcher().dispatch(context(), request(method))
    assert reply == ErrorReply(1, ErrorObject(-32603, "Internal error", {"requestId": "r-1"}))
    [record] = caplog.records
    assert (record.message, record.request_id) == ("unexpected_error", "r-1")
    assert record.exc_info is not None


@pytest.mark.parametrize("method", ["update", "subtract", "crash", "unwritable", "foobar"])
async def test_a_notification_is_never_answered(verbs, method):
    for revision in (JSON_RPC, V2025_06_18):
        assert await verbs.dispatcher().dispatch(context(revision), notification(method)) is None


@pytest.mark.parametrize("revision", [*HANDSHAKE.values(), V2026_07_28], ids=lambda r: r.name)
async def test_a_request_of_mcp_without_id_does_nothing(verbs, revision):
    dispatcher = verbs.dispatcher()
    for method in ("update", "notifications/hello"):
        assert await dispatcher.dispatch(context(revision), notification(method)) is None
    assert [call.method for call in verbs.calls] == ["notifications/hello"]


async def test_any_method_of_json_rpc_may_be_notified(verbs):
    await verbs.dispatcher().dispatch(context(JSON_RPC), notification("update"))
    assert [call.method for call in verbs.calls] == ["update"]


@pytest.mark.parametrize("revision", [V2025_06_18, V2026_07_28], ids=lambda r: r.name)
@pytest.mark.parametrize("token", ["x" * 1025, 10**1024])
async def test_a_progress_token_is_short(verbs, revision, token):
    asked = request("update", {"_meta": {"progressToken": token}})
    reply = await verbs.dispatcher().dispatch(context(revision), asked)
    assert (reply.error.code, verbs.calls) == (-32602, [])
    assert "progressToken must have at most 1024 bytes" in reply.error.message


@pytest.mark.parametrize("revision", [V2025_06_18, V2026_07_28], ids=lambda r: r.name)
@pytest.mark.parametrize(
    ("meta", "text"),
    [
        ([], "params._meta is an array, expected an object"),
        ({"progressToken": {}}, '"progressToken"] is an object, expected a string or an integer'),
        ({"progressToken": True}, "is a boolean, expected a string or an integer"),
        ({"progressToken": 0.5}, "is a number, expected a string or an integer"),
        ({META_VERSION: 1}, "is a number, expected a string"),
        ({META_CLIENT: "me"}, "is a string, expected an object"),
        ({META_CAPABILITIES: []}, "is an array, expected an object"),
        ({META_LOG_LEVEL: ["info"]}, "is an array, expected a string"),
        ({META_LOG_LEVEL: "loud"}, "expected to be one of debug, info, notice"),
        ({META_RELATED_TASK: "t"}, "is a string, expected an object"),
        ({META_RELATED_TASK: {"taskId": 1}}, "has no taskId, which is a string"),
    ],
)
async def test_metadata_that_mcp_types_is_checked(verbs, revision, meta, text):
    """Members of `_meta` of a wrong type are refused by name (mending 22)."""
    reply = await verbs.dispatcher().dispatch(context(revision), request("update", {"_meta": meta}))
    assert (reply.error.code, verbs.calls) == (-32602, [])
    assert text in reply.error.message


@pytest.mark.parametrize(
    "meta",
    [
        {},
        {"progressToken": None},
        {"progressToken": 0, META_LOG_LEVEL: "info", META_CLIENT: {"name": "c", "version": "1"}},
        {META_RELATED_TASK: {"taskId": "t"}, "example.com/own": [1]},
    ],
)
async def test_other_metadata_is_passed_on(verbs, meta):
    """Members that MCP leaves open, and null, are no mistakes (mending 22)."""
    asked = request("update", {"_meta": meta})
    assert isinstance(await verbs.dispatcher().dispatch(context(V2025_06_18), asked), Reply)


async def test_an_unknown_method_differs_from_a_method_unknown_upstream(verbs):
    reply = await verbs.dispatcher().dispatch(context(V2026_07_28), request("foobar"))
    assert isinstance(reply, UnknownMethod)
    assert json.loads(encode(reply))["error"]["code"] == -32601


@pytest.mark.parametrize("method", ["foobar", "__class__", "x" * 1000, ""])
async def test_an_unknown_method_is_not_found(verbs, method):
    reply = await verbs.dispatcher().dispatch(context(V2025_06_18), request(method))
    assert reply.error.code == -32601
    assert reply.error.message == f"Method not found: {method[:100]}"


async def test_a_method_is_known_only_to_its_revisions(verbs):
    dispatcher = verbs.dispatcher()
    known = await dispatcher.dispatch(context(V2026_07_28), request("mcp_only"))
    assert known == Reply(1, Raw(b"null"))
    assert (await dispatcher.dispatch(context(JSON_RPC), request("mcp_only"))).error.code == -32601


async def test_only_json_rpc_asks_for_a_tool_of_that_name(verbs):
    reply = await verbs.dispatcher().dispatch(context(JSON_RPC), request("getPet"))
    assert reply.error.message == "Method not found: getPet"


async def test_middleware_wraps_from_the_outside_in(verbs):
    seen = []

    def note_order(name):
        def wrap(handler, _route):
            async def handle(context, request):
                seen.append(name)
                return await handler(context, request)

            return handle

        return wrap

    await verbs.dispatcher(note_order("outer"), note_order("inner")).dispatch(
        context(), request("sum", [])
    )
    assert seen == ["outer", "inner"]


async def test_a_fault_of_a_middleware_is_an_error_like_any_other(verbs):
    def refuse(_handler, _route):
        async def handle(_context, _request):
            raise InvalidRequest("No")

        return handle

    reply = await verbs.dispatcher(refuse).dispatch(context(), request("sum", []))
    assert (reply.error.code, reply.error.message) == (-32600, "No")


@pytest.mark.parametrize("id_", [None, 1.0, 1.5])
def test_mcp_narrows_ids_to_strings_and_integers(id_):
    with pytest.raises(InvalidRequest, match="a string or an integer"):
        check_id(id_)


@pytest.mark.parametrize("id_", [0, -1, "", "x", 2**64, -(2**64), 10**1000])
def test_ids_of_mcp(id_):
    check_id(id_)


@pytest.mark.parametrize("id_", [10**1024, -(10**1024), "x" * 1025])
def test_ids_of_mcp_are_short(id_):
    with pytest.raises(InvalidRequest, match="at most 1024 bytes"):
        check_id(id_)
