"""Progress of calls that take long, for the client of the tool call: notifications of MCP, if
it sent a progress token, and its front can send something before the answer."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from gateway.context import Context, Peer
from gateway.operations.job_declarations import NO_JOB, Job
from schemas.errors import Unavailable
from schemas.jsonrpc import Notification, encode
from schemas.mcp.messages import PROGRESS
from schemas.mcp.revisions import V2024_11_05

PAUSE_S = 0.1  # between notifications, so that a tight loop does not flood a client
BEAT_S = 1.0  # between those of a call of unknown length that has no news
NOTE = 500  # characters


@asynccontextmanager
async def report_progress(context: Context) -> AsyncIterator[Job]:
    """The handle that takes the progress of a call, until it has ended."""
    token, peer = _token(context), context.peer
    if token is None or peer is None:
        yield NO_JOB
        return
    notifications = ProgressNotifications(peer, token, notes=context.revision is not V2024_11_05)
    sending = asyncio.create_task(notifications.run())
    try:
        yield notifications
    finally:
        notifications.end()
        await sending  # what it sends must be whole before the answer


def _token(context: Context) -> int | str | None:
    meta = context.params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return token if isinstance(token, int | str) else None


class ProgressNotifications:
    """Implements `Job`. The newest progress is sent, and only while it grows, as MCP demands: a
    client that reads slowly misses some."""

    def __init__(self, peer: Peer, token: int | str, *, notes: bool = True) -> None:
        """`notes`: whether the client's revision has messages in them."""
        self._peer = peer
        self._token = token
        self._notes = notes
        self._newest: tuple[int, int | None, str] | None = None
        self._sent: float = -math.inf
        self._beats = 0  # since it grew
        self._woken = anyio.Event()
        self._ended = anyio.Event()

    def progress(self, done: int, total: int | None = None, note: str = "") -> None:
        self._newest = (done, total, note)
        self._woken.set()

    def end(self) -> None:
        self._ended.set()
        self._woken.set()

    async def run(self) -> None:
        """Send notifications until the end, or until the client cannot be reached."""
        while not self._ended.is_set():
            with anyio.move_on_after(BEAT_S) as waiting:
                await self._woken.wait()
                self._woken = anyio.Event()
            if (value := self._value(is_beat=waiting.cancelled_caught)) > self._sent:
                self._sent = value
                try:
                    await self._peer.notify(encode(Notification(PROGRESS, self._params())))
                except Unavailable:
                    return
            with anyio.move_on_after(PAUSE_S):
                await self._ended.wait()

    def _value(self, *, is_beat: bool) -> float:
        """The progress; each beat adds a fraction, as values have to grow."""
        done, total, _ = self._newest or (-math.inf, None, "")
        self._beats = 0 if done > self._sent else self._beats + (is_beat and total is None)
        return done + self._beats / (self._beats + 1) if self._beats else done

    def _params(self) -> dict[str, Any]:
        _, total, note = self._newest or (0, None, "")
        params: dict[str, Any] = {"progressToken": self._token, "progress": self._sent}
        if total is not None:
            params["total"] = total
        if note and self._notes:
            params["message"] = note[:NOTE]
        return params
