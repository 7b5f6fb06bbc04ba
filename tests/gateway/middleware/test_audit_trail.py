"""What is remembered of a message, in the words of the record."""

import asyncio
import hashlib
import hmac
import json

import msgspec
import pytest
from msgspec import UNSET, Raw

from gateway.context import CallHeaders, Context, Identity, Principal, Session
from gateway.interfaces import Route, ToolCall
from gateway.middleware import audit_trail as trails
from gateway.middleware.audit_trail import REFUSALS, AuditTrail
from schemas.binding import FunctionBinding
from schemas.errors import Forbidden, InvalidParams, TooManyRequests, Unavailable
from schemas.hybrid import ServiceFailed
from schemas.jsonrpc import Request
from schemas.mcp.messages import CallToolResult
from schemas.mcp.revisions import JSON_RPC, V2025_06_18, V2026_07_28
from schemas.tool import Annotations, RelayedResult, TextContent, Tool, ToolResult
from tests.gateway.audit.conftest import audit, writer

pytestmark = pytest.mark.anyio

ADA = Identity(Principal("ada", "t", mark="m"), verified=True)
CALL = Request("2.0", "tools/call", {"name": "pay", "arguments": {"a": 1}}, 1)
DIGEST = hashlib.sha256(b'{"a":1}').hexdigest()
PAY = Tool(
    *("id", "pay", None, ""),
    Raw(b'{"properties":{"pin":{"x-mask":true}}}'),
    *(None, Annotations(), FunctionBinding("f"), "bank", "digest"),
)


class Log:
    """A trail, and what it has written."""

    def __init__(self, spool, **changes):
        self.writer = writer(spool, **changes)
        self.trail = AuditTrail(audit(**changes), self.writer)
        self._spool = spool

    async def records(self):
        """Without what differs from run to run."""
        await self.writer.close()
        lines = [
            json.loads(line)
            for file in sorted(self._spool.glob("*.jsonl"))
            for line in file.read_text().splitlines()[1:]
        ]
        for line in lines:
            for name in ("chain_id", "hash", "recorded_ts", "latency_us"):
                line.pop(name, None)
        return lines

    async def send(self, outcome, request=CALL, revision=V2026_07_28, identity=ADA, **context):
        """A message whose handler gives `outcome`, or raises it."""

        async def handler(given, _request):
            if callable(outcome):
                return await outcome(given)
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        call_headers = CallHeaders(client="10.0.0.1")
        surroundings = Context(identity, revision, "r-1", headers=call_headers, **context)
        return await self.trail.middleware(handler, Route(revision, request.method))(
            surroundings, request
        )


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path / "spool")


SAME = {
    "sequence": 1,
    "host_id": "t",
    "principal": "ada",
    "mark": "m",
    "front": "2026-07-28",
    "method": "tools/call",
    "subject": "pay",
    "request_bytes": 7,
    "digest": DIGEST,
    "request_id": "r-1",
    "client": "10.0.0.1",
}


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (CallToolResult((TextContent("fine"),)), "ok"),
        (CallToolResult((TextContent("bad"),), is_error=True), "tool_error"),
        ({"content": Raw(b"[]"), "isError": Raw(b"true")}, "tool_error"),
        ({"content": Raw(b"[]")}, "ok"),
        (InvalidParams("Unknown tool: pay"), "-32602"),
        (TooManyRequests("slowly", 1.0), "1429"),
        (ServiceFailed(404, ""), "service_404"),
        (asyncio.CancelledError(), "cancelled"),
        (ZeroDivisionError(), "crashed"),
    ],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)
async def test_a_call_is_recorded_with_any_outcome(log, outcome, said):
    if isinstance(outcome, BaseException):
        with pytest.raises(type(outcome)):
            await log.send(outcome)
    else:
        assert await log.send(outcome) is outcome
    assert await log.records() == [{**SAME, "outcome": said}]


async def through(log, call, result):
    """The outermost guard around an upstream that gives `result`."""

    async def upstream(_call):
        return result

    async def handler(context):
        return await log.trail.guard(upstream)(msgspec.structs.replace(call, context=context))

    return await log.send(handler)


async def test_a_tool_call_is_recorded_with_name_and_arguments(log):
    result = ToolResult((TextContent("é"),), Raw(b'{"b":1}'))
    got = await through(log, ToolCall(PAY, None, {"pin": "9911"}, None), result)
    assert got is result
    encoded = b'{"pin":"9911"}'
    expected = {
        "source": "bank",
        "decision": "allow",
        "outcome": "ok",
        "request_bytes": len(encoded),
        "result_bytes": 9,
        "digest": hashlib.sha256(encoded).hexdigest(),
    }
    assert await log.records() == [SAME | expected]


async def test_sizes_of_relayed_results_are_sums_of_their_members(log):
    await through(log, ToolCall(PAY, None, {}, None), RelayedResult({"content": Raw(b"[1,2]")}))
    [record] = await log.records()
    assert record["result_bytes"] == 5


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ({"pin": "9911", "amount": 3}, '{"pin":"***","amount":3}'),
        (
            {"Client-Secret": "s", "to": [{"apiKey": 1}]},
            '{"Client-Secret":"***","to":[{"apiKey":"***"}]}',
        ),
        ({"text": "x" * 60}, '{"text":"' + "x" * 55 + "…"),
        ({"text": "é" * 60}, '{"text":"' + "é" * 27 + "…"),
        ({"text": "x" * 70_000}, "[70011 bytes]"),
        ({}, "{}"),
    ],
    ids=["marked", "by name", "long", "half a letter", "very long", "none"],
)
async def test_arguments_are_kept_without_their_secrets_where_that_is_wanted(
    tmp_path, arguments, kept
):
    log = Log(tmp_path / "spool", arguments="masked", arguments_bytes=64)
    await through(log, ToolCall(PAY, None, arguments, None), ToolResult(()))
    [record] = await log.records()
    assert record["arguments"] == kept


async def test_arguments_that_reached_no_tool_are_kept_without_their_secrets_too(tmp_path):
    log = Log(tmp_path / "spool", arguments="masked")
    request = Request("2.0", "tools/call", {"name": "none", "arguments": {"password": "p"}}, 1)
    await log.send(CallToolResult(()), request)
    [record] = await log.records()
    assert record["arguments"] == '{"password":"***"}'


async def test_with_a_key_digests_cannot_be_guessed(tmp_path):
    key = "0123456789abcdef"
    log = Log(tmp_path / "spool", key=key)
    await log.send(CallToolResult(()))
    [record] = await log.records()
    assert record["digest"] == hmac.digest(key.encode(), b'{"a":1}', "sha256").hex()


@pytest.mark.parametrize(
    ("method", "params", "subject"),
    [
        ("a/b/c/1", {"x": 1}, "a/b/c/1"),
        ("x" * 300, UNSET, "x" * 255),
        ("pay\0", [1], "pay\N{REPLACEMENT CHARACTER}"),
    ],
    ids=["service", "long", "nul"],
)
async def test_where_tools_are_methods_the_method_is_the_subject(log, method, params, subject):
    await log.send(Raw(b"1"), Request("2.0", method, params, 1), JSON_RPC)
    [record] = await log.records()
    assert record["subject"] == subject
    assert len(record["method"]) <= 100


async def test_a_resource_is_named_by_its_uri_and_a_session_by_a_digest(log):
    session = Session("secret-id", V2025_06_18, ADA.principal, {}, {})
    request = Request("2.0", "resources/read", {"uri": "x://y"}, 1)
    await log.send({}, request, V2025_06_18, session=session)
    [record] = await log.records()
    assert record["subject"] == "x://y"
    assert record["session"] == hashlib.sha256(b"secret-id").hexdigest()[:16]


@pytest.mark.parametrize("lists", [False, True])
async def test_lists_are_recorded_where_that_is_wanted(tmp_path, lists):
    log = Log(tmp_path / "spool", lists=lists)
    for method in ("tools/list", "ping", "notifications/cancelled", "prompts/get"):
        await log.send({}, Request("2.0", method, UNSET, 1))
    methods = [record["method"] for record in await log.records()]
    assert methods == (["tools/list"] if lists else []) + ["prompts/get"]


@pytest.mark.parametrize("method", ["ping", "tasks/get", "notifications/mail/send/1.0"])
async def test_a_tool_named_like_a_method_is_recorded_over_rpc(log, method):
    await log.send({}, Request("2.0", method, {"a": 1}, 1), revision=JSON_RPC)
    assert [record["method"] for record in await log.records()] == [method]


async def test_notes_of_other_middleware_are_recorded(log):
    async def deny_call(context):
        context.note.decision, context.note.rule = "deny", "night"
        raise Forbidden("no")

    with pytest.raises(Forbidden):
        await log.send(deny_call)
    assert await log.records() == [
        SAME | {"decision": "deny", "rule": "night", "outcome": "-32600"}
    ]


async def test_refused_clients_are_recorded_once_and_bounded(log):
    refusal = Forbidden("no")
    stranger = Identity(Principal("anonymous", "t"), refusal)

    async def identify(_scope):
        return stranger

    identified = log.trail.identifying(identify)
    scope = {"type": "http", "method": "POST", "path": "/mcp", "client": ("10.0.0.9", 1)}
    for _ in range(3 * REFUSALS):
        assert await identified(scope) is stranger
        with pytest.raises(Forbidden):
            await log.send(refusal, identity=stranger)
    log.trail.sum_up()
    log.trail.sum_up()  # nothing more came
    records = await log.records()
    assert REFUSALS < len(records) < 3 * REFUSALS
    sums = [one for one in records if one["method"] == "refusals"]
    summed = sum(int(one["subject"].removesuffix(" requests")) for one in sums)
    assert len(records) - len(sums) + summed == 3 * REFUSALS
    assert log.writer.dropped == 0
    assert records[0] == {
        "sequence": 1,
        "host_id": "t",
        "front": "http",
        "method": "POST",
        "subject": "/mcp",
        "decision": "deny",
        "outcome": "-32600",
        "client": "10.0.0.9",
    }


async def test_a_call_without_room_for_its_record_is_refused(tmp_path):
    log = Log(tmp_path / "spool", queue=1, spool_bytes=1)
    done = []

    async def handler(_context):
        done.append(1)
        return CallToolResult(())

    await log.send(handler)
    with pytest.raises(Unavailable):
        await log.send(handler)
    assert done == [1]


async def test_guessing_from_many_addresses_is_recorded_per_address(log, monkeypatch):
    monkeypatch.setattr(trails, "REFUSALS", 0)
    monkeypatch.setattr(trails, "ADDRESSES", 2)
    identity = Identity(Principal("anonymous", "t"), Forbidden("no"))

    async def identify(_scope):
        return identity

    identified = log.trail.identifying(identify)
    clients = ["10.0.0.9", "2001:db8::1", "10.0.0.9", "2001:db8::2", "10.0.0.7", "10.0.0.8"]
    for client in clients:
        await identified({"type": "http", "method": "GET", "path": "/rpc", "client": (client, 1)})
    log.trail.sum_up()
    found = [(one.get("client", ""), one["subject"]) for one in await log.records()]
    two = "2 requests"
    assert found == [("10.0.0.9", two), ("2001:db8::", two), ("", two)]
