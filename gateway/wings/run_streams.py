"""Events of runs for followers at any node. A stream of the log wakes them up."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Literal, TypeVar

import anyio

from gateway.interfaces import Event as LogEntry
from gateway.interfaces import Log
from schemas.errors import Fault

Event = TypeVar("Event")

Outlook = Literal["more", "wait", "end"]
"""Whether there is more to read at once, or later, or nothing any more."""


def stream_of(wing: str, run_id: str) -> str:
    return f"{wing}:{run_id}"


async def stir(log: Log, stream: str) -> None:
    """Make followers at all nodes read the events of a run."""
    with suppress(Fault):  # they look at it now and then
        await log.append(stream, b"")


async def read_entries(log: Log, stream: str, after: str) -> Sequence[LogEntry]:
    """`log.read`, shielded where it queries: a cancel scope costs more than a read of memory."""
    if log.is_remote:
        with anyio.CancelScope(shield=True):
            entries = await log.read(stream, after)
    else:
        entries = await log.read(stream, after)
    return entries


async def follow_events(
    log: Log,
    stream: str,
    read: Callable[[bool], Awaitable[tuple[Sequence[Event], Outlook]]],
    every_s: float,
) -> AsyncIterator[Sequence[Event]]:
    """The events that `read` gives, each time that the stream has grown. Its argument tells whether
    nothing has for `every_s` seconds: then an entry may have been lost. `read` shields its queries:
    a reader that leaves within one would cost the pool a connection."""
    wake, is_late = asyncio.Event(), False
    loop = asyncio.get_running_loop()

    def expire() -> None:
        nonlocal is_late
        is_late = True
        wake.set()

    with log.watch(stream, wake.set):
        while True:
            wake.clear()
            events, outlook = await read(is_late)
            if events:
                yield events
            if outlook == "end":
                return
            is_late = False
            if outlook == "wait":
                timer = loop.call_later(every_s, expire)  # an anyio scope costs ten times as much
                try:
                    await wake.wait()
                finally:
                    timer.cancel()
