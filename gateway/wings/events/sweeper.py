"""Sweeps of the journal: leases and deadlines that are over, what has ended, and what is old.

All of it is plain statements, tenant by tenant, so that any process may do it at any time.
"""

from collections.abc import Mapping
from typing import LiteralString

from msgspec import Struct
from psycopg import sql

from gateway.wings.events.invocation_journal import (
    BATCH,
    EXPIRED_ERROR,
    LEASE_OVER,
    OUTBOX,
    OUTCOME_UNKNOWN,
    QUESTIONS,
    TENANTS_OF,
    UNBLOCK_OF,
)
from registry.database.leases import OldRows
from registry.database.postgres import Pool, borrow
from registry.database.tables import Tables

LOCK = 0x746F6F6C65766E74  # "toolevnt"
TRIM_LOCK = 0x746F6F6C7472696D  # "tooltrim"


class SweepCounts(Struct, frozen=True):
    """Counts of a sweep's changes."""

    waiting: int  # leases that were over, and wait again
    failed: int
    expired: int
    outbox: int

    def __bool__(self) -> bool:
        return any((self.waiting, self.failed, self.expired, self.outbox))


_SWEEP = sql.SQL("""
WITH due AS (
    SELECT host_id, invocation_id, repeatable AND attempt < max_attempts AND NOT cancelling
            AND (deadline_ts IS NULL OR deadline_ts > now()) AS again,
        CASE WHEN cancelling THEN 'cancelled'
            WHEN deadline_ts <= now() THEN 'expired'
            WHEN NOT repeatable THEN 'error' ELSE 'attempts' END AS reason
    FROM invocation_t WHERE host_id = %(host)s AND status = 'DISPATCHED' AND lease_ts < now()
    ORDER BY lease_ts LIMIT %(limit)s FOR UPDATE SKIP LOCKED),
again AS (
    UPDATE invocation_t i SET status = 'PENDING', lease_ts = NULL, due_ts = now(),
        changed_ts = now()
    FROM due d WHERE i.host_id = d.host_id AND i.invocation_id = d.invocation_id AND d.again
    RETURNING i.host_id, i.invocation_id, i.fence, i.attempt, i.worker,
        %(lease_over)s::json AS error),
ended AS (
    UPDATE invocation_t i SET status = 'FAILED', reason = d.reason, lease_ts = NULL,
        error = CASE WHEN d.reason = 'error' THEN %(unknown)s::json
            ELSE %(lease_over)s::json END,
        finished_ts = now(), changed_ts = now()
    FROM due d WHERE i.host_id = d.host_id AND i.invocation_id = d.invocation_id AND NOT d.again
    RETURNING i.host_id, i.invocation_id, i.fence, i.attempt, i.worker, i.error, i.reply_to),
sent AS ({outbox}),
asked AS ({questions}),
attempts AS (
    INSERT INTO invocation_attempt_t (host_id, invocation_id, fence, attempt, worker, error)
    SELECT host_id, invocation_id, fence, attempt, worker, error FROM again
    UNION ALL SELECT host_id, invocation_id, fence, attempt, worker, error FROM ended)
SELECT (SELECT count(*) FROM again), (SELECT count(*) FROM ended)
""").format(outbox=OUTBOX, questions=QUESTIONS)
_EXPIRE = sql.SQL("""
WITH late AS (
    SELECT host_id, invocation_id FROM invocation_t
    WHERE host_id = %(host)s AND status = 'PENDING' AND deadline_ts <= now()
    ORDER BY deadline_ts LIMIT %(limit)s FOR UPDATE SKIP LOCKED),
ended AS (
    UPDATE invocation_t i SET status = 'FAILED', reason = 'expired', error = %(expired)s::json,
        finished_ts = now(), changed_ts = now()
    FROM late l WHERE i.host_id = l.host_id AND i.invocation_id = l.invocation_id
    RETURNING i.host_id, i.invocation_id, i.reply_to),
sent AS ({outbox}),
asked AS ({questions})
SELECT count(*) FROM ended
""").format(outbox=OUTBOX, questions=QUESTIONS)
_UNBLOCK_ALL = UNBLOCK_OF.format(
    keys=sql.SQL(
        "(SELECT DISTINCT host_id, principal_id, topic, order_key FROM invocation_t"
        " WHERE host_id = %(host)s AND blocked) AS k"
    )
)
_UNSENT: LiteralString = """
UPDATE outbox_t SET status = 'PENDING', lease_ts = NULL
WHERE host_id = %(host)s AND status = 'DISPATCHED' AND lease_ts < now()
"""
# Tenants that a sweep has something to do for: upkeep is done tenant by tenant.
_TO_SWEEP = sql.SQL("""
SELECT host_id::text FROM invocation_t WHERE status = 'DISPATCHED' AND lease_ts < now()
UNION SELECT host_id::text FROM invocation_t
    WHERE status IN ('PENDING', 'DISPATCHED') AND deadline_ts <= now()
UNION SELECT host_id::text FROM outbox_t WHERE status = 'DISPATCHED' AND lease_ts < now()
UNION ({blocked})
""").format(blocked=TENANTS_OF.format(condition=sql.SQL("blocked")))
_TO_MOVE = sql.SQL("""finished_ts < now() - make_interval(secs => %(after)s)
    AND NOT (status = 'FAILED' AND on_failure = 'block' AND order_key IS NOT NULL)
    ORDER BY finished_ts LIMIT %(limit)s""")
_TENANTS_TO_MOVE = sql.SQL("""
SELECT DISTINCT host_id::text FROM (SELECT host_id FROM invocation_t WHERE {to_move}) AS old
""").format(to_move=_TO_MOVE)
_MOVE = sql.SQL("""
WITH old AS MATERIALIZED (
    SELECT invocation_id FROM invocation_t WHERE host_id = %(host)s AND {to_move}
    FOR UPDATE SKIP LOCKED),
moved AS (
    DELETE FROM invocation_t WHERE host_id = %(host)s
        AND invocation_id IN (SELECT invocation_id FROM old)
    RETURNING *)
INSERT INTO invocation_done_t SELECT * FROM moved
""").format(to_move=_TO_MOVE)
_OLD_ROWS = [
    OldRows(
        table,
        key,
        sql.SQL("{ended} < now() - make_interval(secs => %(keep)s)").format(
            ended=sql.Identifier(ended)
        ),
        ended,
    )
    for table, key, ended in (
        ("invocation_done_t", "invocation_id", "finished_ts"),
        ("invocation_t", "invocation_id", "finished_ts"),  # those that hold others of their key
        ("invocation_attempt_t", "invocation_id", "ended_ts"),
        ("outbox_t", "outbox_id", "finished_ts"),
        ("invocation_question_t", "invocation_id", "asked_ts"),  # of ends by an older gateway
    )
]
# Bytes of each ended invocation, its row and errors of its attempts included, without reading them.
_SELECT_ENDED = sql.SQL("""
SELECT i.host_id, i.invocation_id, i.principal_id, i.finished_ts,
    600 + pg_column_size(i.arguments) + coalesce(pg_column_size(i.result), 0)
        + coalesce(pg_column_size(i.error), 0) + coalesce(a.bytes, 0) AS bytes
FROM invocation_done_t i LEFT JOIN (
    SELECT host_id, invocation_id, sum(pg_column_size(error)) AS bytes
    FROM invocation_attempt_t GROUP BY host_id, invocation_id) AS a USING (host_id, invocation_id)
""")
_ENDED_USAGE = sql.SQL("""
SELECT host_id::text, principal_id, sum(bytes)::bigint FROM ({ended_bytes}) AS ended
GROUP BY host_id, principal_id
""").format(ended_bytes=_SELECT_ENDED)
# The newest that fit stay: first of each principal, then of the tenant.
_EXCESS = sql.SQL("""
WITH sized AS (
    SELECT invocation_id, finished_ts, bytes, sum(bytes) OVER (
        PARTITION BY principal_id ORDER BY finished_ts DESC, invocation_id) AS of_principal
    FROM ({ended_bytes} WHERE i.host_id = %(host)s) AS ended),
placed AS (
    SELECT *, of_principal > %(principal)s AS over, sum(bytes) FILTER (
        WHERE of_principal <= %(principal)s) OVER (
        ORDER BY finished_ts DESC, invocation_id) AS of_tenant
    FROM sized)
SELECT invocation_id::text, finished_ts FROM placed WHERE over OR of_tenant > %(tenant)s
ORDER BY finished_ts LIMIT %(limit)s
""").format(ended_bytes=_SELECT_ENDED)
# What is still to be sent keeps its invocation.
_REMOVE: LiteralString = """
WITH removed AS (
    DELETE FROM invocation_done_t AS i USING unnest(%(ids)s::uuid[], %(times)s::timestamptz[])
        AS old (invocation_id, finished_ts)
    WHERE i.host_id = %(host)s AND i.invocation_id = old.invocation_id
        AND i.finished_ts = old.finished_ts AND NOT EXISTS (
            SELECT FROM outbox_t AS o WHERE o.host_id = i.host_id
                AND o.invocation_id = i.invocation_id AND o.status IN ('PENDING', 'DISPATCHED'))
    RETURNING i.invocation_id),
attempts AS (
    DELETE FROM invocation_attempt_t AS a USING removed
    WHERE a.host_id = %(host)s AND a.invocation_id = removed.invocation_id)
SELECT count(*) FROM removed
"""
EXCESS = 100_000  # invocations of a tenant that are removed at a time


class JournalSweeper(Tables):
    """All methods raise psycopg.OperationalError and PoolTimeout."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def sweep(self) -> dict[str, SweepCounts]:
        """End leases and deadlines that are over, tenant by tenant; what was changed, of tenants
        where something was."""
        rows = await self._fetch(_TO_SWEEP)
        tenants = [host for (host,) in rows]
        return {host: swept for host in tenants if (swept := await self._swept(host))}

    async def _swept(self, host_id: str) -> SweepCounts:
        values = {
            "host": host_id,
            "limit": BATCH,
            "lease_over": LEASE_OVER,
            "unknown": OUTCOME_UNKNOWN,
            "expired": EXPIRED_ERROR,
        }
        async with borrow(self._pool) as connection:
            rows = await connection.execute(_SWEEP, values)
            [(waiting, failed)] = await rows.fetchall()
            rows = await connection.execute(_EXPIRE, values)
            [(expired,)] = await rows.fetchall()
            unsent = await connection.execute(_UNSENT, values)
        await self._execute(_UNBLOCK_ALL, values)
        return SweepCounts(waiting, failed, expired, unsent.rowcount)

    async def move_ended(self, after_s: float) -> int:
        """Move invocations that ended `after_s` ago to those that have ended; how many."""
        values, moved = {"limit": BATCH, "after": after_s}, 0
        rows = await self._fetch(_TENANTS_TO_MOVE, values)
        tenants = [host for (host,) in rows]
        for host in tenants:
            moved += await self._execute(_MOVE, {**values, "host": host})
        return moved

    async def retain(self, keep_s: float) -> bool:
        """Drop months that are over `keep_s` ago, and make those to come; False: another process
        does."""
        async with borrow(self._pool) as connection:
            locked = await connection.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK])
            if await locked.fetchone() != (True,):
                return False
            await connection.execute(
                "SELECT invocation_make_month(current_date),"
                " invocation_make_month((current_date + interval '1 month')::date)"
            )
            old = await connection.execute(
                """
                SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                WHERE i.inhparent = 'invocation_done_t'::regclass
                    AND c.relname ~ '^invocation_done_[0-9]{6}_t$'
                    AND to_date(substr(c.relname, 17, 6), 'YYYYMM') + interval '1 month'
                        < now() - make_interval(secs => %s)
                """,
                [keep_s],
            )
            for (month,) in await old.fetchall():
                await connection.execute("SELECT invocation_drop_month(%s)", [month])
        return True

    async def prune(self, keep_s: float) -> int:
        """Delete what ended more than `keep_s` ago and is in no month that is dropped, tenant by
        tenant, at most BATCH rows of each; how many."""
        values = {"keep": keep_s, "limit": BATCH}
        return sum([await aged.delete(self._pool, values) for aged in _OLD_ROWS])

    async def ended_usage(self) -> Mapping[tuple[str, str], int] | None:
        """Bytes of ended invocations by tenant and principal; None: another process counts."""
        async with borrow(self._pool) as connection:
            locked = await connection.execute("SELECT pg_try_advisory_xact_lock(%s)", [TRIM_LOCK])
            if await locked.fetchone() != (True,):
                return None
            rows = await connection.execute(_ENDED_USAGE)
            return {(host, principal): bytes_ async for host, principal, bytes_ in rows}

    async def trim(self, host_id: str, principal_bytes: int, tenant_bytes: int) -> int:
        """Delete ended invocations of a tenant, the oldest first, until those of each principal and
        of all fit; how many."""
        most = {"principal": principal_bytes, "tenant": tenant_bytes, "limit": EXCESS}
        async with borrow(self._pool) as connection:
            rows = await connection.execute(_EXCESS, {"host": host_id, **most})
            excess = await rows.fetchall()
        removed = 0
        for at in range(0, len(excess), BATCH):
            ids, times = zip(*excess[at : at + BATCH], strict=True)
            values = {"host": host_id, "ids": list(ids), "times": list(times)}
            async with borrow(self._pool) as connection:
                rows = await connection.execute(_REMOVE, values)
                [(count,)] = await rows.fetchall()
                removed += count
        return removed
