"""Sessions over streamable HTTP, 2025-03-26 to 2025-11-25."""

import asyncio
import json
from typing import Any

import anyio
import pytest
from msgspec import Raw

from gateway.context import Cancellation
from gateway.upstreams.http.source_pools import UpstreamFailed
from gateway.upstreams.mcp.link_and_handlers import SessionLost, Timeout
from gateway.upstreams.mcp.streamable_http_links import HttpLink
from schemas.errors import InvalidParams, RelayedFault
from tests.gateway.upstreams.mcp.conftest import HELLO, PATIENT, Ears, mcp_source
from tests.servers.mcp_wire import Scripted, Turn, event, failure, note, question, reply

pytestmark = pytest.mark.anyio

DONE = {"content": Raw(b"[]")}
CALL: dict[str, Any] = {"name": "x", "arguments": {}}


async def answer_empty(turn: Turn) -> None:
    await turn.result(content=[])


async def test_a_session_begins_with_a_handshake(serve, session):
    server = Scripted({"tools/call": answer_empty}, capabilities={"tools": {}})
    link = await session(await serve(server))
    first, second = server.turns
    assert first.params == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"sampling": {}},
        "clientInfo": {"name": "toolgate", "version": "1"},
    }
    assert first.header("mcp-session-id") is None
    assert first.header("mcp-protocol-version") is None
    assert second.message == {
        "jsonrpc": "2.0",
        "method": "notifications/initialized",
        "params": {},
    }
    assert second.header("mcp-session-id") == "s-1"
    assert link.alive
    assert link.capabilities == {"tools": {}}
    assert link.facts.server_info == {"name": "scripted", "version": "1"}
    assert link.facts.instructions == "Do as you are told."


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_requests_name_the_session_and_the_revision_that_was_agreed_on(
    serve, session, revision
):
    server = Scripted({"tools/call": answer_empty}, revision=revision)
    link = await session(await serve(server))
    assert link.revision.name == revision
    assert await link.request("tools/call", CALL, None, PATIENT) == DONE
    call = server.turns[-1]
    assert call.header("mcp-session-id") == "s-1"
    assert call.header("mcp-protocol-version") == revision
    assert call.header("accept") == "application/json, text/event-stream"


async def test_a_server_without_sessions_is_sent_none(serve, session):
    server = Scripted({"tools/call": answer_empty}, session=None)
    link = await session(await serve(server))
    await link.request("tools/call", CALL, None, PATIENT)
    await link.close()
    assert server.turns[-1].header("mcp-session-id") is None
    assert server.all("DELETE") == []


async def test_closing_ends_the_session_at_the_server(serve, session):
    server = Scripted()
    link = await session(await serve(server))
    await link.close()
    [end] = server.all("DELETE")
    assert end.header("mcp-session-id") == "s-1"
    assert not link.alive
    await link.close()
    assert len(server.all("DELETE")) == 1


async def test_a_revision_that_nobody_knows_is_refused_and_the_session_ended(serve, session):
    server = Scripted(revision="2031-01-01")
    with pytest.raises(UpstreamFailed, match="things wants the revision '2031-01-01'"):
        await session(await serve(server))
    assert len(server.all("DELETE")) == 1


async def test_ids_are_integers_that_count_up_and_answers_are_told_apart(serve, session):
    both = asyncio.Event()

    async def later(turn: Turn) -> None:
        if turn.params["name"] == "b":
            both.set()
        await both.wait()
        await turn.result(name=turn.params["name"])

    server = Scripted({"tools/call": later})
    link = await session(await serve(server))
    with anyio.fail_after(30):
        a, b = await asyncio.gather(
            link.request("tools/call", {"name": "a"}, None, PATIENT),
            link.request("tools/call", {"name": "b"}, None, PATIENT),
        )
    assert (a, b) == ({"name": Raw(b'"a"')}, {"name": Raw(b'"b"')})
    assert [turn.id for turn in server.all("tools/call")] == [2, 3]


@pytest.mark.parametrize("status", [200, 400, 404, 500])
async def test_errors_of_the_server_are_forwarded_unchanged(serve, connections, status):
    async def fail(turn: Turn) -> None:
        await turn.say(status, failure(turn.id, -32042, "look", {"a": [1]}))

    server = Scripted({"tools/call": fail}, session=None)  # else 404 is the end of a session
    pool = connections.of(mcp_source(await serve(server)))
    link = await HttpLink.open(pool, HELLO, Ears(), PATIENT)
    with pytest.raises(RelayedFault) as caught:
        await link.request("tools/call", CALL, None, PATIENT)
    fault = caught.value
    assert (fault.code, fault.message, fault.data) == (-32042, "look", {"a": [1]})
    await link.close()


@pytest.mark.parametrize("kind", ["text/event-stream", "text/event-stream; charset=utf-8"])
async def test_messages_before_the_answer_are_heard_in_order(serve, session, kind):
    async def play(turn: Turn) -> None:
        await turn.begin(kind)
        await turn.event(note("notifications/message", level="info", data=1))
        await turn.event(note("notifications/message", level="info", data=2))
        await turn.event(json.loads(reply(turn.id, content=[])))
        await turn.end()

    link = await session(await serve(Scripted({"tools/call": play})))
    ears = Ears()
    assert await link.request("tools/call", CALL, ears, PATIENT) == DONE
    assert [params["data"] for _, params in ears.heard] == [1, 2]


async def test_the_answer_does_not_wait_for_the_end_of_its_stream(serve, session):
    async def play(turn: Turn) -> None:
        await turn.begin()
        await turn.piece(event(reply(turn.id, content=[])))
        await turn.wait_until_left()

    link = await session(await serve(Scripted({"tools/call": play})))
    with anyio.fail_after(30):
        assert await link.request("tools/call", CALL, None, PATIENT) == DONE


async def test_messages_of_2025_03_26_may_come_as_an_array(serve, session):
    async def play(turn: Turn) -> None:
        one = note("notifications/message", level="info", data=1)
        await turn.say(200, json.dumps([one, json.loads(reply(turn.id, content=[]))]).encode())

    link = await session(await serve(Scripted({"tools/call": play}, revision="2025-03-26")))
    ears = Ears()
    assert await link.request("tools/call", CALL, ears, PATIENT) == DONE
    assert len(ears.heard) == 1


@pytest.mark.parametrize("token", ["t", 7, 0, 1.5])
async def test_a_progress_token_is_ours_on_the_wire_and_the_callers_own_again(
    serve, session, token
):
    async def play(turn: Turn) -> None:
        own = turn.params["_meta"]["progressToken"]
        await turn.begin()
        for told in (own, "foreign", own + 1, True, None, own):
            await turn.event(note("notifications/progress", progressToken=told, progress=1))
        await turn.piece(event(reply(turn.id, content=[])))
        await turn.end()

    server = Scripted({"tools/call": play})
    link = await session(await serve(server))
    ears = Ears()
    params = {**CALL, "_meta": {"progressToken": token, "other": 1}}
    await link.request("tools/call", params, ears, PATIENT)
    sent = server.turns[-1]
    assert sent.params["_meta"] == {"progressToken": sent.id, "other": 1}
    assert [params["progressToken"] for _, params in ears.heard] == [token, token]
    assert params["_meta"] == {"progressToken": token, "other": 1}  # ours to read only


async def test_unrequested_progress_is_dropped(serve, session):
    async def play(turn: Turn) -> None:
        await turn.begin()
        await turn.event(note("notifications/progress", progressToken=turn.id, progress=1))
        await turn.piece(event(reply(turn.id, content=[])))
        await turn.end()

    link = await session(await serve(Scripted({"tools/call": play})))
    ears = Ears()
    await link.request("tools/call", CALL, ears, PATIENT)
    assert ears.heard == []


async def ask(turn: Turn, server: Scripted, method: str = "sampling/createMessage") -> Any:
    """Ask in the middle of a call; give what came back as its result."""
    await turn.begin()
    await turn.event(question("q-1", method, n=1))
    answer = await server.wait_for_request("answer")
    await turn.piece(event(reply(turn.id, got=answer.message)))
    await turn.end()


async def test_the_server_asks_in_the_middle_of_a_call(serve, session):
    server = Scripted()
    server.plays = {"tools/call": lambda turn: ask(turn, server)}
    link = await session(await serve(server))

    async def answer(method: str, params: Any) -> Any:
        return {"method": method, **params}

    ears = Ears(answer=answer)
    with anyio.fail_after(30):
        members = await link.request("tools/call", CALL, ears, PATIENT)
    assert json.loads(bytes(members["got"])) == {
        "jsonrpc": "2.0",
        "id": "q-1",
        "result": {"method": "sampling/createMessage", "n": 1},
    }
    assert server.all("answer")[0].header("mcp-session-id") == "s-1"


async def test_refusals_of_the_client_are_errors_to_the_server(serve, session):
    server = Scripted()
    server.plays = {"tools/call": lambda turn: ask(turn, server)}
    link = await session(await serve(server))

    async def answer(method: str, params: Any) -> Any:
        raise InvalidParams("not so", {"why": 1})

    with anyio.fail_after(30):
        members = await link.request("tools/call", CALL, Ears(answer=answer), PATIENT)
    error = {"code": -32602, "message": "not so", "data": {"why": 1}}
    assert json.loads(bytes(members["got"]))["error"] == error


async def test_a_crash_of_ours_is_an_error_to_the_server_that_tells_nothing(serve, session, caplog):
    server = Scripted()
    server.plays = {"tools/call": lambda turn: ask(turn, server)}
    link = await session(await serve(server))

    async def answer(method: str, params: Any) -> Any:
        raise RuntimeError("secret")

    with anyio.fail_after(30):
        members = await link.request("tools/call", CALL, Ears(answer=answer), PATIENT)
    assert json.loads(bytes(members["got"]))["error"]["code"] == -32603
    assert b"secret" not in bytes(members["got"])
    assert any(record.message == "mcp_request_failed" for record in caplog.records)


async def test_a_ping_is_answered_without_asking_anybody(serve, session):
    server = Scripted()
    server.plays = {"tools/call": lambda turn: ask(turn, server, "ping")}
    link = await session(await serve(server))
    with anyio.fail_after(30):
        members = await link.request("tools/call", CALL, None, PATIENT)
    assert json.loads(bytes(members["got"]))["result"] == {}


async def test_a_question_that_is_withdrawn_is_asked_no_more(serve, session):
    dropped = asyncio.Event()

    async def play(turn: Turn) -> None:
        await turn.begin()
        await turn.event(question(5, "elicitation/create"))
        await ears.until(1)
        await turn.event(note("notifications/cancelled", requestId=5))
        await dropped.wait()
        await turn.piece(event(reply(turn.id, content=[])))
        await turn.end()

    async def answer(method: str, params: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            dropped.set()

    server = Scripted({"tools/call": play})
    link = await session(await serve(server))
    ears = Ears(answer=answer)
    with anyio.fail_after(30):
        assert await link.request("tools/call", CALL, ears, PATIENT) == DONE
    assert server.all("answer") == []


async def test_too_many_questions_within_one_call_are_refused(serve, session):
    async def play(turn: Turn) -> None:
        await turn.begin()
        for number in range(100):
            await turn.event(question(number, "sampling/createMessage"))
        await server.wait_for_request("answer", 4)
        await turn.piece(event(reply(turn.id, content=[])))
        await turn.end()

    async def answer(method: str, params: Any) -> Any:
        return {}

    server = Scripted({"tools/call": play})
    link = await session(await serve(server))
    ears = Ears(answer=answer)
    with anyio.fail_after(30):
        await link.request("tools/call", CALL, ears, PATIENT)
    assert len(ears.asked_for) == 3  # upstream.mcp_client_requests
    assert len(server.all("answer")) < 30


async def test_a_question_needs_no_connection_that_a_call_could_have(serve, session):
    """All connections are taken by calls that wait for an answer of ours."""
    waiting: list[Turn] = []

    async def play(turn: Turn) -> None:
        waiting.append(turn)
        await turn.begin()
        if len(waiting) == 10:  # upstream.connections
            for one in waiting:
                await one.event(question(one.id, "sampling/createMessage"))
        answer = await server.wait_for_request("answer", len(waiting))
        assert answer is not None
        await turn.piece(event(reply(turn.id, content=[])))
        await turn.end()

    async def answer(method: str, params: Any) -> Any:
        return {}

    server = Scripted({"tools/call": play})
    link = await session(await serve(server))
    with anyio.fail_after(30):
        calls = [link.request("tools/call", CALL, Ears(answer=answer), PATIENT) for _ in range(10)]
        assert await asyncio.gather(*calls) == [DONE] * 10


@pytest.mark.parametrize("reason", ["", "The user left"])
async def test_a_cancelled_call_is_cancelled_at_the_server_by_its_id(serve, session, reason):
    """A server is told the reason that the client gave (mending 22)."""

    async def play(turn: Turn) -> None:
        await turn.begin()
        await turn.wait_until_left()

    server = Scripted({"tools/call": play})
    link = await session(await serve(server))
    calling = asyncio.create_task(link.request("tools/call", CALL, None, PATIENT))
    with anyio.fail_after(30):
        call = await server.wait_for_request("tools/call")
        calling.cancel(Cancellation(reason))
        with pytest.raises(asyncio.CancelledError):
            await calling
        cancelled = await server.wait_for_request("notifications/cancelled")
    assert cancelled.params == {"requestId": call.id, **({"reason": reason} if reason else {})}
    assert link.alive


async def test_an_initialize_that_is_given_up_is_not_cancelled(serve, connections):
    async def play(turn: Turn) -> None:
        await turn.wait_until_left()

    server = Scripted({"initialize": play})
    pool = connections.of(mcp_source(await serve(server)))
    opening = asyncio.create_task(HttpLink.open(pool, HELLO, Ears(), PATIENT))
    with anyio.fail_after(30):
        await server.wait_for_request("initialize")
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
    assert server.all("notifications/cancelled") == []
    assert pool.unheld.is_set()


@pytest.mark.parametrize("timeout", [Timeout(0.05, 5), Timeout(5, 0.05)])
async def test_a_call_that_takes_too_long_is_given_up_and_cancelled(serve, session, timeout):
    async def play(turn: Turn) -> None:
        await turn.wait_until_left()

    server = Scripted({"tools/call": play})
    link = await session(await serve(server))
    with pytest.raises(UpstreamFailed, match=r"^things did not answer within 0\.05 s$") as caught:
        await link.request("tools/call", CALL, None, timeout)
    assert caught.value.late
    with anyio.fail_after(30):
        await server.wait_for_request("notifications/cancelled")


async def test_signs_of_life_prolong_a_call_and_its_end_is_fixed(serve, session, clock):
    async def play(turn: Turn) -> None:
        await turn.begin()
        while True:
            await turn.piece(b": still here\n\n")
            clock.advance(1)
            await asyncio.sleep(0.01)

    link = await session(await serve(Scripted({"tools/call": play})))
    with pytest.raises(UpstreamFailed, match="within 10 s"):
        await link.request("tools/call", CALL, None, Timeout(3, 10))


async def test_the_time_that_our_answer_takes_is_not_the_server_s(serve, session, clock):
    server = Scripted()
    server.plays = {"tools/call": lambda turn: ask(turn, server)}
    link = await session(await serve(server))

    async def answer(method: str, params: Any) -> Any:
        clock.advance(4)
        await asyncio.sleep(0.01)
        return {}

    members = await link.request("tools/call", CALL, Ears(answer=answer), Timeout(3, 60))
    assert json.loads(bytes(members["got"]))["result"] == {}


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b""),
        (404, failure(None, -32001, "Session not found")),
        (400, failure(None, -32000, "Bad Request: No valid session ID provided")),
    ],
)
async def test_a_session_that_the_server_has_forgotten_is_lost(serve, session, status, body):
    async def play(turn: Turn) -> None:
        await turn.say(status, body)

    server = Scripted({"tools/call": play})
    link = await session(await serve(server))
    with pytest.raises(SessionLost) as caught:
        await link.request("tools/call", CALL, None, PATIENT)
    assert not caught.value.sent  # so that it can be sent again in another session
    assert not link.alive
    assert link._endpoint.pool.unheld.is_set()  # whether or not anybody closes it
    await link.close()
    assert server.all("DELETE") == []
    assert server.all("notifications/cancelled") == []


async def test_nothing_is_sent_in_a_session_that_is_over(serve, session):
    server = Scripted({"tools/call": answer_empty})
    link = await session(await serve(server))
    await link.close()
    with pytest.raises(SessionLost) as caught:
        await link.request("tools/call", CALL, None, PATIENT)
    assert not caught.value.sent
    assert server.all("tools/call") == []


async def test_a_client_that_is_slow_to_hear_does_not_make_the_server_late(serve, session, clock):
    async def play(turn: Turn) -> None:
        await turn.begin()
        await turn.event(note("notifications/message", level="info", data=1))
        await slow.until(1)
        await turn.piece(event(reply(turn.id, content=[])))
        await turn.end()

    class Slow(Ears):
        async def on_notification(self, method: str, params: dict[str, Any]) -> None:
            clock.advance(4)
            await asyncio.sleep(0.01)
            await super().on_notification(method, params)

    slow = Slow()
    link = await session(await serve(Scripted({"tools/call": play})))
    assert await link.request("tools/call", CALL, slow, Timeout(3, 60)) == DONE


async def test_a_notification_is_posted(serve, session):
    server = Scripted()
    link = await session(await serve(server))
    await link.notify("notifications/roots/list_changed", {})
    assert server.turns[-1].message["method"] == "notifications/roots/list_changed"


async def test_headers_of_the_caller_go_along_but_the_session_is_ours_to_name(serve, session):
    server = Scripted({"tools/call": answer_empty})
    link = await session(await serve(server))
    headers = {"X-A": "1", "Mcp-Session-Id": "other"}
    await link.request("tools/call", CALL, None, PATIENT, headers=headers)
    assert server.turns[-1].header("x-a") == "1"
    assert server.turns[-1].seen.all("mcp-session-id") == ["s-1"]
