"""The queue of embedding tasks, as one worker uses it. Each method is a transaction.

A writer of a tool locks the rows of its task and of its vector until the commit, and waits for a
worker no longer than a moment: a worker skips locked tasks (SKIP LOCKED), and gives up on locks
that it would have to wait for longer. A skipped task has a newer text by then, is locked by the
claim of another worker, or is due again when its lease expires.
"""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection, sql
from psycopg.errors import LockNotAvailable
from psycopg.rows import class_row

from config.value_types import VECTOR_DIMENSION
from registry.database.leases import Leases
from registry.database.postgres import Pool, borrow
from registry.embedding.embedder import Vectors
from registry.embedding.vectors import Float4Array, RealsDumper

ERROR = 200  # characters stored of the reason of a failure

# A worker breaks its own deadlocks, long before the database (after 1 s) picks a victim: that might
# be an import. The planner may have no statistics of these tables yet, so it is made to look rows
# up. And commits are asynchronous: rows that a crash of the server loses, tasks and vectors alike,
# are made again.
CAREFULLY = (
    b"SET LOCAL lock_timeout = '300ms'; SET LOCAL synchronous_commit = off;"
    b" SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off;"
    b" SET LOCAL enable_mergejoin = off"
)
# Without statistics it would sort all tasks of a kind instead of reading the first by their index.
_IN_ORDER = CAREFULLY + b"; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off"

_VECTORS = b"""
    FROM mine
    WHERE (had.host_id, had.entity_type, had.entity_id, had.model)
        = (mine.host_id, mine.entity_type, mine.entity_id, %(model)s)
        AND had.source_hash = mine.source_hash
)
"""
_TASKS = b" WHERE (task.host_id, task.task_id) = (mine.host_id, mine.task_id)"
_DELETE = b"DELETE FROM embedding_task_t AS task USING mine" + _TASKS


@dataclass(frozen=True, slots=True)
class Task:
    """A task that this worker has claimed."""

    host_id: str
    task_id: int
    entity_type: str
    entity_id: str
    source_hash: str
    attempt_count: int  # this one included
    abandoned: bool  # claimed before by a worker whose lease expired
    turn: int  # hash of the owner; 0: the entity has no owner


@dataclass(frozen=True, slots=True)
class EmbeddingFailure:
    """The reason that a text could not be embedded, and the time of the retry."""

    reason: str
    after_s: float | None  # delay of the retry; None: never
    final: bool  # its status is failed; else it stays pending


class Queue:
    """The task queue of one model. All methods raise `psycopg.OperationalError`, also on a lock
    timeout."""

    def __init__(self, pool: Pool, worker: str, model: str, kinds: Sequence[str]) -> None:
        """The queue as `worker` uses it: a name unique among all workers, past ones too; at most 64
        characters. `kinds`: the types of entities that it knows."""
        self._pool = pool
        self._given = {
            "worker": worker,
            "model": model,
            "kinds": list(kinds),
            "dimension": VECTOR_DIMENSION,
        }

    async def claim(self, limit: int, lease_s: float) -> list[Task]:
        """Claim up to `limit` of the due tasks, and one of each kind and tenant, with a lease of
        `lease_s`.

        Kinds share it equally, tenants what is a kind's, owners what is a tenant's, each oldest
        first: a long queue of one delays no other. Those with the fewest come first.
        """
        async with (
            self._transaction(_IN_ORDER) as connection,
            connection.cursor(row_factory=class_row(Task)) as cursor,
        ):
            await cursor.execute(_CLAIM, {**self._given, "limit": limit, "lease": lease_s})
            return _fewest_first(await cursor.fetchall())

    async def finish(self, tasks: Sequence[Task], vectors: Vectors) -> int:
        """Store the vectors of those tasks that are still this worker's, and delete them; returns
        their number.

        A task whose text has changed stays, and its vector is dropped.
        """
        return await self._run(_FINISH, tasks, vectors=Float4Array(vectors.ravel()))

    async def blank(self, tasks: Sequence[Task]) -> int:
        """Finish tasks with blank texts, without a vector."""
        return await self._run(_BLANK, tasks)

    async def drop(self, tasks: Sequence[Task]) -> int:
        """Delete tasks whose entities no longer exist."""
        return await self._run(_DROP, tasks)

    async def fail(self, failures: Mapping[Task, EmbeddingFailure]) -> int:
        """Record the failures, and schedule retries or mark the tasks failed."""
        outcomes = failures.values()
        return await self._run(
            _FAIL,
            list(failures),
            values=[outcome.reason[:ERROR].replace("\0", "") for outcome in outcomes],
            after=[outcome.after_s for outcome in outcomes],
            final=[outcome.final for outcome in outcomes],
        )

    async def release(self, tasks: Sequence[Task]) -> int:
        """Release claimed tasks, without counting an attempt."""
        return await self._run(_RELEASE, tasks)

    async def _run(
        self, statement: bytes, tasks: Sequence[Task], **more: Sequence[Any] | Float4Array
    ) -> int:
        columns = {
            "hosts": [task.host_id for task in tasks],
            "tasks": [task.task_id for task in tasks],
            "hashes": [task.source_hash for task in tasks],
            "values": [""] * len(tasks),
        }
        values = {**self._given, **columns, **more}
        count = await self._execute(statement, values)
        if count < len(tasks):
            # A claim whose snapshot is older than ours finds our tasks due, locks them, sees that
            # they are not due any more, and keeps the locks to its end.
            with suppress(LockNotAvailable):
                count += await self._execute(statement.replace(_SKIP, b""), values)
        return count

    async def _execute(self, statement: bytes, values: Mapping[str, Any]) -> int:
        async with self._transaction() as connection, connection.cursor() as cursor:
            cursor.adapters.register_dumper(Float4Array, RealsDumper)
            await cursor.execute(statement, values)
            return cursor.rowcount

    @asynccontextmanager
    async def _transaction(self, planner: bytes = CAREFULLY) -> AsyncIterator[AsyncConnection]:
        async with borrow(self._pool) as connection:
            await connection.execute(planner)
            yield connection


def _fewest_first(tasks: Sequence[Task]) -> list[Task]:
    """Tenants of kinds by the number of their tasks, and so the owners within each."""
    tenants = Counter((task.entity_type, task.host_id) for task in tasks)
    owners = Counter((task.entity_type, task.host_id, task.turn) for task in tasks)

    def place(task: Task) -> tuple[int, str, str, int, int]:
        kind, host, turn = task.entity_type, task.host_id, task.turn
        return tenants[kind, host], kind, host, owners[kind, host, turn], turn

    return sorted(tasks, key=place)


# CTEs, which are run once, regardless of joins: they lock as many rows as they return.
# Tenants are found one after the other by the index that has their tasks in this whole order; with
# EXISTS in place of a subquery, all tasks would be read for a join. So are the owners of a tenant,
# no more than it has places: from a random one on, and from the first one on, so that few are all
# found and of many each has its chance. The owner of the oldest text always is among them.
_DUE = b"""
WITH RECURSIVE tenant AS (
    SELECT kind, (SELECT host_id FROM embedding_task_t WHERE entity_type = kind
        ORDER BY host_id, next_attempt_ts, task_id LIMIT 1) AS host_id
    FROM unnest(%(kinds)s::text[]) AS kind
    UNION ALL
    SELECT kind, (SELECT task.host_id FROM embedding_task_t AS task WHERE entity_type = kind
        AND task.host_id > tenant.host_id
        ORDER BY task.host_id, next_attempt_ts, task_id LIMIT 1)
    FROM tenant WHERE tenant.host_id IS NOT NULL
), due_tenant AS MATERIALIZED (
    SELECT kind, host_id, (random() * 4294967295 - 2147483648)::integer AS begin, (
        SELECT turn FROM embedding_task_t AS task
        WHERE entity_type = kind AND task.host_id = tenant.host_id AND model = %(model)s
            AND next_attempt_ts <= current_timestamp
        ORDER BY task.host_id, next_attempt_ts, task_id LIMIT 1) AS oldest
    FROM tenant
), chosen AS MATERIALIZED (
    SELECT * FROM due_tenant WHERE oldest IS NOT NULL ORDER BY random() LIMIT %(limit)s
), lane AS MATERIALIZED (
    SELECT *, greatest(%(limit)s::bigint / (SELECT count(DISTINCT kind) FROM chosen)
        / (SELECT count(*) FROM chosen AS same WHERE same.kind = chosen.kind), 1) AS places
    FROM chosen
), owner AS MATERIALIZED (
    SELECT lane.kind, lane.host_id, lane.places, turn,
        row_number() OVER (PARTITION BY lane.kind, lane.host_id
            ORDER BY turn <> lane.oldest, random()) AS nth
    FROM lane CROSS JOIN LATERAL (
        SELECT lane.oldest AS turn
        UNION
        SELECT walked.turn FROM unnest(ARRAY[lane.begin, -2147483648]) AS walk (begin)
        CROSS JOIN LATERAL (
            WITH RECURSIVE step AS (
                SELECT (SELECT turn FROM embedding_task_t AS task
                    WHERE entity_type = lane.kind AND task.host_id = lane.host_id
                        AND task.turn >= walk.begin
                    ORDER BY task.turn, next_attempt_ts, task_id LIMIT 1) AS turn
                UNION ALL
                SELECT (SELECT task.turn FROM embedding_task_t AS task
                    WHERE entity_type = lane.kind AND task.host_id = lane.host_id
                        AND task.turn > step.turn
                    ORDER BY task.turn, next_attempt_ts, task_id LIMIT 1)
                FROM step WHERE step.turn IS NOT NULL
            )
            SELECT step.turn FROM step LIMIT lane.places
        ) AS walked
        WHERE (SELECT true FROM embedding_task_t AS task
            WHERE entity_type = lane.kind AND task.host_id = lane.host_id
                AND task.turn = walked.turn AND model = %(model)s
                AND next_attempt_ts <= current_timestamp LIMIT 1)
    ) AS due_owner
), due AS MATERIALIZED (
    SELECT task.* FROM owner CROSS JOIN LATERAL (
        SELECT host_id, task_id, status FROM embedding_task_t
        WHERE entity_type = owner.kind AND embedding_task_t.host_id = owner.host_id
            AND embedding_task_t.turn = owner.turn
            AND model = %(model)s AND next_attempt_ts <= current_timestamp
        ORDER BY next_attempt_ts, task_id
        LIMIT greatest(owner.places / (SELECT count(*) FROM owner AS same
            WHERE (same.kind, same.host_id) = (owner.kind, owner.host_id)), 1)
        FOR UPDATE SKIP LOCKED
    ) AS task WHERE owner.nth <= owner.places
)
"""
_LEASES = Leases(
    "embedding_task_t",
    "task_id",
    "r.status = 'running'",
    fence="attempt_count",
    until="next_attempt_ts",
)
_CLAIM = _DUE + _LEASES.claim(
    "status = 'running', worker = %(worker)s, update_ts = current_timestamp",
    sql.SQL("FROM due WHERE (r.host_id, r.task_id) = (due.host_id, due.task_id)"),
    sql.SQL(
        "r.host_id::text, r.task_id, entity_type, entity_id::text, source_hash, attempt_count,"
        " due.status = 'running' AS abandoned, turn"
    ),
)

# Compare and set: tasks that are still this worker's, with the text that they were claimed with.
_MINE = b"""
WITH mine AS MATERIALIZED (
    SELECT task.host_id, task.task_id, task.entity_type, task.entity_id, task.source_hash, value,
        (nth - 1)::int AS before
    FROM unnest(%(hosts)s::uuid[], %(tasks)s::bigint[], %(hashes)s::text[], %(values)s::text[])
        WITH ORDINALITY AS given (host_id, task_id, hash, value, nth)
    JOIN embedding_task_t AS task
        ON (task.host_id, task.task_id) = (given.host_id, given.task_id)
    WHERE task.worker = %(worker)s AND task.status = 'running' AND task.source_hash = given.hash
    FOR UPDATE OF task SKIP LOCKED
)"""
_SKIP = b" SKIP LOCKED"

_FINISH = (
    _MINE
    + b""", written AS (
    UPDATE entity_embedding_t AS had SET status = 'ready', dimension = %(dimension)s,
        embedding = ((%(vectors)s::real[])[before * %(dimension)s + 1
            : (before + 1) * %(dimension)s])::vector,
        error = NULL, embedded_ts = clock_timestamp()"""
    + _VECTORS
    + _DELETE
)
_BLANK = (
    _MINE
    + b""", written AS (
    UPDATE entity_embedding_t AS had SET status = 'blank', embedding = NULL, dimension = NULL,
        error = NULL, embedded_ts = NULL"""
    + _VECTORS
    + _DELETE
)
# Their vectors would stay pending: a text may be queued while its entity is being deleted.
_DROP = (
    _MINE
    + b""", written AS (
    DELETE FROM entity_embedding_t AS had USING mine
    WHERE (had.host_id, had.entity_type, had.entity_id, had.model)
        = (mine.host_id, mine.entity_type, mine.entity_id, %(model)s)
        AND had.source_hash = mine.source_hash AND had.status <> 'ready'
)"""
    + _DELETE
)
_RELEASE = (
    _MINE
    + b"UPDATE embedding_task_t AS task SET status = 'pending', worker = NULL,"
    + b" attempt_count = attempt_count - 1, next_attempt_ts = current_timestamp FROM mine"
    + _TASKS
)
_FAIL = (
    _MINE
    + b""", outcome AS MATERIALIZED (
    SELECT * FROM unnest(%(tasks)s::bigint[], %(after)s::float8[], %(final)s::boolean[])
        AS outcome (task_id, after_s, final)
), written AS (
    UPDATE entity_embedding_t AS had SET error = mine.value, status = CASE
        WHEN (SELECT final FROM outcome WHERE outcome.task_id = mine.task_id) THEN 'failed'
        ELSE had.status END"""
    + _VECTORS
    + b"""
UPDATE embedding_task_t AS task SET last_error = mine.value, worker = NULL,
    status = CASE WHEN outcome.final THEN 'failed' ELSE 'pending' END,
    next_attempt_ts = coalesce(
        clock_timestamp() + make_interval(secs => outcome.after_s), 'infinity'),
    update_ts = current_timestamp
FROM mine JOIN outcome USING (task_id)"""
    + _TASKS
)
