"""A gateway whose agents others reach: one makes calls to the pets, one follows the TCK's script,
one asks a scripted model. Ann and Bob have keys."""

import base64
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
from msgspec.structs import replace

from config.a2a import A2AAgent
from config.access import Rule
from config.models import Price, Strategy
from config.settings import DatabaseSettings, Settings, Toolset
from config.sources import SourceSettings
from gateway.wings.a2a import task_agents
from registry.access.api_keys import ApiKeys
from registry.database.postgres import Pool
from tests.fixtures_database import HOST
from tests.fixtures_gateway import Client, Recorder, running, settings_of_pets
from tests.fixtures_servers import serving
from tests.servers.provider import Answer, Provider, providing
from tests.wings.a2a.scripted import scripted_agent

V1_0 = {"A2A-Version": "1.0"}
SCOPES = ("a2a:read", "a2a:write", "agent:read", "agent:write")
AGENTS = {
    "desk": A2AAgent(description="Keeps the pets.", kind="tools", examples=("list the pets",)),
    "tck": A2AAgent(description="Does what the TCK says.", kind="scripted"),  # type: ignore[arg-type]
    "skilled": A2AAgent(
        description="Knows how.", strategy="scripted", skills=("find-pets", "sell-pets")
    ),
    "clever": A2AAgent(description="Thinks.", strategy="scripted", tenant="zoo"),
}

BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
PHOTOS = {
    "openapi": "3.0.3",
    "info": {"title": "Photos", "version": "1"},
    "paths": {
        "/photos": {"post": {"operationId": "addPhoto", "requestBody": {"content": BINARY}}},
    },
}


@dataclass
class Rig:
    client: Client
    service: Recorder
    provider: Provider
    keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def pool(self) -> Pool:
        pool = self.client.gateway._handle.pool()
        assert pool is not None
        return pool

    def headers(self, by: str, version: str = "1.0") -> dict[str, str]:
        return {"A2A-Version": version, "Authorization": f"Bearer {self.keys[by]}"}

    async def rpc(
        self,
        method: str,
        params: Any,
        *,
        by: str = "ann",
        agent: str = "desk",
        version: str = "1.0",
    ) -> Any:
        """The answer to a request of JSON-RPC."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        status, answer, _ = await self.client.post(f"/a2a/{agent}", body, self.headers(by, version))
        assert (status, answer["id"]) == (200, 1), answer
        return answer

    async def rest(self, verb: str, path: str, body: Any = None, *, by: str = "ann") -> Any:
        """Status and body of a request of HTTP+JSON."""
        url = f"{self.client.url}/a2a/desk/{path}"
        async with self.client.http.request(
            verb, url, json=body, headers=self.headers(by)
        ) as response:
            return response.status, json.loads(await response.read() or b"null")

    async def task(self, message: Any, *, now: bool = False, **more: str) -> Any:
        """The task of a message."""
        params = {"message": message, "configuration": {"returnImmediately": now}}
        answer = await self.rpc("SendMessage", params, **more)
        return answer["result"]["task"]

    async def get(self, id_: str, **more: str) -> Any:
        return (await self.rpc("GetTask", {"id": id_}, **more))["result"]

    async def until(self, id_: str, *states: str, **more: str) -> Any:
        """The task, once it has one of these states."""
        with anyio.fail_after(60):
            while True:
                task = await self.get(id_, **more)
                if task["status"]["state"].removeprefix("TASK_STATE_") in states:
                    return task
                await anyio.sleep(0.05)

    async def stream(
        self, method: str, params: Any, *, agent: str = "desk", version: str = "1.0"
    ) -> AsyncIterator[Any]:
        """The events of a stream."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        url = f"{self.client.url}/a2a/{agent}"
        headers = self.headers("ann", version)
        async with self.client.http.post(url, json=body, headers=headers) as response:
            async for line in response.content:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])["result"]


def call_message(tool: str, **arguments: Any) -> dict[str, Any]:
    """A message that names one call."""
    part = {"data": {"tool": tool, "arguments": arguments}}
    return {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": [part]}


def text_message(text: str, id_: str = "") -> dict[str, Any]:
    return {"messageId": id_ or uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}]}


def state_of(task: Any) -> str:
    return str(task["status"]["state"]).removeprefix("TASK_STATE_")


def a2a_settings(
    database: DatabaseSettings, service: Recorder, folder: Path, provider: str, **a2a: Any
) -> Settings:
    settings = settings_of_pets(database, service, folder)
    (folder / "photos.json").write_text(json.dumps(PHOTOS))
    photos = SourceSettings(openapi=str(folder / "photos.json"), base_url=service.url)
    model = Strategy(
        url=provider,
        needs_key=False,
        model="m",
        price=Price(input=1.0, output=1.0),
        max_tokens=2000,
    )
    rules = {
        "ask": Rule(effect="approve", tools=("deletePet",)),
        "no": Rule(effect="deny", tools=("createPet",), principals=("key:bob",)),
    }
    quick = {"enabled": True, "agents": AGENTS, "poll_s": 0.2, "renew_s": 0.05, "lease_s": 1.0}
    return replace(
        settings,
        sources={**settings.sources, "photos": photos},
        auth=replace(settings.auth, mode="keys"),
        secrets=replace(settings.secrets, key=base64.b64encode(bytes(32)).decode()),
        models=replace(
            settings.models, strategy="scripted", strategies={"scripted": model}, backoff_s=0.001
        ),
        policy=replace(settings.policy, rules=rules),
        toolsets={"letters": Toolset(include=("a2a_*",))},
        agent=replace(settings.agent, enabled=True, poll_s=0.2),
        a2a=replace(settings.a2a, **{**quick, "default": "desk", **a2a}),
    )


@asynccontextmanager
async def open_rig(
    database: DatabaseSettings,
    folder: Path,
    public_url: str = "",
    sources: Mapping[str, SourceSettings] | None = None,
    **a2a: Any,
) -> AsyncIterator[Rig]:
    task_agents.KINDS["scripted"] = scripted_agent
    service = Recorder()
    async with serving(service) as service.url, providing(Answer()) as provider:
        settings = a2a_settings(database, service, folder, provider.url, **a2a)
        server = replace(settings.server, public_url=public_url)
        own = {**settings.sources, **(sources or {})}
        settings = replace(settings, server=server, sources=own)
        async with running(settings) as client:
            await client.gateway.wait_for_wings()
            rig = Rig(client, service, provider)
            rig.keys = {name: await make_key(rig, name) for name in ("ann", "bob")}
            yield rig
            service.release.set()


async def make_key(rig: Rig, name: str, scopes: Sequence[str] = SCOPES) -> str:
    """The text of a key, once the gateway knows it."""
    _, text = await ApiKeys(rig.pool, HOST).create(name, None, scopes, [])
    headers = {"Authorization": f"Bearer {text}"}
    with anyio.fail_after(30):
        while True:
            url = f"{rig.client.url}/a2a-api/v1/agents"
            async with rig.client.http.get(url, headers=headers) as response:
                if response.status == 200:
                    return text
            await anyio.sleep(0.05)


@asynccontextmanager
async def second_gateway(rig: Rig) -> AsyncIterator[Rig]:
    """Another gateway over the same database, with the same agents and keys."""
    async with running(rig.client.gateway.settings) as client:
        await client.gateway.wait_for_wings()
        yield Rig(client, rig.service, rig.provider, rig.keys)
