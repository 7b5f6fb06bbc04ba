"""Ids of other servers' tasks, as clients know them."""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from gateway.context import Context
from gateway.protocol.sealed import Sealer
from schemas.errors import InvalidParams
from schemas.jsonrpc import encode
from schemas.mcp.messages import TASKS_EXTENSION

TASK = "task handle"
TASK_TTL_S = 30 * 86_400.0  # its server forgets it earlier


class TaskHandle(Struct, frozen=True, array_like=True):
    """What a task id of ours says: whose task it is at its server."""

    source: str
    task: str


class TaskIds:
    """Sealed, for the caller alone whose task it is, and for the form of tasks that it is of: no
    client ever has to do with both."""

    def __init__(self, sealer: Callable[[], Awaitable[Sealer]]) -> None:
        self._sealer = sealer

    async def expose(self, source: str, task: str, context: Context) -> str:
        sealer = await self._sealer()
        return sealer.seal(TASK, TaskHandle(source, task), _owner(context), TASK_TTL_S)

    async def read(self, task_id: Any, context: Context) -> TaskHandle:
        """Raises InvalidParams for what is no task of this caller."""
        sealer = await self._sealer()
        try:
            return sealer.unseal(TASK, task_id, TaskHandle, _owner(context))
        except (InvalidParams, TypeError) as error:
            raise InvalidParams("Unknown task: it ended, or never was") from error


def knows_tasks(context: Context) -> bool:
    """Whether a 2026-07-28 request says that its client knows the tasks extension."""
    extensions = context.capabilities.get("extensions")
    return isinstance(extensions, dict) and TASKS_EXTENSION in extensions


def _owner(context: Context) -> bytes:
    return encode([*context.principal.key, context.revision.handshake])
