"""Events of a run for its clients, and the log that they are read from, at any node.

Each has a number that grows within its run; a client that was cut off goes on behind the last one
that it has seen. A run has exactly one terminal event.
"""

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import contextmanager
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
WRITE_S = 0.02
LIVE_EVENTS = 1000  # that wait for one follower in the process of their writer


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


class LiveEvents:
    """Events of a run for one follower in the process of its writer, which gets them without the
    log."""

    def __init__(self, unwritten: Sequence[RunEvent], wake: Callable[[], None]) -> None:
        self._events = list(unwritten)
        self._wake = wake
        self.is_open = True

    def add(self, event: RunEvent) -> None:
        """Add an event; a follower that is too slow is left to the log."""
        if not self.is_open:
            return
        if len(self._events) >= LIVE_EVENTS:
            self.close()
        else:
            self._events.append(event)
            self._wake()

    def take(self) -> list[RunEvent]:
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        self.is_open = False
        self._wake()


class EventWriter:
    """Writes the events of a run while one process has it, at most every `WRITE_S`: followers in
    this process do not wait for it."""

    def __init__(self, stream: Log, run: Run) -> None:
        self._log = stream
        self._stream = stream_of("agent", run.id)
        self._conversation = run.conversation
        self._number = run.attempt * PER_ATTEMPT
        self._waiting: list[RunEvent] = []
        self._unwritten: list[RunEvent] = []  # are on their way to the log
        self._writing = asyncio.Lock()  # or a later event could overtake them
        self._wake = asyncio.Event()
        self._followers: list[LiveEvents] = []
        self.iteration = 0

    def put(self, type_: str, **data: Any) -> None:
        self._number += 1
        common = {"conversation_id": self._conversation, "iteration": self.iteration}
        event = run_event(self._number, type_, {**common, **data})
        self._waiting.append(event)
        for follower in self._followers:
            follower.add(event)
        self._wake.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._wake.wait()
            await self.flush()
            await asyncio.sleep(WRITE_S)

    async def flush(self) -> None:
        async with self._writing:
            while self._waiting:
                self._unwritten, self._waiting = self._waiting, []
                self._wake.clear()
                await self._append(self._unwritten)
            self._unwritten = []
        self._wake.clear()

    @contextmanager
    def open_to(self, writers: MutableMapping[str, "EventWriter"], run: str) -> Iterator[None]:
        """Let followers find this writer among `writers` within."""
        writers[run] = self
        try:
            yield
        finally:
            if writers.get(run) is self:
                del writers[run]
            for follower in self._followers:
                follower.close()

    def follow(self, wake: Callable[[], None]) -> LiveEvents:
        """The events that are not in the log yet, and all that follow."""
        self._followers = [follower for follower in self._followers if follower.is_open]
        self._followers.append(live := LiveEvents([*self._unwritten, *self._waiting], wake))
        return live

    async def _append(self, events: list[RunEvent]) -> None:
        try:
            await self._log.append(self._stream, msgspec.json.encode(events))
        except Unavailable as error:
            log.warning("agent_events_lost", extra={"reason": error.message})


class RunFollower:
    """Follows the events of one run: its writer's where that is in this process, else the log's."""

    def __init__(
        self,
        stream: Log,
        run: Run,
        after: int,
        *,
        reread: Callable[[], Awaitable[Run | None]],
        writers: Mapping[str, EventWriter],
    ) -> None:
        """`run` was just read; `reread` reads it. `writers`: of this process, by run."""
        self._log = stream
        self._stream, self._place = stream_of("agent", run.id), ""
        self._run = run
        self._after = after
        self._reread = reread
        self._writers = writers
        self._live: LiveEvents | None = None
        # approvals that events have named: the row waits before its event is written
        self._announced = set[str]()

    def follow(self, every_s: float) -> AsyncIterator[Sequence[RunEvent]]:
        """The events up to the terminal one, or until the run waits for an approval; those that are
        ready together at once. When nothing new came for `every_s` seconds the run is read, so that
        its end is told also where its event was lost."""
        return follow_events(self._watch, self._read, every_s)

    @contextmanager
    def _watch(self, wake: Callable[[], None]) -> Iterator[None]:
        def wake_from_log() -> None:
            if self._live is None:
                wake()

        self._wake = wake
        with self._log.watch(self._stream, wake_from_log):
            try:
                yield
            finally:
                if self._live is not None:
                    self._live.close()

    async def _look(self) -> None:
        with anyio.CancelScope(shield=True):
            self._run = await self._reread() or replace(self._run, state="cancelled")  # was erased

    async def _read(self, is_late: bool) -> tuple[list[RunEvent], Outlook]:
        if is_late:
            await self._look()
        stirred = False
        events = list[RunEvent]()
        if self._live is None:
            if (writer := self._writers.get(self._run.id)) is not None:
                self._live = writer.follow(self._wake)
            for entry in await self._read_log():
                entry_events = decode_events(entry)
                stirred |= not entry_events
                events += self._select_new(entry_events)
        if self._live is not None:
            events += self._select_new(self._live.take())
        if events and events[-1].terminal:
            return events, "end"
        if self._run.has_ended:
            return [*events, terminal_event(self._run, self._after + 1)], "end"
        is_announced = is_late or not self._place or self._announced.issuperset(self._run.approvals)
        if self._run.state == "waiting" and is_announced:
            return events, "end"
        if self._live is not None and not self._live.is_open:
            self._live = None
            return events, "more"
        if stirred and not is_late:
            await self._look()
            more, outlook = await self._read(False)
            return [*events, *more], outlook
        return events, "wait"

    async def _read_log(self) -> Sequence[Event]:
        """New entries; all of them where the log has dropped the place that was read. Where the log
        cannot be read: none, and the writer is left, whose events would be ahead of it."""
        for place in dict.fromkeys((self._place, "")):
            try:
                entries = await read_entries(self._log, self._stream, place)
            except Fault:
                continue
            self._place = entries[-1].id if entries else place
            return entries
        self._place = ""
        if self._live is not None:
            self._live.is_open, self._live = False, None
        return []

    def _select_new(self, events: Sequence[RunEvent]) -> list[RunEvent]:
        """The events that the follower has not had, up to the terminal one."""
        news = []
        for event in events:
            if approval := event.awaited_approval:
                self._announced.add(approval)
            if event.number > self._after:
                self._after = event.number
                news.append(event)
                if event.terminal:
                    break
        return news


async def interrupt_number(stream: Log, run: Run, approvals: Collection[str]) -> int:
    """The number of the newest event that says that the run waits for one of these approvals;
    without one, that of the newest event; 0: none is kept."""
    number = newest = 0
    entries = await read_entries(stream, stream_of("agent", run.id), "")
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
