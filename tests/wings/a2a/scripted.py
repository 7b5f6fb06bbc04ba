"""The agent that the TCK expects: what it does is named by the beginning of a message's id
(scenarios/*.feature of the TCK). It exists in tests alone."""

import os
from functools import partial

import anyio
import pytest

from config.a2a import A2AAgent
from gateway.wings.a2a import task_agents
from gateway.wings.a2a.task_runner import Execute, TaskWork
from registry.database.postgres import borrow
from schemas.a2a.model import Artifact, Message, Part, Role, TaskState
from schemas.errors import Unavailable

LONG_S = 2 * float(os.environ.get("TCK_STREAMING_TIMEOUT", "2.0")) + 1
TEXT = Part(text="Generated text content")
URL = "https://example.com/output.txt"
FILE = Part(raw=b"output", filename="output.txt", media_type="text/plain")
CHUNKS = (Part(text="chunk-1 "), Part(text="chunk-2"))
ARTIFACTS = {
    "tck-stream-artifact-text": (Part(text="Streamed text content"),),
    "tck-stream-artifact-file": (FILE,),
    "tck-stream-artifact-chunked": CHUNKS,
    "tck-stream-ordering-001": (Part(text="Ordered output"),),
    "tck-stream-001": (Part(text="Stream hello from TCK"),),
    "tck-stream-003": (Part(text="Stream task lifecycle"),),
    "tck-artifact-text": (TEXT,),
    "tck-artifact-file-url": (Part(url=URL, filename="output.txt", media_type="text/plain"),),
    "tck-artifact-file": (FILE,),
    "tck-artifact-data": (Part(data={"key": "value", "count": 42}),),
}


async def act(work: TaskWork) -> None:
    name = work.message.message_id
    if "lose-lease" in name and work.row.attempt == 1:
        await claim_elsewhere(work)
        raise Unavailable("Too late.")
    if name.startswith("tck-message-response"):
        part = Part(text="Direct message response")
        await work.reply(Message(message_id="reply", role=Role.AGENT, parts=(part,)))
        return
    if name.startswith("tck-reject-task"):
        await work.status(TaskState.REJECTED, "rejected")
        return
    await work.status(TaskState.WORKING)
    is_long = name.startswith("test-resubscribe-message-id")
    if name.startswith("tck-input-required") or not (is_long or name.startswith("tck-")):
        await work.status(TaskState.INPUT_REQUIRED, "Say more.", work="asking")
        return
    if is_long:
        await anyio.sleep(LONG_S)
    await send_chunks(work, next((a for n, a in ARTIFACTS.items() if name.startswith(n)), ()))
    said = "Hello from TCK" if name.startswith("tck-complete-task") else ""
    await work.status(TaskState.COMPLETED, said)


async def claim_elsewhere(work: TaskWork) -> None:
    """Another process takes up the task, and is gone."""
    async with borrow(work.parts.pool) as connection:
        await connection.execute(
            "UPDATE a2a_task_t SET attempt = attempt + 1,"
            " lease_until = clock_timestamp() + interval '0.3 s' WHERE task_id = %s",
            [work.row.id],
        )


async def send_chunks(work: TaskWork, chunks: tuple[Part, ...]) -> None:
    for place, part in enumerate(chunks):
        artifact = Artifact(artifact_id="artifact", parts=(part,))
        last = place == len(chunks) - 1
        await work.artifact(artifact, append=place > 0, last=last)


def scripted_agent(_name: str, _agent: A2AAgent) -> Execute:
    return partial(act)


@pytest.fixture(scope="module")
def scripted_kind() -> None:
    task_agents.KINDS["scripted"] = scripted_agent
