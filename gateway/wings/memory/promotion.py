"""Promotion of memories of sessions to their users: of a session that ends, of one that is about to
end, and of chosen memories; facts that a model finds in its turns go first."""

import logging
from collections.abc import Sequence

from msgspec import Struct
from psycopg import AsyncConnection

from config.memory import MemorySettings
from gateway.operations.problems import ProblemDetails
from gateway.wings.memory.caller_owners import Reader
from gateway.wings.memory.extraction import Extractor
from gateway.wings.memory.memory_rows import COLUMNS, Memory, NewMemory, memory_of
from gateway.wings.memory.memory_store import SUBJECT_LOCK, MemoryStore, Target, subject_key
from gateway.wings.memory.promotion_rules import SessionMemory, promotable, select_promoted
from gateway.wings.memory.requests_and_views import MemoryNormalizer
from registry.database.postgres import Pool, borrow
from registry.database.sql_fragments import compose
from registry.database.tables import Tables

log = logging.getLogger("toolgate.memory")

LAST_TENTH = 0.1  # of the lifetime of a session, in which it is promoted from
PROMOTION_FIELDS = (
    "content", "slot", "importance", "confidence", "pinned", "trust", "metadata", "valid_from",
    "valid_to", "audience", "session", "created",
)  # fmt: skip
OWNERS = 500  # sessions of one run


class PromotedMemory(Struct, frozen=True):
    ids: tuple[str, ...]  # of the new memories, or those that were there already
    refused: tuple[str, ...] = ()  # ids that may not be promoted


class Promoter(Tables):
    def __init__(
        self,
        pool: Pool,
        store: MemoryStore,
        settings: MemorySettings,
        *,
        intake: MemoryNormalizer,
        extractor: Extractor | None = None,
    ) -> None:
        self._pool = pool
        self._store = store
        self._settings = settings
        self._intake = intake
        self._extractor = extractor

    async def promote_ending(self, host: str) -> int:
        """Extraction goes first: where the process dies in between, both are repeated."""
        count = 0
        for number, owner in enumerate(await self._ending(host)):
            if self._extractor is not None and number < self._settings.extraction.sessions:
                await self._extract(self._extractor, host, owner)
            count += len((await self.promote_session(host, owner)).ids)
        return count

    async def _extract(self, extractor: Extractor, host: str, owner: str) -> None:
        """Store what a model finds in the turns of the user, outside of any transaction while it
        thinks: what follows from turns that are gone meanwhile is left out."""
        rows_found = await self._fetch(_OF_SESSION, {"host": host, "owner": owner})
        rows = [memory_of(row[:-2]) for row in rows_found]
        turns = [turn for turn in rows if turn.kind == "turn" and promotable(turn)]
        facts = await extractor.facts(host, sorted(turns, key=lambda turn: turn.position or 0))
        if not facts:
            return
        subject = turns[0].subject or ""
        target = Target(Reader(host, subject, turns[0].agent), "user", subject, subject)
        try:
            async with borrow(self._pool) as connection:
                held_ids = await _held_ids(connection, host, turns)
                facts_held = [fact for fact in facts if fact.source["promoted"] in held_ids]
                moved = [self._intake.memory_in_scope("user", fact) for fact in facts_held]
                await self._store.add_in(connection, target, moved)
        except ProblemDetails as problem:
            log.info("memory_not_extracted", extra={"reason": problem.kind})

    async def _ending(self, host: str) -> list[str]:
        """Sessions in the last tenth of their lifetime that were written since they were last
        promoted from."""
        soon = self._settings.session.ttl_s * LAST_TENTH
        rows_found = await self._fetch(_ENDING, {"host": host, "soon": soon, "limit": OWNERS})
        return [owner for (owner,) in rows_found]

    async def promote_session(self, tenant: str, owner: str) -> PromotedMemory:
        """Promote from a session by the rules, in one transaction."""
        values = {"host": tenant, "owner": owner}
        async with borrow(self._pool) as connection:
            locked = await connection.execute(_MARK_PROMOTED, values)
            if not locked.rowcount:
                return PromotedMemory(())
            rows_found = await connection.execute(_OF_SESSION, values)
            rows = [
                SessionMemory(memory_of(row[:-2]), sessions=row[-2], uses=row[-1])
                for row in await rows_found.fetchall()
            ]
            promoted = select_promoted(rows, self._settings.promotion)
            return PromotedMemory(tuple(await self._promote(connection, tenant, promoted)))

    async def promote(self, tenant: str, memories: Sequence[Memory]) -> PromotedMemory:
        """Promote these, whatever the rules say, but for those that never are."""
        promoted = [memory for memory in memories if promotable(memory)]
        async with borrow(self._pool) as connection:
            held_ids = await _held_ids(connection, tenant, promoted)
            promoted = [memory for memory in promoted if memory.id in held_ids]
            refused = tuple(memory.id for memory in memories if memory not in promoted)
            return PromotedMemory(tuple(await self._promote(connection, tenant, promoted)), refused)

    async def _promote(
        self, connection: AsyncConnection, tenant: str, memories: Sequence[Memory]
    ) -> list[str]:
        """Store them as memories of their users. What an erasure or a quota refuses is left out:
        the rest of the session is not to wait for it."""
        ids: list[str] = []
        for memory in memories:
            subject = memory.subject or ""  # rows without one are not promotable
            target = Target(Reader(tenant, subject, memory.agent), "user", subject, subject)
            try:
                user_memory = self._intake.memory_in_scope("user", _of_user(memory))
                async with connection.transaction():
                    (added,) = await self._store.add_in(connection, target, [user_memory])
            except ProblemDetails as problem:
                log.info("memory_not_promoted", extra={"memory": memory.id, "reason": problem.kind})
                continue
            ids.append(added.id)
        return ids


async def _held_ids(
    connection: AsyncConnection, tenant: str, memories: Sequence[Memory]
) -> frozenset[str]:
    """Ids of those that are still held, and are not forgotten before the transaction ends."""
    for subject in sorted({memory.subject or "" for memory in memories}):
        await connection.execute(_SHARE, {"key": subject_key(tenant, subject)})
    values = {"host": tenant, "ids": [memory.id for memory in memories]}
    rows = await connection.execute(_SELECT_SESSION, values)
    return frozenset(id_ for (id_,) in await rows.fetchall())


def _of_user(memory: Memory) -> NewMemory:
    kind = "fact" if memory.kind == "turn" else memory.kind
    fields = {name: getattr(memory, name) for name in PROMOTION_FIELDS}
    return NewMemory(kind=kind, source={**memory.source, "promoted": memory.id}, **fields)


_SHARE = compose("SELECT pg_advisory_xact_lock_shared({subject_lock})", subject_lock=SUBJECT_LOCK)
_SELECT_SESSION = b"""
    SELECT memory_id::text FROM memory_t
    WHERE host_id = %(host)s AND scope = 'session' AND memory_id = ANY (%(ids)s::uuid[])
        AND retired_ts IS NULL AND (expires_ts IS NULL OR expires_ts > now())
"""
_ENDING = b"""
    SELECT had.owner FROM memory_owner_t AS had
    WHERE had.host_id = %(host)s AND had.scope = 'session' AND had.subject IS NOT NULL
        AND (had.promoted_ts IS NULL OR had.promoted_ts < had.written_ts)
        AND EXISTS (SELECT FROM memory_t AS m WHERE m.host_id = %(host)s AND m.scope = 'session'
            AND m.owner = had.owner AND m.retired_ts IS NULL
            AND m.expires_ts < now() + make_interval(secs => %(soon)s))
    LIMIT %(limit)s
"""
# The subject before the owner, as writers lock them.
_MARK_PROMOTED = b"""
    WITH locked AS MATERIALIZED (
        SELECT pg_advisory_xact_lock_shared(hashtextextended(host_id || ' ' || subject, 0))
        FROM memory_owner_t
        WHERE host_id = %(host)s AND scope = 'session' AND owner = %(owner)s
            AND subject IS NOT NULL
    )
    UPDATE memory_owner_t SET promoted_ts = now() FROM locked
    WHERE host_id = %(host)s AND scope = 'session' AND owner = %(owner)s
"""
_OF_SESSION = compose(
    """
    SELECT {columns}, (
        SELECT count(DISTINCT other.owner) FROM memory_t AS other
        WHERE other.host_id = m.host_id AND other.subject = m.subject AND other.scope = 'session'
            AND (other.content_hash = m.content_hash OR other.slot = m.slot)
    ), coalesce((SELECT uses FROM memory_use_t AS used
        WHERE (used.host_id, used.memory_id) = (m.host_id, m.memory_id)), 0)
    FROM memory_t AS m
    WHERE m.host_id = %(host)s AND m.scope = 'session' AND m.owner = %(owner)s
        AND m.retired_ts IS NULL AND m.subject IS NOT NULL
""",
    columns=COLUMNS,
)
