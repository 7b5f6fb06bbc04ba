"""Message bus between nodes: one stream of the log that all of them follow.

A node that fell behind what the log keeps has missed messages: it calls the `on_missed` callbacks,
which invalidate what was cached from messages.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskGroup

from gateway.interfaces import Log
from schemas.errors import Fault, InvalidParams, Unavailable
from schemas.jsonrpc import encode

log = logging.getLogger("toolgate.bus")

STREAM = "bus"
EVENTS_LIMIT = 10_000  # messages; independent of the replay settings
LOOK_EVERY_S = 5.0  # polling interval, in case a wake-up is lost
RETRY_S = 0.5

Handler = Callable[[dict[str, Any]], Awaitable[None]]


class Bus:
    def __init__(self, event_log: Log, shared: bool, node: str = "") -> None:
        """A bus that sends messages only if the log is `shared` with other nodes."""
        self.node = node or secrets.token_hex(4)
        self.shared = shared
        self.following = asyncio.Event()  # set once no later message is missed
        self._log = event_log
        self._after: str | None = None  # id of the last message received
        self._handlers: dict[str, Handler] = {}
        self._own: set[str] = set()
        self._missed: list[Callable[[], None]] = []

    def on(self, kind: str, handler: Handler, from_self: bool = False) -> None:
        """Register the handler of one kind of message from other nodes, called in the order of
        sending; with `from_self`, of this node's messages as well."""
        self._handlers[kind] = handler
        if from_self:
            self._own.add(kind)

    def on_missed(self, reload: Callable[[], None]) -> None:
        self._missed.append(reload)

    async def broadcast(self, kind: str, **fields: Any) -> bool:
        """Broadcast to the other nodes; False when the log is unavailable: they have to find out
        later."""
        if not self.shared:
            return False
        try:
            await self._log.append(STREAM, encode({"node": self.node, "kind": kind, **fields}))
        except Unavailable:
            log.warning("bus_unavailable", extra={"kind": kind})
            return False
        return True

    async def run(self) -> None:
        """Receive messages of other nodes until cancelled."""
        if not self.shared:
            self.following.set()
            return
        async with anyio.create_task_group() as tasks:
            while True:
                try:
                    await self._follow(tasks)
                except Unavailable:
                    await asyncio.sleep(RETRY_S)
                except InvalidParams:
                    log.warning("bus_messages_missed")
                    self._after = None
                    for reload in self._missed:
                        reload()

    async def _follow(self, tasks: TaskGroup) -> None:
        """Dispatch messages as they arrive. Raises InvalidParams when the log has dropped the next
        one."""
        wake = asyncio.Event()
        with self._log.watch(STREAM, wake.set):
            if self._after is None:
                self._after = await self._log.last(STREAM)
                self.following.set()
            while True:
                wake.clear()
                events = await self._log.read(STREAM, self._after)
                for event in events:
                    self._after = event.id
                    tasks.start_soon(self._dispatch, event.data)
                if not events:
                    with anyio.move_on_after(LOOK_EVERY_S):
                        await wake.wait()

    async def _dispatch(self, data: bytes) -> None:
        try:
            message = msgspec.json.decode(data, type=dict[str, Any])
            kind, node = str(message["kind"]), message["node"]
        except (msgspec.DecodeError, KeyError) as error:  # foreign, or of a later version
            log.warning("bus_message_unreadable", extra={"reason": str(error)[:300]})
            return
        handler = self._handlers.get(kind)
        if handler is None or (node == self.node and kind not in self._own):
            return
        try:
            await handler(message)
        except Fault as fault:
            log.warning("bus_message_failed", extra={"kind": kind, "reason": fault.message[:300]})
        except Exception:  # a handler that fails must not stop the bus
            log.exception("bus_crashed", extra={"kind": kind})
