"""The memory as a wing of a gateway, on every front."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from config.settings import Settings
from tests.fixtures_gateway import Client, running
from tests.wings.test_toy import got, rpc

pytestmark = pytest.mark.anyio

TEA = {"content": "Ann prefers green tea", "scope": "user"}


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[Client]:
    async with running(replace(settings, memory=replace(settings.memory, enabled=True))) as client:
        yield client


async def called(client: Client, name: str, arguments: Any) -> Any:
    session = await client.session()
    params = {"name": name, "arguments": arguments}
    result = (await session.call("tools/call", params))["result"]
    assert not result.get("isError"), result
    return result["structuredContent"]


async def test_every_front_serves_the_same_memory(client: Client) -> None:
    status, added, headers = await client.post("/memory/v1/memories", TEA)
    assert (status, added["items"][0]["created"]) == (201, True)
    assert headers["location"] == f"/memory/v1/memories/{added['items'][0]['id']}"
    status, view, _ = await got(client, headers["location"])
    assert (status, view["content"], view["trust"]) == (200, TEA["content"], "agent")
    answer = await client.rpc(rpc("memory_search", {"query": "which tea does she drink?"}))
    assert [one["content"] for one in answer["result"]["items"]] == [TEA["content"]]
    again = await called(client, "memory_add", TEA)
    assert again["items"] == [{"id": added["items"][0]["id"], "created": False}]
    found = await called(client, "memory_search", {"query": "green tea", "explain": True})
    assert found["items"][0]["parts"]["words"] > 0


async def test_m01_a_write_names_one_of_four_scopes(client: Client) -> None:
    for scope in ("global", None, ["user"]):
        status, problem, _ = await client.post("/memory/v1/memories", {**TEA, "scope": scope})
        assert (status, problem["errors"][0]["pointer"]) == (422, "/scope")
    session = await client.session()
    params = {"name": "memory_add", "arguments": {"content": "A fact"}}
    answer = await session.call("tools/call", params)
    assert "scope" in json.dumps(answer)
