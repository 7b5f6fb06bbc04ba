"""2026-07-28: requests that stand for themselves, and streams of notifications."""

import asyncio
import base64
import json
from typing import Any

import anyio
import pytest
from msgspec import Raw

from gateway.upstreams.http.source_pools import UpstreamFailed
from gateway.upstreams.mcp.link_and_handlers import Timeout
from schemas.errors import RelayedFault
from tests.gateway.upstreams.mcp.conftest import PATIENT, Ears
from tests.servers.mcp_wire import MODERN, Scripted, Turn, event, failure, note, question, reply

pytestmark = pytest.mark.anyio

META = "io.modelcontextprotocol/"
DONE = {"content": Raw(b"[]")}
CALL: dict[str, Any] = {"name": "x", "arguments": {}}
ACK = "notifications/subscriptions/acknowledged"
CHANGED = "notifications/tools/list_changed"


async def answer_call(turn: Turn) -> None:
    await turn.result(content=[])


async def test_a_stateless_request_carries_all_required_headers(serve, stateless):
    server = Scripted({"tools/call": answer_call})
    link = stateless(await serve(server))
    assert await link.request("tools/call", CALL, None, PATIENT) == DONE
    [turn] = server.turns
    assert turn.params["_meta"] == {
        META + "protocolVersion": MODERN,
        META + "clientInfo": {"name": "toolgate", "version": "1"},
        META + "clientCapabilities": {},
    }
    assert turn.header("mcp-protocol-version") == MODERN
    assert turn.header("mcp-method") == "tools/call"
    assert turn.header("mcp-name") == "x"
    assert turn.header("mcp-session-id") is None


async def test_headers_are_kept_for_short_names_alone(serve, stateless):
    server = Scripted({"resources/read": answer_call})
    link = stateless(await serve(server))
    for uri in ("pets:1", "pets:" + 2000 * "1", "pets:1"):
        await link.request("resources/read", {"uri": uri}, None, PATIENT)
        assert server.turns[-1].header("mcp-name") == uri
    assert [name for _, name in link._prepared._known] == ["pets:1"]


async def test_client_metadata_is_kept_except_the_revision(serve, stateless):
    server = Scripted({"tools/call": answer_call})
    link = stateless(await serve(server))
    meta = {
        META + "protocolVersion": "1999-01-01",
        META + "clientInfo": {"name": "client"},
        META + "clientCapabilities": {"sampling": {}},
        META + "logLevel": "debug",
        "traceparent": "00-1",
    }
    await link.request("tools/call", {**CALL, "_meta": meta}, None, PATIENT)
    assert server.turns[0].params["_meta"] == {**meta, META + "protocolVersion": MODERN}


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "a b"}, "a b"),
        (
            "prompts/get",
            {"name": "ü"},
            "=?base64?" + base64.b64encode("ü".encode()).decode() + "?=",
        ),
        ("resources/read", {"uri": "file:///x"}, "file:///x"),
        ("tasks/get", {"taskId": "t"}, "t"),
        ("tools/list", {"name": "x"}, None),
        ("tools/call", {}, None),
    ],
)
async def test_the_name_header_is_set_for_methods_with_a_name(
    serve, stateless, method, params, name
):
    server = Scripted({method: answer_call})
    await stateless(await serve(server)).request(method, params, None, PATIENT)
    assert server.turns[0].header("mcp-name") == name
    assert server.turns[0].header("mcp-method") == method


async def test_headers_of_arguments_go_along(serve, stateless):
    server = Scripted({"tools/call": answer_call})
    headers = {"Mcp-Param-Region": "eu", "Mcp-Method": "other"}
    await stateless(await serve(server)).request("tools/call", CALL, None, PATIENT, headers=headers)
    assert server.turns[0].header("mcp-param-region") == "eu"
    assert server.turns[0].seen.all("mcp-method") == ["tools/call"]


@pytest.mark.parametrize(
    ("status", "code"), [(400, -32021), (400, -32022), (404, -32601), (200, 5)]
)
async def test_errors_come_with_whatever_status(serve, stateless, status, code):
    async def fail(turn: Turn) -> None:
        await turn.say(status, failure(turn.id, code, "m", {"d": 1}))

    link = stateless(await serve(Scripted({"tools/call": fail})))
    with pytest.raises(RelayedFault) as caught:
        await link.request("tools/call", CALL, None, PATIENT)
    assert (caught.value.code, caught.value.data) == (code, {"d": 1})


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json", "application/x-ndjson"])
async def test_an_answer_in_pieces_is_heard_incrementally(serve, stateless, kind):
    """JSON on lines under application/json, too: the TypeScript SDK's example server."""

    async def play(turn: Turn) -> None:
        told = note("notifications/progress", progressToken=turn.id, progress=1)
        await turn.begin(kind)
        await turn.piece(lines(kind, told))
        await ears.until(1)
        await turn.piece(lines(kind, json.loads(reply(turn.id, content=[]))))
        await turn.end()

    def lines(kind: str, message: Any) -> bytes:
        return event(message) if "event" in kind else json.dumps(message).encode() + b"\n"

    link = stateless(await serve(Scripted({"tools/call": play})))
    ears = Ears()
    params = {**CALL, "_meta": {"progressToken": "t"}}
    with anyio.fail_after(30):
        assert await link.request("tools/call", params, ears, PATIENT) == DONE
    assert ears.heard == [("notifications/progress", {"progressToken": "t", "progress": 1})]


@pytest.mark.parametrize("gone", ["cancelled", "late"])
async def test_giving_a_request_up_closes_its_stream_and_says_nothing(serve, stateless, gone):
    left = asyncio.Event()

    async def play(turn: Turn) -> None:
        await turn.begin()
        await turn.wait_until_left()
        left.set()

    server = Scripted({"tools/call": play})
    link = stateless(await serve(server))
    timeout = PATIENT if gone == "cancelled" else Timeout(0.5, 5)
    calling = asyncio.create_task(link.request("tools/call", CALL, None, timeout))
    with anyio.fail_after(30):
        await server.wait_for_request("tools/call")
        if gone == "cancelled":
            calling.cancel()
        with pytest.raises((asyncio.CancelledError, UpstreamFailed)):
            await calling
        await left.wait()
    assert len(server.turns) == 1


async def test_a_server_must_not_ask_and_gets_no_answer(serve, stateless):
    async def play(turn: Turn) -> None:
        await turn.begin()
        await turn.event(question("q", "sampling/createMessage"))
        await turn.piece(event(reply(turn.id, content=[])))
        await turn.end()

    server = Scripted({"tools/call": play})
    ears = Ears()
    link = stateless(await serve(server))
    assert await link.request("tools/call", CALL, ears, PATIENT) == DONE
    assert ears.asked_for == []
    assert len(server.turns) == 1


async def test_a_stream_that_ends_early_is_a_failure_and_not_asked_for_again(serve, stateless):
    async def play(turn: Turn) -> None:
        await turn.begin()
        await turn.piece(b"id: 1\ndata:\n\n")
        await turn.end()

    server = Scripted({"tools/call": play})
    link = stateless(await serve(server))
    with pytest.raises(UpstreamFailed, match="closed the stream before it answered"):
        await link.request("tools/call", CALL, None, PATIENT)
    assert len(server.turns) == 1


def tells(*news: Any, ends: bool = False) -> Scripted:
    async def play(turn: Turn) -> None:
        await turn.begin()
        await turn.event(note(ACK, notifications=turn.params["notifications"]))
        for one in news:
            await turn.event(one)
        if ends:
            await turn.piece(event(reply(turn.id)))
            await turn.end()
        else:
            await turn.wait_until_left()

    return Scripted({"subscriptions/listen": play})


async def test_subscribed_notifications_are_heard_after_the_acknowledgement(serve, stateless):
    server = tells(note(CHANGED))
    link = stateless(await serve(server))
    ears = Ears()
    with anyio.fail_after(30):
        async with link.listen({"toolsListChanged": True}, ears) as over:
            assert ears.heard[0] == (ACK, {"notifications": {"toolsListChanged": True}})
            await ears.until(2)
            assert not over.done()
    assert ears.heard[1] == (CHANGED, {})
    [turn] = server.turns
    assert turn.params["notifications"] == {"toolsListChanged": True}
    assert turn.header("mcp-method") == "subscriptions/listen"


async def test_a_stream_of_notifications_ends_as_the_server_likes(serve, stateless):
    link = stateless(await serve(tells(note(CHANGED), ends=True)))
    with anyio.fail_after(30):
        async with link.listen({}, Ears()) as over:
            assert await over is None


async def test_a_stream_of_notifications_that_breaks_has_failed(serve, stateless):
    async def play(turn: Turn) -> None:
        await turn.begin()
        await turn.event(note(ACK))
        await turn.end()

    link = stateless(await serve(Scripted({"subscriptions/listen": play})))
    with anyio.fail_after(30):
        async with link.listen({}, Ears()) as over:
            with pytest.raises(UpstreamFailed, match="closed the stream of notifications"):
                await over


async def test_a_server_that_does_not_know_subscriptions_says_so(serve, stateless):
    link = stateless(await serve(Scripted()))
    with pytest.raises(RelayedFault, match="Method not found"):
        async with link.listen({}, Ears()):
            raise AssertionError


async def test_leaving_closes_the_stream_of_notifications(serve, stateless):
    left = asyncio.Event()

    async def play(turn: Turn) -> None:
        await turn.begin()
        await turn.event(note(ACK))
        await turn.wait_until_left()
        left.set()

    link = stateless(await serve(Scripted({"subscriptions/listen": play})))
    with anyio.fail_after(30):
        async with link.listen({}, Ears()):
            pass
        await left.wait()


async def test_more_may_be_told_in_the_long_run_than_one_answer_may_hold(serve, stateless):
    padded = note(CHANGED, _meta={"x": "y" * 1000})
    link = stateless(await serve(tells(*[padded] * 100)))
    ears = Ears()
    with anyio.fail_after(30):
        async with link.listen({}, ears):
            await ears.until(101)
