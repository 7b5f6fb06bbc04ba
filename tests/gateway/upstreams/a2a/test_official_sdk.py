"""Agents of the official SDKs behind the gateway: `make a2a-sdk`, which names an interpreter of
Python that has its SDK, and installs that of JavaScript."""

import asyncio
import json
import os
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from config.settings import DatabaseSettings
from tests.conformance import node
from tests.fixtures_gateway import DEADLINE_S, Client, running
from tests.gateway.upstreams.a2a.test_agents_as_tools import (
    ask,
    call_of,
    call_with_answer,
    facts_of,
    text_of,
    with_agent,
)
from tests.servers import agent as servers
from tests.servers.agent import ScriptedAgent

KEY = ec.generate_private_key(ec.SECP256R1())  # which signs their cards
PYTHON = os.environ.get("A2A_PYTHON", "")
AGENT = servers.__file__.replace("agent.py", "a2a_sdk.py")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not PYTHON, reason="A2A_PYTHON names no interpreter with the SDK"),
]

Way = tuple[str, str, bool]
WAYS = [
    (sdk, name, streams)
    for sdk in ("a2a-sdk", "@a2a-js/sdk")
    for name in ("rpc", "rest", "old")
    for streams in (True, False)
]


@asynccontextmanager
async def open_gateway(
    database: DatabaseSettings, way: Way, **changes: Any
) -> AsyncIterator[Client]:
    """A gateway before an agent of an SDK."""
    sdk, interface, streams = way
    program = [PYTHON, AGENT] if sdk == "a2a-sdk" else node.install().script("agent.mjs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        secret, keys = Path(folder, "key.json"), Path(folder, "keys.json")
        secret.write_text(ECAlgorithm.to_jwk(KEY))
        public = ECAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
        keys.write_text(json.dumps({"keys": [{**public, "kid": "k1"}]}))
        options = str(port), interface, "1" if streams else "0", str(secret)
        process = await asyncio.create_subprocess_exec(*program, *options)
        try:
            await wait_for_card(base)
            settings = with_agent(database, ScriptedAgent(base), signed=str(keys), **changes)
            async with running(settings) as client:
                yield client
        finally:
            process.terminate()
            await process.wait()


async def wait_for_card(base: str) -> None:
    async with aiohttp.ClientSession() as http:
        with anyio.fail_after(30):
            while True:
                try:
                    async with http.get(f"{base}/.well-known/agent-card.json") as response:
                        json.loads(await response.text())
                        return
                except aiohttp.ClientConnectionError:
                    await anyio.sleep(0.05)


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_an_agent_of_the_sdk_is_a_tool(database_settings: DatabaseSettings, way: Way) -> None:
    async with open_gateway(database_settings, way) as client:
        said = await ask(client, message="say hello")
        assert (text_of(said), bool(facts_of(said)["context"])) == ("hello", True)
        worked = await ask(client, message="work")
        assert (text_of(worked), facts_of(worked)["state"]) == ("one two", "completed")
        failed = await ask(client, message="fail")
        assert failed["isError"]
        assert "no trains today" in text_of(failed)
        data = await ask(client, message="data")
        assert data["structuredContent"] == {"price": 7}
        kinds = [item["type"] for item in data["content"]]
        assert kinds == ["text", "image", "resource_link"]


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_questions_of_the_sdk_are_answered(
    database_settings: DatabaseSettings, way: Way
) -> None:
    async with open_gateway(database_settings, way) as client:
        asked = await ask(client, message="ask")
        assert "Who travels?" in text_of(asked)
        answered = await ask(client, message="Ada", task=facts_of(asked)["task"])
        assert text_of(answered) == "hello Ada"
        accepted = {"action": "accept", "content": {"name": "Bea"}}
        _, result = await call_with_answer(client, "ask", {"elicitation": {}}, accepted)
        assert text_of(result) == "hello Bea"
        waiting = await ask(client, message="login")
        assert facts_of(waiting)["state"] == "auth_required"
        assert "https://login.example.com/start" in text_of(waiting)
        task = {"task": facts_of(waiting)["task"]}
        with anyio.fail_after(DEADLINE_S):
            while "auth_required" in (done := facts_of(await ask(client, **task)))["state"]:
                pass
        assert done["state"] == "completed"


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_a_task_of_the_sdk_is_cancelled(
    database_settings: DatabaseSettings, way: Way
) -> None:
    async with open_gateway(database_settings, way, timeout_s=1) as client:
        late = await ask(client, message="slow")
        assert facts_of(late)["state"] == "working"
        session = await client.session("2025-11-25")
        task = {"task": facts_of(late)["task"]}
        params = {**call_of(""), "arguments": task, "_meta": {"progressToken": "p"}}
        body = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
        sent = {**session.headers, "Accept": "application/json, text/event-stream"}
        cancel = {"method": "notifications/cancelled", "params": {"requestId": 7}}
        async with client.http.post(client.url + "/mcp", json=body, headers=sent) as response:
            await response.content.readuntil(b"notifications/progress")  # the task was looked at
            await session.post({"jsonrpc": "2.0", **cancel})
        with anyio.fail_after(DEADLINE_S):
            while facts_of(ended := await ask(client, **task))["state"] == "working":
                pass
        assert facts_of(ended)["state"] == "canceled"
