"""Queues the texts of entities for embedding.

The planner may have no statistics of the tables yet. Row lookups are therefore scalar subqueries,
which cannot become a join that compares all pairs, and batches are read in the order of an index.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from psycopg import AsyncConnection

from registry.database.postgres import Pool, borrow
from registry.database.tenants import list_tenants, lock_tenant
from registry.embedding.search_kinds import KINDS, TOOL, Kinds

BATCH = 500  # entities per transaction
_START = "00000000-0000-0000-0000-000000000000"

# Else it reads and sorts all entities of a kind for each batch.
_IN_ORDER = (
    b"SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off;"
    b" SET LOCAL enable_sort = off"
)

# Rows that wait for a task that has been deleted.
_UNSTICK = b"""
DELETE FROM entity_embedding_t AS had
WHERE had.host_id = %(host)s AND had.status IN ('pending', 'failed') AND (
    SELECT true FROM embedding_task_t AS task
    WHERE (task.host_id, task.entity_type, task.entity_id, task.model)
        = (had.host_id, had.entity_type, had.entity_id, had.model)) IS NULL
"""


async def queue_missing(pool: Pool, kinds: Kinds = KINDS) -> int:
    """Queue active entities without a status for the target; returns their number.

    In small transactions, each committed: it can be stopped and resumed.
    """
    count = 0
    embedded = await _embedded_kinds(pool, kinds)
    for host_id in await list_tenants(pool):
        for kind in embedded:
            count += await _queue_all(pool, host_id, kind, _MISSING)
    return count


async def backfill(
    pool: Pool,
    kinds: Kinds = KINDS,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> int:
    """Queue every entity without a vector of its current text or a task for one; returns their
    number.

    Like `queue_missing`, but compares every text: changes that bypassed the queue are found too.
    `progress` is called with the number of texts compared, and that of all.
    """
    count = done = 0
    embedded, hosts = await _embedded_kinds(pool, kinds), await list_tenants(pool)
    total = await _total(pool, hosts, embedded)

    def look_on(compared: int) -> None:
        nonlocal done
        done += compared
        progress(done, max(done, total))

    for host_id in hosts:
        async with _tenant_lock(pool, host_id) as connection:
            await connection.execute(_UNSTICK, {"host": host_id})
        for kind in embedded:
            count += await _queue_all(pool, host_id, kind, _ALL, look_on=look_on)
    return count


async def refresh(
    pool: Pool, host_id: str, ids: Sequence[str], *, kind: str = TOOL.name, force: bool = False
) -> int:
    """Queue again those of these entities that are not ready; with `force` all of them. Returns
    their number.

    Until they are done they are found by their words.
    """
    async with _tenant_lock(pool, host_id) as connection:
        await connection.execute(
            """
            DELETE FROM entity_embedding_t AS had WHERE host_id = %s AND entity_type = %s
                AND entity_id = ANY(%s::uuid[]) AND (%s OR status <> 'ready')
                AND model = target_model(%s)
            """,
            [host_id, kind, list(ids), force, kind],
        )
        result = await connection.execute(
            """
            SELECT coalesce(embedding_queue(%(kind)s, array_agg(host_id), array_agg(entity_id),
                array_agg(source_hash(source_text))), 0)
            FROM entity_source_v
            WHERE host_id = %(host)s AND entity_type = %(kind)s AND active
                AND entity_id = ANY(%(ids)s::uuid[])
            """,
            {"host": host_id, "kind": kind, "ids": list(ids)},
        )
        (count,) = await result.fetchone() or (0,)
    return int(count)


async def retry(pool: Pool, host_id: str, ids: Sequence[str] | None = None) -> int:
    """Retry now the tasks that failed or wait for their backoff; returns their number."""
    async with _tenant_lock(pool, host_id) as connection:
        done = await connection.execute(
            """
            WITH again AS (
                UPDATE embedding_task_t SET status = 'pending', attempt_count = 0,
                    last_error = NULL, next_attempt_ts = current_timestamp,
                    update_ts = current_timestamp
                WHERE host_id = %(host)s AND status <> 'running' AND last_error IS NOT NULL
                    AND (%(ids)s::uuid[] IS NULL OR entity_id = ANY(%(ids)s::uuid[]))
                RETURNING host_id, entity_type, entity_id, model
            ), shown AS (
                UPDATE entity_embedding_t AS had SET status = 'pending', error = NULL FROM again
                WHERE (had.host_id, had.entity_type, had.entity_id, had.model)
                    = (again.host_id, again.entity_type, again.entity_id, again.model)
            )
            SELECT pg_notify('toolgate_embedding', '') FROM again
            """,
            {"host": host_id, "ids": None if ids is None else list(ids)},
        )
        return done.rowcount


async def _embedded_kinds(pool: Pool, kinds: Kinds) -> list[str]:
    """Condition: those of these kinds whose embeddings are not disabled."""
    async with borrow(pool) as connection:
        rows = await connection.execute(
            "SELECT name FROM unnest(%s::text[]) AS name WHERE target_model(name) IS NOT NULL",
            [list(kinds)],
        )
        return [name async for (name,) in rows]


async def _total(pool: Pool, hosts: Sequence[str], kinds: Sequence[str]) -> int:
    """Number of the active entities of these tenants and kinds."""
    async with borrow(pool) as connection:
        rows = await connection.execute(
            "SELECT count(*) FROM entity_source_v"
            " WHERE host_id = ANY(%s::uuid[]) AND entity_type = ANY(%s) AND active",
            [list(hosts), list(kinds)],
        )
        (total,) = await rows.fetchone() or (0,)
        return int(total)


async def _queue_all(
    pool: Pool,
    host_id: str,
    kind: str,
    statement: bytes,
    *,
    look_on: Callable[[int], None] = lambda _compared: None,
) -> int:
    count, after = 0, _START
    while True:
        async with _tenant_lock(pool, host_id) as connection:
            parameters: Mapping[str, object] = {
                "host": host_id, "kind": kind, "after": after, "limit": BATCH
            }  # fmt: skip
            await connection.execute(_IN_ORDER)
            result = await connection.execute(statement, parameters)
            compared, last, queued = await result.fetchone() or (0, None, 0)
        count += queued or 0
        look_on(compared)
        if compared < BATCH:
            return count
        after = last


@asynccontextmanager
async def _tenant_lock(pool: Pool, host_id: str) -> AsyncIterator[AsyncConnection]:
    """Context that holds the tenant lock that imports take: the two would lock the same tasks in
    different orders."""
    async with borrow(pool) as connection:
        await lock_tenant(connection, host_id)
        yield connection


# Texts only of the selected rows: a sort of all would make all of them first, each time.
_QUEUE = b"""
SELECT count(*), max(part.entity_id::text), coalesce(embedding_queue(%(kind)s,
    array_agg(part.host_id), array_agg(part.entity_id), array_agg(source_hash(text))), 0)
FROM part CROSS JOIN LATERAL (
    SELECT source_text FROM entity_source_v AS source
    WHERE (source.host_id, source.entity_type, source.entity_id)
        = (part.host_id, %(kind)s, part.entity_id)
    OFFSET 0) AS picked (text)
"""
_ALL = (
    b"""
WITH part AS MATERIALIZED (
    SELECT host_id, entity_id FROM entity_source_v
    WHERE host_id = %(host)s AND entity_type = %(kind)s AND active AND entity_id > %(after)s::uuid
    ORDER BY entity_id LIMIT %(limit)s
)"""
    + _QUEUE
)
_MISSING = (
    b"""
WITH part AS MATERIALIZED (
    SELECT host_id, entity_id FROM entity_source_v AS source
    WHERE host_id = %(host)s AND entity_type = %(kind)s AND active AND entity_id > %(after)s::uuid
        AND (
            SELECT true FROM entity_embedding_t AS had
            WHERE (had.host_id, had.entity_type, had.entity_id, had.model)
                = (source.host_id, source.entity_type, source.entity_id,
                    (SELECT target_model(%(kind)s)))) IS NULL
    ORDER BY entity_id LIMIT %(limit)s
)"""
    + _QUEUE
)
