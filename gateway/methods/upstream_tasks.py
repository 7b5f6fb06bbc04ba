"""Tasks of other servers: `tasks/*` of 2025-11-25 and of the tasks extension of 2026-07-28.

Not offered: tasks/list, because a server lists the tasks of all clients of a session, and sessions
may be shared; and status notifications, which do not name a task's owner. Clients poll.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from gateway.context import Context, Peer
from gateway.interfaces import Relay, RelayRequest
from gateway.methods.capabilities import capabilities
from gateway.methods.lists import Lists
from gateway.methods.prompts import params_of, relay_context, view
from gateway.protocol import upstream_errors
from gateway.protocol.revision_adapter import Members, task_result
from gateway.protocol.sealed_state import TaskIds, knows_tasks
from registry.catalog.catalog import Catalog
from schemas.errors import InvalidParams, MethodNotFound, MissingClientCapability, RelayedFault
from schemas.jsonrpc import Request, decode_members, encode
from schemas.mcp.messages import META_RELATED_TASK, TASKS_EXTENSION, TaskParams, read
from schemas.mcp.revisions import Revision
from schemas.mcp.snapshot import Eras

_RELATED_TASK = META_RELATED_TASK.encode()


class TaskMethods:
    def __init__(self, lists: Lists, relay: Relay, task_ids: TaskIds) -> None:
        self._lists = lists
        self._relay = relay
        self._task_ids = task_ids

    async def relay(self, context: Context, request: Request) -> Members:
        """Relay the request to the task's server; a task exists only in the era it began in."""
        catalog, surroundings = self._lists.catalog(context), relay_context(context, request)
        _check(catalog, surroundings, request.method)
        task_id = read(request.params, TaskParams).task_id
        handle = await self._task_ids.read(task_id, context)
        source = catalog.sources.get(handle.source)
        if source is None:
            raise InvalidParams("Unknown task: its server is not known here any more")
        eras: Eras = "handshake" if context.revision.handshake else "stateless"
        relay_request = RelayRequest(
            source, request.method, {**params_of(request), "taskId": handle.task}, eras
        )
        if context.peer is not None:
            surroundings = replace(surroundings, peer=_TaskPeer(context.peer, task_id))
        try:
            members = await self._relay.request(relay_request, surroundings)
        except RelayedFault as fault:
            raise upstream_errors.fault_for_client(fault, context.revision) from fault
        source_view = view(catalog, source.name, context)
        of_tool = request.method == "tasks/result"
        translated = (
            source_view.call_result(task_result(members)) if of_tool else source_view.task(members)
        )
        return _rename_task(translated, encode(task_id))


@dataclass(frozen=True, slots=True)
class _TaskPeer:
    """A Peer that rewrites the server's task id to the client's in messages."""

    inner: Peer
    task_id: str

    async def notify(self, message: bytes) -> None:
        if _RELATED_TASK in message:
            members = decode_members(Raw(message))
            params = _relate(decode_members(members["params"]), encode(self.task_id))
            message = encode({**members, "params": params})
        await self.inner.notify(message)

    async def ask(self, method: str, params: Any) -> Any:
        meta = params.get("_meta") if isinstance(params, dict) else None
        if isinstance(meta, dict) and META_RELATED_TASK in meta:
            meta = {**meta, META_RELATED_TASK: {"taskId": self.task_id}}
            params = {**params, "_meta": meta}
        return await self.inner.ask(method, params)

    async def keep_alive(self) -> None:
        await self.inner.keep_alive()


def _check(catalog: Catalog, context: Context, method: str) -> None:
    """Raises MethodNotFound where tasks are not announced, and MissingClientCapability for a
    2026-07-28 client that does not declare them."""
    if not _offers_tasks(catalog, context.revision):
        raise MethodNotFound(f"Method not found: {method}: no server here has tasks")
    if context.revision.result_type and not knows_tasks(context):
        text = f"This needs a client that declares {TASKS_EXTENSION}"
        needed: dict[str, Any] = {"extensions": {TASKS_EXTENSION: {}}}
        raise MissingClientCapability(text, {"requiredCapabilities": needed})


def _offers_tasks(catalog: Catalog, revision: Revision) -> bool:
    offered = capabilities(catalog, revision)
    return "tasks" in offered or TASKS_EXTENSION in offered.get("extensions", ())


def _rename_task(members: Members, task_id: bytes) -> Members:
    """Replace the server's task id with the client's wherever it stands."""
    if "taskId" in members:
        members = {**members, "taskId": Raw(task_id)}
    return _relate(members, task_id)


def _relate(members: Mapping[str, Raw], task_id: bytes) -> Members:
    if _RELATED_TASK not in bytes(members.get("_meta", b"")):
        return dict(members)
    related = Raw(b'{"taskId":' + task_id + b"}")
    meta = {**decode_members(members["_meta"]), META_RELATED_TASK: related}
    return {**members, "_meta": Raw(encode(meta))}
