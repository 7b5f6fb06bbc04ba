"""Tasks of agents: messages, calls, streams, lists, cancelling, and whose they are."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from msgspec.structs import replace
from psycopg import AsyncConnection

from config.settings import DatabaseSettings
from gateway.wings.a2a.http_api import A2AApi, AgentCall
from gateway.wings.a2a.task_store import A2ATasks, Change, StoredTask
from gateway.wings.a2a.wing import check_skills
from gateway.wings.interface import Finding
from registry.access.approvals import Approvals
from registry.database.postgres import borrow
from registry.skills.store import SkillStore
from tests.fixtures_database import HOST
from tests.fixtures_gateway import META, MODERN
from tests.gateway.methods.test_skills_at_fronts import folder
from tests.servers.provider import chat
from tests.wings.a2a.rig import (
    SCOPES,
    Rig,
    call_message,
    make_key,
    open_rig,
    second_gateway,
    state_of,
    text_message,
)

pytestmark = pytest.mark.anyio

OLD_CALL = {
    "kind": "message",
    "messageId": "old",
    "role": "user",
    "parts": [{"kind": "data", "data": {"tool": "getPet", "arguments": {"id": 7}}}],
}


def service_calls(task: Any) -> list[str]:
    """Method and path that the service heard, by the artifacts."""
    data = [part["data"] for artifact in task["artifacts"] for part in artifact["parts"]]
    return [f"{one['heard']['method']} {one['heard']['path']}" for one in data]


async def test_a_data_part_is_one_call_whose_result_is_the_artifact(rig: Rig) -> None:
    task = await rig.task(call_message("getPet", id=7))
    assert (state_of(task), service_calls(task)) == ("COMPLETED", ["GET /pets/7"])
    assert task["history"][0]["taskId"] == task["id"]
    assert task["contextId"]


async def test_both_bindings_and_versions_reach_the_same_tasks(rig: Rig) -> None:
    status, answer = await rig.rest(
        "POST", "message:send", {"message": call_message("getPet", id=1)}
    )
    assert (status, state_of(answer["task"])) == (200, "COMPLETED")
    old = await rig.rpc("message/send", {"message": OLD_CALL}, version="0.3")
    task = old["result"]
    assert (task["kind"], task["status"]["state"]) == ("task", "completed")
    assert task["artifacts"][0]["parts"][0]["kind"] == "data"
    assert state_of(await rig.get(task["id"])) == "COMPLETED"
    again = await rig.rpc("tasks/get", {"id": answer["task"]["id"]}, version="0.3")
    assert again["result"]["status"]["state"] == "completed"


@pytest.mark.parametrize(
    "message",
    [
        call_message("noSuchTool"),
        call_message("a2a_send_message", agent="desk", message={}),
        call_message("getPet", id="seven"),
        text_message("hello") | {"parts": [{"data": {"arguments": {}}}]},
        text_message("hello") | {"parts": [{"data": [1]}]},
        text_message("hello"),
    ],
)
async def test_messages_that_name_no_valid_call_are_rejected(rig: Rig, message: Any) -> None:
    task = await rig.task({**message, "messageId": uuid4().hex})
    assert state_of(task) == "REJECTED"
    assert task["status"]["message"]["parts"][0]["text"]


async def test_rules_hold_for_calls_of_agents(rig: Rig) -> None:
    message = call_message("createPet", name="Tom")
    assert state_of(await rig.task(message, by="bob")) == "REJECTED"
    assert state_of(await rig.task(message, by="ann")) == "COMPLETED"


async def test_callers_of_a_toolset_reach_no_further_tools_by_an_agent(rig: Rig) -> None:
    params = {
        "name": "a2a_send_message",
        "arguments": {"agent": "desk", "message": call_message("getPet", id=7)},
        "_meta": META,
    }
    modern = {
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": "tools/call",
        "Mcp-Name": params["name"],
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    states = []
    for path in ("/mcp", "/mcp/letters"):
        _, answer, _ = await rig.client.post(path, body, rig.headers("ann") | modern)
        states.append(answer["result"]["structuredContent"]["state"])
        params["arguments"]["message"]["messageId"] = uuid4().hex
    assert states == ["completed", "rejected"]


async def test_the_earliest_time_filters_no_task(rig: Rig) -> None:
    asked = {"statusTimestampAfter": "0001-01-01T00:00:00+14:00"}
    total = (await rig.rpc("ListTasks", {}))["result"]["totalSize"]
    assert (await rig.rpc("ListTasks", asked))["result"]["totalSize"] == total


async def test_media_types_that_no_agent_takes_are_refused(rig: Rig) -> None:
    file = {"raw": "aGk=", "mediaType": "image/png"}
    for agent, part in (("clever", file), ("desk", {"text": "a: 1", "mediaType": "text/yaml"})):
        params = {"message": text_message("") | {"parts": [part]}, "tenant": "zoo"}
        answer = await rig.rpc("SendMessage", params, agent=agent)
        assert answer["error"]["code"] == -32005
        assert answer["error"]["data"][0]["reason"] == "CONTENT_TYPE_NOT_SUPPORTED"


async def test_more_parts_than_the_limit_are_refused(rig: Rig) -> None:
    message = text_message("") | {"parts": [{"text": ""}] * 101}
    answer = await rig.rpc("SendMessage", {"message": message})
    assert "at most 100 parts, found 101" in answer["error"]["message"]


def photo_message(*files: dict[str, str]) -> dict[str, Any]:
    """A message that names a call with the file "cat.png", and has `files`."""
    message = call_message("addPhoto", body={"part": "cat.png"})
    return message | {"parts": [*message["parts"], *files]}


async def test_a_file_of_a_message_is_the_argument_of_a_call(rig: Rig) -> None:
    file = {"raw": "aGk=", "filename": "cat.png", "mediaType": "image/png"}
    assert state_of(await rig.task(photo_message(file))) == "COMPLETED"
    heard = rig.service.requests[-1]
    assert (heard["path"], heard["body"]) == ("/photos", "hi")


async def test_a_url_of_a_message_leads_to_no_private_network(rig: Rig) -> None:
    before = len(rig.service.requests)
    for url in (f"{rig.service.url}/pets/7", "http://169.254.169.254/latest", "file:///etc/passwd"):
        task = await rig.task(photo_message({"url": url, "filename": "cat.png"}))
        assert state_of(task) == "FAILED", url
    assert len(rig.service.requests) == before


@pytest.mark.parametrize(
    "files",
    [
        [{"raw": "aGk=", "filename": "dog.png"}],
        [{"raw": "aGk="}],
        [{"raw": "aGk=", "filename": "cat.png"}, {"raw": "aGk=", "filename": "cat.png"}],
    ],
)
async def test_files_that_no_argument_names_are_refused(rig: Rig, files: Any) -> None:
    task = await rig.task(photo_message(*files))
    assert state_of(task) == "REJECTED"
    assert "files with names of their own" in task["status"]["message"]["parts"][0]["text"]


async def test_a_file_stands_in_one_argument(rig: Rig) -> None:
    """Or a message of some megabytes would become terabytes of arguments."""
    message = call_message("addPhoto", body={"part": "cat.png"}, more=[{"part": "cat.png"}])
    file = {"raw": "aGk=", "filename": "cat.png"}
    task = await rig.task(message | {"parts": [*message["parts"], file]})
    assert state_of(task) == "REJECTED"
    assert "in one argument" in task["status"]["message"]["parts"][0]["text"]


@pytest.mark.parametrize("levels", [250, 450])
async def test_messages_that_nest_too_deeply_are_refused(rig: Rig, levels: int) -> None:
    deep: Any = []
    for _ in range(levels):
        deep = [deep]
    message = call_message("addPhoto", body={"part": "cat.png"}, more=deep)
    message["parts"].append({"raw": "aGk=", "filename": "cat.png"})
    status, body = await rig.rest("POST", "message:send", {"message": message})
    assert (status, body["error"]["message"]) == (400, "The body has more than 200 nested levels")


async def test_failed_calls_are_failed_tasks(rig: Rig) -> None:
    task = await rig.task(call_message("getPet", id=404))
    assert state_of(task) == "FAILED"


async def test_a_repeated_message_is_one_task(rig: Rig) -> None:
    message = call_message("createPet", name="Tim")
    before = len(rig.service.requests)
    ids = {(await rig.task(message))["id"] for _ in range(3)}
    assert (len(ids), len(rig.service.requests)) == (1, before + 1)


async def test_foreign_tasks_are_not_found(rig: Rig) -> None:
    context = str(uuid4())
    task = await rig.task(call_message("getPet", id=7) | {"contextId": context})
    asked = {
        "GetTask": {"id": task["id"]},
        "CancelTask": {"id": task["id"]},
        "SubscribeToTask": {"id": task["id"]},
        "SendMessage": {"message": call_message("getPet", id=8) | {"taskId": task["id"]}},
        "ListTaskPushNotificationConfigs": {"taskId": task["id"]},
        "CreateTaskPushNotificationConfig": {"taskId": task["id"], "url": "https://example.com"},
    }
    for method, params in asked.items():
        answer = await rig.rpc(method, params, by="bob")
        assert answer["error"]["code"] == -32001, (method, answer)
    listed = await rig.rpc("ListTasks", {"contextId": context}, by="bob")
    assert (listed["result"]["tasks"], listed["result"]["totalSize"]) == ([], 0)
    joined = await rig.task(call_message("getPet", id=7) | {"contextId": context}, by="bob")
    assert joined["id"] != task["id"]
    mine = await rig.rpc("ListTasks", {"contextId": context})
    assert [one["id"] for one in mine["result"]["tasks"]] == [task["id"]]


async def test_callers_without_a_credential_are_refused(rig: Rig) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
    status, _, _ = await rig.client.post("/a2a/desk", body, {"A2A-Version": "1.0"})
    assert status == 401


async def test_ended_tasks_take_no_message_and_are_not_cancelled(rig: Rig) -> None:
    task = await rig.task(call_message("getPet", id=7))
    message = call_message("getPet", id=8) | {"taskId": task["id"]}
    assert (await rig.rpc("SendMessage", {"message": message}))["error"]["code"] == -32004
    other = message | {"contextId": "another"}
    assert (await rig.rpc("SendMessage", {"message": other}))["error"]["code"] == -32602
    assert (await rig.rpc("CancelTask", {"id": task["id"]}))["error"]["code"] == -32002
    assert (await rig.rpc("SubscribeToTask", {"id": task["id"]}))["error"]["code"] == -32004


async def test_lists_are_paged_by_the_time_of_the_status(rig: Rig) -> None:
    context = str(uuid4())
    ids = [
        (await rig.task(call_message("getPet", id=7) | {"contextId": context}))["id"]
        for _ in range(5)
    ]
    seen: list[Any] = []
    token = ""
    while True:
        params = {"contextId": context, "pageSize": 2, "pageToken": token, "historyLength": 0}
        page = (await rig.rpc("ListTasks", params))["result"]
        seen += page["tasks"]
        assert page["totalSize"] == 5
        if not (token := page["nextPageToken"]):
            break
    assert [task["id"] for task in seen] == ids[::-1]
    assert not any("artifacts" in task or "history" in task for task in seen)
    since = seen[1]["status"]["timestamp"]
    params = {"contextId": context, "statusTimestampAfter": since, "includeArtifacts": True}
    newest = (await rig.rpc("ListTasks", params))["result"]["tasks"]
    assert seen[1]["id"] in [task["id"] for task in newest]
    assert all(task["artifacts"] for task in newest)
    status, page = await rig.rest("GET", f"tasks?contextId={context}&pageSize=1")
    assert (status, len(page["tasks"])) == (200, 1)
    assert (await rig.rest("GET", "tasks?pageToken=x"))[0] == 400


async def test_a_stream_has_the_task_then_its_changes(rig: Rig) -> None:
    message = text_message("go", f"tck-stream-artifact-chunked-{uuid4()}")
    events = [
        event
        async for event in rig.stream("SendStreamingMessage", {"message": message}, agent="tck")
    ]
    first, *changes = (next(iter(event)) for event in events)
    assert first == "task"  # which may be at work already
    assert changes == [
        "statusUpdate", "artifactUpdate", "artifactUpdate", "statusUpdate",
    ][-len(changes) :]  # fmt: skip
    chunks = [event["artifactUpdate"] for event in events if "artifactUpdate" in event]
    assert [(chunk.get("append"), chunk.get("lastChunk")) for chunk in chunks] == [
        (None, None), (True, True),
    ][-len(chunks) :]  # fmt: skip
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_streams_of_0_3_end_where_somebody_is_awaited(rig: Rig) -> None:
    old = {
        **OLD_CALL,
        "messageId": f"tck-input-required-{uuid4()}",
        "parts": [{"kind": "text", "text": "?"}],
    }
    with anyio.fail_after(30):
        events = [
            event
            async for event in rig.stream(
                "message/stream", {"message": old}, agent="tck", version="0.3"
            )
        ]
    assert (events[-1]["kind"], events[-1].get("final")) == ("status-update", True)


async def test_streams_of_0_3_end_with_an_update_of_a_task_that_waits_already(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is read late here, so that it waits for somebody by then."""
    find = A2AApi._find_row

    async def find_late(self: A2AApi, call: AgentCall, id_: str) -> StoredTask:
        return await self._runner.wait_until_idle(await find(self, call, id_))

    monkeypatch.setattr(A2AApi, "_find_row", find_late)
    await test_streams_of_0_3_end_where_somebody_is_awaited(rig)


async def test_an_answer_goes_on_with_the_task(rig: Rig) -> None:
    task = await rig.task(text_message("?", f"tck-input-required-{uuid4()}"), agent="tck")
    assert state_of(task) == "INPUT_REQUIRED"
    answer = text_message("this", f"tck-complete-task-{uuid4()}") | {"taskId": task["id"]}
    done = await rig.task(answer, agent="tck")
    assert (state_of(done), done["id"], done["contextId"]) == (
        "COMPLETED", task["id"], task["contextId"],
    )  # fmt: skip


async def test_cancelling_ends_the_call(rig: Rig) -> None:
    rig.service.arrived, rig.service.gone = asyncio.Event(), asyncio.Event()
    task = await rig.task(call_message("slow"), now=True)
    with anyio.fail_after(30):
        await rig.service.arrived.wait()
        answer = await rig.rpc("CancelTask", {"id": task["id"]})
        await rig.service.gone.wait()
    assert state_of(answer["result"]) == "CANCELED"
    assert (await rig.rpc("CancelTask", {"id": task["id"]}))["error"]["code"] == -32002


async def approval_of(rig: Rig, tool: str) -> str:
    waiting = await Approvals(rig.pool, HOST).waiting()
    return next(approval.id for approval in waiting if approval.tool == tool)


@pytest.mark.parametrize(("approve", "state"), [(True, "COMPLETED"), (False, "REJECTED")])
async def test_a_task_that_waits_for_an_approval_goes_on_by_itself(
    rig: Rig, approve: bool, state: str
) -> None:
    task = await rig.task(call_message("deletePet", id=8 + approve))
    assert state_of(task) == "AUTH_REQUIRED"
    assert task["status"]["message"]["parts"][0]["text"]
    late = call_message("getPet", id=7) | {"taskId": task["id"]}
    assert (await rig.rpc("SendMessage", {"message": late}))["error"]["code"] == -32004
    id_ = await approval_of(rig, "deletePet")
    await Approvals(rig.pool, HOST).decide(id_, approve, "carol")
    await rig.until(task["id"], state)
    sent = [one for one in rig.service.requests if one["path"] == f"/pets/{8 + approve}"]
    assert len(sent) == int(approve)


async def test_a_cancelled_task_leaves_no_approval_to_decide(rig: Rig) -> None:
    """It would count against the limit of its owner, and a person would decide for nothing."""
    task = await rig.task(call_message("deletePet", id=4711))
    id_ = await approval_of(rig, "deletePet")
    answer = await rig.rpc("CancelTask", {"id": task["id"]})
    assert state_of(answer["result"]) == "CANCELED"
    assert await Approvals(rig.pool, HOST).get(id_) is None


async def test_a_run_of_the_agent_is_a_task(rig: Rig) -> None:
    rig.provider.answers[:] = [chat("Tom is fine."), chat("As I said.")]
    task = await rig.task(text_message("How is Tom?"), agent="clever")
    assert (state_of(task), task["artifacts"][0]["parts"]) == (
        "COMPLETED", [{"text": "Tom is fine."}],
    )  # fmt: skip
    more = text_message("Really?") | {"contextId": task["contextId"]}
    await rig.task(more, agent="clever")
    said = [message["content"] for message in rig.provider.requests[-1].body["messages"]]
    assert "How is Tom?" in said


async def test_an_answer_of_the_agent_is_streamed_in_chunks(rig: Rig) -> None:
    """AS table: chunks with append and lastChunk; what preceded a call is no part of them."""
    words = " ".join(f"word{number}" for number in range(200))
    rig.provider.requests.clear()
    rig.provider.answers[:] = [chat("Let me see.", [("1", "getPet", '{"id": 7}')]), chat(words)]
    params = {"message": text_message("Tell me all.")}
    events = [event async for event in rig.stream("SendStreamingMessage", params, agent="clever")]
    updates = [event["artifactUpdate"] for event in events if "artifactUpdate" in event]
    assert updates[-1]["lastChunk"]
    assert not any(update.get("lastChunk") for update in updates[:-1])
    answer = ""
    for update in updates:
        [part] = update["artifact"]["parts"]
        answer = answer + part["text"] if update.get("append") else part["text"]
    assert answer == words
    task = await rig.get(events[0]["task"]["id"], agent="clever")
    assert task["artifacts"][0]["parts"] == [{"text": words}]


async def test_calls_of_the_agent_are_shown_by_scope(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    scopes = (*SCOPES, "agent:reasoning")
    async with open_rig(database_settings, tmp_path, show_calls=True) as rig:
        rig.keys = {**rig.keys, "eve": await make_key(rig, "eve", scopes)}
        for by, count in {"ann": 0, "eve": 2}.items():
            calls = [("1", "getPet", '{"id": 7}')]
            rig.provider.requests.clear()
            rig.provider.answers[:] = [chat("", calls), chat("Tom.")]
            task = await rig.task(text_message("Who is 7?"), by=by, agent="clever")
            texts = [part.get("text") for message in task["history"] for part in message["parts"]]
            shown = ["ToolCallStart: getPet", "ToolCallResult: getPet"]
            assert [text for text in texts if text in shown] == shown[:count]


async def test_a_message_preloads_its_named_skill(rig: Rig) -> None:
    """AS-2: the first one of the agent where it names none."""
    assert [finding.status async for finding in find_skills(rig)] == ["failed", "failed"]
    settings = rig.client.gateway.settings
    folders = [folder("find-pets", "listPets"), folder("sell-pets", "createPet")]
    await SkillStore(rig.pool, settings.skills).save(HOST, folders)
    with anyio.fail_after(30):
        while len(rig.client.gateway.catalogs.of(HOST).skills) < 2:  # noqa: ASYNC110 - no event
            await anyio.sleep(0.02)
    assert [finding.status async for finding in find_skills(rig)] == ["ok"]
    for named, skill in (({}, "find-pets"), ({"skill": "sell-pets"}, "sell-pets")):
        rig.provider.answers[:] = [chat("So be it.")]
        message = text_message("Do it.") | {"metadata": named}
        assert state_of(await rig.task(message, agent="skilled")) == "COMPLETED"
        said = rig.provider.requests[-1].body["messages"][-1]["content"]
        assert f"How to {skill}." in said
        assert said.endswith("Do it.")
    unknown = text_message("Do it.") | {"metadata": {"skill": "fly"}}
    task = await rig.task(unknown, agent="skilled")
    assert state_of(task) == "REJECTED"
    assert "find-pets, sell-pets" in task["status"]["message"]["parts"][0]["text"]


def find_skills(rig: Rig) -> AsyncIterator[Finding]:
    return check_skills(rig.client.gateway.settings.a2a, HOST, rig.pool)


async def test_requests_name_the_tenant_of_the_interface(rig: Rig) -> None:
    answer = await rig.rpc("ListTasks", {"tenant": "other"}, agent="clever")
    assert answer["error"]["code"] == -32602
    assert "result" in await rig.rpc("ListTasks", {"tenant": "zoo"}, agent="clever")


async def expire(rig: Rig, id_: str) -> None:
    """The process of a task is gone for longer than the lease."""
    async with borrow(rig.pool) as connection:
        await connection.execute(
            "UPDATE a2a_task_t SET lease_until = clock_timestamp() - interval '1 s',"
            " work = 'running', attempt = attempt + 1, state = 'TASK_STATE_WORKING'"
            " WHERE task_id = %s",
            [id_],
        )


@pytest.mark.parametrize(("tool", "state"), [("getPet", "COMPLETED"), ("createPet", "FAILED")])
async def test_only_repeatable_calls_are_made_again_after_a_crash(
    rig: Rig, tool: str, state: str
) -> None:
    arguments: dict[str, Any] = {"name": "Eve"} if tool == "createPet" else {"id": 7}
    task = await rig.task(call_message(tool, **arguments))
    assert state_of(task) == "COMPLETED"
    before = len(rig.service.requests)
    working = {
        **task,
        "status": {"state": "TASK_STATE_WORKING", "timestamp": task["status"]["timestamp"]},
    }
    async with borrow(rig.pool) as connection:
        await connection.execute(
            "UPDATE a2a_task_t SET task = convert_to(%s, 'UTF8') WHERE task_id = %s",
            [json.dumps(working), task["id"]],
        )
    await expire(rig, task["id"])
    ended = await rig.until(task["id"], state)
    assert len(rig.service.requests) == before + (tool == "getPet")
    if tool == "createPet":
        assert "unknown" in ended["status"]["message"]["parts"][0]["text"]


async def test_a_lost_task_is_failed_by_its_holder_alone(rig: Rig) -> None:
    message = text_message("go", f"tck-complete-task-lose-lease-{uuid4()}")
    task = await rig.task(message, now=True, agent="tck")
    assert state_of(await rig.until(task["id"], "COMPLETED", "FAILED", agent="tck")) == "COMPLETED"


async def test_a_task_cancelled_before_its_question_ends(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = A2ATasks.change

    async def cancel_and_change(tasks: A2ATasks, row: StoredTask, made: Change, seen: int) -> bool:
        if made.work == "asking":
            await tasks.ask_to_cancel(row)
        return await change(tasks, row, made, seen)

    monkeypatch.setattr(A2ATasks, "change", cancel_and_change)
    task = await rig.task(text_message("x", f"tck-input-required-{uuid4()}"), now=True, agent="tck")
    await rig.until(task["id"], "CANCELED", agent="tck")


async def test_tasks_are_followed_and_cancelled_at_another_node(rig: Rig) -> None:
    rig.service.arrived, rig.service.gone = asyncio.Event(), asyncio.Event()
    async with second_gateway(rig) as other:
        task = await rig.task(call_message("slow"), now=True)
        events: list[Any] = []
        subscribed = anyio.Event()

        async def follow() -> None:
            async for event in other.stream("SubscribeToTask", {"id": task["id"]}):
                events.append(event)
                subscribed.set()

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                await rig.service.arrived.wait()
                group.start_soon(follow)
                await subscribed.wait()
                answer = await other.rpc("CancelTask", {"id": task["id"]})
            await rig.service.gone.wait()
    assert state_of(answer["result"]) == "CANCELED"
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"


@pytest.mark.parametrize(("version", "code"), [("2.0", -32009), ("1.1", -32009)])
async def test_unknown_versions_are_refused(rig: Rig, version: str, code: int) -> None:
    answer = await rig.rpc("ListTasks", {}, version=version)
    assert answer["error"]["code"] == code


async def test_methods_of_the_other_version_are_unknown(rig: Rig) -> None:
    assert (await rig.rpc("tasks/get", {"id": "x"}))["error"]["code"] == -32601
    assert (await rig.rpc("GetTask", {"id": "x"}, version="0.3"))["error"]["code"] == -32601


async def test_errors_of_http_json_have_the_shape_of_google_rpc(rig: Rig) -> None:
    status, body = await rig.rest("GET", f"tasks/{uuid4()}")
    assert (status, body["error"]["status"]) == (404, "NOT_FOUND")
    info = body["error"]["details"][0]
    assert (info["reason"], info["domain"]) == ("TASK_NOT_FOUND", "a2a-protocol.org")


async def test_locked_tables_are_not_called_invalid_parameters(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    bounded = replace(database_settings, lock_timeout_s=0.2)
    async with (
        open_rig(bounded, tmp_path) as rig,
        await AsyncConnection.connect(bounded.url) as holder,
    ):
        await holder.execute("LOCK TABLE a2a_task_t IN ACCESS EXCLUSIVE MODE")
        answer = await rig.rpc("SendMessage", {"message": text_message("go")})
        await holder.rollback()
    [info] = answer["error"]["data"]
    assert (answer["error"]["code"], info["reason"]) == (-32603, "UNAVAILABLE")
    assert "Another transaction holds a lock" in answer["error"]["message"]
