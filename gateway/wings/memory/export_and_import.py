"""Export and idempotent import of one person's data."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, to_builtins
from psycopg import sql
from psycopg.types.json import Jsonb

from config.memory import MemorySession
from gateway.operations.paging import ListPage, cursor, place, unknown
from gateway.wings.memory.caller_owners import ERASE, Reader
from gateway.wings.memory.memory_rows import COLUMNS, Memory, content_hash, memory_of
from gateway.wings.memory.memory_store import MemoryStore, Target
from gateway.wings.memory.requests_and_views import RefusedItem
from gateway.wings.memory.search_conditions import EVERY, Condition
from registry.database.postgres import Pool, borrow, is_uuid
from registry.database.sql_fragments import compose

FIRST = "00000000-0000-0000-0000-000000000000"


class ImportCounts(Struct, frozen=True, omit_defaults=True):
    """Counts of an import: stored, there already (or their place is taken), of sessions that are
    over, not taken because the person was erased after they were made; and which items, by their
    places, are no memories that can be stored."""

    stored: int
    present: int
    skipped: int
    erased: int
    refused: tuple[RefusedItem, ...] = ()


async def list_memories_of(
    pool: Pool,
    tenant: str,
    subject: str,
    *,
    condition: Condition = EVERY,
    after: str | None,
    limit: int,
) -> ListPage[Memory]:
    """All rows of a person that match, history included, in the order of their ids. Raises
    ProblemDetails for a foreign cursor."""
    if (first := place(after)) and not is_uuid(first):
        raise unknown()
    async with borrow(pool) as connection:
        rows_found = await connection.execute(
            sql.SQL(
                "SELECT {columns} FROM memory_t AS m WHERE m.host_id = %(host)s"
                " AND m.subject = %(subject)s AND {condition} AND m.memory_id > %(after)s::uuid"
                " ORDER BY m.memory_id LIMIT %(limit)s"
            ).format(columns=COLUMNS, condition=condition[0]),
            {
                **condition[1],
                "host": tenant,
                "subject": subject,
                "after": first or FIRST,
                "limit": limit + 1,
            },
        )
        rows = [memory_of(row) for row in await rows_found.fetchall()]
    more = len(rows) > limit
    return ListPage(tuple(rows[:limit]), cursor(rows[limit - 1].id) if more else "")


class Transfer:
    def __init__(self, pool: Pool, store: MemoryStore, session: MemorySession) -> None:
        self._pool = pool
        self._session = session
        self._store = store

    async def import_(self, reader: Reader, memories: Sequence[Memory]) -> ImportCounts:
        """Store rows as memories of the reader, with their ids and times. Those of sessions are for
        its present session. Raises ProblemDetails."""
        stored = erased = present = 0
        placed = [(scope, [memory for memory in memories if memory.scope == scope])
                  for scope, _ in reader.places(["session", "user"])]  # fmt: skip
        for scope, scope_memories in placed:
            if not scope_memories:
                continue
            target = Target.of(reader, scope)
            async with borrow(self._pool) as connection:
                await connection.execute(_LOCK_IMPORTS, target.values)
                await self._store.begin(connection, target, scope_memories)
                values = {
                    **target.values,
                    "rows": Jsonb(
                        [_row(memory, vouched=reader.may(ERASE)) for memory in scope_memories]
                    ),
                    "hashes": [content_hash(memory) for memory in scope_memories],
                    "lifetime": self._session.ttl_max_s if scope == "session" else None,
                }
                rows_found = await connection.execute(_IMPORT, values)
                ((written, late),) = await rows_found.fetchall()
                await self._store.cap(connection, target)
            stored, erased = stored + written, erased + late
            present += len(scope_memories) - written - late
        return ImportCounts(stored, present, len(memories) - stored - erased - present, erased)


def _row(memory: Memory, *, vouched: bool) -> dict[str, Any]:
    """`vouched`: the caller keeps the memories of others, and what they say of who said it."""
    row: dict[str, Any] = to_builtins(memory)
    keeps = memory.trust in ("agent", "tool", "inferred") or (vouched and memory.trust == "user")
    return row | {"trust": memory.trust if keeps else "agent"}


def _elsewhere(id_: sql.Composable) -> sql.Composed:
    """Whether a memory of another place in the tenant has this id."""
    return sql.SQL("""EXISTS (SELECT FROM memory_t AS other WHERE other.host_id = %(host)s
        AND other.scope = ANY ('{{session,user,agent,org}}') AND other.memory_id = {id}
        AND (other.scope, other.owner) <> (%(scope)s, %(owner)s))""").format(id=id_)


def _own(id_: sql.Composable) -> sql.Composed:
    """An id that is taken elsewhere, which is not told, stands for one made of it and the place."""
    return sql.SQL("""CASE WHEN {elsewhere}
        THEN md5(%(scope)s || ' ' || %(owner)s || ' ' || {id})::uuid ELSE {id} END""").format(
        elsewhere=_elsewhere(id_), id=id_
    )


# Vectors and history follow ids: two imports that run at once do not both find one free.
_LOCK_IMPORTS = b"SELECT pg_advisory_xact_lock(hashtextextended('memory_import ' || %(host)s, 0))"
_IMPORT = compose(
    """
    WITH given AS MATERIALIZED (
        SELECT new.*, hash.value, tombstone.ts > new.created AS late,
            {own_id} AS own_id, {own_successor} AS own_successor
        FROM ROWS FROM (jsonb_to_recordset(%(rows)s) AS (id uuid, agent text, audience text[],
            kind text, slot text, content text, importance real, confidence real, pinned boolean,
            keep boolean, masked text[], trust text, session text, source jsonb, metadata jsonb,
            valid_from timestamptz, valid_to timestamptz, created timestamptz,
            retired timestamptz, retired_by text, superseded_by uuid, expires timestamptz,
            version bigint, dated text, position bigint, ttl_s real)) WITH ORDINALITY AS new
        JOIN unnest(%(hashes)s::bytea[]) WITH ORDINALITY AS hash (value, nth)
            ON hash.nth = new.ordinality
        LEFT JOIN memory_tombstone_t AS tombstone ON tombstone.host_id = %(host)s
            AND tombstone.subject_hash = sha256(convert_to(%(key)s, 'UTF8'))
    ), stored AS (
        INSERT INTO memory_t (host_id, memory_id, scope, owner, subject, agent, audience, kind,
            slot, content, content_hash, importance, confidence, pinned, keep, masked, trust,
            session, source, metadata, valid_from, valid_to, created_ts, retired_ts, retired_by,
            superseded_by, expires_ts, aggregate_version, dated, position, ttl_s)
        SELECT %(host)s::uuid, own_id, %(scope)s, %(owner)s, %(subject)s, agent, audience, kind,
            slot, content, value, importance, confidence, pinned, keep, masked, trust, session,
            source, metadata, valid_from, valid_to, least(created, now()),
            CASE WHEN retired IS NOT NULL THEN least(retired, now()) END, retired_by,
            own_successor, least(expires, now() + make_interval(secs => %(lifetime)s)), version,
            dated, position, CASE WHEN ttl_s IS NOT NULL THEN least(ttl_s, %(lifetime)s) END
        FROM given WHERE late IS NOT TRUE AND (expires IS NULL OR expires > now())
            AND NOT {elsewhere}
        ON CONFLICT DO NOTHING
        RETURNING 1
    )
    SELECT (SELECT count(*) FROM stored), (SELECT count(*) FROM given WHERE late)
""",
    own_id=_own(sql.Identifier("new", "id")),
    own_successor=_own(sql.Identifier("new", "superseded_by")),
    elsewhere=_elsewhere(sql.Identifier("own_id")),
)
