"""The journal: invocations from the moment they are accepted until long after they have ended.

Knows no tools and no callers. States change in single statements, whose conditions and the
triggers of the tables decide between processes; the clock is the database's.
"""

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import Any, Literal, LiteralString

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict, replace
from psycopg import AsyncConnection, sql
from psycopg.errors import UniqueViolation
from psycopg.rows import args_row

from gateway.state.quotas import Usage
from registry.access.approvals import Approvals
from registry.database.leases import Leases, held_rows
from registry.database.postgres import AWAY, Pool, autocommit, borrow
from registry.database.sql_fragments import compose
from registry.database.tables import Tables, fetch_rows
from schemas.errors import ToolgateError

Status = Literal["PENDING", "DISPATCHED", "ACKED", "FAILED"]
Reason = Literal["error", "rejected", "expired", "cancelled", "attempts"]

PRIORITIES = 10  # 0 to 9, the highest first
OUTCOME_UNKNOWN = '{"message":"The outcome of the call is unknown, and it is not repeatable"}'
LEASE_OVER = '{"message":"The lease ended without a sign of life of the worker"}'
EXPIRED_ERROR = '{"message":"The deadline has passed"}'
CANCELLED_ERROR = '{"message":"Cancelled"}'


class Conflict(ToolgateError):
    """The correlation id or idempotency key belongs to another request."""


class Draft(Struct, frozen=True, kw_only=True):
    """An invocation to be accepted."""

    host_id: str
    skill_name: str
    arguments: Raw
    principal_id: str
    principal: Raw
    repeatable: bool
    max_attempts: int
    invocation_id: str = ""
    correlation_id: str = ""  # "": the invocation's id
    queue: str = ""
    topic: str = "agent-commands"
    reply_to: str | None = None
    task_id: str | None = None
    traceparent: str | None = None
    hops: int = 0
    order_key: str | None = None
    on_failure: Literal["skip", "block"] = "skip"
    idempotency_key: str | None = None
    priority: int = 5
    due_ts: datetime | None = None
    delay_s: float = 0.0
    deadline_s: float | None = None

    @property
    def request_hash(self) -> bytes:
        """Equal for equal requests; times and ids that the gateway gives do not count."""
        members = [
            self.skill_name,
            msgspec.json.decode(self.arguments),
            self.principal_id,
            self.reply_to,
            self.order_key,
            self.topic,
        ]
        return hashlib.sha256(msgspec.json.encode(members, order="deterministic")).digest()


class End(Struct, frozen=True):
    """The report of a worker on a delivery."""

    host_id: str
    invocation_id: str
    fence: int
    result: Raw | None = None  # of the tool; also of one that failed
    error: Raw | None = None  # None: it succeeded
    reason: Reason = "error"
    retry_s: float | None = None  # None: the failure is final


class Delivery(Struct, frozen=True):
    """A claimed invocation. What its worker reports counts with this `fence` alone."""

    host_id: str
    invocation_id: str
    fence: int
    attempt: int
    max_attempts: int
    skill_name: str
    correlation_id: str
    arguments: str
    principal: str
    repeatable: bool
    hops: int
    traceparent: str | None
    order_key: str | None
    idempotency_key: str
    approval_id: str | None
    priority: int
    deadline_s: float | None  # left until the deadline
    waited_s: float  # since it was due

    @property
    def key(self) -> tuple[str, str, int]:
        return self.host_id, self.invocation_id, self.fence

    def end(
        self,
        *,
        result: bytes | None = None,
        error: bytes | None = None,
        reason: Reason = "error",
        retry_s: float | None = None,
    ) -> End:
        """The report on it; `result` and `error` are JSON."""
        stored_result, why = (
            None if document is None else Raw(document) for document in (result, error)
        )
        return End(*self.key, stored_result, why, reason, retry_s)


class Invocation(Struct, frozen=True):
    """An invocation as its caller sees it."""

    host_id: str
    invocation_id: str
    seq: int
    topic: str
    skill_name: str
    correlation_id: str
    reply_to: str | None
    principal_id: str
    task_id: str | None
    hops: int
    order_key: str | None
    priority: int
    status: Status
    reason: Reason | None
    attempt: int
    max_attempts: int
    redriven: int
    cancelling: bool
    approval_id: str | None
    traceparent: str | None
    worker: str | None
    fence: int
    due: datetime
    deadline: datetime | None
    created: datetime
    changed: datetime
    finished: datetime | None
    arguments: str | None = None  # JSON, as what follows; lists leave them out
    result: str | None = None
    error: str | None = None
    principal: str | None = None

    @property
    def has_ended(self) -> bool:
        return self.status in ("ACKED", "FAILED")


class AcceptedInvocation(Struct, frozen=True):
    invocation_id: str
    correlation_id: str
    row: Invocation | None = None  # None: the same one was accepted before

    @property
    def is_new(self) -> bool:
        return self.row is not None


class InvocationAttempt(Struct, frozen=True):
    attempt: int
    worker: str | None
    error: str | None
    ended: datetime


class Counts(Struct, frozen=True):
    """Statistics of the journal of a tenant."""

    pending: int
    delayed: int  # of these, not due yet
    dispatched: int
    acked: int
    failed: int
    unsent: int  # completions
    oldest_s: float  # age of the oldest invocation that is due


class Filter(Struct, frozen=True):
    """Filter of a list of invocations."""

    status: str | None = None
    skill: str | None = None
    principal: str | None = None  # the caller's own
    reason: str | None = None
    tasks: bool = False  # MCP tasks alone


COLUMNS = sql.SQL("""host_id::text, invocation_id::text, seq, topic, skill_name,
    correlation_id, reply_to, principal_id, task_id, hops, order_key, priority, status, reason,
    attempt, max_attempts, redriven, cancelling, approval_id::text, traceparent, worker, fence,
    due_ts AS due,
    deadline_ts AS deadline, created_ts AS created, changed_ts AS changed,
    finished_ts AS finished""")
_WHOLE = sql.SQL("{columns}, arguments::text, result::text, error::text, principal::text").format(
    columns=COLUMNS
)
_DELIVERY = sql.SQL("""r.host_id::text, r.invocation_id::text, r.fence, r.attempt,
    r.max_attempts, r.skill_name, r.correlation_id, r.arguments::text, r.principal::text,
    r.repeatable, r.hops, r.traceparent, r.order_key,
    coalesce(r.idempotency_key, r.invocation_id::text) AS idempotency_key, r.approval_id::text,
    r.priority, extract(epoch FROM r.deadline_ts - now())::float8 AS deadline_s,
    extract(epoch FROM now() - r.due_ts)::float8 AS waited_s""")
# All that are DISPATCHED have a lease, and there is an index of these.
LEASES = Leases("invocation_t", "invocation_id", "r.lease_ts IS NOT NULL")
_DRAFT_COLUMNS = sql.SQL("""host_id uuid, invocation_id uuid, topic text, queue text,
    skill_name text, correlation_id text, reply_to text, request_hash text, arguments json,
    principal_id text, principal json, task_id text, traceparent text, hops smallint,
    order_key text, on_failure text, idempotency_key text, repeatable boolean, priority smallint,
    max_attempts integer, due_ts timestamptz, delay_s float8, deadline_s float8""")
_ACCEPT = compose(
    """
INSERT INTO invocation_t (host_id, invocation_id, topic, queue, skill_name, correlation_id,
    reply_to, request_hash, arguments, principal_id, principal, task_id, traceparent, hops,
    order_key, on_failure, idempotency_key, repeatable, priority, max_attempts, blocked, due_ts,
    deadline_ts)
SELECT host_id, invocation_id, topic, queue, skill_name, correlation_id, reply_to,
    decode(request_hash, 'hex'), arguments, principal_id, principal, task_id, traceparent, hops,
    order_key, on_failure, idempotency_key, repeatable, priority, max_attempts,
    order_key IS NOT NULL AND EXISTS (
        SELECT FROM invocation_t e WHERE e.host_id = r.host_id
            AND e.principal_id = r.principal_id AND e.topic = r.topic
            AND e.order_key = r.order_key AND e.status IN ('PENDING', 'DISPATCHED')),
    coalesce(due_ts, now() + make_interval(secs => delay_s)),
    now() + make_interval(secs => deadline_s)
FROM json_to_recordset(%s::json) AS r({drafted})
ON CONFLICT DO NOTHING RETURNING {columns}
""",
    drafted=_DRAFT_COLUMNS,
    columns=COLUMNS,
)
_KNOWN_IN = sql.SQL("""
SELECT invocation_id::text, correlation_id, request_hash FROM {table}
WHERE host_id = %(host)s AND correlation_id = %(correlation)s
    AND principal_id = %(principal)s
UNION ALL SELECT invocation_id::text, correlation_id, request_hash FROM {table}
WHERE host_id = %(host)s AND principal_id = %(principal)s AND skill_name = %(skill)s
    AND idempotency_key = %(key)s
""")
# The correlation id goes first.
_EARLIER_INVOCATION = compose(
    "{open} UNION ALL {done} LIMIT 1",
    open=_KNOWN_IN.format(table=sql.Identifier("invocation_t")),
    done=_KNOWN_IN.format(table=sql.Identifier("invocation_done_t")),
)
# Through all priorities, the highest first, so that each is a range of the index whatever waits
# in others. Of a key only the first that is open, and none while one is DISPATCHED. Rows are
# updated by their place in the table, so that no plan with statistics looks at others.
_PICK = sql.SQL("""
WITH picked AS MATERIALIZED (
    SELECT c.place
    FROM generate_series({most}, 0, -1) AS p(priority), {queues} AS q(queue),
        LATERAL (
            SELECT i.ctid AS place FROM invocation_t i
            WHERE i.host_id = %(host)s AND i.queue = q.queue AND i.priority = p.priority
                AND i.status = 'PENDING' AND NOT i.blocked AND i.due_ts <= now()
                AND (i.deadline_ts IS NULL OR i.deadline_ts > now())
                AND (i.order_key IS NULL OR NOT EXISTS (
                    SELECT FROM invocation_t e
                    WHERE e.host_id = i.host_id AND e.principal_id = i.principal_id
                        AND e.topic = i.topic AND e.order_key = i.order_key
                        AND e.invocation_id <> i.invocation_id
                        AND (e.status = 'DISPATCHED' OR (e.seq < i.seq AND (e.status = 'PENDING'
                            OR (e.status = 'FAILED' AND e.on_failure = 'block'))))))
            ORDER BY i.due_ts, i.seq LIMIT {limit} FOR UPDATE OF i SKIP LOCKED) c
    LIMIT {limit})
""")


_CLAIM = LEASES.claim(
    "status = 'DISPATCHED', attempt = attempt + 1, worker = %(worker)s, changed_ts = now()",
    sql.SQL("FROM picked WHERE r.host_id = %(host)s AND r.ctid = picked.place"),
    _DELIVERY,
)


@cache
def _claim(limit: int, kind: Literal["tools", "skills"]) -> bytes:
    """The statement for a number of rows. As a parameter, PostgreSQL would take it for a tenth of
    the table, and plan each time anew, which takes longer than to carry the plan out."""
    picked = _PICK.format(
        most=sql.Literal(PRIORITIES - 1), limit=sql.Literal(limit), queues=_QUEUES[kind]
    )
    return picked.as_bytes() + _CLAIM


_QUEUES = {
    "tools": sql.SQL("(VALUES (''))"),
    "skills": sql.SQL("unnest(%(queues)s::text[])"),
}
# Each tenant that has such rows, without reading those rows.
TENANTS_OF = sql.SQL("""
WITH RECURSIVE t AS (
    (SELECT host_id FROM invocation_t WHERE {condition} ORDER BY host_id LIMIT 1)
    UNION ALL
    SELECT (SELECT i.host_id FROM invocation_t i WHERE {condition} AND i.host_id > t.host_id
             ORDER BY i.host_id LIMIT 1)
    FROM t WHERE t.host_id IS NOT NULL)
SELECT host_id::text FROM t WHERE host_id IS NOT NULL
""")
_TENANTS = TENANTS_OF.format(
    condition=sql.SQL("status = 'PENDING' AND NOT blocked AND queue = ''")
).as_bytes()
_EXTEND = LEASES.renew("r.invocation_id::text, r.fence, r.cancelling")
_RELEASE = (
    LEASES.release(
        "status = 'PENDING', attempt = attempt - 1, worker = NULL, approval_id = %(approval)s,"
        " changed_ts = now(), due_ts = now() + make_interval(secs => %(delay)s)"
    )
    + b" AND NOT r.cancelling"
)
_END_COLUMNS = sql.SQL(
    "host_id uuid, invocation_id uuid, fence bigint, result json, error json, \
reason text, retry_s float8"
)
# Each completion goes where its caller wants it, in the transaction of the end.
OUTBOX = sql.SQL("""
INSERT INTO outbox_t (host_id, invocation_id, kind, target)
SELECT host_id, invocation_id, split_part(reply_to, ':', 1),
    substr(reply_to, strpos(reply_to, ':') + 1)
FROM ended WHERE reply_to IS NOT NULL
""")
# A question to the client of a task is removed in the transaction of its end, too.
QUESTIONS = sql.SQL("""
DELETE FROM invocation_question_t q USING ended e
WHERE q.host_id = e.host_id AND q.invocation_id = e.invocation_id
""")
# Of a key the first that is open may be looked at. Both who ends one and who adds one do this after
# their commit, so that one of them sees what the other did.
UNBLOCK_OF = sql.SQL("""
UPDATE invocation_t i SET blocked = false
FROM {keys}, LATERAL (
    SELECT n.seq FROM invocation_t n WHERE n.host_id = k.host_id
        AND n.principal_id = k.principal_id AND n.topic = k.topic AND n.order_key = k.order_key
        AND n.status IN ('PENDING', 'DISPATCHED') ORDER BY n.seq LIMIT 1) AS first
WHERE i.host_id = k.host_id AND i.seq = first.seq AND i.blocked
""")
_UNBLOCK = UNBLOCK_OF.format(
    keys=sql.SQL(
        "json_to_recordset(%s::json) AS k(host_id uuid, principal_id text, topic text,"
        " order_key text)"
    )
).as_bytes()
# Of an invocation that was erased while it ran, whose arguments are null, nothing is kept.
_END = compose(
    """
WITH r AS (SELECT * FROM json_to_recordset(%s::json) AS r({ended}) LIMIT %s),
ended AS (
    UPDATE invocation_t i SET status = CASE WHEN r.error IS NULL THEN 'ACKED' ELSE 'FAILED' END,
        reason = CASE WHEN r.error IS NULL THEN NULL
            WHEN r.retry_s IS NOT NULL THEN 'cancelled' ELSE r.reason END,
        result = CASE WHEN i.arguments::text <> 'null' THEN r.result END,
        error = CASE WHEN i.arguments::text <> 'null' THEN r.error END,
        lease_ts = NULL, approval_id = NULL, finished_ts = now(), changed_ts = now()
    FROM r WHERE i.host_id = r.host_id AND i.invocation_id = r.invocation_id AND i.fence = r.fence
        AND i.lease_ts IS NOT NULL AND (r.retry_s IS NULL OR i.cancelling)
    RETURNING i.host_id, i.invocation_id, i.fence, i.attempt, i.worker, i.error, i.reply_to,
        i.principal_id, i.topic, i.order_key),
again AS (
    UPDATE invocation_t i SET status = 'PENDING', lease_ts = NULL, worker = NULL,
        due_ts = now() + make_interval(secs => r.retry_s), changed_ts = now()
    FROM r WHERE i.host_id = r.host_id AND i.invocation_id = r.invocation_id AND i.fence = r.fence
        AND i.lease_ts IS NOT NULL AND r.retry_s IS NOT NULL AND NOT i.cancelling
    RETURNING i.host_id, i.invocation_id, i.fence, i.attempt, i.worker, r.error),
sent AS ({outbox}),
asked AS ({questions}),
attempts AS (
    INSERT INTO invocation_attempt_t (host_id, invocation_id, fence, attempt, worker, error)
    SELECT host_id, invocation_id, fence, attempt, worker, error FROM ended WHERE error IS NOT NULL
    UNION ALL
    SELECT host_id, invocation_id, fence, attempt, worker, error FROM again)
SELECT invocation_id::text, fence, host_id::text, principal_id, topic, order_key FROM ended
UNION ALL SELECT invocation_id::text, fence, NULL, NULL, NULL, NULL FROM again
""",
    ended=_END_COLUMNS,
    outbox=OUTBOX,
    questions=QUESTIONS,
)
_CANCEL = compose(
    """
WITH named AS (
    SELECT host_id, invocation_id, status, approval_id FROM invocation_t
    WHERE host_id = %(host)s AND invocation_id = ANY (%(ids)s::uuid[])
        AND status IN ('PENDING', 'DISPATCHED') FOR UPDATE),
ended AS (
    UPDATE invocation_t i SET status = 'FAILED', reason = 'cancelled', error = %(error)s::json,
        approval_id = NULL, finished_ts = now(), changed_ts = now()
    FROM named a WHERE i.host_id = a.host_id AND i.invocation_id = a.invocation_id
        AND a.status = 'PENDING'
    RETURNING i.host_id, i.invocation_id, i.reply_to, i.principal_id, i.topic, i.order_key,
        a.approval_id),
running AS (
    UPDATE invocation_t i SET cancelling = true, changed_ts = now()
    FROM named a WHERE i.host_id = a.host_id AND i.invocation_id = a.invocation_id
        AND a.status = 'DISPATCHED'
    RETURNING i.invocation_id),
sent AS ({outbox}),
asked AS ({questions})
SELECT host_id::text, principal_id, topic, order_key, approval_id::text FROM ended
UNION ALL SELECT NULL, NULL, NULL, NULL, NULL FROM running
""",
    outbox=OUTBOX,
    questions=QUESTIONS,
)
_KEPT_COLUMNS = sql.SQL("""host_id, invocation_id, seq, topic, queue, skill_name, correlation_id,
    reply_to, request_hash, arguments, principal_id, principal, task_id, traceparent, hops,
    order_key, on_failure, idempotency_key, repeatable, priority, max_attempts, created_ts,
    fence""")
_REDRIVE = compose(
    """
WITH chosen AS (
    SELECT invocation_id FROM invocation_v
    WHERE host_id = %(host)s AND status = 'FAILED' AND arguments::text <> 'null'
        AND (%(ids)s::uuid[] IS NULL OR invocation_id = ANY (%(ids)s::uuid[]))
        AND (%(skill)s::text IS NULL OR skill_name = %(skill)s)
        AND (%(reason)s::text IS NULL OR reason = %(reason)s)
    ORDER BY seq LIMIT %(limit)s),
hot AS (DELETE FROM invocation_t WHERE host_id = %(host)s AND status = 'FAILED'
    AND invocation_id IN (SELECT invocation_id FROM chosen) RETURNING *),
cold AS (DELETE FROM invocation_done_t WHERE host_id = %(host)s AND status = 'FAILED'
    AND invocation_id IN (SELECT invocation_id FROM chosen) RETURNING *)
INSERT INTO invocation_t ({kept}, redriven)
SELECT {kept}, redriven + 1 FROM (SELECT * FROM hot UNION ALL SELECT * FROM cold) AS ended
RETURNING invocation_id::text
""",
    kept=_KEPT_COLUMNS,
)
_KEY = ("host_id", "principal_id", "topic", "order_key")
BATCH = 1000  # rows that a statement of the upkeep changes


class Journal(Tables):
    """All methods raise psycopg.OperationalError and PoolTimeout."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def accept(self, drafts: Sequence[Draft]) -> list[AcceptedInvocation | Conflict]:
        """Store invocations in one transaction. What was accepted before is found again, if it is
        the same request."""
        new_drafts = [_with_ids(draft) for draft in drafts]
        try:
            async with autocommit(self._pool) as connection:
                stored = await _store_drafts(connection, new_drafts)
        except UniqueViolation:  # one that has ended has the ids of one of them
            stored = await self._stored_but_known(new_drafts)
        accepted = [
            AcceptedInvocation(draft.invocation_id, draft.correlation_id, row)
            if (row := stored.get(draft.invocation_id)) is not None
            else await self._earlier(draft)
            for draft in new_drafts
        ]
        await self._unblock(
            (draft.host_id, draft.principal_id, draft.topic, draft.order_key)
            for draft in new_drafts
        )
        return accepted

    async def _stored_but_known(self, drafts: Sequence[Draft]) -> dict[str, Invocation]:
        """Store the drafts whose ids were not given before, and return these by id. It is tried
        again for each invocation that ends meanwhile."""
        for _ in drafts:
            with suppress(UniqueViolation):
                return await self._stored_unknown(drafts)
        return await self._stored_unknown(drafts)

    async def _stored_unknown(self, drafts: Sequence[Draft]) -> dict[str, Invocation]:
        async with borrow(self._pool) as connection:
            unknown = [draft for draft in drafts if await _find_known(connection, draft) is None]
            return await _store_drafts(connection, unknown)

    async def _earlier(self, draft: Draft) -> AcceptedInvocation | Conflict:
        """The invocation that has the ids of the draft already."""
        async with borrow(self._pool) as connection:
            row = await _find_known(connection, draft)
        if row is None or row[2] != draft.request_hash:
            key = "correlationId" if row and row[1] == draft.correlation_id else "Idempotency-Key"
            return Conflict(f"the {key} belongs to another invocation")
        return AcceptedInvocation(row[0], row[1])

    async def _unblock(self, keys: Iterable[Sequence[str | None]]) -> None:
        """Unblock the first open invocation of order keys; those that are None have no order. If
        the database goes away, the next sweep does so: what was committed before stays done."""
        rows = [dict(zip(_KEY, key, strict=True)) for key in set(map(tuple, keys)) if key[3]]
        if rows:
            with suppress(*AWAY):
                await self._execute(_UNBLOCK, [_rows(rows)])

    async def get(self, host_id: str, invocation_id: str) -> Invocation | None:
        rows = await self._some("invocation_id = %s", [host_id, invocation_id])
        return rows[0] if rows else None

    async def awaits_approval(self, host_id: str, principal_id: str, mark: str) -> str | None:
        """The id of an open invocation of the principal that waits for an approval, or waited, of
        those whose correlation ids begin with `mark`."""
        row = await self._fetch_first(
            "SELECT invocation_id::text FROM invocation_t WHERE host_id = %s"
            " AND principal_id = %s AND status IN ('PENDING', 'DISPATCHED')"
            " AND approval_id IS NOT NULL AND starts_with(correlation_id, %s) LIMIT 1",
            [host_id, principal_id, mark],
        )
        return None if row is None else str(row[0])

    async def find_correlated(
        self, host_id: str, correlation_id: str, principal_id: str | None = None
    ) -> Invocation | None:
        """The invocation with this id: the principal's own, else that of another caller, if no two
        have chosen it."""
        values = [host_id, correlation_id]
        if principal_id is not None:
            condition = "correlation_id = %s AND principal_id = %s"
            if rows := await self._some(condition, [*values, principal_id]):
                return rows[0]
        rows = await self._some("correlation_id = %s", values, table="invocation_v")
        return rows[0] if len(rows) == 1 else None

    async def _some(
        self, condition: LiteralString, values: Sequence[str], table: str = "invocation_t"
    ) -> list[Invocation]:
        """The first two invocations of a tenant, from the open ones first: most that are asked for
        are there."""
        query = sql.SQL("SELECT {} FROM {} WHERE host_id = %s AND {} LIMIT 2").format(
            _WHOLE, sql.Identifier(table), sql.SQL(condition)
        )
        rows = await self._fetch_rows(Invocation, query, values)
        if rows or table == "invocation_v":
            return rows
        return await self._some(condition, values, "invocation_v")

    async def page(
        self, host_id: str, filter_: Filter, *, before: int | None, limit: int
    ) -> list[Invocation]:
        """Invocations, the newest first, older than `before`."""
        query = sql.SQL(
            "SELECT {} FROM invocation_v WHERE host_id = %(host)s"
            " AND (%(before)s::bigint IS NULL OR seq < %(before)s)"
            " AND (%(status)s::text IS NULL OR status = %(status)s)"
            " AND (%(skill)s::text IS NULL OR skill_name = %(skill)s)"
            " AND (%(reason)s::text IS NULL OR reason = %(reason)s)"
            " AND (%(principal)s::text IS NULL OR principal_id = %(principal)s)"
            " AND (NOT %(tasks)s OR task_id IS NOT NULL)"
            " ORDER BY seq DESC LIMIT %(limit)s"
        ).format(COLUMNS)
        values = {"host": host_id, "before": before, "limit": limit, **asdict(filter_)}
        return await self._fetch_rows(Invocation, query, values)

    async def attempts(self, host_id: str, invocation_id: str) -> list[InvocationAttempt]:
        """The attempts that failed, in order."""
        return await self._fetch_rows(
            InvocationAttempt,
            "SELECT attempt, worker, error::text, ended_ts AS ended FROM invocation_attempt_t"
            " WHERE host_id = %s AND invocation_id = %s ORDER BY fence",
            [host_id, invocation_id],
        )

    async def tenants(self) -> list[str]:
        """Tenants with PENDING invocations of tools."""
        rows = await self._fetch(_TENANTS)
        return [host for (host,) in rows]

    async def claim(
        self,
        host_id: str,
        worker: str,
        *,
        limit: int,
        lease_s: float,
        skills: Sequence[str] | None = None,
    ) -> list[Delivery]:
        """Take at most `limit` invocations that are due, of tools unless `skills` are given."""
        values = {
            "host": host_id,
            "worker": worker,
            "lease": lease_s,
            "queues": list(skills or ()),
        }
        statement = _claim(limit, "tools" if skills is None else "skills")
        try:
            async with autocommit(self._pool) as connection:
                cursor = connection.cursor(row_factory=args_row(Delivery))
                await cursor.execute(statement, values)
                claimed_rows = await cursor.fetchall()
        except UniqueViolation:  # somebody took another one of the same order key
            return []
        return sorted(claimed_rows, key=lambda row: (-row.priority, -row.waited_s))

    async def end(self, ends: Sequence[End]) -> set[tuple[str, int]]:
        """Store reports in one transaction: ids and fences of those that count."""
        async with autocommit(self._pool) as connection:
            ended = await connection.execute(_END, [_rows(ends), len(ends)])
            rows = await ended.fetchall()
        await self._unblock(key for _, _, *key in rows)
        return {(id_, fence) for id_, fence, *_ in rows}

    async def extend(
        self, deliveries: Iterable[tuple[str, str, int]], lease_s: float
    ) -> dict[tuple[str, int], bool]:
        """Renew leases, of (tenant, id, fence): by id and fence whether it is to be cancelled.
        Those that are missing are no longer the worker's."""
        values = {**held_rows(deliveries), "lease": lease_s}
        async with autocommit(self._pool) as connection:
            result = await connection.execute(_EXTEND, values)
            return {(id_, fence): cancelling async for id_, fence, cancelling in result}

    async def release(
        self,
        deliveries: Iterable[tuple[str, str, int]],
        *,
        delay_s: float = 0.0,
        approval: str | None = None,
    ) -> int:
        """Give deliveries, of (tenant, id, fence), back: the attempt does not count. Those that
        were to be cancelled are. `approval`: what they wait for."""
        rows = list(deliveries)
        values = {**held_rows(rows), "approval": approval, "delay": delay_s}
        done = await self._execute(_RELEASE, values)
        if done == len(rows):
            return done
        ends = [End(*row, error=Raw(CANCELLED_ERROR), reason="cancelled") for row in rows]
        return done + len(await self.end(ends))

    async def cancel(self, host_id: str, ids: Sequence[str]) -> tuple[int, int]:
        """Cancel: (ended at once, asked to end). Approvals that they wait for are not asked for any
        more."""
        values = {"host": host_id, "ids": list(ids), "error": CANCELLED_ERROR}
        rows = await self._fetch(_CANCEL, values)
        approvals = [approval for *_, approval in rows if approval is not None]
        await Approvals(self._pool, host_id).withdraw(approvals)
        await self._unblock(key for *key, _ in rows)
        ended = sum(host is not None for host, *_ in rows)
        return ended, len(rows) - ended

    async def redrive(
        self,
        host_id: str,
        ids: Sequence[str] | None,
        *,
        skill: str | None = None,
        reason: str | None = None,
        limit: int = BATCH,
    ) -> list[str]:
        """Make FAILED invocations PENDING again, with all their attempts; their ids."""
        values = {
            "host": host_id,
            "ids": None if ids is None else list(ids),
            "skill": skill,
            "reason": reason,
            "limit": limit,
        }
        rows = await self._fetch(_REDRIVE, values)
        return [id_ for (id_,) in rows]

    async def ended_among(self, ids: Iterable[tuple[str, str]]) -> set[str]:
        """Subset of these invocations, of (tenant, id), that have ended."""
        rows = [{"host_id": host, "invocation_id": id_} for host, id_ in ids]
        result = await self._fetch(
            "SELECT i.invocation_id::text FROM json_to_recordset(%s::json) AS"
            " r(host_id uuid, invocation_id uuid), invocation_v i"
            " WHERE i.host_id = r.host_id AND i.invocation_id = r.invocation_id"
            " AND i.finished_ts IS NOT NULL",
            [_rows(rows)],
        )
        return {id_ for (id_,) in result}

    async def open_usage(self, host_id: str, limit: int) -> dict[str, Usage]:
        """Open invocations of a tenant by principal, counted up to `limit`, and the bytes that
        their arguments take in the database, without reading these. Failed ones that hold up their
        key are among them, since they stay as long as they do."""
        cursor = await self._fetch(
            "SELECT principal_id, count(*), sum(bytes) FROM (SELECT principal_id,"
            " pg_column_size(arguments) + coalesce(pg_column_size(result), 0)"
            " + coalesce(pg_column_size(error), 0) AS bytes FROM invocation_t"
            " WHERE host_id = %s AND (status IN ('PENDING', 'DISPATCHED')"
            " OR (status = 'FAILED' AND on_failure = 'block' AND order_key IS NOT NULL))"
            " LIMIT %s) AS open GROUP BY principal_id",
            [host_id, limit],
        )
        return {principal: Usage(*usage) for principal, *usage in cursor}

    async def counts(self, host_id: str) -> Counts:
        [counts] = await self._fetch_rows(
            Counts,
            """
            SELECT count(*) FILTER (WHERE status = 'PENDING') AS pending,
                count(*) FILTER (WHERE status = 'PENDING' AND due_ts > now()) AS delayed,
                count(*) FILTER (WHERE status = 'DISPATCHED') AS dispatched,
                count(*) FILTER (WHERE status = 'ACKED') AS acked,
                count(*) FILTER (WHERE status = 'FAILED') AS failed,
                (SELECT count(*) FROM outbox_t WHERE host_id = %(host)s
                    AND status IN ('PENDING', 'DISPATCHED')) AS unsent,
                coalesce(extract(epoch FROM now() - min(due_ts) FILTER (
                    WHERE status = 'PENDING' AND due_ts <= now())), 0)::float8 AS oldest_s
            FROM invocation_v WHERE host_id = %(host)s
            """,
            {"host": host_id},
        )
        return counts

    async def erase(self, host_id: str, principal_id: str) -> int:
        """Blank arguments, results and errors of a caller; state and times stay. Open invocations
        are cancelled first, and of those that still run no result is stored."""
        rows = await self._fetch(
            "SELECT invocation_id::text FROM invocation_t WHERE host_id = %s"
            " AND principal_id = %s AND status IN ('PENDING', 'DISPATCHED')",
            [host_id, principal_id],
        )
        open_ = [id_ for (id_,) in rows]
        await self.cancel(host_id, open_)
        blanked = 0
        async with borrow(self._pool) as connection:
            for table in ("invocation_t", "invocation_done_t"):
                done = await connection.execute(
                    sql.SQL(
                        "UPDATE {} SET arguments = 'null', result = NULL, error = NULL,"
                        """ principal = '{{"principal": {{"id": "", "tenant": ""}}}}'"""
                        " WHERE host_id = %s AND principal_id = %s"
                        " AND (finished_ts IS NOT NULL OR cancelling)"
                    ).format(sql.Identifier(table)),
                    [host_id, principal_id],
                )
                blanked += done.rowcount
            await connection.execute(
                "DELETE FROM invocation_question_t WHERE host_id = %s AND principal_id = %s",
                [host_id, principal_id],
            )
            await connection.execute(
                "UPDATE invocation_attempt_t a SET error = NULL FROM invocation_v i"
                " WHERE a.host_id = %(host)s AND i.host_id = %(host)s"
                " AND a.invocation_id = i.invocation_id AND i.principal_id = %(principal)s",
                {"host": host_id, "principal": principal_id},
            )
        return blanked


def _with_ids(draft: Draft) -> Draft:
    """The draft with its ids."""
    id_ = draft.invocation_id or str(uuid.uuid4())
    return replace(draft, invocation_id=id_, correlation_id=draft.correlation_id or id_)


async def _store_drafts(
    connection: AsyncConnection, drafts: Sequence[Draft]
) -> dict[str, Invocation]:
    """The invocations that were stored, by id."""
    rows = await fetch_rows(connection, Invocation, _ACCEPT, [_rows(map(_draft_row, drafts))])
    stored = {row.invocation_id: row for row in rows}
    return {
        draft.invocation_id: replace(
            stored[draft.invocation_id],
            arguments=bytes(draft.arguments).decode(),
            principal=bytes(draft.principal).decode(),
        )
        for draft in drafts
        if draft.invocation_id in stored
    }


async def _find_known(connection: AsyncConnection, draft: Draft) -> Any:
    """Id, correlation id and hash of the invocation that has the ids of the draft."""
    rows = await connection.execute(_EARLIER_INVOCATION, _same(draft))
    return await rows.fetchone()


def _same(draft: Draft) -> Mapping[str, Any]:
    return {
        "host": draft.host_id,
        "correlation": draft.correlation_id,
        "principal": draft.principal_id,
        "skill": draft.skill_name,
        "key": draft.idempotency_key,
    }


def _draft_row(draft: Draft) -> dict[str, Any]:
    return {**asdict(draft), "request_hash": draft.request_hash.hex()}


def _rows(rows: Iterable[Mapping[str, Any] | End]) -> str:
    return msgspec.json.encode(list(rows)).decode()
