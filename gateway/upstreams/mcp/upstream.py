"""Tools of other MCP servers: executes `McpBinding`."""

from typing import Any, cast

import msgspec
from msgspec import Raw

from gateway.abc import Relay, RelayRequest
from gateway.context import Context
from gateway.protocol.sealed import TaskIds, knows_tasks
from schemas.binding import McpBinding
from schemas.errors import Unreachable
from schemas.jsonrpc import decode_members, encode
from schemas.mcp.headers import param_headers
from schemas.source import Source
from schemas.tool import RelayedResult, Tool

Members = dict[str, Raw]

RESULT_TASK = Raw(b'"task"')


class McpUpstream:
    """Implements `Upstream`."""

    def __init__(self, relay: Relay, task_ids: TaskIds) -> None:
        self._relay = relay
        self._task_ids = task_ids

    async def call(
        self, tool: Tool, source: Source | None, arguments: Any, context: Context
    ) -> RelayedResult:
        binding = cast("McpBinding", tool.binding)  # app.py: each upstream has its own kind
        if source is None:
            raise Unreachable(f"The server of {tool.name} is not known here any more")
        params = {**context.params, "name": binding.name, "arguments": arguments}
        headers = param_headers(binding.mirrored, arguments) if binding.mirrored else {}
        asked = RelayRequest(source, "tools/call", params, binding.eras, headers)
        members = await self._relay.request(asked, context)
        if "task" in members or members.get("resultType") == RESULT_TASK:
            members = await self._with_own_task_id(members, source.name, context)
        return RelayedResult(members)

    async def _with_own_task_id(self, members: Members, source: str, context: Context) -> Members:
        if members.get("resultType") == RESULT_TASK:
            if not knows_tasks(context):
                raise Unreachable(f"{source} began a task, which this client does not know")
            return await self._renamed(members, source, context)
        if not context.revision.tasks or "task" not in context.params:
            return members  # not a task of 2025-11-25: the client requested none
        task = decode_members(members["task"])
        return {**members, "task": Raw(encode(await self._renamed(task, source, context)))}

    async def _renamed(self, members: Members, source: str, context: Context) -> Members:
        task = msgspec.json.decode(members.get("taskId", b"null"))
        if not isinstance(task, str):
            raise Unreachable(f"{source} began a task without saying its id")
        return {
            **members,
            "taskId": Raw(encode(await self._task_ids.expose(source, task, context))),
        }
