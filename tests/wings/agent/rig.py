"""A gateway with the agent, the service of the pets behind it, and a scripted model."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from msgspec.structs import replace

from config.access import Rule
from config.models import Price, Strategy
from config.settings import DatabaseSettings, Settings, Toolset
from config.sources import SourceSettings
from gateway.wings.interface import WingParts
from registry.database.postgres import borrow
from tests.fixtures_gateway import Client, Recorder, pets, running, wordless
from tests.fixtures_servers import serving
from tests.servers.provider import Answer, Provider, Say, providing

RULES = {
    "ask": Rule(effect="approve", tools=("deletePet",)),
    "no": Rule(effect="deny", tools=("more_0000",)),
    "tainted": Rule(
        effect="approve", principals=("careful",), when="context.tainted && !tool.readOnly"
    ),
}
QUICK: Mapping[str, Any] = {
    "enabled": True, "poll_s": 0.2, "renew_s": 0.05, "lease_s": 1.0, "transcripts": True,
    "keep_alive_s": 600.0,  # a stream that only its interval woke would time out
}  # fmt: skip


@dataclass
class Rig:
    client: Client
    provider: Provider
    service: Recorder

    def script(self, *answers: Answer | Say) -> None:
        """What the model says from now on."""
        self.provider.answers[:] = answers
        self.provider.requests.clear()
        self.provider.hung_up.clear()
        self.provider.asked.clear()
        self.service.requests.clear()

    async def post(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        sent = b"" if body is None else body
        status, answer, _ = await self.client.post(f"/agent/v1{path}", sent, headers)
        return status, answer

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.client.http.get(f"{self.client.url}/agent/v1{path}") as response:
            text = await response.read()
            return response.status, json.loads(text) if text else None

    async def delete(self, path: str) -> int:
        async with self.client.http.delete(f"{self.client.url}/agent/v1{path}") as response:
            return response.status

    async def ask(self, message: str, **body: Any) -> Any:
        status, answer = await self.post("/ask", {"message": message, **body})
        assert status == 200, answer
        return answer

    async def conversation(self) -> str:
        status, made = await self.post("/conversations")
        assert status == 201, made
        return str(made["id"])

    async def until(self, run: str, *states: str) -> Any:
        """The run, once it has one of these states."""
        with anyio.fail_after(60):
            while True:
                _, found = await self.get(f"/runs/{run}")
                if found["state"] in states:
                    return found
                await anyio.sleep(0.02)

    async def steps(self, run: str) -> list[str]:
        """The kinds of the steps of a run."""
        pool = self.client.gateway._handle.pool()
        assert pool is not None
        async with borrow(pool) as connection:
            found = await connection.execute(
                "SELECT kind FROM agent_step_t WHERE run_id = %s ORDER BY number", [run]
            )
            return [kind for (kind,) in await found.fetchall()]

    def sent_messages(self, place: int) -> list[Any]:
        """The messages of a request to the model."""
        return list(self.provider.requests[place].body["messages"])

    async def parts(self) -> WingParts:
        """The parts of the wing."""
        assert self.client.gateway.wings is not None
        [wing] = [one for one in self.client.gateway.wings._served if one.name == "agent"]
        return await wing.parts()

    @property
    def service_calls(self) -> list[str]:
        """Method and path of the calls that reached the service."""
        return [f"{one['method']} {one['path']}" for one in self.service.requests]


def agent_settings(
    database: DatabaseSettings, description: Path, service: Recorder, url: str, **agent: Any
) -> Settings:
    defaults = wordless()
    description.write_text(json.dumps(pets(1)))
    scripted = Strategy(
        url=url, needs_key=False, model="m", price=Price(input=1.0, output=1.0), max_tokens=2000
    )
    clever = replace(scripted, dialect="anthropic")
    strategies = {"scripted": scripted, "clever": clever}
    models = replace(defaults.models, strategy="scripted", strategies=strategies, backoff_s=0.001)
    return replace(
        defaults,
        database=database,
        sources={"pets": SourceSettings(openapi=str(description), base_url=service.url)},
        models=models,
        toolsets={"some": Toolset(include=("agent_*", "deletePet"))},
        policy=replace(defaults.policy, rules=RULES),
        agent=replace(defaults.agent, **{**QUICK, **agent}),
    )


@asynccontextmanager
async def open_rig(database: DatabaseSettings, folder: Path, **agent: Any) -> AsyncIterator[Rig]:
    service = Recorder()
    async with serving(service) as service.url, providing(Answer()) as provider:
        settings = agent_settings(database, folder / "pets.json", service, provider.url, **agent)
        async with running(settings) as client:
            yield Rig(client, provider, service)
