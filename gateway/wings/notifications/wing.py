"""The notifications as a wing: it looks for concerns, and sends messages about them.

What all gateways see alike, one of them checks at a time; what a process alone sees, such as a
source that does not answer it, each checks. Incidents and messages are rows, so that one message
is sent for each incident and target, whoever saw it.
"""

import importlib.resources
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import LiteralString

import anyio
import psycopg
from anyio.abc import TaskGroup
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from config.notifications import NotificationsSettings
from gateway.http_client.webhooks import WebhookSender, WebhookSent, retry_delay_s
from gateway.wings.interface import (
    Concern,
    Subject,
    Wing,
    WingContributions,
    WingParts,
    pressing_concerns,
)
from gateway.wings.notifications.concerns import (
    ending_certificate,
    ending_connections,
    failed_jobs,
    sources_down,
    waiting_approvals,
)
from gateway.wings.notifications.messages import IncidentMessage
from gateway.wings.notifications.operations import SUBJECTS, notification_operations, open_endpoint
from gateway.wings.notifications.senders import Destination, TargetSender
from gateway.wings.notifications.store import Delivery, NotificationStore
from registry.access.column_encryption import Vault
from registry.access.secrets import SecretRefused
from registry.database.migrate import Component
from registry.database.person_rows import HeldRows
from registry.database.postgres import AWAY, borrow

log = logging.getLogger("toolgate.notifications")

AT_ONCE, TENANT_AT_ONCE = 40, 8  # messages on their way, of a process and of a tenant
FIRST_S, LONGEST_S = 5.0, 3600.0  # between attempts
UNSEEN = 2.5  # checks after which an incident is over
# Of the others an end is no news: a job has failed, a budget begins anew with the day.
ENDING: tuple[Subject, ...] = ("approvals", "schedules", "sources", "connections", "certificates")
OUTCOMES = {"ACKED": "sent", "PENDING": "retried", "FAILED": "failed"}  # by status
STORE_ERRORS = (*AWAY, psycopg.Error)

Check = Callable[[], Awaitable[Sequence[Concern]]]


class Notifier(Collector):
    def __init__(self, parts: WingParts, http: WebhookSender) -> None:
        self._parts = parts
        self._settings: NotificationsSettings = parts.settings
        self._store = NotificationStore(parts.pool)
        self._sender = TargetSender(self._settings, http)
        self._wake = anyio.Event()
        self._sending: Counter[str] = Counter()  # by tenant
        self._ended: Counter[str] = Counter()  # attempts by outcome
        self._open: dict[str, int] = {}  # incidents of the gateway's tenant, by subject
        self._told: set[str] = set()  # wings that had concerns

    async def look_regularly(self) -> None:
        """Background task, until cancelled."""
        while True:
            try:
                await self.look()
            except STORE_ERRORS:
                log.warning("notifications_unavailable", exc_info=True)
            self._wake.set()
            await anyio.sleep(self._settings.check_s)

    async def send_regularly(self) -> None:
        """Background task, until cancelled."""
        async with anyio.create_task_group() as group:
            while True:
                self._wake = anyio.Event()
                try:
                    await self._send_some(group)
                except STORE_ERRORS:
                    log.warning("notifications_unavailable", exc_info=True)
                with anyio.move_on_after(min(FIRST_S, self._settings.check_s)):
                    await self._wake.wait()

    async def look(self) -> None:
        """Begin incidents of what is wrong, and end those of what is not."""
        tenants, gateway_tenant, every_s = (
            await self._store.tenants(),
            self._parts.tenant,
            self._settings.check_s,
        )
        if gateway_tenant in tenants:
            local = [*sources_down(self._parts.sources_down()), *await self._certificate()]
            await self._see(gateway_tenant, local)
        if (
            not tenants
            or (since_s := await self._store.take_turn(gateway_tenant, every_s * 0.9)) is None
        ):
            return
        for tenant in tenants:
            concerns, checked = await self._shared_concerns(tenant)
            await self._see(tenant, concerns)
            # After a pause of all, the others have not yet had their turn to see anything.
            if since_s <= UNSEEN * every_s:
                await self._store.end_unseen(tenant, checked, ENDING, UNSEEN * every_s)
        await self._store.remove_ended(self._settings.keep_days)
        self._open = await self._store.open_incidents(gateway_tenant)

    async def _see(self, tenant: str, concerns: Sequence[Concern]) -> None:
        await self._store.see(tenant, concerns, self._settings.tenant_incidents)

    async def _certificate(self) -> Sequence[Concern]:
        file = self._parts.certificate
        return await ending_certificate(file, self._settings.certificate_days) if file else ()

    async def _shared_concerns(self, tenant: str) -> tuple[list[Concern], set[Subject]]:
        """The concerns of a tenant, and the subjects of which these are all."""
        concerns: list[Concern] = []
        checked: set[Subject] = {*SUBJECTS}
        for subjects, check in await self._checks(tenant):
            try:
                concerns += await check()
            except STORE_ERRORS:
                log.warning("notification_check_failed", exc_info=True)
                checked -= {*subjects}
        of_wings = self._parts.concerns()
        if self._told - of_wings.keys():  # of one that is not open nothing is known
            checked -= {"budgets", "schedules"}
        self._told |= of_wings.keys()
        return pressing_concerns(concerns, self._settings.budget_share), checked

    async def _checks(self, tenant: str) -> list[tuple[tuple[Subject, ...], Check]]:
        pool, settings = self._parts.pool, self._settings
        async with borrow(pool) as connection:
            rows = await connection.execute(
                "SELECT to_regclass('job_t') IS NOT NULL, to_regclass('connection_t') IS NOT NULL"
            )
            [(has_jobs, has_connections)] = await rows.fetchall()
        checks: list[tuple[tuple[Subject, ...], Check]] = [
            (("approvals",), partial(waiting_approvals, pool, tenant)),
            *(
                (("budgets", "schedules"), partial(of_wing, tenant))
                for of_wing in self._parts.concerns().values()
            ),
        ]
        if has_jobs:
            checks.append((("jobs", "schedules"), partial(failed_jobs, pool, tenant)))
        if has_connections:
            gateway_tenant, days = self._parts.tenant, settings.connection_days
            connections = partial(ending_connections, pool, gateway_tenant, tenant, days)
            checks.append((("connections",), connections))
        return checks

    async def _send_some(self, group: TaskGroup) -> None:
        """Begin to send what is due, first for tenants that hold the fewest places."""
        for tenant in sorted(await self._store.tenants(), key=self._sending.__getitem__):
            room = min(TENANT_AT_ONCE - self._sending[tenant], AT_ONCE - self._sending.total())
            if room > 0:
                hourly = self._settings.target_hourly
                for delivery in await self._store.claim(tenant, room, hourly):
                    self._sending[tenant] += 1
                    group.start_soon(self._send, tenant, delivery)

    async def _send(self, tenant: str, delivery: Delivery) -> None:
        """Send a message: no error of one ends the loop of all. Where its outcome cannot be stored,
        its lease ends, and it is sent again."""
        try:
            await self._settle(tenant, delivery, await self._outcome(tenant, delivery))
        except STORE_ERRORS:
            log.warning("notifications_unavailable", exc_info=True)
        finally:
            self._sending[tenant] -= 1
            self._wake.set()

    async def _outcome(self, tenant: str, delivery: Delivery) -> WebhookSent:
        rows = await self._store.targets(tenant, delivery.target)
        incident = await self._store.incident(tenant, delivery.incident_id)
        if not rows or incident is None:  # deleted meanwhile
            return WebhookSent(done=False, gone=True, error="its target or incident is gone")
        row, ends = rows[0], delivery.phase == "ended"
        try:
            endpoint = open_endpoint(Vault(self._parts.keys, tenant), row)
        except SecretRefused as error:
            return WebhookSent(done=False, error=str(error))
        console = self._parts.console_url
        message = IncidentMessage(
            id=f"{delivery.incident_id}.{delivery.phase}",
            incident=delivery.incident_id,
            tenant=tenant,
            phase=delivery.phase,
            subject=incident.subject,
            title=incident.title,
            detail=incident.detail,
            begun=incident.begun_ts,
            ended=incident.ended_ts if ends else None,
            link=f"{console}/{incident.path}" if console else "",
        )
        destination = Destination(row.kind, endpoint, tuple(row.recipients))
        outcome = await self._sender.send(destination, message)
        answer = outcome.answer or outcome.error
        await self._store.note_answer(tenant, row.name, done=outcome.done, answer=answer)
        return outcome

    async def _settle(self, tenant: str, delivery: Delivery, outcome: WebhookSent) -> None:
        wait_s = max(outcome.retry_s, retry_delay_s(delivery.attempt, FIRST_S, LONGEST_S))
        over = outcome.gone or delivery.age_s + wait_s > self._settings.give_up_s
        status = "ACKED" if outcome.done else "FAILED" if over else "PENDING"
        self._ended[OUTCOMES[status]] += 1
        if status == "FAILED":
            extra = {"target": delivery.target, "reason": outcome.error}
            log.warning("notification_not_sent", extra=extra)
        await self._store.settle(tenant, delivery, status, error=outcome.error, wait_s=wait_s)

    def collect(self) -> Iterator[Metric]:
        messages = CounterMetricFamily(
            "toolgate_notifications",
            "Attempts of this process to send a message: sent, retried, or failed for good.",
            labels=("outcome",),
        )
        for outcome in OUTCOMES.values():
            messages.add_metric((outcome,), self._ended[outcome])
        yield messages
        incidents = GaugeMetricFamily(
            "toolgate_incidents",
            "Open incidents of the gateway's tenant, as the process that checks last counted them.",
            labels=("subject",),
        )
        for subject in SUBJECTS:
            incidents.add_metric((subject,), self._open.get(subject, 0))
        yield incidents


def mistakes(settings: NotificationsSettings) -> Iterator[str]:
    """A sentence on settings of mail that cannot work."""
    smtp = settings.smtp
    if smtp.host and not smtp.sender:
        yield "notifications.smtp.sender: expected the address that mail is from"
    if smtp.password and not smtp.user:
        yield "notifications.smtp.user: expected the user whose password this is"
    if smtp.user and smtp.security == "none" and smtp.host not in {"localhost", "127.0.0.1", "::1"}:
        yield "notifications.smtp.security: expected starttls or tls, or the password is readable"


@asynccontextmanager
async def open_notifications(parts: WingParts) -> AsyncIterator[WingContributions]:
    async with WebhookSender() as http:
        notifier = Notifier(parts, http)
        yield WingContributions(
            tasks=[notifier.look_regularly, notifier.send_regularly],
            collectors=[notifier],
            erasers=[
                HeldRows(
                    place=place,
                    table=table,
                    pool=lambda: parts.pool,
                    condition=condition,
                    blanks=blanks,
                    is_copy=False,
                )
                for place, table, condition, blanks in PERSONAL_ROWS
            ],
        )


# Targets that send mail to nobody else go, and so do incidents that name the person.
PERSONAL_ROWS: tuple[tuple[str, LiteralString, LiteralString, LiteralString], ...] = (
    (
        "own targets of notifications",
        "notification_target_t",
        "r.host_id = %(host)s AND r.recipients <> '{}' AND r.recipients <@ %(addresses)s::text[]",
        "",
    ),
    (
        "shared targets of notifications",
        "notification_target_t",
        "r.host_id = %(host)s AND r.recipients && %(addresses)s::text[]",
        (
            "recipients = ARRAY(SELECT * FROM unnest(r.recipients) AS t(name)"
            " WHERE t.name <> ALL (%(addresses)s::text[]))"
        ),
    ),
    (
        "incidents",
        "notification_incident_t",
        "r.host_id = %(host)s AND concat_ws(' ', r.key, r.title, r.detail, r.sentences) ~ %(word)s",
        "",
    ),
)


WING = Wing(
    name="notifications",
    title="Notifications",
    open=open_notifications,
    migrations=Component(
        "notifications", importlib.resources.files("gateway.wings.notifications").joinpath("sql")
    ),
    admin=notification_operations,
    mistakes=mistakes,
)
