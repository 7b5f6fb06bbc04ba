"""Streams of a session that are taken up again, and the one beside all requests."""

import asyncio
import json
from typing import Any

import anyio
import pytest
from msgspec import Raw

from gateway.upstreams.http.source_pools import UpstreamFailed
from gateway.upstreams.mcp.link_and_handlers import SessionLost, Timeout
from tests.gateway.upstreams.mcp.conftest import PATIENT, Ears
from tests.servers.mcp_wire import Scripted, Turn, event, failure, note, question, reply

pytestmark = pytest.mark.anyio

DONE = {"content": Raw(b"[]")}
CALL: dict[str, Any] = {"name": "x", "arguments": {}}
CHANGED = "notifications/tools/list_changed"


def polling_server(*rounds: bytes, retry: bytes = b"retry: 1\n\n") -> Scripted:
    """A server that closes the stream of a call after its beginning, and goes on in GETs."""
    server = Scripted()

    async def begin(turn: Turn) -> None:
        await turn.begin()
        await turn.piece(b"id: 1\ndata:\n\n" + retry)
        await turn.end()

    async def more(turn: Turn) -> None:
        await turn.begin()
        count = len(server.all("GET"))
        await turn.piece(rounds[min(count, len(rounds)) - 1])
        await turn.end()

    server.plays = {"tools/call": begin, "GET": more}
    return server


async def test_a_stream_that_ends_after_an_id_is_taken_up_again(serve, session):
    server = polling_server(
        b"id: 2\ndata:\n\n",
        event(note("notifications/message", level="info", data=1), "3") + event(reply(2), "4"),
    )
    link = await session(await serve(server))
    ears = Ears()
    with anyio.fail_after(30):
        assert await link.request("tools/call", CALL, ears, PATIENT) == {}
    assert [turn.header("last-event-id") for turn in server.all("GET")] == ["1", "2"]
    again = server.all("GET")[0]
    assert again.header("mcp-session-id") == "s-1"
    assert again.header("accept") == "text/event-stream"
    assert len(ears.heard) == 1


async def test_the_pause_that_the_server_wants_does_not_count_as_silence(serve, session, clock):
    link = await session(await serve(polling_server(event(reply(2)), retry=b"retry: 20000\n\n")))
    calling = asyncio.create_task(link.request("tools/call", CALL, None, Timeout(10, 600)))
    while not calling.done():
        clock.advance(0.5)
        await asyncio.sleep(0.01)
    assert await calling == {}


async def test_a_stream_that_has_nothing_new_is_asked_for_less_and_less(serve, session):
    server = polling_server(b": nothing\n\n")
    link = await session(await serve(server))
    with pytest.raises(UpstreamFailed, match="did not answer"):
        await link.request("tools/call", CALL, None, Timeout(5, 0.3))
    assert len(server.all("GET")) < 10  # and not 300


async def test_a_stream_that_breaks_after_an_id_is_taken_up_again(serve, session):
    server = polling_server(event(reply(2)))

    async def breaks(turn: Turn) -> None:
        await turn.begin()
        await turn.piece(b"id: 1\nretry: 1\ndata:\n\n")
        raise ConnectionResetError

    server.plays = {**server.plays, "tools/call": breaks}
    link = await session(await serve(server))
    with anyio.fail_after(30):
        assert await link.request("tools/call", CALL, None, PATIENT) == {}


async def test_a_stream_that_ends_without_an_id_has_failed(serve, session):
    async def play(turn: Turn) -> None:
        await turn.begin()
        await turn.event(note("notifications/message", level="info", data=1))
        await turn.end()

    link = await session(await serve(Scripted({"tools/call": play})))
    with pytest.raises(UpstreamFailed, match=r"^things closed the stream before it answered$"):
        await link.request("tools/call", CALL, None, PATIENT)


async def test_a_session_that_is_gone_when_its_stream_is_taken_up_may_have_done_the_call(
    serve, session
):
    async def answer_gone(turn: Turn) -> None:
        await turn.say(404)

    server = polling_server()
    server.plays = {**server.plays, "GET": answer_gone}
    link = await session(await serve(server))
    with pytest.raises(SessionLost) as caught:
        await link.request("tools/call", CALL, None, PATIENT)
    assert caught.value.sent


async def test_nothing_is_listened_to_unless_that_is_wanted(serve, session):
    server = Scripted({"tools/call": lambda turn: turn.result(content=[])})
    link = await session(await serve(server))
    await link.request("tools/call", CALL, None, PATIENT)
    assert server.all("GET") == []


async def test_unattributed_messages_are_heard_in_the_background(serve, session):
    async def serve_stream(turn: Turn) -> None:
        await turn.begin()
        await turn.event(note(CHANGED))
        await turn.event(question("q", "roots/list"))
        await turn.wait_until_left()

    async def answer(method: str, params: Any) -> Any:
        return {"roots": []}

    server = Scripted({"GET": serve_stream})
    ears = Ears(answer=answer)
    await session(await serve(server), ears, listen=True)
    with anyio.fail_after(30):
        answered = await server.wait_for_request("answer")
    assert ears.heard == [(CHANGED, {})]
    assert answered.message == {"jsonrpc": "2.0", "id": "q", "result": {"roots": []}}
    assert server.all("GET")[0].header("mcp-session-id") == "s-1"


async def test_a_crash_in_the_background_does_not_end_the_hearing(serve, session, caplog):
    async def serve_stream(turn: Turn) -> None:
        await turn.begin()
        await turn.event(note("notifications/one"))
        await turn.event(note("notifications/two"))
        await turn.wait_until_left()

    class Clumsy(Ears):
        async def on_notification(self, method: str, params: dict[str, Any]) -> None:
            await super().on_notification(method, params)
            raise RuntimeError

    ears = Clumsy()
    await session(await serve(Scripted({"GET": serve_stream})), ears, listen=True)
    with anyio.fail_after(30):
        await ears.until(2)
    assert any(record.message == "mcp_background_failed" for record in caplog.records)


async def test_a_session_that_is_lost_is_listened_to_no_more(serve, session):
    left = asyncio.Event()

    async def serve_stream(turn: Turn) -> None:
        await turn.begin()
        await turn.wait_until_left()
        left.set()

    async def answer_gone(turn: Turn) -> None:
        await turn.say(404)

    server = Scripted({"GET": serve_stream, "tools/call": answer_gone})
    link = await session(await serve(server), listen=True)
    with anyio.fail_after(30):
        await server.wait_for_request("GET")
        with pytest.raises(SessionLost):
            await link.request("tools/call", CALL, None, PATIENT)
        await left.wait()


async def test_progress_finds_its_call_on_any_stream(serve, session):
    streams: list[Turn] = []

    async def serve_stream(turn: Turn) -> None:
        streams.append(turn)
        await turn.begin()
        await turn.wait_until_left()

    async def play(turn: Turn) -> None:
        await server.wait_for_request("GET")
        token = turn.params["_meta"]["progressToken"]
        await streams[0].event(note("notifications/progress", progressToken=token, progress=1))
        await ears.until(1)
        await turn.result(content=[])

    server = Scripted({"GET": serve_stream, "tools/call": play})
    link = await session(await serve(server), listen=True)
    ears = Ears()
    with anyio.fail_after(30):
        await link.request("tools/call", {**CALL, "_meta": {"progressToken": "t"}}, ears, PATIENT)
    assert ears.heard == [("notifications/progress", {"progressToken": "t", "progress": 1})]


@pytest.mark.parametrize("calls", [1, 2])
async def test_questions_beside_the_calls_count_for_the_calls(serve, session, calls):
    """One question after the other, each when the one before has been answered."""
    asking = asyncio.Event()

    async def serve_stream(turn: Turn) -> None:
        await turn.begin()
        await asking.wait()
        for number in range(10):
            await turn.event(question(f"p{number}", "ping"))
            await turn.event(question(number, "sampling/createMessage"))
            await server.wait_for_request("answer", 2 * number + 2)
        over.set()
        await turn.wait_until_left()

    async def play(turn: Turn) -> None:
        if len(server.all("tools/call")) == calls:
            asking.set()
        await over.wait()
        await turn.result()

    async def answer(method: str, params: Any) -> Any:
        return {}

    over = asyncio.Event()
    server = Scripted({"GET": serve_stream, "tools/call": play})
    background = Ears(answer=answer)
    link = await session(await serve(server), background, listen=True)
    with anyio.fail_after(30):
        for _ in range(2):
            await asyncio.gather(
                *(link.request("tools/call", CALL, Ears(), PATIENT) for _ in range(calls))
            )
    assert len(background.asked_for) == 3 * calls  # upstream.mcp_client_requests
    refused = [turn for turn in server.all("answer") if "error" in turn.message]
    assert len(refused) == 10 - 3 * calls


async def test_beside_no_call_only_so_much_is_asked(serve, session):
    async def serve_stream(turn: Turn) -> None:
        await turn.begin()
        for number in range(10):
            await turn.event(question(number, "roots/list"))
            await server.wait_for_request("answer", number + 1)
        over.set()
        await turn.wait_until_left()

    async def answer(method: str, params: Any) -> Any:
        return {}

    over = asyncio.Event()
    server = Scripted({"GET": serve_stream})
    background = Ears(answer=answer)
    await session(await serve(server), background, listen=True)
    with anyio.fail_after(30):
        await over.wait()
    assert len(background.asked_for) == 3


async def test_while_we_are_asked_in_the_background_no_call_is_given_up(serve, session, clock):
    async def serve_stream(turn: Turn) -> None:
        await turn.begin()
        await server.wait_for_request("tools/call")
        await turn.event(question("q", "roots/list"))
        await turn.wait_until_left()

    async def play(turn: Turn) -> None:
        await server.wait_for_request("answer")
        await turn.result(content=[])

    async def answer(method: str, params: Any) -> Any:
        clock.advance(4)
        await asyncio.sleep(0.01)
        return {}

    server = Scripted({"GET": serve_stream, "tools/call": play})
    link = await session(await serve(server), Ears(answer=answer), listen=True)
    assert await link.request("tools/call", CALL, None, Timeout(3, 60)) == DONE


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (405, b""),
        (404, b"404 page not found"),
        (404, b'{"detail": "Not Found"}'),
        (404, failure(None, -32601, "Method not found")),
        (400, failure(None, -32000, "Bad Request: no session on GET")),
        (400, b""),
    ],
)
async def test_a_refused_get_ends_the_listening_and_not_the_session(serve, session, status, body):
    """A GET that was never answered says nothing of the session (mending 12)."""

    async def refuse(turn: Turn) -> None:
        await turn.say(status, body)

    server = Scripted({"GET": refuse, "tools/call": lambda turn: turn.result(content=[])})
    link = await session(await serve(server), listen=True)
    with anyio.fail_after(30):
        await server.wait_for_request("GET")
        assert link._listening is not None
        await link._listening
        assert await link.request("tools/call", CALL, None, PATIENT) == DONE
    assert link.alive
    assert not link.receives_messages
    assert len(server.all("GET")) == 1


async def test_a_stream_that_was_open_and_is_unknown_later_ends_the_session(serve, session):
    """A server that has answered a GET has a route for it, so its 404 is about the session."""

    async def serve_stream(turn: Turn) -> None:
        if len(server.all("GET")) > 1:
            await turn.say(404)
        else:
            await turn.begin()
            await turn.piece(b"retry: 1\n\n")
            await turn.end()

    server = Scripted({"GET": serve_stream})
    link = await session(await serve(server), listen=True)
    with anyio.fail_after(30):
        await server.wait_for_request("GET", 2)
        assert link._listening is not None
        await asyncio.gather(link._listening, return_exceptions=True)
    assert not link.alive


async def test_a_lost_stream_is_resumed_at_its_end(serve, session):
    async def serve_stream(turn: Turn) -> None:
        await turn.begin()
        if len(server.all("GET")) == 1:
            await turn.piece(b"retry: 1\n\n" + event(note(CHANGED), "7"))
            await turn.end()
        else:
            await turn.wait_until_left()

    server = Scripted({"GET": serve_stream})
    await session(await serve(server), listen=True)
    with anyio.fail_after(30):
        again = await server.wait_for_request("GET", 2)
    assert again.header("last-event-id") == "7"


async def test_after_a_gap_every_list_may_have_changed(serve, session):
    async def serve_stream(turn: Turn) -> None:
        await turn.begin()
        if len(server.all("GET")) == 1:
            await turn.piece(b"retry: 1\n\n")
            await turn.end()
        else:
            await turn.wait_until_left()

    capabilities = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}}
    server = Scripted({"GET": serve_stream}, capabilities=capabilities)
    ears = Ears()
    await session(await serve(server), ears, listen=True)
    with anyio.fail_after(30):
        await ears.until(1)
    assert ears.heard == [(CHANGED, {})]


@pytest.mark.parametrize("lead", [b"", b"\r\n "])
async def test_json_that_is_labelled_as_events_is_read(serve, session, lead):
    """JSON in a body labelled as an event stream is the answer (mending 22)."""

    async def play(turn: Turn) -> None:
        answer = json.dumps(json.loads(reply(turn.id, content=[])), indent=1).encode()
        await turn.begin()
        await turn.piece(lead + answer[:20])
        await turn.piece(answer[20:])
        await turn.end()

    link = await session(await serve(Scripted({"tools/call": play})))
    with anyio.fail_after(30):
        assert await link.request("tools/call", CALL, None, PATIENT) == DONE


async def test_notifications_before_json_that_is_labelled_as_events(serve, session):
    """An array under the label of events has messages and the answer (mending 22)."""

    async def play(turn: Turn) -> None:
        told = note("notifications/message", level="info", data=1)
        body = json.dumps([told, json.loads(reply(turn.id, content=[]))])
        await turn.say(200, body.encode(), "text/event-stream")

    ears = Ears()
    link = await session(await serve(Scripted({"tools/call": play})))
    with anyio.fail_after(30):
        assert await link.request("tools/call", CALL, ears, PATIENT) == DONE
    assert len(ears.heard) == 1


async def test_cut_json_that_is_labelled_as_events_is_no_answer(serve, session):
    """JSON that ends early under the label of events fails as JSON does (mending 22)."""

    async def play(turn: Turn) -> None:
        await turn.say(200, reply(turn.id, content=[])[:-1], "text/event-stream")

    link = await session(await serve(Scripted({"tools/call": play})))
    with anyio.fail_after(30), pytest.raises(UpstreamFailed):
        await link.request("tools/call", CALL, None, PATIENT)
