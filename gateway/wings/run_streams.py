"""Events of runs for followers at any node. A stream of the log wakes them up."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Literal, TypeVar

import anyio

from gateway.interfaces import Event as LogEntry
from gateway.interfaces import Log
from schemas.errors import Fault

Event = TypeVar("Event")

READ_AT_ONCE = 1000

Outlook = Literal["more", "wait", "end"]
"""Whether there is more to read at once, or later, or nothing any more."""


def stream_of(wing: str, run_id: str) -> str:
    return f"{wing}:{run_id}"


async def stir(log: Log, stream: str) -> None:
    """Make followers at all nodes read the events of a run."""
    with suppress(Fault):  # they look at it now and then
        await log.append(stream, b"")


async def read_entries(log: Log, stream: str, after: str) -> Sequence[LogEntry]:
    """All entries behind `after`, by `log.read`, shielded where it queries: a cancel scope costs
    more than a read of memory."""
    entries = list[LogEntry]()
    with anyio.CancelScope(shield=True) if log.is_remote else nullcontext():
        while page := await log.read(stream, after, READ_AT_ONCE):
            entries += page
            if len(page) < READ_AT_ONCE:
                break
            after = page[-1].id
    return entries


async def follow_events(
    watch: Callable[[Callable[[], None]], AbstractContextManager[None]],
    read: Callable[[bool], Awaitable[tuple[Sequence[Event], Outlook]]],
    every_s: float,
) -> AsyncIterator[Sequence[Event]]:
    """The events that `read` gives, each time that `watch` wakes. The argument of `read` tells
    whether nothing has for `every_s` seconds: then an entry may have been lost. It shields its
    queries: a reader that leaves within one would cost the pool a connection."""
    wake, is_late = asyncio.Event(), False
    loop = asyncio.get_running_loop()
    due = loop.time() + every_s
    timer: asyncio.TimerHandle

    def expire() -> None:  # one timer for all waits: making one costs as much as a wait
        nonlocal is_late, timer
        if loop.time() >= due:
            is_late = True
            wake.set()
        timer = loop.call_later(max(due - loop.time(), every_s / 10), expire)

    timer = loop.call_at(due, expire)
    try:
        with watch(wake.set):
            while True:
                wake.clear()
                events, outlook = await read(is_late)
                if events:
                    yield events
                if outlook == "end":
                    return
                is_late = False
                if outlook == "wait":
                    due = loop.time() + every_s
                    await wake.wait()
    finally:
        timer.cancel()
