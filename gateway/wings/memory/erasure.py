"""Forgetting memories, and erasing all that is held of a person.

What is forgotten is deleted, with its history, its copies in sessions, words, vectors, queued texts
and counts of use. An erasure leaves a tombstone, the hash of the person and a time: nothing that
was made before it is stored again, whoever tries.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from psycopg import AsyncConnection, sql

from gateway.operations.problems import conflict
from gateway.wings.interface import ANONYMOUS, LOCAL
from gateway.wings.memory.caller_owners import Reader
from gateway.wings.memory.memory_rows import Scope
from gateway.wings.memory.memory_store import OF_PLACES, SUBJECT_LOCK, readable, subject_key
from gateway.wings.memory.search_conditions import IS_BELIEVED, Condition
from registry.database.person_rows import ErasedPerson
from registry.database.postgres import Pool, borrow
from registry.database.sql_fragments import compose
from schemas.signals import AsyncSignal

MENTIONS = 100  # rows of others that are listed


class ErasureCounts(Struct, frozen=True, omit_defaults=True):
    """Counts of deleted rows, or of those that would be."""

    memories: int  # the wanted ones
    rows: int = 0  # deleted, with history and copies
    dry_run: bool = False
    scopes: dict[str, int] = {}  # rows by scope
    relations: int = 0
    answers: int = 0  # kept for Idempotency-Keys
    mentions: tuple[str, ...] = ()  # ids of others' memories that name the person, to be reviewed


class Eraser:
    def __init__(self, pool: Pool, erased: AsyncSignal[str, str]) -> None:
        """`erased` is published with the tenant and the id of a principal, for other parts of the
        gateway to erase what they hold."""
        self._pool = pool
        self._erased = erased

    async def forget(
        self,
        reader: Reader,
        scopes: Sequence[Scope],
        condition: Condition,
        *,
        dry_run: bool = False,
        expect: int | None = None,
    ) -> ErasureCounts:
        """Delete the reader's memories in these scopes that match. Raises ProblemDetails where
        their number is not the expected one."""
        places, values = readable(reader, scopes)
        values = {**values, **condition[1], "as_of": None, "valid_at": None}
        if reader.subject is not None:
            values["key"] = subject_key(reader.tenant, reader.subject)
        async with borrow(self._pool) as connection:
            if reader.subject is not None:
                await connection.execute(_LOCK, values)
            await connection.execute(_LOCK_OWNERS, values)
            rows = await connection.execute(
                sql.SQL(
                    "SELECT m.memory_id::text FROM memory_t AS m WHERE {places} AND {believed}"
                    " AND {condition} FOR UPDATE"
                ).format(places=places, believed=IS_BELIEVED, condition=condition[0]),
                values,
            )
            ids = [id_ for (id_,) in await rows.fetchall()]
            check_count(len(ids), expect)
            if dry_run or not ids:
                return ErasureCounts(len(ids), dry_run=dry_run)
            counts = await _count_rows(connection, _FORGET, {**values, "ids": ids})
            values["principal"] = principal_of(reader.behalf or reader.subject)
            await connection.execute(_OWN_ANSWERS, values)
        return ErasureCounts(len(ids), sum(counts.values()), scopes=counts)

    async def erase(
        self,
        tenant: str,
        subject: str,
        *,
        dry_run: bool = False,
        expect: int | None = None,
        mentions: bool = False,
        publishes: bool = True,
    ) -> ErasureCounts:
        """Delete all that is held of a person, in one transaction. `mentions`: list what others
        have that names the person; `publishes`: other parts erase what they hold. Raises
        ProblemDetails where the number of memories is not the expected one."""
        values = {"host": tenant, "subject": subject, "key": subject_key(tenant, subject)}
        values["principal"] = principal_of(subject)
        async with borrow(self._pool) as connection:
            await connection.execute(_LOCK, values)
            if dry_run or expect is not None:
                ((count,),) = await _rows(connection, _COUNT, values)
                check_count(count, expect)
            if dry_run:
                return ErasureCounts(count, dry_run=True)
            await connection.execute(_TOMBSTONE, values)
            counts = await _count_rows(connection, _ERASE, values)
            relations = (await connection.execute(_RELATIONS, values)).rowcount
            answers = (await connection.execute(_ANSWERS, values)).rowcount
            await connection.execute(_OWNERS, values)
            named = await _rows(connection, _MENTIONS, values) if mentions else []
        if publishes:
            await self._erased.publish(tenant, ANONYMOUS if subject == LOCAL else subject)
        count = sum(counts.values())
        return ErasureCounts(
            count,
            count,
            scopes=counts,
            relations=relations,
            answers=answers,
            mentions=tuple(id_ for (id_,) in named),
        )


class PersonMemories:
    """Implements `PersonEraser`."""

    place = "memories"
    remains = "a hash of the id with a time, so that no import stores what is older"
    is_copy = False  # the erasure of memories itself

    def __init__(self, eraser: Eraser) -> None:
        self._eraser = eraser

    async def count_person(self, person: ErasedPerson) -> int:
        return (await self._eraser.erase(person.tenant, person.id, dry_run=True)).memories

    async def erase_person(self, person: ErasedPerson) -> int:
        return (await self._eraser.erase(person.tenant, person.id, publishes=False)).rows


def check_count(count: int, expect: int | None) -> None:
    """Raises ProblemDetails."""
    if expect is not None and count != expect:
        raise conflict(f"{count} memories match, not {expect}: nothing was forgotten.")


def principal_of(subject: str | None) -> str:
    """The principal of a subject, as keys of answers have it."""
    return ANONYMOUS if subject in (None, LOCAL) else subject[:256]


async def forget_in(connection: AsyncConnection, reader: Reader, ids: Sequence[str]) -> None:
    """Delete memories of the reader, in a transaction that has locked their owner."""
    await connection.execute(_FORGET, {**readable(reader)[1], "ids": list(ids)})


async def _rows(connection: AsyncConnection, statement: bytes, values: Any) -> list[Any]:
    return await (await connection.execute(statement, values)).fetchall()


async def _count_rows(connection: AsyncConnection, statement: bytes, values: Any) -> dict[str, int]:
    return dict(await _rows(connection, statement, values))


_LOCK = compose("SELECT pg_advisory_xact_lock({subject_lock})", subject_lock=SUBJECT_LOCK)
_LOCK_OWNERS = b"""
    SELECT FROM memory_owner_t WHERE host_id = %(host)s AND (scope, owner) IN
        (SELECT * FROM unnest(%(scopes)s::text[], %(owners)s::text[]))
        ORDER BY scope = 'user', scope, owner FOR UPDATE
"""
_COUNT = b"SELECT count(*) FROM memory_t WHERE host_id = %(host)s AND subject = %(subject)s"
_TOMBSTONE = b"""
    INSERT INTO memory_tombstone_t (host_id, subject_hash, ts)
    VALUES (%(host)s, sha256(convert_to(%(key)s, 'UTF8')), clock_timestamp())
    ON CONFLICT (host_id, subject_hash) DO UPDATE SET ts = excluded.ts
"""
_ERASE = b"""
    WITH gone AS (
        DELETE FROM memory_t WHERE host_id = %(host)s AND subject = %(subject)s
        RETURNING scope
    )
    SELECT scope, count(*) FROM gone GROUP BY scope
"""
_RELATIONS = b"DELETE FROM memory_relation_t WHERE host_id = %(host)s AND subject = %(subject)s"
_OWNERS = b"DELETE FROM memory_owner_t WHERE host_id = %(host)s AND subject = %(subject)s"
_DROP = b"DELETE FROM command_idempotency_t WHERE host_id = %(host)s AND state = 'done' AND "
# Of all callers: others may have been told of the person. Of its own also what was made with
# memories, as by an agent.
_ANSWERS = (
    _DROP
    + b"""
    (starts_with(service_id, 'admin memory_')
        OR principal_id = %(principal)s AND starts_with(service_id, 'admin '))
"""
)
_OWN_ANSWERS = _DROP + b"principal_id = %(principal)s AND starts_with(service_id, 'admin memory_')"
_MENTIONS = compose(
    """
    SELECT memory_id::text FROM memory_t
    WHERE host_id = %(host)s AND scope IN ('agent', 'org') AND retired_ts IS NULL
        AND strpos(lower(content), lower(%(subject)s)) > 0
    ORDER BY memory_id LIMIT {mentions}
""",
    mentions=sql.Literal(MENTIONS),
)
# With what they superseded, and with copies: the memory of a session that one was promoted from, or
# that says the same, would be promoted again.
_FORGET = compose(
    """
    WITH RECURSIVE chain AS (
        SELECT m.scope, m.owner, m.memory_id FROM memory_t AS m
        WHERE {of_places} AND m.memory_id = ANY (%(ids)s::uuid[])
        UNION
        SELECT m.scope, m.owner, m.memory_id FROM chain JOIN memory_t AS m
            ON m.host_id = %(host)s AND m.superseded_by = chain.memory_id
            AND m.scope = chain.scope AND m.owner = chain.owner
    ), copy AS (
        SELECT scope, memory_id FROM chain
        UNION
        SELECT twin.scope, twin.memory_id FROM chain
        JOIN memory_t AS m ON (m.host_id, m.scope, m.memory_id)
            = (%(host)s, chain.scope, chain.memory_id)
        JOIN memory_t AS twin ON twin.host_id = %(host)s AND twin.scope = 'session'
            AND twin.subject = m.subject AND (twin.content_hash = m.content_hash
                OR twin.memory_id::text = m.source ->> 'promoted')
    ), gone AS (
        DELETE FROM memory_t AS m USING copy
        WHERE m.host_id = %(host)s AND m.scope = copy.scope AND m.memory_id = copy.memory_id
        RETURNING m.scope
    )
    SELECT scope, count(*) FROM gone GROUP BY scope
""",
    of_places=OF_PLACES,
)
