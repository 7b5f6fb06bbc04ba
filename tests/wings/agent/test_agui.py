"""AG-UI events, judged by the protocol's own types."""

from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

import anyio
import pytest
from ag_ui.core import Event
from pydantic import TypeAdapter

from gateway.context import Context, Identity, Principal
from gateway.wings.agent import agui
from registry.database.postgres import borrow
from schemas.errors import Unavailable
from schemas.mcp.revisions import V2025_11_25
from tests.fixtures_database import HOST
from tests.servers.provider import chat, failing
from tests.wings.agent.rig import Rig
from tests.wings.agent.test_rights import call_agent
from tests.wings.agent.test_streams import STREAM
from tests.wings.agent.test_takeover import DELETE, GET, approvals

pytestmark = pytest.mark.anyio

JUDGE: TypeAdapter[Any] = TypeAdapter(Event)


async def post_run(rig: Rig, thread: str, **body: Any) -> list[Any]:
    """The events of a request, each valid."""
    asked = {
        "threadId": thread, "runId": "r1", "state": {}, "tools": [], "context": [],
        "forwardedProps": {}, "messages": [{"id": "1", "role": "user", "content": "Which pet?"}],
        **body,
    }  # fmt: skip
    url = f"{rig.client.url}/agent/v1/agui"
    with anyio.fail_after(60):
        async with rig.client.http.post(url, json=asked, headers=STREAM) as response:
            assert response.status == 200, await response.text()
            lines = [line.decode().strip() async for line in response.content]
    return [
        JUDGE.validate_json(line.removeprefix("data: "))
        for line in lines
        if line.startswith("data: ")
    ]


async def test_a_run_is_told_in_valid_events(rig: Rig) -> None:
    rig.script(chat("Let me see.", [GET]), chat("A cat."))
    events = await post_run(rig, str(uuid4()))
    assert [one.type.value for one in events] == [
        "RUN_STARTED", "STEP_STARTED",
        "TEXT_MESSAGE_START", *["TEXT_MESSAGE_CONTENT"] * 3, "TEXT_MESSAGE_END",
        "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT",
        "STEP_FINISHED", "STEP_STARTED",
        "TEXT_MESSAGE_START", *["TEXT_MESSAGE_CONTENT"] * 2, "TEXT_MESSAGE_END",
        "STEP_FINISHED", "RUN_FINISHED",
    ]  # fmt: skip
    assert events[-1].outcome.type == "success"


async def test_a_thread_is_a_conversation(rig: Rig) -> None:
    thread = str(uuid4())
    rig.script(chat("One."), chat("Two."))
    await post_run(rig, thread)
    await post_run(rig, thread)
    assert "One." in [one["content"] for one in rig.sent_messages(1)]


async def test_an_interrupt_is_resumed(rig: Rig) -> None:
    thread = str(uuid4())
    rig.script(chat("I remove it.", [DELETE]), chat("Done."))
    events = await post_run(rig, thread)
    outcome = events[-1].outcome
    assert outcome.type == "interrupt"
    [interrupt] = outcome.interrupts
    assert (interrupt.reason, interrupt.tool_call_id) == ("tool_call", "d1")
    state, messages = events[-3:-1]
    assert state.snapshot == {"state": "waiting", "interrupts": [interrupt.id]}
    assert [one.role for one in messages.messages] == ["user", "assistant"]
    assert messages.messages[0].content == "Which pet?"
    [call] = messages.messages[1].tool_calls
    assert (call.id, call.function.name) == ("d1", "deletePet")
    denied = {"interruptId": interrupt.id, "status": "resolved", "payload": {"approved": False}}
    resumed = await post_run(rig, thread, resume=[denied])
    types = [one.type.value for one in resumed]
    assert types[-1] == "RUN_FINISHED"
    assert "TOOL_CALL_START" not in types
    assert "".join(one.delta for one in resumed if hasattr(one, "delta")) == "Done."
    again = await post_run(rig, thread, resume=[denied])
    assert again[-1].outcome.type == "success"
    assert rig.service_calls == []


async def test_an_answer_after_the_approval_of_another_person_is_told(rig: Rig) -> None:
    """The run had ended before its client resumed it (mending 30)."""
    thread = str(uuid4())
    rig.script(chat("I remove it.", [DELETE]), chat("It is gone."))
    [interrupt] = (await post_run(rig, thread))[-1].outcome.interrupts
    assert await approvals(rig).decide(interrupt.id, True, "ops") is not None
    _, found = await rig.get("/runs")
    await rig.until(found["runs"][0]["run"], "completed")
    approved = {"interruptId": interrupt.id, "status": "resolved", "payload": {"approved": True}}
    for _ in range(2):  # and again, for a client whose connection was cut
        resumed = await post_run(rig, thread, resume=[approved])
        assert "".join(one.delta for one in resumed if hasattr(one, "delta")).endswith(
            "It is gone."
        )
        assert "TOOL_CALL_RESULT" in [one.type.value for one in resumed]
        assert resumed[-1].outcome.type == "success"
    assert rig.service_calls == ["DELETE /pets/7"]


async def test_a_thread_belongs_to_its_owner_despite_colliding_names(rig: Rig) -> None:
    """Another caller, who knows both names, has made a conversation of its id (mending 8)."""
    thread = "main"
    name = f"{HOST}/anonymous/{thread}"
    id_ = str(uuid5(NAMESPACE_URL, name))
    eve = Identity(Principal("eve", HOST, scopes=frozenset({"agent:write"})), verified=True)
    made = await call_agent(
        rig, Context(eve, V2025_11_25, "1"), "agent_create_conversation", id=id_
    )
    rig.script(chat("One."), chat("Two."))
    assert (await post_run(rig, thread))[-1].outcome.type == "success"
    _, mine = await rig.post("/conversations", {"id": id_})
    _, again = await rig.post("/conversations", {"id": id_})
    assert mine["id"] == again["id"] != made["id"]
    status, found = await rig.get(f"/conversations/{id_}")
    assert (status, len(found["messages"])) == (200, 2)
    assert await rig.delete(f"/conversations/{id_}") == 204
    assert (await rig.get(f"/conversations/{made['id']}"))[0] == 404


async def test_a_snapshot_has_the_results_of_former_turns(rig: Rig) -> None:
    thread = str(uuid4())
    rig.script(chat("Let me see.", [GET]), chat("A cat."), chat("", [DELETE]), chat("Done."))
    await post_run(rig, thread)
    *_, messages, finished = await post_run(rig, thread)
    kinds = ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert [one.role for one in messages.messages] == kinds
    assert messages.messages[2].tool_call_id == messages.messages[1].tool_calls[0].id
    assert len({one.id for one in messages.messages}) == len(kinds)
    [interrupt] = finished.outcome.interrupts
    await post_run(rig, thread, resume=[{"interruptId": interrupt.id, "status": "cancelled"}])


def test_nothing_interrupts_a_thread_that_was_erased_meanwhile() -> None:
    encoder = agui.Encoder("t", "r", shows_reasoning=False)
    [finished] = encoder.interrupt([{"id": "i"}], turns=[])
    assert JUDGE.validate_python(finished).outcome.type == "success"


async def test_all_open_interrupts_are_answered_at_once(rig: Rig) -> None:
    thread = str(uuid4())
    second = ("d2", "deletePet", '{"id": 8}')
    rig.script(chat("", [DELETE, second]), chat("Done."))
    interrupts = (await post_run(rig, thread))[-1].outcome.interrupts
    assert len(interrupts) == 2
    denied = [{"interruptId": one.id, "status": "cancelled"} for one in interrupts]
    url = f"{rig.client.url}/agent/v1/agui"
    asked = {"threadId": thread, "runId": "r1", "messages": [], "resume": denied[:1]}
    async with rig.client.http.post(url, json=asked, headers=STREAM) as response:
        assert response.status == 400
        assert interrupts[1].id in (await response.json())["detail"]
    assert (await post_run(rig, thread, resume=denied))[-1].outcome.type == "success"
    assert rig.service_calls == []


async def test_an_answer_after_the_end_of_an_interrupt_is_an_error(rig: Rig) -> None:
    thread = str(uuid4())
    rig.script(chat("", [DELETE]), chat("Done."))
    [interrupt] = (await post_run(rig, thread))[-1].outcome.interrupts
    pool = rig.client.gateway._handle.pool()
    assert pool is not None
    async with borrow(pool) as connection:
        await connection.execute(
            "UPDATE approval_t SET expire_ts = clock_timestamp() WHERE approval_id = %s",
            [interrupt.id],
        )
    answer = {"interruptId": interrupt.id, "status": "resolved", "payload": {"approved": True}}
    started, error = await post_run(rig, thread, resume=[answer])
    assert started.type.value == "RUN_STARTED"
    assert (error.type.value, error.code) == ("RUN_ERROR", "interrupt_expired")
    assert interrupt.id in error.message
    assert rig.service_calls == []


async def test_a_failure_is_an_error(rig: Rig) -> None:
    rig.script(failing(401))
    events = await post_run(rig, str(uuid4()))
    assert (events[-1].type.value, events[-1].code) == ("RUN_ERROR", "provider_auth")


async def test_callers_do_not_approve_their_own_calls(rig: Rig) -> None:
    thread = str(uuid4())
    rig.script(chat("", [DELETE]), chat("Done."))
    [interrupt] = (await post_run(rig, thread))[-1].outcome.interrupts
    resume = [
        {"interruptId": interrupt.id, "status": "resolved", "payload": {"approved": approved}}
        for approved in (True, False)
    ]
    asked = {"threadId": thread, "runId": "r1", "messages": []}
    url = f"{rig.client.url}/agent/v1/agui"
    body = {**asked, "resume": resume[:1]}
    async with rig.client.http.post(url, json=body, headers=STREAM) as response:
        assert response.status == 403
        assert "another principal" in await response.text()
    edited = {**resume[0], "payload": {"approved": True, "editedArgs": {"id": 8}}}
    body = {**asked, "resume": [edited]}
    async with rig.client.http.post(url, json=body, headers=STREAM) as response:
        assert response.status == 400
        assert "editedArgs" in await response.text()
    assert rig.service_calls == []
    await post_run(rig, thread, resume=resume[1:])


async def test_a_log_that_is_away_is_a_problem(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    thread = str(uuid4())
    rig.script(chat("", [DELETE]), chat("Done."))
    [interrupt] = (await post_run(rig, thread))[-1].outcome.interrupts
    denied = {"interruptId": interrupt.id, "status": "cancelled"}

    async def away(*_: Any) -> int:
        raise Unavailable("The log is away")

    asked = {"threadId": thread, "runId": "r1", "messages": [], "resume": [denied]}
    url = f"{rig.client.url}/agent/v1/agui"
    with monkeypatch.context() as patch:
        patch.setattr(agui, "interrupt_number", away)
        async with rig.client.http.post(url, json=asked, headers=STREAM) as response:
            assert (response.status, response.content_type) == (503, "application/problem+json")
    await post_run(rig, thread, resume=[denied])
