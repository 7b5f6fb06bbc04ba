"""Sends completions where their callers want them: to topics, open sessions and webhooks.

Rows are written in the transaction that ends an invocation, and sent at least once. A topic without
a broker is the table itself: its readers page through it.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import LiteralString

import anyio
import psycopg
from psycopg import sql
from psycopg.rows import class_row, dict_row

from config.events import EventsSettings
from gateway.http_client.webhooks import WebhookSender, WebhookSent, retry_delay_s
from gateway.operations.stored_callers import read_caller
from gateway.wings.events.cloudevents import completion
from gateway.wings.events.invocation_journal import COLUMNS, Invocation, Journal
from gateway.wings.events.wakeups import DATABASE_ERRORS
from gateway.wings.events.webhook_receivers import WebhookReceivers
from gateway.wings.interface import Notify
from registry.access.secrets import SecretRefused
from registry.database.leases import Leases
from registry.database.postgres import AWAY, Pool, borrow
from registry.database.sql_fragments import compose
from registry.database.tables import Tables
from schemas.cloudevents import CLOUD_EVENT
from schemas.errors import Unavailable
from schemas.jsonrpc import encode

log = logging.getLogger("toolgate.events")

# Completions on their way, of a process and of a tenant; of those to one webhook the next are
# claimed below WEBHOOK_AT_ONCE, that many at most, so that one place is left to others. A webhook
# that gave no answer has one place while more waits for it, until it answers: a few of them would
# hold all places of their tenant.
AT_ONCE, TENANT_AT_ONCE, WEBHOOK_AT_ONCE = 100, 20, 10
FIRST_S, LONGEST_S = 5.0, 86_400.0  # between attempts of a webhook
GIVE_UP_S = 3 * 86_400.0
LEASE_S = 60.0

Publish = Callable[[str, str, bytes], Awaitable[None]]
"""Publishes an event to a topic of a tenant. Raises Unavailable."""

LEASES = Leases("outbox_t", "outbox_id", "r.status = 'DISPATCHED'")
# The queue of a row: each webhook has one, and all other rows share one. An index begins with it,
# so that the rows of webhooks without a free place are not read.
_QUEUE = sql.SQL("(CASE kind WHEN 'webhook' THEN target ELSE '' END)")
# Queue by queue, the one with the oldest row first.
_DUE = sql.SQL("""
WITH RECURSIVE queues (queue, due_ts) AS (
    SELECT '', (SELECT due_ts FROM outbox_t WHERE host_id = %(host)s AND status = 'PENDING'
        AND {queue} = '' ORDER BY due_ts LIMIT 1)
    UNION ALL
    SELECT n.* FROM queues AS q, LATERAL (
        SELECT {queue}, due_ts FROM outbox_t
        WHERE host_id = %(host)s AND status = 'PENDING' AND {queue} > q.queue
        ORDER BY {queue}, due_ts LIMIT 1) AS n),
free AS (
    SELECT queue FROM queues WHERE due_ts <= now() AND queue <> ALL(%(busy)s::text[])
    ORDER BY due_ts),
due (id) AS MATERIALIZED (
    SELECT o.outbox_id FROM free, LATERAL (
        SELECT outbox_id FROM outbox_t
        WHERE host_id = %(host)s AND status = 'PENDING' AND {queue} = free.queue
            AND due_ts <= now() AND (kind <> 'topic' OR %(topics)s)
        ORDER BY due_ts LIMIT {limit} FOR UPDATE SKIP LOCKED) AS o
    LIMIT {limit})
""")
_CLAIM = LEASES.claim(
    "status = 'DISPATCHED', attempt = attempt + 1",
    sql.SQL("FROM due WHERE r.host_id = %(host)s AND r.outbox_id = due.id"),
    sql.SQL(
        "host_id::text, outbox_id::text, invocation_id::text, kind, target, attempt, fence,"
        " extract(epoch FROM now() - created_ts)::float8 AS age_s"
    ),
)


@cache
def _claim(limit: int) -> bytes:
    """The statement for a number of rows: PostgreSQL would take a parameter for many."""
    return _DUE.format(queue=_QUEUE, limit=sql.Literal(limit)).as_bytes() + _CLAIM


_MARK_PUBLISHED = compose(
    """
WITH picked AS MATERIALIZED (
    SELECT outbox_id FROM outbox_t WHERE host_id = %(host)s AND status = 'PENDING'
        AND {queue} = '' AND kind = 'topic' ORDER BY due_ts LIMIT 1000 FOR UPDATE SKIP LOCKED)
UPDATE outbox_t SET status = 'ACKED', finished_ts = now()
WHERE host_id = %(host)s AND outbox_id IN (SELECT outbox_id FROM picked)
""",
    queue=_QUEUE,
)
_TENANTS: LiteralString = """
WITH RECURSIVE t AS (
    (SELECT host_id FROM outbox_t WHERE status = 'PENDING' ORDER BY host_id, due_ts LIMIT 1)
    UNION ALL
    SELECT (SELECT o.host_id FROM outbox_t o WHERE o.status = 'PENDING' AND o.host_id > t.host_id
            ORDER BY o.host_id, o.due_ts LIMIT 1)
    FROM t WHERE t.host_id IS NOT NULL)
SELECT host_id::text FROM t WHERE (SELECT true FROM outbox_t o
    WHERE o.host_id = t.host_id AND o.status = 'PENDING' AND o.due_ts <= now() LIMIT 1)
"""
_END = compose(
    """
UPDATE outbox_t AS r SET status = %(status)s, error = %(error)s, lease_ts = NULL,
    finished_ts = CASE WHEN %(status)s = 'PENDING' THEN NULL ELSE now() END,
    due_ts = now() + make_interval(secs => %(wait)s)
WHERE {mine}
""",
    mine=LEASES.of_one,
)
# Rows of transactions that may still commit before others are left for later: their place is not
# settled, and a reader must not pass it.
# Rows follow until what they hold is more than `bytes`: at least one.
_READ = compose(
    """
WITH page AS (
    SELECT xid, seq, invocation_id FROM outbox_t
    WHERE host_id = %(host)s AND kind = 'topic' AND target = %(topic)s
        AND (xid, seq) > (%(xid)s::text::xid8, %(seq)s)
        AND xid < pg_snapshot_xmin(pg_current_snapshot())
    ORDER BY xid, seq LIMIT %(limit)s),
sized AS (
    SELECT p.xid AS at_xid, p.seq AS at_seq, v.*, coalesce(sum(octet_length(v.result::text)) OVER (
        ORDER BY p.xid, p.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    FROM page p LEFT JOIN invocation_v v
        ON v.host_id = %(host)s AND v.invocation_id = p.invocation_id)
SELECT at_xid::text || '.' || at_seq AS place, {columns}, result::text, error::text FROM sized
WHERE before < %(bytes)s ORDER BY at_xid, at_seq
""",
    columns=COLUMNS,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A completion to be sent."""

    host_id: str
    outbox_id: str
    invocation_id: str
    kind: str
    target: str
    attempt: int
    fence: int
    age_s: float


class CompletionOutbox(Tables):
    def __init__(
        self,
        pool: Pool,
        journal: Journal,
        settings: EventsSettings,
        *,
        notify: Notify,
        sender: WebhookSender,
        receivers: WebhookReceivers,
        publish: Publish | None,
    ) -> None:
        """`publish` is that of a broker; None: topics are read from the table."""
        self._pool = pool
        self._journal = journal
        self.settings = settings
        self._notify = notify
        self._sender = sender
        self._receivers = receivers
        self._publish = publish
        self._wake = anyio.Event()
        self._sending: Counter[str] = Counter()  # by tenant
        self._to_webhooks: Counter[tuple[str, str]] = Counter()  # by tenant and name
        self._silent: set[tuple[str, str]] = set()  # webhooks whose last request had no answer
        self._by_kind: Mapping[
            str, Callable[[Entry, Invocation, bytes], Awaitable[WebhookSent]]
        ] = {
            "topic": self._to_topic,
            "session": self._to_session,
            "webhook": self._to_webhook,
        }

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled."""
        async with anyio.create_task_group() as group:
            while True:
                self._wake = anyio.Event()
                try:
                    await self._send_some(group)
                except DATABASE_ERRORS:
                    log.warning("journal_unavailable", exc_info=True)
                with anyio.move_on_after(self.settings.sweep_s):
                    await self._wake.wait()

    async def read(
        self, host_id: str, topic: str, after: str, limit: int
    ) -> tuple[Sequence[Invocation], str]:
        """Completions of a topic after the place `after`, and where to go on. They are fewer than
        `limit` where they are large, or where invocations were deleted or redriven."""
        xid, _, seq = (after or "0.0").partition(".")
        values = {"host": host_id, "topic": topic, "xid": xid, "seq": int(seq), "limit": limit}
        async with borrow(self._pool) as connection:
            cursor = connection.cursor(row_factory=dict_row)
            await cursor.execute(_READ, {**values, "bytes": self.settings.result_bytes})
            rows = await cursor.fetchall()
        places = [row.pop("place") for row in rows]
        ended = [Invocation(**row) for row in rows if row["status"] is not None]
        return [row for row in ended if row.has_ended], places[-1] if places else after

    async def _send_some(self, group: anyio.abc.TaskGroup) -> None:
        """Begin to send what is due, first for tenants that hold the fewest places."""
        rows = await self._fetch(_TENANTS)
        for host in sorted((host for (host,) in rows), key=self._sending.__getitem__):
            while (room := self._room(host)) > 0:
                entries = await self._claim_entries(host, min(room, WEBHOOK_AT_ONCE))
                for entry in entries:
                    self._count(entry, 1)
                    group.start_soon(self._send, entry)
                if not entries:  # nothing waits for a place of the webhooks that are not at work
                    self._silent = {
                        webhook
                        for webhook in self._silent
                        if webhook[0] != host or webhook in self._to_webhooks
                    }
                    break

    def _room(self, host: str) -> int:
        return min(TENANT_AT_ONCE - self._sending[host], AT_ONCE - self._sending.total())

    def _count(self, entry: Entry, change: int) -> None:
        self._sending[entry.host_id] += change
        if entry.kind == "webhook":
            self._to_webhooks[entry.host_id, entry.target] += change
            if not self._to_webhooks[entry.host_id, entry.target]:
                del self._to_webhooks[entry.host_id, entry.target]

    def _places(self, host: str, name: str) -> int:
        return 1 if (host, name) in self._silent else WEBHOOK_AT_ONCE

    async def _claim_entries(self, host: str, limit: int) -> Sequence[Entry]:
        published = self._publish is not None
        busy = [
            name
            for (tenant, name), count in self._to_webhooks.items()
            if tenant == host and count >= self._places(host, name)
        ]
        if any(tenant == host and name not in busy for tenant, name in self._silent):
            limit = 1  # several rows of one claim may be those of one webhook
        values = {"host": host, "lease": LEASE_S, "topics": published, "busy": busy}
        async with borrow(self._pool) as connection:
            if not published:
                await connection.execute(_MARK_PUBLISHED, values)
            cursor = connection.cursor(row_factory=class_row(Entry))
            await cursor.execute(_claim(limit), values)
            return await cursor.fetchall()

    async def _send(self, entry: Entry) -> None:
        """Send a completion: no error of one ends the loop of all. Where its outcome cannot be
        stored, its lease ends, and it is sent again."""
        try:
            await self._settle(entry, await self._outcome(entry))
        except AWAY:
            log.warning("journal_unavailable")
        except psycopg.Error:
            log.exception("completion_crashed", extra={"invocation": entry.invocation_id})
        finally:
            self._count(entry, -1)
            self._wake.set()

    async def _outcome(self, entry: Entry) -> WebhookSent:
        if entry.age_s > GIVE_UP_S:
            return WebhookSent(done=False, gone=True, error="it is too old")
        row = await self._journal.get(entry.host_id, entry.invocation_id)
        if row is None or not row.has_ended:  # deleted, or redriven
            return WebhookSent(done=False, gone=True, error="the invocation is gone, or runs again")
        if row.status == "ACKED" and row.arguments == "null":  # a receiver would miss the result
            return WebhookSent(done=False, gone=True, error="the result was erased")
        try:
            return await self._by_kind[entry.kind](entry, row, encode(completion(row)))
        except Unavailable as error:
            return WebhookSent(done=False, error=error.message)
        except AWAY:
            raise
        except Exception:
            log.exception("completion_crashed", extra={"invocation": entry.invocation_id})
            return WebhookSent(done=False, error="internal error")

    async def _settle(self, entry: Entry, answer: WebhookSent) -> None:
        wait_s = max(answer.retry_s, retry_delay_s(entry.attempt, FIRST_S, LONGEST_S))
        over = answer.gone or entry.age_s + wait_s > GIVE_UP_S
        status = "ACKED" if answer.done else "FAILED" if over else "PENDING"
        extra = {"invocation": entry.invocation_id, "kind": entry.kind, "reason": answer.error}
        if status == "FAILED":
            log.warning("completion_not_sent", extra=extra)
        elif status == "PENDING" and entry.attempt == 1:  # a line for each, not for each attempt
            target = "" if entry.kind == "session" else entry.target  # ids of sessions are secret
            log.warning("completion_delayed", extra={**extra, "target": target})
        values = {
            "host": entry.host_id,
            "id": entry.outbox_id,
            "fence": entry.fence,
            "status": status,
            "error": answer.error or None,
            "wait": 0.0 if answer.done else wait_s,
        }
        await self._execute(_END, values)

    async def _to_topic(self, entry: Entry, _row: Invocation, event: bytes) -> WebhookSent:
        if self._publish is not None:
            await self._publish(entry.host_id, entry.target, event)
        return WebhookSent(done=True)

    async def _to_session(self, entry: Entry, row: Invocation, event: bytes) -> WebhookSent:
        caller = read_caller(row.principal or "")
        params = b'{"level":"info","logger":"toolgate.events","data":' + event + b"}"
        message = b'{"jsonrpc":"2.0","method":"notifications/message","params":' + params + b"}"
        notified = await self._notify(caller.principal, caller.toolset, entry.target, message)
        return WebhookSent(
            done=notified, gone=not notified, error="" if notified else "the session has ended"
        )

    async def _to_webhook(self, entry: Entry, row: Invocation, event: bytes) -> WebhookSent:
        try:
            webhook = await self._receivers.find(entry.host_id, entry.target)
        except SecretRefused as error:
            return WebhookSent(done=False, error=str(error))
        if webhook is None:
            return WebhookSent(
                done=False, gone=True, error="the webhook is not registered, or disabled"
            )
        answer = await self._sender.send(
            webhook.url,
            f"{row.invocation_id}.{row.redriven}",
            event,
            content_type=CLOUD_EVENT,
            secrets=webhook.secrets,
            private=webhook.private,
        )
        if answer.answer:
            self._silent.discard((entry.host_id, entry.target))
        else:
            self._silent.add((entry.host_id, entry.target))
        if answer.gone:
            await self._receivers.disable(entry.host_id, entry.target, webhook.url)
        return answer
