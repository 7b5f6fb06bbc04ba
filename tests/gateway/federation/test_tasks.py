"""Tasks of other servers, end to end, in both of their forms."""

import pytest

from config.settings import Settings
from tests.fixtures_gateway import MODERN, Client
from tests.gateway.federation.conftest import caller, gateway_to
from tests.gateway.federation.tasks import (
    KNOWS,
    LEGACY,
    OVER,
    RELATED,
    begin_task,
    calling,
    refusal,
    result,
    until,
)

pytestmark = pytest.mark.anyio


async def test_a_task_begun_by_a_server_has_its_result_in_place(both: Client) -> None:
    who = await caller(both, MODERN, KNOWS)
    task = await begin_task(who, "slow_compute", seconds=0, label="a sum")
    done = await until(who, task, *OVER)
    assert done["status"] == "completed"
    assert done["resultType"] == "complete"
    assert done["result"]["content"] == [{"type": "text", "text": "Computed a sum."}]
    assert RELATED not in done["result"].get("_meta", {})


async def test_a_client_asks_for_a_task_and_fetches_its_result(both: Client) -> None:
    who = await caller(both, LEGACY)
    task = await begin_task(who, "slow_compute", seconds=0.2, label="a sum")
    said = await result(who, "tasks/result", {"taskId": task})
    assert said["content"] == [{"type": "text", "text": "Computed a sum."}]
    assert said["_meta"][RELATED] == {"taskId": task}
    assert (await until(who, task, *OVER))["status"] == "completed"
    assert await refusal(who, "tasks/cancel", {"taskId": task}) == (
        -32602,
        "The task is completed already",
    )


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_a_task_can_be_cancelled(both: Client, revision: str) -> None:
    who = await caller(both, revision, KNOWS)
    task = await begin_task(who, "slow_compute", seconds=60)
    said = await result(who, "tasks/cancel", {"taskId": task})
    assert said.get("taskId") == (task if revision == LEGACY else None)
    assert (await until(who, task, *OVER))["status"] == "cancelled"


async def test_a_stateless_client_answers_a_task_by_an_update(both: Client) -> None:
    who = await caller(both, MODERN, KNOWS)
    task = await begin_task(who, "multi_input")
    asked = (await until(who, task, "input_required"))["inputRequests"]
    assert {key: one["method"] for key, one in asked.items()} == {
        "name": "elicitation/create",
        "color": "elicitation/create",
    }
    for key, said in (("name", "Ada"), ("color", "blue")):
        answers = {key: {"action": "accept", "content": {"name": said}}}
        update = {"taskId": task, "inputResponses": answers}
        assert (await result(who, "tasks/update", update))["resultType"] == "complete"
    done = await until(who, task, *OVER)
    assert done["result"]["content"][0]["text"] == "Ada, blue"


async def test_a_session_is_asked_while_waiting_for_the_result(both: Client) -> None:
    who = await caller(both, LEGACY)
    task = await begin_task(who, "confirm_delete", filename="a.txt")
    await until(who, task, "input_required")
    async with who.send_request("tasks/result", {"taskId": task}) as stream:
        told = (await stream.next())["params"]
        assert (told["data"], told["_meta"][RELATED]) == ("input_required", {"taskId": task})
        asked = await stream.next()
        assert asked["method"] == "elicitation/create"
        assert asked["params"]["_meta"][RELATED] == {"taskId": task}
        await who.answer(asked["id"], {"action": "accept", "content": {"confirm": True}})
        answer = await stream.next()
    assert answer["result"]["content"][0]["text"] == "a.txt was deleted."


async def test_a_call_may_ask_first_and_then_become_a_task(both: Client) -> None:
    who = await caller(both, MODERN, KNOWS)
    wants = await result(who, "tools/call", calling("test_tool_with_task"))
    assert "taskId" not in wants
    [key] = wants["inputRequests"]
    answers = {key: {"action": "accept", "content": {"name": "Ada"}}}
    state = {name: wants[name] for name in ("requestState",) if name in wants}
    again = {**calling("test_tool_with_task"), "inputResponses": answers, **state}
    task = str((await result(who, "tools/call", again))["taskId"])
    done = await until(who, task, *OVER)
    assert done["result"]["content"][0]["text"] == "Hello, Ada!"


async def test_a_task_ends_with_the_outcome_of_its_server(both: Client) -> None:
    stateless, session = await caller(both, MODERN, KNOWS), await caller(both, LEGACY)
    failed = await until(stateless, await begin_task(stateless, "protocol_error_job"), *OVER)
    error = {"code": -32603, "message": "This job intentionally breaks", "data": {"step": 1}}
    assert (failed["status"], failed["error"]) == ("failed", error)
    answer = await session.result(
        "tasks/result", {"taskId": await begin_task(session, "protocol_error_job")}
    )
    assert answer["error"]["code"] == error["code"]
    assert answer["error"]["message"] == error["message"]
    assert answer["error"]["data"]["step"] == 1
    ended = await until(stateless, await begin_task(stateless, "failing_job"), *OVER)
    assert (ended["status"], ended["result"]["isError"]) == ("completed", True)


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_resources_in_task_results_have_addresses_of_the_gateway(
    bare: Settings, revision: str
) -> None:
    async with gateway_to(bare, one="both", two="both") as client:
        who = await caller(client, revision, KNOWS)
        tools = (await result(who, "tools/list", {}))["tools"]
        named = [tool["name"] for tool in tools if tool["name"].endswith("linking_job")]
        uris = set()
        for name in named:
            task = await begin_task(who, name)
            done = await until(who, task, *OVER)
            if revision == LEGACY:
                done = {"result": await result(who, "tasks/result", {"taskId": task})}
            uri = done["result"]["content"][0]["resource"]["uri"]
            read = await result(who, "resources/read", {"uri": uri})
            assert read["contents"][0]["uri"] == uri
            uris.add(uri)
    assert len(uris) == len(named) == 2
