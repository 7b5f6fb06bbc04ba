"""Calls of tools of other MCP servers; those of other kinds are called all over the tests."""

import json
import logging
from dataclasses import replace

import pytest
from msgspec import Raw

from gateway.context import CallHeaders
from gateway.interfaces import RelayRequest
from gateway.methods.call_plans import CallPlans
from gateway.methods.tools import ToolMethods
from registry.catalog.catalog import Catalog
from registry.display.schemas_for_profiles import argument_aliases
from schemas.binding import McpBinding, MirroredArgument
from schemas.errors import (
    Fault,
    HeaderMismatch,
    InvalidParams,
    MissingClientCapability,
    RelayedFault,
    ToolFailed,
)
from schemas.mcp.messages import META_SERVER
from schemas.mcp.revisions import JSON_RPC, V2025_06_18, V2025_11_25, V2026_07_28
from tests.gateway.keeping import answering
from tests.gateway.methods.federation import (
    META,
    Answers,
    context,
    decode_result,
    item,
    lists,
    request,
    source,
    tool,
)
from tests.revisions import by_revision

pytestmark = pytest.mark.anyio

STRICT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
MARKED = {
    "type": "object",
    "properties": {"marks[]": {"type": "array"}, "marks": {"type": "integer"}, "a b": {}},
    "required": ["marks[]"],
    "additionalProperties": False,
}
BROKEN = {"type": "object", "properties": {"a": {"$ref": "#/$defs/nowhere"}}}
CATALOG = Catalog(
    tools=[
        tool("free"),
        tool("strict", STRICT),
        tool("broken", BROKEN),
        tool("marked", MARKED),
        tool("broken_2", {**BROKEN, "$ref": "https://example.com/schema"}),
        tool("region", mirrored=(MirroredArgument(("region",), "Region"),)),
    ],
    sources=[source("one"), source("two")],
    items=[
        item("resource", "test://x", source="two"),
        item("resource", "test://x", "toolgate://one/test://x"),
    ],
)
TEXT = {"type": "text", "text": "hello", "x-own": 1}
IMAGE = {"type": "image", "data": "", "mimeType": "image/png", "x-own": 1}
LINK = {"type": "resource_link", "uri": "test://x", "name": "x"}


def tools(answer=None, catalog=CATALOG):
    relay = Answers({"content": [TEXT]} if answer is None else answer)
    of_servers = lists(catalog, page_size=100)
    return ToolMethods(
        of_servers,
        CallPlans({McpBinding: relay}, [], None),
        verify_scope=True,
        answering=answering(),
    ), relay


async def call(methods, revision, name, arguments=None, headers=None, **more):
    params = {"name": name, **more} | ({} if arguments is None else {"arguments": arguments})
    surroundings = context(revision, **({"headers": headers} if headers else {}))
    return decode_result(await methods.call(surroundings, request("tools/call", params)))


async def test_arguments_reach_a_server_by_their_own_names():
    """Names that a list shows instead of rejected ones are mapped back (mending 21)."""
    methods, relay = tools()
    renamed = argument_aliases(MARKED)["marks[]"]
    await call(methods, V2025_11_25, "marked", {renamed: ["x"], "marks": 1, "a_b": 2})
    await call(methods, V2025_11_25, "marked", {"marks[]": ["y"], "a b": 3})
    sent = [asked.params["arguments"] for asked in relay.asked]
    assert sent == [{"marks[]": ["x"], "marks": 1, "a b": 2}, {"marks[]": ["y"], "a b": 3}]
    result = await call(methods, V2025_11_25, "marked", {"marks[]": [], renamed: []})
    assert renamed in result["content"][0]["text"]  # which of both counts is not guessed
    by_name = request("marked", {renamed: ["z"]})
    await methods.call_by_name(context(JSON_RPC), by_name)
    assert relay.asked[-1].params["arguments"] == {"marks[]": ["z"]}


@by_revision
async def test_a_call_is_handed_on_with_all_that_the_client_sent(revision):
    methods, relay = tools()
    more = {"_meta": {**META, "progressToken": 1}, "task": {"ttl": 5}, "inputResponses": {}}
    result = await call(methods, revision, "free", {"a": 1}, **more)
    assert result["content"] == [TEXT]
    (asked,) = relay.asked
    assert isinstance(asked, RelayRequest)
    assert asked.params == {"name": "free", "arguments": {"a": 1}, **more}
    assert relay.contexts[0].revision is revision
    assert relay.contexts[0].capabilities == {}
    if revision.result_type:
        assert (result["resultType"], META_SERVER in result["_meta"]) == ("complete", True)
    else:
        assert set(result) == {"content"}


@by_revision
async def test_a_call_without_arguments_has_none(revision):
    methods, relay = tools()
    await call(methods, revision, "free")
    assert relay.asked[0].params["arguments"] == {}


@by_revision
async def test_links_lead_back_to_the_server(revision):
    methods, _ = tools({"content": [LINK]})
    (content,) = (await call(methods, revision, "free"))["content"]
    assert "toolgate://one/test://x" in (content.get("uri") or content["text"])


@by_revision
async def test_bad_arguments_never_reach_the_server(revision):
    methods, relay = tools()
    if revision.argument_results:
        result = await call(methods, revision, "strict", {"n": "x"})
        assert result["isError"] is True
        assert "n: expected integer" in result["content"][0]["text"]
    else:
        with pytest.raises(InvalidParams, match="n: expected integer"):
            await call(methods, revision, "strict", {"n": "x"})
    assert relay.asked == []
    await call(methods, revision, "strict", {"n": 1})
    assert len(relay.asked) == 1


@by_revision
@pytest.mark.parametrize("name", ["broken", "broken_2"])
async def test_a_schema_that_cannot_be_used_is_left_to_the_server(revision, name, caplog):
    methods, relay = tools()
    with caplog.at_level(logging.WARNING, "toolgate.tools"):
        for _ in range(3):
            await call(methods, revision, name, {"a": "anything"})
    assert [asked.params["arguments"] for asked in relay.asked] == [{"a": "anything"}] * 3
    (warning,) = caplog.records
    assert (warning.message, warning.tool) == ("schema_unusable", name)


@by_revision
async def test_arguments_that_are_too_deep_are_an_error(revision):
    deep = []
    for _ in range(5000):
        deep = [deep]
    methods, relay = tools()
    with pytest.raises(InvalidParams, match="nested too deeply"):
        await call(methods, revision, "strict", {"n": deep})
    assert relay.asked == []


@by_revision
async def test_a_refusal_of_the_relay_is_an_error(revision):
    methods, _ = tools(InvalidParams("requestState is not ours"))
    with pytest.raises(InvalidParams, match="requestState"):
        await call(methods, revision, "free", requestState="x-TAMPERED")


@by_revision
async def test_the_error_of_a_server_reaches_the_client(revision):
    methods, _ = tools(RelayedFault(-32602, "No", {"a": 1}))
    with pytest.raises(Fault) as caught:
        await call(methods, revision, "free")
    assert (caught.value.code, caught.value.data) == (-32602, {"a": 1})


@by_revision
async def test_clients_without_url_elicitation_are_told_the_address(revision):
    asked = {"elicitations": [{"url": "https://a.example", "message": "Sign in"}]}
    methods, _ = tools(RelayedFault(-32042, "First", asked))
    if revision is V2025_11_25:
        with pytest.raises(RelayedFault):
            await call(methods, revision, "free")
    else:
        result = await call(methods, revision, "free")
        assert result["isError"] is True
        assert result["content"][0]["text"] == "First\nSign in: https://a.example"
        assert ("resultType" in result) is revision.result_type


async def test_a_capability_that_the_client_lacks_is_a_400():
    methods, _ = tools(RelayedFault(-32021, "No", {"requiredCapabilities": {"sampling": {}}}))
    with pytest.raises(MissingClientCapability) as caught:
        await call(methods, V2026_07_28, "free")
    assert caught.value.status == 400
    assert caught.value.data == {"requiredCapabilities": {"sampling": {}}}


async def test_a_question_to_the_client_is_passed_on():
    question = {"inputRequests": {"k": {"method": "roots/list"}}, "requestState": "s"}
    methods, _ = tools({"resultType": "input_required", **question})
    result = await call(methods, V2026_07_28, "free")
    assert {**result, **question, "resultType": "input_required"} == result
    assert "content" not in result


@pytest.mark.parametrize(
    ("sent", "arguments"),
    [({}, {"region": "eu"}), ({"region": "us"}, {"region": "eu"}), ({"region": "eu"}, {})],
)
@by_revision
async def test_headers_must_repeat_the_arguments_of_2026_07_28_alone(revision, sent, arguments):
    methods, relay = tools()
    call_headers = CallHeaders(mirrored=sent)
    if revision is V2026_07_28:
        with pytest.raises(HeaderMismatch):
            await call(methods, revision, "region", arguments, call_headers)
        assert relay.asked == []
    else:
        assert await call(methods, revision, "region", arguments, call_headers)


async def test_headers_that_repeat_the_arguments_are_let_in():
    methods, relay = tools()
    call_headers = CallHeaders(mirrored={"region": "=?base64?w6k=?=", "other": "x"})
    await call(methods, V2026_07_28, "region", {"region": "é"}, call_headers)
    assert relay.asked[0].params["arguments"] == {"region": "é"}


@by_revision
async def test_a_tool_that_nobody_has_is_refused(revision):
    methods, _ = tools()
    with pytest.raises(InvalidParams, match="Unknown tool: other"):
        await call(methods, revision, "other")


async def test_unknown_tool_error_suggests_similar_names():
    methods, _ = tools()
    with pytest.raises(InvalidParams, match=r"^Unknown tool: regoin; did you mean region\?"):
        await call(methods, V2025_11_25, "regoin")


async def test_structure_that_is_no_object_is_wrapped_as_its_schema_is():
    methods, _ = tools({"content": [], "structuredContent": [1]})
    assert (await call(methods, V2025_06_18, "free"))["structuredContent"] == {"result": [1]}


@pytest.mark.parametrize("revision", [V2025_06_18, V2025_11_25, V2026_07_28])
@pytest.mark.parametrize(
    ("structure", "fits"), [({"n": 1, "why": "late"}, True), ({"why": "late"}, False)]
)
async def test_an_error_has_the_structure_that_its_output_schema_allows(revision, structure, fits):
    """Errors of other servers carry structured content that clients can check (mending 11)."""
    strict = replace(tool("strict"), output_schema=Raw(json.dumps(STRICT).encode()))
    answer = {"content": [], "structuredContent": structure, "isError": True}
    methods, _ = tools(answer, Catalog(tools=[strict], sources=[source("one")]))
    result = await call(methods, revision, "strict")
    assert result["isError"] is True
    assert ("structuredContent" in result) is fits
    if not fits:
        assert json.loads(result["content"][0]["text"]) == structure
        assert result["_meta"]["toolgate/problem"] == structure


@pytest.mark.parametrize(
    ("answer", "plain"),
    [
        ({"content": [TEXT]}, "hello"),
        ({"content": [TEXT], "structuredContent": [1.50]}, [1.5]),
        ({"content": []}, None),
        ({}, None),
        ({"content": [TEXT, LINK]}, [TEXT, LINK | {"uri": "toolgate://one/test://x"}]),
        ({"content": [IMAGE]}, [IMAGE]),
        ({"content": [{"type": "own", "text": "x"}]}, [{"type": "own", "text": "x"}]),
    ],
)
async def test_a_json_rpc_client_gets_the_data(answer, plain):
    methods, _ = tools(answer)
    result = await methods.call_by_name(context(JSON_RPC), request("free", {"a": 1}))
    assert json.loads(bytes(result)) == plain


@pytest.mark.parametrize(
    ("answer", "message", "data"),
    [
        ({"content": [TEXT]}, "hello", {"content": [TEXT]}),
        ({"content": [IMAGE]}, "The tool failed", {"content": [IMAGE]}),
        ({"content": [TEXT], "structuredContent": {"a": 1}}, "hello", {"a": 1}),
        ({"content": []}, "The tool failed", {"content": []}),
    ],
)
async def test_a_json_rpc_client_gets_a_failed_tool_as_an_error(answer, message, data):
    methods, _ = tools({**answer, "isError": True})
    with pytest.raises(ToolFailed) as caught:
        await methods.call_by_name(context(JSON_RPC), request("free", {}))
    assert (caught.value.message, decode_result(caught.value.data)) == (message, data)
