"""The wing of events: invocations that outlive the request, the process and the node."""

import importlib
import importlib.resources
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import LiteralString, Protocol

import anyio
from prometheus_client.registry import Collector

from config.events import EventsSettings, EventWebhook
from gateway.http_client.webhooks import WebhookSender, check_receiver, key_of
from gateway.operations.resource_view import ResourceView
from gateway.protocol.sealed_state import Sealer, TaskIds
from gateway.state.postgres import PostgresSessions, read_installation
from gateway.wings.events.acceptor import InvocationAcceptor
from gateway.wings.events.delivery_execution import Execution
from gateway.wings.events.dispatch import Dispatch
from gateway.wings.events.inbound_events import CLOUDEVENTS, HOOKS, Hook, Inbound, made_hooks
from gateway.wings.events.invocation_journal import Journal
from gateway.wings.events.mcp_tasks import Tasks
from gateway.wings.events.metrics import EventGauges
from gateway.wings.events.operations import EventOperations
from gateway.wings.events.operator_hook import Hooks
from gateway.wings.events.outbox import CompletionOutbox
from gateway.wings.events.schedule_checks import check_schedules, failed_schedules, unknown_skills
from gateway.wings.events.sweeper import JournalSweeper
from gateway.wings.events.task_questions import ASKED, TaskQuestions
from gateway.wings.events.wakeups import ENDED, WORK, CompletionWaiters, WakeupChannel
from gateway.wings.events.webhook_deliveries import WebhookDeliveries
from gateway.wings.events.webhook_receivers import WebhookReceivers
from gateway.wings.interface import Concern, Wing, WingContributions, WingParts
from registry.database.migrate import Component
from registry.database.person_rows import ErasedPerson, HeldRows
from registry.database.postgres import RESYNC, Notice
from schemas.errors import ToolgateError

log = logging.getLogger("toolgate.events")

QUIET_S = 2.0  # without a change of the catalog, until schedules are checked


class EventsEngine(Protocol):
    """Engine that wakes workers of other processes, and carries events to topics."""

    def announce(self, host_id: str, invocation_id: str) -> None: ...
    async def publish(self, host_id: str, topic: str, event: bytes) -> None: ...
    async def send(self) -> None: ...
    async def read(self) -> None: ...
    async def close(self) -> None: ...


METHODS = (
    "tools/call",
    "tasks/get",
    "tasks/result",
    "tasks/cancel",
    "tasks/update",
    "tasks/list",
)


@asynccontextmanager
async def open_events(parts: WingParts) -> AsyncIterator[WingContributions]:
    check_webhooks(parts.settings)
    async with WebhookSender() as sender:
        wired = _Wired(parts, sender)
        parts.events.draining.subscribe(wired.dispatch.drain)
        parts.events.catalog_loaded.subscribe(wired.catalog_loaded)
        try:
            yield wired.offer()
        finally:
            if wired.engine is not None:
                await wired.engine.close()


class _Wired:
    """The parts of the open wing."""

    def __init__(self, parts: WingParts, sender: WebhookSender) -> None:
        settings: EventsSettings = parts.settings
        self._parts = parts
        self._loaded = anyio.Event()
        self._unknown: set[str] = set()  # that was logged of schedules
        worker = worker_name()
        self.notices = WakeupChannel(parts.database, self._hear)
        self.journal = Journal(parts.pool)
        self.waits = CompletionWaiters(self.journal, settings.poll_s)
        self.engine = self._engine(settings, worker)
        self._receivers = receivers = WebhookReceivers(
            parts.pool, settings.webhooks, sender, tenant=parts.tenant, keys=parts.keys
        )
        self.accepting = InvocationAcceptor(
            parts, self.journal, settings, receivers=receivers, accepted=self._announce_accepted
        )
        self._inbound = Inbound(parts, settings)
        self.outbox = CompletionOutbox(
            parts.pool,
            self.journal,
            settings,
            notify=parts.notify,
            sender=sender,
            receivers=receivers,
            publish=None if self.engine is None else self.engine.publish,
        )
        self._questions = TaskQuestions(
            parts.pool, settings, say=self.notices.say, freed=lambda: self.dispatch.wake()
        )
        self._execution = Execution(parts, settings, self._questions)
        self.dispatch = Dispatch(
            self.journal,
            JournalSweeper(parts.pool),
            self._execution,
            settings,
            worker=worker,
            hooks=Hooks(settings.hook),
            questions=self._questions,
            say=self.notices.say,
            ended=self.waits.wake_waiters,
        )
        self.operations = EventOperations(
            self.journal,
            self.accepting,
            self.dispatch,
            self.waits,
            outbox=self.outbox,
            receivers=receivers,
            deliveries=WebhookDeliveries(parts.pool, receivers, self.outbox.wake),
            call=parts.call,
            settings=settings,
            say=self.notices.say,
        )
        self._tasks = Tasks(
            parts,
            self.journal,
            self.accepting,
            self.waits,
            questions=self._questions,
            ids=TaskIds(_Secret(parts).sealer),
            settings=settings,
            say=self.notices.say,
        )

    def _engine(self, settings: EventsSettings, worker: str) -> "EventsEngine | None":
        """Engine that wakes workers in place of NOTIFY. Raises ToolgateError without its
        package."""
        if settings.redis_url:
            from gateway.wings.events.redis_engine import RedisEngine

            return RedisEngine(
                settings.redis_url,
                worker,
                work=self._work,
                room=lambda: self.dispatch.room,
                installation=partial(read_installation, lambda: self._parts.database),
                prefix=settings.redis_prefix,
            )
        if not settings.kafka.servers:
            return None
        try:
            module = importlib.import_module("gateway.wings.events.kafka_engine")
        except ImportError as error:
            text = "events.kafka.servers: expected the extra: pip install 'toolgate[kafka]'"
            raise ToolgateError(text) from error
        engine: EventsEngine = module.KafkaEngine(
            settings.kafka,
            attempts=settings.attempts,
            work=self._work,
            take=lambda headers, body: self._inbound.command(settings.kafka, headers, body),
        )
        return engine

    def _work(self, host_id: str) -> None:
        self._hear(WORK + host_id if host_id else RESYNC)

    def reconfigure(self, settings: EventsSettings) -> Callable[[], None]:
        """Check other settings; the function that is returned applies them to what comes. Raises
        ToolgateError."""
        check_webhooks(settings)
        hooks = made_hooks(settings)

        def apply() -> None:
            self._inbound.by_name = hooks
            self._receivers.configured = settings.webhooks
            self.waits.poll_s = settings.poll_s
            for part in (
                self.accepting,
                self.dispatch,
                self._execution,
                self.operations,
                self.outbox,
                self._questions,
                self._tasks,
            ):
                part.settings = settings
            self._hear(RESYNC)

        return apply

    def catalog_loaded(self, _tenant: str) -> None:
        """Listener."""
        self._loaded.set()

    async def check_schedules(self) -> None:
        """Log schedules and hooks whose skill is not there, once each; until cancelled."""
        self._loaded.set()
        while True:
            await self._loaded.wait()
            self._loaded = anyio.Event()
            with anyio.move_on_after(QUIET_S):  # sources are imported one by one at a start
                await self._loaded.wait()
                continue
            self._log_unknown_skills()

    def _log_unknown_skills(self) -> None:
        catalog = self._parts.catalogs.of(self._parts.tenant)
        for text in unknown_skills(self.accepting.settings, catalog):
            if text not in self._unknown:
                log.warning("unknown_skill", extra={"reason": text})
                self._unknown.add(text)

    def offer(self) -> WingContributions:
        gauges: Collector = EventGauges(self.dispatch, self.accepting.usage)
        return WingContributions(
            operations=self.operations.operations,
            tasks=[
                self.notices.listen,
                self.notices.send,
                self.waits.run,
                self.accepting.run,
                self.dispatch.run,
                self.outbox.run,
                self.check_schedules,
                *([] if self.engine is None else [self.engine.send, self.engine.read]),
            ],
            collectors=[gauges],
            pages=PAGES,
            apps={HOOKS: self._inbound.hooks, CLOUDEVENTS: self._inbound.cloudevents},
            answers=self._tasks.answers,
            reconfigure=self.reconfigure,
            concerns=self._concerns,
            erasers=[
                HeldRows(
                    place=place,
                    table=table,
                    pool=lambda: self._parts.pool,
                    condition=ENDED_OF,
                    blanks=BLANK_COLUMNS,
                    before=self._cancel,
                    remains="states and times, and the id until a running one has ended",
                )
                for place, table in PERSONAL_ROWS
            ]
            + [
                HeldRows(
                    place="questions of tasks",
                    table="invocation_question_t",
                    pool=lambda: self._parts.pool,
                    condition="r.host_id = %(host)s AND r.principal_id = %(person)s",
                )
            ],
        )

    async def _cancel(self, person: ErasedPerson) -> None:
        """Cancel the open invocations of a person, and blank what all hold."""
        await self.journal.erase(person.tenant, person.id)

    async def _concerns(self, tenant: str) -> Sequence[Concern]:
        settings, parts = self.accepting.settings, self._parts
        return await failed_schedules(settings, parts.tenant, parts.pool, tenant)

    def _announce_accepted(self, host_id: str, invocation_id: str) -> None:
        """Wake workers: here at once, elsewhere by a stream or by NOTIFY."""
        if self.engine is None:
            self.notices.say(WORK + host_id)
            return
        self._hear(WORK + host_id)
        self.engine.announce(host_id, invocation_id)

    def _hear(self, notice: Notice) -> None:
        if notice is RESYNC or notice == ENDED:
            self.waits.look()
            self.outbox.wake()
        if notice is RESYNC or notice.startswith(WORK):
            self.operations.wake()
        if notice is not RESYNC and notice.startswith(ASKED):
            host_id, _, id_ = notice.removeprefix(ASKED).partition(":")
            self.waits.wake_waiters([(host_id, id_)])
        self._questions.hear(notice)
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


PERSONAL_ROWS: tuple[tuple[str, LiteralString], ...] = (
    ("invocations", "invocation_t"),
    ("ended invocations", "invocation_done_t"),
)
ENDED_OF: LiteralString = (
    "r.host_id = %(host)s AND r.principal_id = %(person)s AND r.finished_ts IS NOT NULL"
)
BLANK_COLUMNS: LiteralString = (
    "principal_id = %(pseudonym)s, arguments = 'null', result = NULL, error = NULL,"
    """ principal = '{"principal": {"id": "", "tenant": ""}}', idempotency_key = NULL,"""
    " order_key = NULL, task_id = NULL, reply_to = NULL, traceparent = NULL"
)


def check_webhooks(settings: EventsSettings) -> None:
    """Raises ToolgateError."""
    for name, webhook in settings.webhooks.items():
        check_webhook(name, webhook)


def mistakes(settings: EventsSettings) -> Iterator[str]:
    """A sentence on each entry of webhooks, in and out, and a hook, that cannot be used."""
    checks: tuple[Callable[[], object], ...] = (
        partial(Hooks, settings.hook),
        *(partial(Hook.of, *entry) for entry in settings.inbound.items()),
        *(partial(check_webhook, *entry) for entry in settings.webhooks.items()),
    )
    for check in checks:
        try:
            check()
        except ToolgateError as error:
            yield str(error)


def check_webhook(name: str, webhook: EventWebhook) -> None:
    """Check an address that completions are sent to. Raises ToolgateError."""
    try:
        for secret in webhook.secrets:
            key_of(secret)
        check_receiver(
            webhook.url, private=webhook.private, condition="`private: true` is beside it"
        )
    except ToolgateError as error:
        raise ToolgateError(f"events.webhooks.{name}: {error}") from error


def worker_name() -> str:
    """A name of this process that no other one has."""
    return f"{socket.gethostname()[:100]}:{os.getpid()}:{secrets.token_hex(3)}"


PAGES = (
    ResourceView(
        title="Invocations",
        path="events",
        icon="pulse",
        lists="events_list",
        columns=(
            ("skillName", "Tool", "code"),
            ("status", "State", "badge"),
            ("principal", "Caller", "text"),
            ("attempt", "Attempts", "number"),
            ("created", "Created", "time"),
        ),
        shows="events_get",
        key="id",
        acts=("events_cancel", "events_redrive"),
        adds=("events_invoke", "events_redrive", "events_erase"),
        empty="Calls that outlive their request, with their attempts and results.",
    ),
    ResourceView(
        title="Webhooks",
        path="webhooks",
        icon="plug",
        lists="events_webhooks",
        columns=(
            ("name", "Name", "code"),
            ("url", "Address", "text"),
            ("disabled", "Disabled", "badge"),
        ),
        shows="events_webhook",
        key="name",
        acts=("events_test_webhook", "events_redeliver", "events_delete_webhook"),
        also=(("Deliveries", "events_deliveries"),),
        empty="Addresses that are told when an invocation has ended.",
    ),
)

WING = Wing(
    name="events",
    title="Events",
    open=open_events,
    migrations=Component(
        "events", importlib.resources.files("gateway.wings.events").joinpath("sql")
    ),
    mounts=(HOOKS, CLOUDEVENTS),
    methods=METHODS,
    mistakes=mistakes,
    checks=check_schedules,
    commands={
        "tail": ("gateway.cli.events:tail", "Print invocations as they change, until Ctrl-C."),
        "show": (
            "gateway.cli.events:show",
            "Show one invocation, by its id or correlation id, with the errors of all attempts.",
        ),
    },
)
