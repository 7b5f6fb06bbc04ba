"""The chat with the agent: conversations, their messages and calls of tools, approvals, and the
answer as it comes. Without JavaScript a page is read again."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from starlette.responses import Response

from gateway.console.page_request import PageRequest, as_json
from gateway.console.routes import PageRoute
from gateway.protocol import sse_writer
from gateway.wings.event_stream_responses import last_event_number, stream_events

ASK, SEND, RUN = "agent_ask", "agent_send", "agent_get_run"
CONVERSATIONS = "agent_list_conversations"
WING = "agent"
TITLE = 60  # characters of a first message that name its conversation
CHUNK = "ResponseChunk"
TERMINAL = frozenset({"Completed", "Error"})
OPEN = frozenset({"queued", "running", "waiting"})


class _Reached(Struct):
    name: str


async def list_page(visit: PageRequest) -> Response:
    """The conversations, and a first message of a new one."""
    if visit.request.method == "POST":
        return await _begin_conversation(visit)
    return await _page(visit)


async def conversation_page(visit: PageRequest) -> Response:
    """A conversation; by POST with one more message."""
    id_ = visit.path("conversation")
    if visit.request.method == "POST":
        body = {"content": visit.posted_value("message"), "wait": False, "stream": True}
        answer = await visit.operations.run(SEND, {"conversation": id_}, body=body)
        if not answer.ok:
            return await _page(visit, id_, problem=answer.problem, status=answer.status)
        return visit.to("chat", id_)
    return await _page(visit, id_)


async def events(visit: PageRequest) -> Response:
    """The events of a run: words as they come, and what makes the messages worth reading again."""
    id_ = visit.path("run")
    answer = await visit.operations.run(RUN, {"run": id_})
    if not answer.ok:
        return visit.problem_page(answer)
    events = _stream_events(visit, id_, last_event_number(visit.request))
    return stream_events(events, visit.parts.settings().agent.keep_alive_s)


async def _stream_events(visit: PageRequest, run: str, after: int) -> AsyncIterator[bytes]:
    async for event in visit.operations.follow(WING, run, after):
        kind, data = "change", {"type": event.type}
        if event.type == CHUNK:
            kind, data = "words", {"text": event.data.get("text", "")}
        elif event.type in TERMINAL:
            kind = "end"
        yield sse_writer.event(msgspec.json.encode(data), kind.encode(), str(event.number))


async def _begin_conversation(visit: PageRequest) -> Response:
    message = visit.posted_value("message")
    title = " ".join(message.split())[:TITLE]
    strategy = visit.posted_value("strategy")
    creation = await visit.operations.run(
        "agent_create_conversation", body={"title": title, "strategy": strategy}
    )
    if not creation.ok:
        return await _page(visit, problem=creation.problem, status=creation.status)
    id_ = creation.value["id"]
    body = {"content": message, "wait": False, "stream": True}
    answer = await visit.operations.run(SEND, {"conversation": id_}, body=body)
    if not answer.ok:
        await visit.operations.run("agent_delete_conversation", {"conversation": id_})
        return await _page(visit, problem=answer.problem, status=answer.status)
    return visit.to("chat", id_)


async def _page(
    visit: PageRequest, id_: str = "", *, problem: str = "", status: int = 200
) -> Response:
    conversation, run = None, None
    if id_:
        query = {"before": visit.query.get("before", "")}
        answer = await visit.operations.run(
            "agent_get_conversation", {"conversation": id_}, query=query
        )
        if not answer.ok:
            return visit.problem_page(answer)
        conversation = answer.value
        run = await _run(visit, conversation)
    if visit.query.get("format") == "json" and conversation is not None:
        return as_json(conversation)
    values = {"id": id_, "conversation": conversation, "run": run, "reached": _forwarded_tool}
    if visit.query.get("part") == "messages":
        return visit.page("chat_messages.html", **values)
    if visit.operations.operation(CONVERSATIONS) is None:
        return visit.problem(404)
    search_answer = await visit.operations.run(
        CONVERSATIONS, query={"before": visit.query.get("older", "")}
    )
    health = await visit.operations.run("agent_health")
    return visit.page(
        "chat.html",
        status,
        **values,
        conversations=search_answer.value["conversations"] if search_answer.ok else (),
        health=health.value if health.ok else None,
        message=visit.posted_value("message"),
        problem=problem or search_answer.problem,
        may_send=visit.operations.may(SEND),
        scope=send.scope if (send := visit.operations.operation(SEND)) else "",
    )


async def _run(visit: PageRequest, conversation: Any) -> dict[str, Any] | None:
    """The run that has not ended, with the calls that wait for the decision of a person; else the
    newest one, if it did not succeed."""
    id_ = conversation.get("run") or conversation.get("last_run", "")
    answer = await visit.operations.run(RUN, {"run": id_}) if id_ else None
    if answer is None or not answer.ok:
        return None
    run = answer.value
    waiting = []
    for name in run.get("approvals", ()) if visit.operations.may("getApproval") else ():
        approval = await visit.operations.run("getApproval", {"approval": name})
        if approval.ok and approval.value["state"] == "waiting":
            waiting.append(approval.value)
    return {**run, "is_open": run["state"] in OPEN, "asked": waiting}


def _forwarded_tool(call: Mapping[str, Any]) -> str:
    """The tool that a call reaches through `call_tool`; "" for any other call."""
    if call["tool"] != "call_tool":
        return ""
    try:
        return msgspec.json.decode(call["arguments"], type=_Reached).name
    except msgspec.MsgspecError:  # as models write them
        return ""


ROUTES = (
    PageRoute("/chat", list_page, ("GET", "POST")),
    PageRoute("/chat/events/{run}", events),
    PageRoute("/chat/{conversation}", conversation_page, ("GET", "POST")),
)
