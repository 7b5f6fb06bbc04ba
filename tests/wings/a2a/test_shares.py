"""Shares of a process's places: who has many tasks does not hold up the others."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from config.settings import DatabaseSettings
from gateway.context import Context
from gateway.wings.a2a import task_agents
from gateway.wings.a2a.task_runner import TaskRunner, TaskWork
from gateway.wings.a2a.task_store import StoredTask
from gateway.wings.run_supervisor import HeldRun
from registry.access.approvals import Approvals
from registry.database.postgres import borrow
from tests.fixtures_database import HOST
from tests.servers.provider import Answer, chat
from tests.wings.a2a.rig import Rig, call_message, make_key, open_rig, state_of, text_message

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def open_small_rig(
    database: DatabaseSettings, folder: Path, **a2a: Any
) -> AsyncIterator[Rig]:
    shares = {"tasks": 2, "tasks_per_tenant": 2, "tasks_per_principal": 1}
    async with open_rig(database, folder, **{**shares, **a2a}) as rig:
        yield rig


async def works_of(rig: Rig) -> list[str]:
    """What becomes of each task, the oldest first."""
    async with borrow(rig.pool) as connection:
        rows = await connection.execute("SELECT work FROM a2a_task_t ORDER BY created_ts")
        return [work async for (work,) in rows]


async def test_many_tasks_of_one_person_leave_places_to_other_people(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with open_small_rig(database_settings, tmp_path) as rig:
        mine = [await rig.task(call_message("slow"), now=True) for _ in range(4)]
        with anyio.fail_after(30):
            assert state_of(await rig.task(call_message("getPet", id=7), by="bob")) == "COMPLETED"
        assert await works_of(rig) == ["running", "queued", "queued", "queued", "ended"]
        rig.service.release.set()
        for task in mine:
            await rig.until(task["id"], "COMPLETED")


async def test_tasks_beyond_a_share_do_not_block_other_people(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with open_small_rig(database_settings, tmp_path) as rig:
        rig.keys = {**rig.keys, "cat": await make_key(rig, "cat")}
        for _ in range(4):
            await rig.task(call_message("slow"), now=True)
        last = await rig.task(call_message("slow"), now=True, by="bob")
        late = await rig.task(call_message("getPet", id=7), now=True, by="cat")
        assert (await works_of(rig))[-2:] == ["running", "queued"]
        await rig.rpc("CancelTask", {"id": last["id"]}, by="bob")
        await rig.until(late["id"], "COMPLETED", by="cat")


@pytest.mark.parametrize("setting", ["tasks", "tasks_per_tenant", "tasks_per_principal"])
async def test_messages_at_the_same_time_begin_no_more_tasks_than_there_are_places(
    database_settings: DatabaseSettings, tmp_path: Path, setting: str
) -> None:
    shares = {"tasks": 8, "tasks_per_tenant": 8, "tasks_per_principal": 8, setting: 1}
    async with open_small_rig(database_settings, tmp_path, **shares) as rig:
        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(lambda: rig.task(call_message("slow"), now=True))
        assert sorted(await works_of(rig)) == ["queued"] * 5 + ["running"]


DELETE = ("d1", "deletePet", '{"id": 7}')


async def test_a_run_that_waits_for_a_person_holds_no_place(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with open_small_rig(database_settings, tmp_path) as rig:
        rig.provider.answers[:] = [chat("", [DELETE]), chat("It is gone.")]
        task = await rig.task(text_message("Delete 7."), agent="clever")
        assert (state_of(task), await works_of(rig)) == ("AUTH_REQUIRED", ["waiting"])
        with anyio.fail_after(30):
            assert state_of(await rig.task(call_message("getPet", id=7))) == "COMPLETED"
        approvals = Approvals(rig.pool, HOST)
        [approval] = await approvals.waiting()
        await approvals.decide(approval.id, True, "carol")
        done = await rig.until(task["id"], "COMPLETED", agent="clever")
        assert done["artifacts"][0]["parts"] == [{"text": "It is gone."}]


async def test_cancelling_a_task_that_waits_for_a_person_cancels_its_run(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with open_small_rig(database_settings, tmp_path) as rig:
        rig.provider.answers[:] = [chat("", [DELETE])]
        task = await rig.task(text_message("Delete 7."), agent="clever")
        answer = await rig.rpc("CancelTask", {"id": task["id"]}, agent="clever")
        assert state_of(answer["result"]) == "CANCELED"
        async with borrow(rig.pool) as connection:
            rows = await connection.execute("SELECT state FROM agent_run_t")
            assert await rows.fetchall() == [("cancelled",)]


async def test_a_task_cancelled_while_a_process_takes_up_its_work_cancels_its_run(
    database_settings: DatabaseSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context_of = TaskRunner.context_of

    async def cancel_first(runner: TaskRunner, held: HeldRun[StoredTask]) -> Context:
        if held.row.cancel:
            held.cancel()
        return await context_of(runner, held)

    async with open_small_rig(database_settings, tmp_path) as rig:
        rig.provider.answers[:] = [chat("", [DELETE])]
        task = await rig.task(text_message("Delete 7."), agent="clever")
        monkeypatch.setattr(TaskRunner, "context_of", cancel_first)
        answer = await rig.rpc("CancelTask", {"id": task["id"]}, agent="clever")
        assert state_of(answer["result"]) == "CANCELED"
        async with borrow(rig.pool) as connection:
            rows = await connection.execute("SELECT state FROM agent_run_t")
            assert await rows.fetchall() == [("cancelled",)]


async def test_a_task_cancelled_while_its_run_begins_cancels_the_run(
    database_settings: DatabaseSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is stored before the task knows its id, and hooks after the call may take long."""
    call, cancel_here = task_agents._call_raw, TaskRunner.cancel_here
    begun, cancelled = anyio.Event(), anyio.Event()

    async def call_slowly(work: TaskWork, context: Context, tool: str, arguments: Any) -> bytes:
        body = await call(work, context, tool, arguments)
        if tool == "agent_send":
            begun.set()
            await cancelled.wait()
        return body

    def cancel_and_set(runner: TaskRunner, id_: str) -> bool:
        is_here = cancel_here(runner, id_)
        cancelled.set()
        return is_here

    async with open_small_rig(database_settings, tmp_path) as rig:
        rig.provider.answers[:] = [Answer(end="hang")]
        with monkeypatch.context() as patch, anyio.fail_after(60):
            patch.setattr(task_agents, "_call_raw", call_slowly)
            patch.setattr(TaskRunner, "cancel_here", cancel_and_set)
            task = await rig.task(text_message("Think."), now=True, agent="clever")
            await begun.wait()
            answer = await rig.rpc("CancelTask", {"id": task["id"]}, agent="clever")
        assert state_of(answer["result"]) == "CANCELED"
        async with borrow(rig.pool) as connection:
            rows = await connection.execute("SELECT state FROM agent_run_t")
            assert await rows.fetchall() == [("cancelled",)]


async def test_a_page_of_large_tasks_ends_early(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with open_rig(database_settings, tmp_path, list_bytes=10_000) as rig:
        large = [call_message("noTool", text="x" * size) for size in (20_000, 4_000, 4_000, 4_000)]
        ids = [(await rig.task(message))["id"] for message in large]
        pages, token = [], ""
        while True:
            page = (await rig.rpc("ListTasks", {"pageToken": token}))["result"]
            assert page["totalSize"] == 4
            pages.append([task["id"] for task in page["tasks"]])
            if not (token := page["nextPageToken"]):
                break
        assert pages == [ids[:0:-1], ids[:1]]


async def test_streams_at_the_same_time_are_no_more_than_the_limit(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with open_small_rig(database_settings, tmp_path, streams=2) as rig:
        beginnings: list[str] = []

        async def open_stream() -> None:
            body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage"}
            message = {"message": call_message("slow")}
            async with rig.client.http.post(
                f"{rig.client.url}/a2a/desk", json=body | {"params": message},
                headers=rig.headers("ann"),
            ) as response:  # fmt: skip
                beginnings.append((await response.content.readline()).decode()[:5])
                if len(beginnings) == 5:
                    rig.service.release.set()
                await response.read()

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(open_stream)
            assert sorted(beginnings) == ["data:"] * 2 + ['{"jso'] * 3
            await open_stream()  # the places were given back
        assert beginnings[-1] == "data:"
