"""The table of jobs. Starts none: see `registry.jobs.queue`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any, Literal, LiteralString

from psycopg import AsyncConnection, sql
from psycopg.rows import class_row

from registry.database.leases import Leases
from registry.database.migrate import Component
from registry.database.postgres import Pool, borrow
from registry.database.tables import Tables

JOBS = Component("jobs", files("registry.jobs") / "migrations")


@dataclass(frozen=True, slots=True)
class JobDraft:
    """A job to be stored. `principal` and `request` are JSON."""

    host_id: str
    operation: str
    principal_id: str
    principal: bytes
    request: bytes
    lock: str = ""  # jobs of a tenant with the same one run one at a time; "": at any time
    once_key: bytes | None = None  # None: an equal job may wait, too


@dataclass(frozen=True, slots=True)
class JobRow:
    """A stored job, as clients are shown it."""

    job_id: str
    host_id: str
    operation: str
    principal_id: str
    state: str
    attempt: int
    done: int
    total: int | None
    note: str
    location: str
    cancelling: bool
    created: str
    started: str | None
    ended: str | None
    result: str | None = None  # JSON, as `problem`; lists leave both out
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A started job. What its worker writes holds only while `attempt` is the newest."""

    job_id: str
    host_id: str
    operation: str
    principal: str
    request: str
    attempt: int
    failures: int


@dataclass(frozen=True, slots=True)
class JobProgress:
    done: int = 0
    total: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class StalledJob:
    """A job that was taken from its worker."""

    host_id: str
    job_id: str
    lock: str
    queue_id: int | None
    waiting: bool  # False: it was to be cancelled, and is


@dataclass(frozen=True, slots=True)
class JobHealth:
    waiting: int
    running: int
    stalled: int  # of those that run
    workers: int


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The end of a job; `result` and `problem` are JSON."""

    state: Literal["succeeded", "failed", "cancelled"]
    result: bytes | None = None
    problem: bytes | None = None
    location: str = ""


_TIME = "to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
_COLUMNS = sql.SQL(
    "job_id::text, host_id::text, operation, principal_id, state, attempt, done, total, note,"
    " location,"
    " cancel_ts IS NOT NULL AND ended_ts IS NULL AS cancelling,"
    f" {_TIME.format('created_ts')} AS created, {_TIME.format('started_ts')} AS started,"
    f" {_TIME.format('ended_ts')} AS ended"
)
_OWN = Leases("job_t", "job_id", "r.state = 'running'", "attempt", until="beat_ts").of_one
# An equal job may wait already, and one that was cancelled is not to start again.
_WAITING = sql.SQL(
    "once_key = NULL, beat_ts = clock_timestamp(),"
    " state = CASE WHEN cancel_ts IS NULL THEN 'waiting' ELSE 'cancelled' END,"
    " ended_ts = CASE WHEN cancel_ts IS NULL THEN NULL ELSE clock_timestamp() END,"
    " request = CASE WHEN cancel_ts IS NULL THEN request ELSE 'null' END"
)


async def add(connection: AsyncConnection, draft: JobDraft) -> tuple[str, bool]:
    """The id of the stored job and whether it is new; else it is an equal one that waits."""
    while True:
        rows = await connection.execute(
            "INSERT INTO job_t (host_id, operation, principal_id, principal, request, lock,"
            " once_key) VALUES (%s, %s, %s, %s::json, %s::json, %s, %s)"
            " ON CONFLICT (host_id, once_key) WHERE state = 'waiting' DO NOTHING"
            " RETURNING job_id::text",
            [
                draft.host_id,
                draft.operation,
                draft.principal_id,
                draft.principal.decode(),
                draft.request.decode(),
                draft.lock,
                draft.once_key,
            ],
        )
        if new := await rows.fetchone():
            return new[0], True
        rows = await connection.execute(
            "SELECT job_id::text FROM job_t"
            " WHERE host_id = %s AND once_key = %s AND state = 'waiting' FOR SHARE",
            [draft.host_id, draft.once_key],
        )
        if row := await rows.fetchone():  # else it has started meanwhile
            return row[0], False


async def turn(connection: AsyncConnection, host_id: str) -> tuple[int, int]:
    """The number of jobs of a tenant that wait in the queue, and the priority of its next one.

    Start-time fair queueing: a job is one below the last of its tenant that waits, so that these
    stay in order, and else beside the first of all, so that no tenant waits behind all of another.
    """
    rows = await connection.execute(
        """
        SELECT count(*) FILTER (WHERE own),
            coalesce(least(min(priority) FILTER (WHERE own) - 1, max(priority)), 0)
        FROM (
            SELECT entry.priority, job.host_id = %s AND job.state = 'waiting' AS own
            FROM job_t AS job JOIN procrastinate_jobs AS entry ON entry.id = job.queue_id
            WHERE job.ended_ts IS NULL
        ) AS open
        """,
        [host_id],
    )
    ((count, priority),) = await rows.fetchall()
    return count, priority


async def store_queue_id(
    connection: AsyncConnection, host_id: str, job_id: str, queue_id: int
) -> None:
    """Store which entry of the queue starts the job."""
    await connection.execute(
        "UPDATE job_t SET queue_id = %s WHERE host_id = %s AND job_id = %s",
        [queue_id, host_id, job_id],
    )


async def take_over(connection: AsyncConnection, after_s: float) -> list[StalledJob]:
    """Let jobs of any tenant wait again that neither a worker runs nor the queue will start: there
    was no sign of life for `after_s`. Returns those that need an entry in the queue."""
    cursor = connection.cursor(row_factory=class_row(StalledJob))
    await cursor.execute(
        sql.SQL(
            """
        UPDATE job_t SET failures = failures + (state = 'running')::int, {waiting}
        WHERE job_id IN (
            SELECT job_id FROM job_t AS job WHERE ended_ts IS NULL
                AND beat_ts < clock_timestamp() - %s * interval '1 second'
                AND NOT EXISTS (SELECT FROM procrastinate_jobs AS entry
                    WHERE entry.id = job.queue_id AND entry.status = 'todo')
            FOR UPDATE SKIP LOCKED)
        RETURNING host_id::text, job_id::text, lock, queue_id, state = 'waiting' AS waiting
        """
        ).format(waiting=_WAITING),
        [after_s],
    )
    return await cursor.fetchall()


async def health(connection: AsyncConnection, after_s: float) -> JobHealth:
    """The state of the jobs of all tenants; `after_s` without a sign of life counts as stalled."""
    cursor = connection.cursor(row_factory=class_row(JobHealth))
    await cursor.execute(
        """
        SELECT count(*) FILTER (WHERE state = 'waiting') AS waiting,
            count(*) FILTER (WHERE state = 'running') AS running,
            count(*) FILTER (WHERE state = 'running'
                AND beat_ts < clock_timestamp() - %(s)s * interval '1 second') AS stalled,
            (SELECT count(*) FROM procrastinate_workers
                WHERE last_heartbeat > clock_timestamp() - %(s)s * interval '1 second') AS workers
        FROM job_t WHERE ended_ts IS NULL
        """,
        {"s": after_s},
    )
    return await cursor.fetchone() or JobHealth(0, 0, 0, 0)


_CANCEL: LiteralString = """
    UPDATE job_t SET cancel_ts = coalesce(cancel_ts, clock_timestamp()),
        state = CASE state WHEN 'waiting' THEN 'cancelled' ELSE state END,
        ended_ts = CASE state WHEN 'waiting' THEN clock_timestamp() END,
        request = CASE state WHEN 'waiting' THEN 'null' ELSE request END
    WHERE ended_ts IS NULL AND host_id = %s
"""


class JobStore(Tables):
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def claim(self, job_id: str) -> Claim | None:
        """Start a waiting job of any tenant; None if it does not wait, because it was cancelled or
        has been started."""
        return await self._fetch_row(
            Claim,
            "UPDATE job_t SET state = 'running', attempt = attempt + 1, done = 0,"
            " total = NULL, note = '', beat_ts = clock_timestamp(),"
            " started_ts = coalesce(started_ts, clock_timestamp())"
            " WHERE job_id = %s AND state = 'waiting'"
            " RETURNING job_id::text, host_id::text, operation, principal::text, request::text,"
            " attempt, failures",
            [job_id],
        )

    async def advance(self, claim: Claim, progress: JobProgress) -> bool:
        """Store the progress; whether the job is to go on. It is not once it was cancelled, or
        another worker has taken it over."""
        async with borrow(self._pool) as connection:
            rows = await connection.execute(
                sql.SQL(
                    "UPDATE job_t AS r SET done = %(done)s, total = %(total)s, note = %(note)s,"
                    " beat_ts = clock_timestamp() WHERE {own} RETURNING cancel_ts IS NULL"
                ).format(own=_OWN),
                {**_own(claim), **asdict(progress)},
            )
            row = await rows.fetchone()
            return row is not None and bool(row[0])

    async def goes_on(self, claim: Claim) -> bool:
        """`advance` without progress, and without a write."""
        async with borrow(self._pool) as connection:
            rows = await connection.execute(
                sql.SQL("SELECT cancel_ts IS NULL FROM job_t AS r WHERE {own}").format(own=_OWN),
                _own(claim),
            )
            row = await rows.fetchone()
            return row is not None and bool(row[0])

    async def end(self, claim: Claim, end: JobEnd, progress: JobProgress) -> bool:
        """Store how the job ended; False if another worker has taken it over."""
        async with borrow(self._pool) as connection:
            done = await connection.execute(
                sql.SQL(
                    "UPDATE job_t AS r SET state = %(state)s, result = %(result)s::json,"
                    " problem = %(problem)s::json, location = %(location)s, done = %(done)s,"
                    " total = %(total)s, note = %(note)s, ended_ts = clock_timestamp(),"
                    " request = 'null' WHERE {own}"
                ).format(own=_OWN),
                {
                    **_own(claim),
                    "state": end.state,
                    "result": _text(end.result),
                    "problem": _text(end.problem),
                    "location": end.location,
                    **asdict(progress),
                },
            )
            return bool(done.rowcount)

    async def wait_again(self, claim: Claim, *, failed: bool) -> bool:
        """Let the job wait for another start, or end it if it was cancelled; False if another
        worker has taken it over. `failed`: this start counts as failure."""
        async with borrow(self._pool) as connection:
            done = await connection.execute(
                sql.SQL(
                    "UPDATE job_t AS r SET failures = failures + %(failed)s::int, {waiting}"
                    " WHERE {own}"
                ).format(waiting=_WAITING, own=_OWN),
                {**_own(claim), "failed": failed},
            )
            return bool(done.rowcount)

    async def get(self, host_id: str, job_id: str) -> JobRow | None:
        return await self._fetch_row(
            JobRow,
            sql.SQL(
                "SELECT {columns}, result::text, problem::text FROM job_t"
                " WHERE host_id = %s AND job_id = %s"
            ).format(columns=_COLUMNS),
            [host_id, job_id],
        )

    async def page(
        self,
        host_id: str,
        operations: Sequence[str],
        *,
        limit: int,
        state: str | None = None,
        principal: str | None = None,
        before: str = "",
    ) -> list[JobRow]:
        """Jobs of these operations, the newest first; of `principal` alone, unless None. `before`
        is the `key_of` one, or ""."""
        time, _, job = before.partition(" ")
        return await self._fetch_rows(
            JobRow,
            sql.SQL(
                "SELECT {columns} FROM job_t"
                " WHERE host_id = %(host)s AND operation = ANY(%(operations)s)"
                " AND (%(state)s::text IS NULL OR state = %(state)s)"
                " AND (%(principal)s::text IS NULL OR principal_id = %(principal)s)"
                " AND (%(time)s::timestamptz IS NULL"
                " OR (created_ts, job_id) < (%(time)s::timestamptz, %(job)s::uuid))"
                " ORDER BY created_ts DESC, job_id DESC LIMIT %(limit)s"
            ).format(columns=_COLUMNS),
            {
                "host": host_id,
                "operations": list(operations),
                "state": state,
                "principal": principal,
                "time": time or None,
                "job": job or None,
                "limit": limit,
            },
        )

    async def newest_ended(self, host_id: str, principal: str) -> list[JobRow]:
        """The last job of a principal that ended, of each operation, with result and problem."""
        return await self._fetch_rows(
            JobRow,
            sql.SQL(
                "SELECT DISTINCT ON (operation) {columns}, result::text, problem::text"
                " FROM job_t WHERE host_id = %s AND principal_id = %s AND ended_ts IS NOT NULL"
                " ORDER BY operation, ended_ts DESC"
            ).format(columns=_COLUMNS),
            [host_id, principal],
        )

    async def failed_lately(self, host_id: str, seconds: float, limit: int) -> list[JobRow]:
        """Jobs that failed within these seconds, the newest first, with their problems."""
        return await self._fetch_rows(
            JobRow,
            sql.SQL(
                "SELECT {columns}, problem::text FROM job_t WHERE host_id = %s"
                " AND state = 'failed' AND ended_ts > now() - make_interval(secs => %s)"
                " ORDER BY ended_ts DESC LIMIT %s"
            ).format(columns=_COLUMNS),
            [host_id, seconds, limit],
        )

    async def cancel(self, host_id: str, job_id: str) -> None:
        """Cancel a waiting job, or request it of a running one. One that has ended stays."""
        await self._execute(_CANCEL + " AND job_id = %s", [host_id, job_id])

    async def remove_ended(self, keep_days: float) -> int:
        """Remove the jobs of all tenants that ended more than `keep_days` ago; their number."""
        return await self._execute(
            "DELETE FROM job_t WHERE ended_ts < clock_timestamp() - %s * interval '1 day'",
            [keep_days],
        )


def key_of(row: JobRow) -> str:
    """The place of a job in a list."""
    return f"{row.created} {row.job_id}"


def _own(claim: Claim) -> dict[str, Any]:
    return {"host": claim.host_id, "id": claim.job_id, "fence": claim.attempt}


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
