"""Work for a person by the agent and by events: it waits for their account, and in their absence
uses it only as they have allowed."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from config.settings import DatabaseSettings
from registry.access.api_keys import ApiKeys
from registry.database.postgres import borrow
from tests.gateway.connections.services import Office, office
from tests.polling import until
from tests.servers.provider import Answer, Provider, chat, providing

pytestmark = pytest.mark.anyio
SECRET = "bob-key-123456"
LIST = ("c1", "list_notes", "{}")


@asynccontextmanager
async def open_office(
    database: DatabaseSettings, folder: Path, **connect: Any
) -> AsyncIterator[tuple[Office, Provider, dict[str, str]]]:
    """An office with the agent and events, its model, and the headers of a caller with a key."""
    async with providing(Answer()) as model:
        strategy = {"url": model.url, "needs_key": False, "model": "m", "max_tokens": 2000}
        env = {
            "TOOLGATE_AUTH__API_KEYS": "true",
            "TOOLGATE_MODELS__STRATEGIES": json.dumps({"scripted": strategy}),
            "TOOLGATE_MODELS__STRATEGY": "scripted",
            "TOOLGATE_AGENT__ENABLED": "true",
            "TOOLGATE_EVENTS__ENABLED": "true",
            "TOOLGATE_EVENTS__CONNECTION_RETRY_S": "0.2",
            "TOOLGATE_EVENTS__ATTEMPTS": "50",
        }
        settings = {"mode": "user", **connect}
        async with office(database, folder, connect=settings, env=env) as made:
            pool = made.company.gateway._handle.pool()
            assert pool is not None
            keys = ApiKeys(pool, made.company.gateway.principal.tenant)
            scopes = ["agent:write", "agent:read", "events:invoke", "events:read"]
            _, key = await keys.create("bot", scopes=scopes)
            await made.company.gateway.access.reload("keys")
            yield made, model, {"Authorization": f"Bearer {key}"}


async def connect(made: Office, headers: dict[str, str], link: str, away: bool = False) -> None:
    body = {"schemes": {"key": {"value": SECRET}}, "away": away}
    async with made.company.http.post(link, json=body, headers=headers) as done:
        assert done.status == 200, await done.text()


async def events_of(
    made: Office, headers: dict[str, str], path: str, body: Any
) -> AsyncIterator[dict[str, Any]]:
    accepts = {**headers, "Accept": "text/event-stream"}
    async with made.company.http.post(made.url + path, json=body, headers=accepts) as answer:
        assert answer.status == 200, await answer.text()
        async for line in answer.content:
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])


async def test_a_run_waits_for_the_account_and_goes_on_by_itself(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with open_office(database_settings, tmp_path) as (made, model, headers):
        model.answers[:] = [chat("", [LIST]), chat("You have a note.")]
        seen: list[dict[str, Any]] = []
        with anyio.fail_after(60):
            async for event in events_of(
                made, headers, "/agent/v1/ask", {"message": "Which notes?"}
            ):
                seen.append(event)
                if event.get("status") == "waiting_for_connection":
                    assert (event["source"], event["reason"]) == ("notes", "missing")
                    assert event["url"] in event["message"]
                    assert made.notes.seen == []
                    await connect(made, headers, event["url"])
        assert seen[-1]["answer"] == "You have a note."
        assert [call["x-key"] for call in made.notes.seen] == [SECRET]
        assert SECRET not in json.dumps([request.body for request in model.requests])


async def test_ag_ui_gets_the_link_in_the_stream(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with open_office(database_settings, tmp_path) as (made, model, headers):
        model.answers[:] = [chat("", [LIST]), chat("You have a note.")]
        body = {
            "threadId": "t", "runId": "r", "messages": [{"role": "user", "content": "Notes?"}],
        }  # fmt: skip
        last: dict[str, Any] = {}
        with anyio.fail_after(60):
            async for event in events_of(made, headers, "/agent/v1/agui", body):
                last = event
                if event["type"] == "CUSTOM":
                    assert event["name"] == "toolgate/connect"
                    await connect(made, headers, event["value"]["url"])
        assert last["type"] == "RUN_FINISHED", last
        assert len(made.notes.seen) == 1


@pytest.mark.parametrize("away", [True, False])
async def test_a_run_that_was_taken_up_later_uses_the_account_only_where_that_is_allowed(
    database_settings: DatabaseSettings, tmp_path: Path, away: bool
) -> None:
    """After a restart nobody is there who asked for it (CON-19)."""
    async with open_office(database_settings, tmp_path, absent="allow") as (made, model, headers):
        model.answers[:] = [Answer(silent=True), chat("", [LIST]), chat("Done.")]
        made_link = (await made.call(headers["Authorization"].removeprefix("Bearer ")))["result"]
        await connect(made, headers, made_link["_meta"]["toolgate/connect"]["url"], away)
        http, url = made.company.http, made.url
        async with http.post(f"{url}/agent/v1/conversations", headers=headers) as answer:
            conversation = (await answer.json())["id"]
        path = f"{url}/agent/v1/conversations/{conversation}/messages"
        body = {"content": "Notes?", "wait": False}
        async with http.post(path, json=body, headers=headers) as answer:
            run = (await answer.json())["run"]
        pool = made.company.gateway._handle.pool()
        assert pool is not None
        with anyio.fail_after(60):
            await model.asked.wait()
            async with borrow(pool) as connection:  # as another process takes it up
                await connection.execute(
                    "UPDATE agent_run_t SET attempt = attempt + 1, lease_until = clock_timestamp()"
                )

        async def find_end() -> Any:
            async with http.get(f"{url}/agent/v1/runs/{run}", headers=headers) as answer:
                found = await answer.json()
            return found if found["state"] == "completed" else None

        with anyio.fail_after(60):
            found = await until(find_end)
        assert bool(made.notes.seen) is away
        assert ("absent" in found["calls"][0]["result"]) is not away


async def invoke(made: Office, headers: dict[str, str]) -> str:
    body = {"skillName": "list_notes", "arguments": {}}
    path = f"{made.url}/events/v1/invocations"
    async with made.company.http.post(path, json=body, headers=headers) as answer:
        assert answer.status in (200, 202), await answer.text()
        id_: str = (await answer.json())["id"]
        return id_


async def invocation(made: Office, headers: dict[str, str], id_: str) -> dict[str, Any]:
    path = f"{made.url}/events/v1/invocations/{id_}"
    async with made.company.http.get(path, headers=headers) as answer:
        found: dict[str, Any] = await answer.json()
        return found


async def test_an_event_is_refused_where_the_source_does_not_allow_absence(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with open_office(database_settings, tmp_path) as (made, _, headers):
        id_ = await invoke(made, headers)

        async def find_end() -> Any:
            found = await invocation(made, headers, id_)
            return found if found["status"] == "FAILED" else None

        found = await until(find_end)
        assert "connect.absent does not allow" in json.dumps(found)
        assert made.notes.seen == []


async def test_an_event_waits_until_its_person_has_allowed_their_account(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with open_office(database_settings, tmp_path, absent="allow") as (made, _, headers):
        id_ = await invoke(made, headers)

        async def link() -> str:
            message = json.dumps(await invocation(made, headers, id_))
            return message.partition("Open ")[2].partition(" to connect")[0]

        await connect(made, headers, await until(link), away=True)

        async def is_completed() -> bool:
            return (await invocation(made, headers, id_))["status"] == "ACKED"

        await until(is_completed)
        assert [call["x-key"] for call in made.notes.seen] == [SECRET]
