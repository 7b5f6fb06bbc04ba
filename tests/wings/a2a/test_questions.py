"""Questions of MCP servers during tasks, which are answered by messages."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from config.settings import DatabaseSettings
from config.sources import SourceSettings
from registry.database.postgres import borrow
from tests.fixtures_servers import serving
from tests.servers.everything import everything
from tests.servers.painter import FORM, Painter
from tests.servers.provider import chat
from tests.wings.a2a.rig import Rig, call_message, open_rig, second_gateway, state_of, text_message

pytestmark = pytest.mark.anyio

ASKING = "test_elicitation"  # of a server with sessions


@pytest.fixture(scope="module")
def painter() -> Painter:
    return Painter()


@pytest.fixture(scope="module")
async def rig(
    module_database: DatabaseSettings, tmp_path_factory: pytest.TempPathFactory, painter: Painter
) -> AsyncIterator[Rig]:
    app, lifespan = everything("handshake")
    async with lifespan, serving(app) as one, serving(painter) as two:
        urls = {"every": one, "painter": two}
        sources = {name: SourceSettings(mcp=f"{url}/mcp") for name, url in urls.items()}
        folder = tmp_path_factory.mktemp("questions")
        async with open_rig(module_database, folder, sources=sources, answer_s=30) as rig:
            with anyio.fail_after(30):
                while rig.client.gateway.federation.servers.failures():  # noqa: ASYNC110 - no event
                    await anyio.sleep(0.01)
            yield rig


def answer(task: Any, part: Any) -> dict[str, Any]:
    message = {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": [part]}
    return {**message, "taskId": task["id"]}


def result_text(task: Any) -> str:
    return str(task["artifacts"][0]["parts"][0]["text"])


async def test_a_question_of_a_session_is_answered_with_data(rig: Rig) -> None:
    """AS table: INPUT_REQUIRED has a text part, and a data part with the schema."""
    task = await rig.task(call_message(ASKING, message="Who are you?"))
    assert state_of(task) == "INPUT_REQUIRED"
    text, form = task["status"]["message"]["parts"]
    assert text["text"].endswith("Who are you?")
    assert form["data"]["schema"]["properties"].keys() == {"username", "email"}
    data = {"username": "ann", "email": "ann@example.com"}
    done = await rig.task(answer(task, {"data": data}))
    assert (state_of(done), done["id"]) == ("COMPLETED", task["id"])
    assert "action=accept" in result_text(done)
    assert "ann@example.com" in result_text(done)


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"data": {"colour": "red"}}, "accept red"),
        ({"text": "red"}, "accept red"),  # the only field of the form
        ({"data": {"action": "decline"}}, "decline"),
        ({"data": {"action": "cancel"}}, "cancel"),
    ],
)
async def test_a_question_of_a_stateless_server_is_answered(rig: Rig, part: Any, text: str) -> None:
    task = await rig.task(call_message("paint"))
    assert state_of(task) == "INPUT_REQUIRED"
    assert result_text(await rig.task(answer(task, part))) == text


async def test_an_answer_that_does_not_fit_the_schema_is_refused(rig: Rig) -> None:
    task = await rig.task(call_message("paint"))
    refusals = {"colour": {"data": {"colour": 7}}, "Expected data": {"data": [1]}}
    for expected, part in refusals.items():
        error = (await rig.rpc("SendMessage", {"message": answer(task, part)}))["error"]
        assert error["code"] == -32602
        assert expected in error["message"]
    assert state_of(await rig.get(task["id"])) == "INPUT_REQUIRED"
    assert (await rig.rpc("CancelTask", {"id": task["id"]}))["result"]["id"] == task["id"]
    assert state_of(await rig.get(task["id"])) == "CANCELED"


async def test_a_question_is_answered_at_another_node(rig: Rig) -> None:
    async with second_gateway(rig) as other:
        task = await rig.task(call_message("paint"))
        done = await other.task(answer(task, {"data": {"colour": "blue"}}))
    assert (state_of(done), result_text(done)) == ("COMPLETED", "accept blue")


async def test_only_open_questions_are_asked_again_after_a_crash(
    rig: Rig, painter: Painter
) -> None:
    task = await rig.task(call_message("paint"))
    await lose_process(rig, task["id"])
    before = painter.calls
    await rig.until(task["id"], "WORKING", "COMPLETED", "INPUT_REQUIRED")
    with anyio.fail_after(30):
        while painter.calls == before:  # noqa: ASYNC110 - the server tells nobody
            await anyio.sleep(0.02)
    await rig.until(task["id"], "INPUT_REQUIRED")
    done = await rig.task(answer(task, {"data": {"colour": "green"}}))
    assert result_text(done) == "accept green"
    await lose_process(rig, task["id"])
    again = await rig.until(task["id"], "COMPLETED")
    assert {part["text"] for artifact in again["artifacts"] for part in artifact["parts"]} == {
        "accept green"
    }


async def lose_process(rig: Rig, id_: str) -> None:
    """The process of a task is taken for dead."""
    async with borrow(rig.pool) as connection:
        await connection.execute(
            "UPDATE a2a_task_t SET attempt = attempt + 1, work = 'running',"
            " lease_until = clock_timestamp() - interval '1 s',"
            " task = convert_to(replace(convert_from(task, 'UTF8'), 'COMPLETED', 'WORKING'),"
            " 'UTF8') WHERE task_id = %s",
            [id_],
        )


async def test_streams_of_0_3_end_with_the_question(rig: Rig) -> None:
    part = {"kind": "data", "data": {"tool": "paint"}}
    message = {"messageId": uuid4().hex, "role": "user", "kind": "message", "parts": [part]}
    events = [
        event async for event in rig.stream("message/stream", {"message": message}, version="0.3")
    ]
    update = events[-1]
    assert (update["status"]["state"], update["final"]) == ("input-required", True)
    text, form = update["status"]["message"]["parts"]
    assert (text["kind"], form["data"]) == ("text", {"schema": FORM})
    reply = {**message, "messageId": uuid4().hex, "taskId": update["taskId"]}
    reply["parts"] = [{"kind": "text", "text": "red"}]
    done = await rig.rpc("message/send", {"message": reply}, version="0.3")
    assert done["result"]["status"]["state"] == "completed"


async def test_a_question_within_a_run_of_the_agent(rig: Rig) -> None:
    rig.provider.answers[:] = [chat("", [("1", "paint", "{}")]), chat("It is red.")]
    task = await rig.task(text_message("Paint it."), agent="clever")
    assert state_of(task) == "INPUT_REQUIRED"
    done = await rig.task(answer(task, {"text": "red"}), agent="clever")
    assert (state_of(done), result_text(done)) == ("COMPLETED", "It is red.")
    assert "accept red" in str(rig.provider.requests[-1].body["messages"])


async def test_an_unanswered_question_is_declined(
    database_settings: DatabaseSettings, tmp_path: Path, painter: Painter
) -> None:
    async with serving(painter) as url:
        sources = {"painter": SourceSettings(mcp=f"{url}/mcp")}
        async with open_rig(database_settings, tmp_path, sources=sources, answer_s=1) as rig:
            task = await rig.task(call_message("paint"))
            assert state_of(task) == "INPUT_REQUIRED"
            done = await rig.until(task["id"], "COMPLETED")
            assert result_text(done) == "decline"
            late = await rig.rpc("SendMessage", {"message": answer(task, {"text": "red"})})
            assert late["error"]["code"] == -32004
