"""What tests of tasks have in common."""

from typing import Any

import anyio

from tests.gateway.federation.conftest import EVERYTHING, Caller

LEGACY = "2025-11-25"
EXTENSION = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
KNOWS = {**EVERYTHING, "extensions": {EXTENSION: {}}}
OVER = ("completed", "failed", "cancelled")


async def result(caller: Caller, method: str, params: dict[str, Any]) -> dict[str, Any]:
    answer = await caller.result(method, params)
    assert "result" in answer, answer
    return dict(answer["result"])


async def refusal(caller: Caller, method: str, params: dict[str, Any]) -> tuple[int, str]:
    error = (await caller.result(method, params))["error"]
    return error["code"], error["message"]


def calling(tool: str, /, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}


async def begin_task(caller: Caller, tool: str, /, **arguments: Any) -> str:
    """The id of the task that a call of a tool became."""
    wish = {"task": {"ttl": 60_000}} if caller.session else {}
    said = await result(caller, "tools/call", calling(tool, **arguments) | wish)
    task = said["task"] if caller.session else said
    assert caller.session is not None or said["resultType"] == "task"
    assert task["status"] in ("working", "input_required")
    return str(task["taskId"])


async def until(caller: Caller, task: str, *statuses: str) -> dict[str, Any]:
    """How the task is, when it is one of these."""
    with anyio.fail_after(20):
        while True:
            said = await result(caller, "tasks/get", {"taskId": task})
            assert said["taskId"] == task
            if said["status"] in statuses:
                return said
