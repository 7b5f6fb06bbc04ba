"""Tasks of two gateways over one database, one of which is killed: none is lost, and none is made
twice unless its call may be repeated."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import anyio
import pytest
import yaml
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from config.a2a import A2AAgent
from config.settings import DatabaseSettings, Settings
from config.sources import SourceSettings
from registry.database.postgres import borrow
from tests.fixtures_gateway import Client, pets, running, wordless
from tests.fixtures_servers import serving as serving_app
from tests.gateway.cli.processes import Served, serving
from tests.properties import SHARE
from tests.wings.a2a.rig import call_message

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

TASKS = 200 if SHARE >= 1 else 50
FOLLOWED = 4
QUICK = {"enabled": True, "poll_s": 0.1, "renew_s": 0.2, "lease_s": 1.0, "open_tasks": 1000}
PLACES = {"tasks": 16, "tasks_per_tenant": 16, "tasks_per_principal": 16}
DESK = {"description": "Keeps the pets.", "kind": "tools"}


@dataclass
class Zoo:
    """The service behind both gateways: kills one of them at a call, before its effect or behind
    it. Pets below `FOLLOWED` are answered only then."""

    kill_at: int
    kills_before: bool
    kill: Callable[[], None] = lambda: None
    calls: Counter[str] = field(default_factory=Counter)
    killed: anyio.Event = field(default_factory=anyio.Event)

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/pets/{id:int}", self.read),
                Route("/pets", self.create, methods=["POST"]),
            ]
        )

    async def read(self, request: Request) -> Response:
        self._count(f"read {request.path_params['id']}")
        if request.path_params["id"] < FOLLOWED:
            await self.killed.wait()
        return JSONResponse({})

    async def create(self, request: Request) -> Response:
        self._count(f"create {(await request.json())['name']}")
        return JSONResponse({})

    def _count(self, call: str) -> None:
        is_last = self.calls.total() == self.kill_at
        if is_last and self.kills_before:
            self._kill()
        self.calls[call] += 1
        if is_last:
            self._kill()

    def _kill(self) -> None:
        self.kill()
        self.killed.set()


def pets_settings(database: DatabaseSettings, folder: Path, url: str) -> Settings:
    description = folder / "pets.json"
    description.write_text(json.dumps(pets()))
    settings = wordless()
    a2a = replace(settings.a2a, agents={"desk": A2AAgent(**DESK)}, **QUICK, **PLACES)  # type: ignore[arg-type]
    source = SourceSettings(openapi=str(description), base_url=url)
    return replace(settings, database=database, sources={"pets": source}, a2a=a2a)


@asynccontextmanager
async def serving_process(settings: Settings, folder: Path) -> AsyncIterator[Served]:
    """Another gateway with the same settings, in a process of its own."""
    source = settings.sources["pets"]
    values = {
        "database": {"url": settings.database.url},
        "embedding": {"provider": "disabled"},
        "sources": {"pets": {"openapi": source.openapi, "base_url": source.base_url}},
        "a2a": {"agents": {"desk": DESK}, **QUICK, **PLACES},
    }
    path = folder / "toolgate.yaml"
    path.write_text(yaml.safe_dump(values))
    async with serving("--config", str(path)) as gateway:
        await gateway.ready()
        yield gateway


async def send(client: Client, url: str, message: Any) -> str:
    """The id of the task of a message, which is sent again where the gateway has been killed."""
    params = {"message": message, "configuration": {"returnImmediately": True}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    headers = {"A2A-Version": "1.0"}
    try:
        async with client.http.post(f"{url}/a2a/desk", json=body, headers=headers) as response:
            answer = await response.json()
    except aiohttp.ClientError:
        return await send(client, client.url, message)
    return str(answer["result"]["task"]["id"])


async def follow(client: Client, task: str, states: list[str]) -> None:
    """Add the last state of a task that a stream has."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}}
    headers, state = {"A2A-Version": "1.0"}, ""
    async with client.http.post(f"{client.url}/a2a/desk", json=body, headers=headers) as response:
        async for line in response.content:
            if line.startswith(b"data: "):
                update = json.loads(line[6:])["result"].get("statusUpdate")
                state = update["status"]["state"] if update else state
    states.append(state)


async def wait_for_ends(client: Client) -> dict[str, str]:
    """The states of all tasks by their calls, once all have ended."""
    pool = client.gateway.feed.pool
    assert pool is not None
    while True:
        async with borrow(pool) as connection:
            rows = await connection.execute("SELECT work, state, task FROM a2a_task_t")
            tasks = await rows.fetchall()
        if all(work == "ended" for work, _, _ in tasks):
            return {named_call(json.loads(task)): state for _, state, task in tasks}
        await anyio.sleep(0.1)


def named_call(task: Any) -> str:
    call = task["history"][0]["parts"][0]["data"]
    verb = "read" if call["tool"] == "getPet" else "create"
    return f"{verb} {next(iter(call['arguments'].values()))}"


async def test_no_task_is_lost_or_made_twice_when_a_gateway_is_killed(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    random = Random()
    zoo = Zoo(random.randrange(FOLLOWED, TASKS * 3 // 4), random.random() < 0.5)
    numbers = list(range(FOLLOWED, TASKS))
    messages = [
        call_message("getPet", id=number)
        if number % 2
        else call_message("createPet", name=str(number))
        for number in numbers
    ]
    async with serving_app(zoo.app) as url:
        settings = pets_settings(database_settings, tmp_path, url)
        async with running(settings) as client, serving_process(settings, tmp_path) as killed:
            await client.gateway.wait_for_wings()
            zoo.kill = killed.process.kill
            states: list[str] = []
            with anyio.fail_after(240):
                async with anyio.create_task_group() as group:
                    for number in range(FOLLOWED):
                        task = await send(client, killed.url, call_message("getPet", id=number))
                        group.start_soon(follow, client, task, states)
                    for place, message in enumerate(messages):
                        node = killed.url if place % 3 else client.url
                        group.start_soon(send, client, node, message)
                ends = await wait_for_ends(client)
    assert states == ["TASK_STATE_COMPLETED"] * FOLLOWED
    expected = {f"read {number}" for number in range(FOLLOWED)} | {
        f"{'read' if number % 2 else 'create'} {number}" for number in numbers
    }
    assert ends.keys() == expected  # none is lost
    story = f"killed at {zoo.kill_at}, before: {zoo.kills_before}"
    for call, state in ends.items():
        if call.startswith("read"):
            assert (state, zoo.calls[call] >= 1) == ("TASK_STATE_COMPLETED", True), (call, story)
        elif state == "TASK_STATE_COMPLETED":
            assert zoo.calls[call] == 1, (call, story)
        else:  # its process ended while the call was made
            assert (state, zoo.calls[call] <= 1) == ("TASK_STATE_FAILED", True), (call, story)
