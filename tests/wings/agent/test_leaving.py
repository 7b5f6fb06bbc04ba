"""Runs whose clients leave, and runs that find no room."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from config.settings import DatabaseSettings
from tests.servers.provider import Answer, chat_whole, delta, sse
from tests.wings.agent.rig import Rig, open_rig
from tests.wings.agent.test_streams import STREAM

pytestmark = pytest.mark.anyio

THREAD = {
    "threadId": str(uuid4()), "runId": "r", "state": {}, "tools": [], "context": [],
    "forwardedProps": {}, "messages": [{"id": "1", "role": "user", "content": "Hi"}],
}  # fmt: skip
COMPLETION = {"model": "agent", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}


async def leave(rig: Rig, path: str, body: Any) -> str:
    """Leave a stream once it has shown a word: the run."""
    rig.script(Answer(pieces=[sse(delta(content="One"))], end="hang"))
    async with rig.client.http.post(rig.client.url + path, json=body, headers=STREAM) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            if b"One" in line:
                break
        _, listed = await rig.get("/runs?limit=1")
        response.close()
    return str(listed["runs"][0]["run"])


async def test_a_run_is_cancelled_when_its_client_leaves(
    module_database: DatabaseSettings, tmp_path: Path
) -> None:
    paths: list[tuple[str, Any]] = [
        ("/agent/v1/ask", {"message": "Hi"}),
        ("/agent/v1/agui", THREAD),
        ("/v1/chat/completions", COMPLETION),
    ]
    async with open_rig(module_database, tmp_path, cancel_on_disconnect=True) as rig:
        with anyio.fail_after(60):
            for path, body in paths:
                run = await leave(rig, path, body)
                await rig.provider.hung_up[0].wait()
                await rig.until(run, "cancelled")


async def test_runs_beyond_the_limit_wait(
    module_database: DatabaseSettings, tmp_path: Path
) -> None:
    async with open_rig(module_database, tmp_path, runs=1, open_runs=2) as rig:
        rig.script(Answer(silent=True), chat_whole("Second."))
        with anyio.fail_after(60):
            _, first = await rig.post("/ask", {"message": "1", "wait": False})
            await rig.provider.asked.wait()
            _, second = await rig.post("/ask", {"message": "2", "wait": False})
            assert (first["state"], second["state"]) == ("running", "queued")
            _, health = await rig.get("/health")
            assert health["runs"] == 1
            status, problem = await rig.post("/ask", {"message": "3", "wait": False})
            assert (status, problem["type"]) == (429, "problems/too-many-requests")
            await rig.post(f"/runs/{first['run']}/cancel")
            found = await rig.until(second["run"], "completed")
    assert found["answer"] == "Second."
