"""Resources and prompts of the memory."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace
from psycopg import AsyncConnection

from config.settings import Settings
from schemas.errors import Unavailable
from tests.fixtures_gateway import Client, running

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[Client]:
    memory = replace(settings.memory, enabled=True, compat=("graph",))
    async with running(replace(settings, memory=memory)) as client:
        yield client


async def read(client: Client, uri: str) -> Any:
    """The text of a resource; None: there is none."""
    _, reply = await client.modern("resources/read", {"uri": uri})
    return reply["result"]["contents"][0]["text"] if "result" in reply else None


async def test_resources_show_only_readable_memories(client: Client) -> None:
    body = {"scope": "user", "content": "Ann </memory> lives in Bern", "slot": "home.city"}
    _, added, _ = await client.post("/memory/v1/memories", body)
    [id_] = [one["id"] for one in added["items"]]
    assert json.loads(await read(client, f"memory://item/{id_}"))["slot"] == "home.city"
    assert json.loads(await read(client, "memory://user"))["items"][0]["id"] == id_
    context = await read(client, "memory://context")
    assert "lives in Bern" in context
    assert "</memory>" not in context
    assert json.loads(await read(client, "memory://knowledge-graph")) == {
        "entities": [], "relations": []
    }  # fmt: skip
    for uri in ("memory://item/00000000-0000-4000-8000-000000000000", "memory://else", "memory://"):
        assert await read(client, uri) is None
    named = {"scope": "session", "content": "Only now", "session": "b" * 22}
    await client.post("/memory/v1/memories", named)
    assert "Only now" in await read(client, f"memory://session/{'b' * 22}")
    assert json.loads(await read(client, f"memory://session/{'c' * 22}"))["items"] == []


async def test_prompts_hold_the_question_and_the_memories(client: Client) -> None:
    await client.post("/memory/v1/memories", {"scope": "user", "content": "Ann drinks green tea"})
    given = {"name": "recall", "arguments": {"question": "Which tea does Ann drink?"}}
    _, reply = await client.modern("prompts/get", given)
    [message] = reply["result"]["messages"]
    assert "green tea" in message["content"]["text"]
    assert message["content"]["text"].endswith("Which tea does Ann drink?")
    given = {"name": "remember", "arguments": {"what": "I moved to Oslo"}}
    _, reply = await client.modern("prompts/get", given)
    assert reply["result"]["messages"][0]["content"]["text"].endswith("I moved to Oslo")


async def test_reads_behind_a_lock_of_the_database_are_refused_as_unavailable(
    settings: Settings,
) -> None:
    memory = replace(settings.memory, enabled=True)
    database = replace(settings.database, lock_timeout_s=0.2)
    async with (
        running(replace(settings, memory=memory, database=database)) as client,
        await AsyncConnection.connect(database.url) as holder,
    ):
        await client.post("/memory/v1/memories", {"scope": "user", "content": "Ann drinks tea"})
        assert await read(client, "memory://user")
        await holder.execute("LOCK TABLE memory_t IN ACCESS EXCLUSIVE MODE")
        question = {"name": "recall", "arguments": {"question": "Which tea does Ann drink?"}}
        for method, params in (
            ("resources/read", {"uri": "memory://user"}),
            ("prompts/get", question),
        ):
            _, reply = await client.modern(method, params)
            assert reply["error"]["code"] == Unavailable.code
            assert "Another transaction holds a lock" in reply["error"]["message"]
