"""Events of a run for its clients, and the log that they are read from, at any node.

Each has a number that grows within its run; a client that was cut off goes on behind the last one
that it has seen. A run has exactly one terminal event.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import anyio
import msgspec
from msgspec import Struct

from gateway.interfaces import Event, Log
from gateway.wings.agent.conversation_and_run_store import Run
from gateway.wings.run_streams import Outlook, follow_events, read_entries, stream_of
from schemas.errors import Fault, Unavailable

log = logging.getLogger("toolgate.agent")

TERMINAL = ("Completed", "Error")
WAITS = "waiting_for_approval"  # status of an event
WAITS_FOR_CONNECTION = "waiting_for_connection"
PER_ATTEMPT = 1_000_000_000  # numbers of the events of one process


class RunEvent(Struct, frozen=True):
    """`body` is JSON as its writer encoded it, which streams send on."""

    number: int
    type: str
    body: msgspec.Raw = msgspec.field(name="data")

    @property
    def data(self) -> dict[str, Any]:
        """The members of `body`, decoded in each call."""
        return _members.decode(self.body)

    @property
    def terminal(self) -> bool:
        return self.type in TERMINAL

    @property
    def awaited_approval(self) -> str:
        """The approval that the run waits for by this event; "": none."""
        data = self.data if self.type == "StatusUpdate" else {}
        return data["approval"] if data.get("status") == WAITS else ""


def run_event(number: int, type_: str, data: Mapping[str, Any]) -> RunEvent:
    return RunEvent(number, type_, msgspec.Raw(msgspec.json.encode(data)))


_members = msgspec.json.Decoder(dict[str, Any])
_events = msgspec.json.Decoder(list[RunEvent])


def decode_events(entry: Event) -> list[RunEvent]:
    """The events of an entry of the log; one without only stirs its readers."""
    return _events.decode(entry.data) if entry.data else []


class EventWriter:
    """Writes the events of a run while one process has it. Events that come while others are
    written are written together."""

    def __init__(self, stream: Log, run: Run) -> None:
        self._log = stream
        self._stream = stream_of("agent", run.id)
        self._conversation = run.conversation
        self._number = run.attempt * PER_ATTEMPT
        self._waiting: list[RunEvent] = []
        self._wake = asyncio.Event()
        self.iteration = 0

    def put(self, type_: str, **data: Any) -> None:
        self._number += 1
        common = {"conversation_id": self._conversation, "iteration": self.iteration}
        self._waiting.append(run_event(self._number, type_, {**common, **data}))
        self._wake.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._wake.wait()
            await self.flush()

    async def flush(self) -> None:
        while self._waiting:
            events, self._waiting = self._waiting, []
            self._wake.clear()
            await self._append(events)
        self._wake.clear()

    async def _append(self, events: list[RunEvent]) -> None:
        try:
            await self._log.append(self._stream, msgspec.json.encode(events))
        except Unavailable as error:
            log.warning("agent_events_lost", extra={"reason": error.message})


def follow_run(
    log: Log, run: Run, after: int, *, reread: Callable[[], Awaitable[Run | None]], every_s: float
) -> AsyncIterator[Sequence[RunEvent]]:
    """The events of a run behind number `after`, up to its terminal one, or until it waits for an
    approval; those that are ready together at once. `run` was just read; `reread` reads it when the
    log has said nothing new for `every_s` seconds, so that its end is told also where its event was
    lost."""
    stream, place, current = stream_of("agent", run.id), "", run
    announced = set[str]()  # approvals that the log has named: a run waits before it says so

    async def look() -> None:
        nonlocal current
        with anyio.CancelScope(shield=True):
            current = await reread() or replace(run, state="cancelled")  # it was erased

    async def read(is_late: bool) -> tuple[list[RunEvent], Outlook]:
        nonlocal after, place
        if is_late:
            await look()
        stirred, events = False, list[RunEvent]()
        with suppress(Fault):  # a log that has dropped what we read is read from its beginning
            for entry in await read_entries(log, stream, place):
                place, entry_events = entry.id, decode_events(entry)
                stirred |= not entry_events
                for event in entry_events:
                    if approval := event.awaited_approval:
                        announced.add(approval)
                    if event.number <= after:
                        continue
                    after = event.number
                    events.append(event)
                    if event.terminal:
                        return events, "end"
        if current.has_ended:
            return [*events, terminal_event(current, after + 1)], "end"
        is_announced = is_late or not place or announced.issuperset(current.approvals)
        if current.state == "waiting" and is_announced:
            return events, "end"
        if stirred and not is_late:
            await look()
            more, outlook = await read(False)
            return [*events, *more], outlook
        return events, "wait"

    return follow_events(log, stream, read, every_s)


async def interrupt_number(stream: Log, run: Run, approvals: Collection[str]) -> int:
    """The number of the newest event that says that the run waits for one of these approvals;
    without one, that of the newest event; 0: none is kept."""
    number, newest, place = 0, 0, ""
    while entries := await stream.read(stream_of("agent", run.id), place):
        place = entries[-1].id
        for event in (event for entry in entries for event in decode_events(entry)):
            newest = max(newest, event.number)
            if event.awaited_approval in approvals:
                number = max(number, event.number)
    return number or newest


def terminal_event(run: Run, number: int) -> RunEvent:
    """The terminal event of a run as its row tells it."""
    common: dict[str, Any] = {"conversation_id": run.conversation, "iteration": run.iterations}
    if run.state == "failed":
        return run_event(number, "Error", {**common, "code": run.error, "message": run.stopped})
    return run_event(number, "Completed", {**common, **summary(run)})


def summary(run: Run) -> dict[str, Any]:
    """Summary of a run's result."""
    duration = (run.updated - run.created).total_seconds()
    members: dict[str, Any] = {
        "run_id": run.id,
        "state": run.state,
        "answer": run.answer,
        "iterations": run.iterations,
        "tokens": run.tokens,
        "duration_s": round(duration, 3),
    }
    if run.money:
        members["money"] = round(run.money, 9)
    if run.stopped:
        members["stopped"] = run.stopped
    if run.approvals and run.state == "waiting":
        members["approvals"] = list(run.approvals)
    return members
