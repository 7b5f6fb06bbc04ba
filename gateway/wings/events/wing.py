"""The wing of events: invocations that outlive the request, the process and the node."""

import importlib.resources
import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client.registry import Collector

from config.settings import EventsSettings
from gateway.protocol.sealed import Sealer, TaskIds
from gateway.state.postgres import PostgresSessions
from gateway.wings.abc import Offer, Wing, WingParts
from gateway.wings.events.accepting import Accepting
from gateway.wings.events.dispatch import Dispatch
from gateway.wings.events.execution import Execution
from gateway.wings.events.gauges import EventGauges
from gateway.wings.events.journal import Journal
from gateway.wings.events.notices import ENDED, WORK, Notices, Waits
from gateway.wings.events.operations import EventOperations
from gateway.wings.events.tasks import Tasks
from registry.database.migrate import Component
from registry.database.postgres import RESYNC, Notice

METHODS = (
    "tools/call",
    "tasks/get",
    "tasks/result",
    "tasks/cancel",
    "tasks/update",
    "tasks/list",
)


@asynccontextmanager
async def opened(parts: WingParts) -> AsyncIterator[Offer]:
    wired = _Wired(parts)
    parts.events.draining.subscribe(wired.dispatch.drain)
    yield wired.offer()


class _Wired:
    """The parts of the open wing."""

    def __init__(self, parts: WingParts) -> None:
        settings: EventsSettings = parts.settings
        self.notices = Notices(parts.database, self._hear)
        self.journal = Journal(parts.pool)
        self.waits = Waits(self.journal, settings.poll_s)
        self.accepting = Accepting(parts, self.journal, settings, say=self.notices.say)
        self.dispatch = Dispatch(
            self.journal,
            Execution(parts, settings),
            settings,
            worker=worker_name(),
            say=self.notices.say,
            ended=self.waits.ended,
        )
        self.operations = EventOperations(
            self.journal,
            self.accepting,
            self.dispatch,
            self.waits,
            settings=settings,
            say=self.notices.say,
        )
        self._tasks = Tasks(
            parts,
            self.journal,
            self.accepting,
            self.waits,
            ids=TaskIds(_Secret(parts).sealer),
            settings=settings,
            say=self.notices.say,
        )

    def offer(self) -> Offer:
        gauges: Collector = EventGauges(self.dispatch)
        return Offer(
            operations=self.operations.operations,
            tasks=[
                self.notices.listen,
                self.notices.send,
                self.waits.run,
                self.accepting.run,
                self.dispatch.run,
            ],
            collectors=[gauges],
            answers=self._tasks.answers,
        )

    def _hear(self, notice: Notice) -> None:
        if notice is RESYNC or notice == ENDED:
            self.waits.look()
        if notice is RESYNC or notice.startswith(WORK):
            self.operations.wake()
        self.dispatch.hear(notice)


class _Secret:
    """The secret of task ids, kept in the database whatever the gateway keeps its state in."""

    def __init__(self, parts: WingParts) -> None:
        self._sessions = PostgresSessions(lambda: parts.database)
        self._sealer: Sealer | None = None

    async def sealer(self) -> Sealer:
        if self._sealer is None:
            self._sealer = Sealer(await self._sessions.secret())
        return self._sealer


def worker_name() -> str:
    """A name of this process that no other one has."""
    return f"{socket.gethostname()[:100]}:{os.getpid()}:{secrets.token_hex(3)}"


WING = Wing(
    name="events",
    title="Events",
    open=opened,
    migrations=Component(
        "events", importlib.resources.files("gateway.wings.events").joinpath("sql")
    ),
    methods=METHODS,
)
