"""Work on memories in the background: promotion from sessions that ended, deletion of memories that
are over, counts of use. All of it can be repeated, and stopped between any two statements."""

import logging

import anyio
from msgspec import Struct

from config.memory import MemorySettings
from gateway.context import Session
from gateway.wings.memory.caller_owners import session_owner
from gateway.wings.memory.captured_calls import CallNotes
from gateway.wings.memory.memory_search import PendingUseCounts
from gateway.wings.memory.promotion import Promoter
from registry.database.postgres import AWAY, Pool, borrow
from registry.database.tables import Tables
from registry.database.tenants import list_tenants

log = logging.getLogger("toolgate.memory")

BATCH = 1000  # rows deleted in one transaction
FLUSH_S = 5.0  # between writes of counts of use


class PurgeCounts(Struct, frozen=True):
    """Counts of one run."""

    promoted: int
    deleted: int


class MemoryRetention(Tables):
    def __init__(
        self,
        pool: Pool,
        promoter: Promoter,
        settings: MemorySettings,
        *,
        uses: PendingUseCounts,
        notes: CallNotes,
    ) -> None:
        self._pool = pool
        self._promoter = promoter
        self._settings = settings
        self._uses = uses
        self._notes = notes
        self._ended: dict[tuple[str, str], None] = {}  # tenants and owners of sessions
        self._wake = anyio.Event()

    @property
    def waiting_sessions(self) -> int:
        """Sessions that ended, and whose memories are not promoted yet."""
        return len(self._ended)

    @property
    def waiting_uses(self) -> int:
        return len(self._uses.counts)

    def session_ended(self, session: Session) -> None:
        """Listener: its memories are promoted a moment later."""
        tenant = session.principal.tenant
        self._ended[tenant, session_owner(tenant, "mcp", session.id)] = None
        self._wake.set()

    async def run(self) -> None:
        """Promote from sessions that ended, and store counts of use and notes of calls, until
        cancelled."""
        try:
            while True:
                with anyio.move_on_after(FLUSH_S):
                    await self._wake.wait()
                self._wake = anyio.Event()
                await self._step()
        finally:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + 2):
                await self._step()

    async def _step(self) -> None:
        try:
            while self._ended:
                tenant, owner = next(iter(self._ended))
                if self._settings.promotion.enabled:
                    await self._promoter.promote_session(tenant, owner)
                self._ended.pop((tenant, owner), None)
            await self.flush()
            await self._notes.flush()
        except AWAY as error:
            log.warning("memory_database_unavailable", extra={"reason": type(error).__name__})

    async def flush(self) -> None:
        """Store counts of use."""
        counts = self._uses.take()
        if not counts:
            return
        values = {
            "hosts": [host for host, _ in counts],
            "ids": [id_ for _, id_ in counts],
            "uses": list(counts.values()),
        }
        try:
            await self._execute(_ADD_USES, values)
        except AWAY:
            self._uses.counts.update(counts)
            raise

    async def purge(self) -> PurgeCounts:
        """Promote from sessions that are about to end, then delete what is over, of all tenants."""
        promotions = deleted = 0
        for host in await list_tenants(self._pool):
            if self._settings.promotion.enabled:
                promotions += await self._promoter.promote_ending(host)
            while count := await self._delete(host):
                deleted += count
        return PurgeCounts(promotions, deleted)

    async def _delete(self, host: str) -> int:
        values = {
            "host": host,
            "history": self._settings.history_s,
            "ttl": self._settings.session.ttl_s,
            "limit": BATCH,
        }
        async with borrow(self._pool) as connection:
            count = (await connection.execute(_PURGE, values)).rowcount
            if not count:
                await connection.execute(_EMPTY, values)
        return count


_ADD_USES = b"""
    INSERT INTO memory_use_t AS had (host_id, memory_id, uses, last_ts)
    SELECT host_id, memory_id, uses, now()
    FROM unnest(%(hosts)s::uuid[], %(ids)s::uuid[], %(uses)s::int[])
        AS used (host_id, memory_id, uses)
    WHERE EXISTS (SELECT FROM memory_t AS m
        WHERE m.host_id = used.host_id AND m.scope = ANY ('{session,user,agent,org}')
            AND m.memory_id = used.memory_id)
    ORDER BY host_id, memory_id
    ON CONFLICT (host_id, memory_id) DO UPDATE SET uses = had.uses + excluded.uses, last_ts = now()
"""
_PURGE = b"""
    WITH over AS (
        SELECT scope, memory_id FROM memory_t
        WHERE host_id = %(host)s AND expires_ts < now()
        UNION ALL
        SELECT scope, memory_id FROM memory_t
        WHERE host_id = %(host)s AND retired_ts < now() - make_interval(secs => %(history)s)
        LIMIT %(limit)s
    ), locked AS (
        SELECT m.scope, m.memory_id FROM over JOIN memory_t AS m ON m.host_id = %(host)s
            AND m.scope = over.scope AND m.memory_id = over.memory_id
        FOR UPDATE OF m SKIP LOCKED
    )
    DELETE FROM memory_t AS m USING locked
    WHERE m.host_id = %(host)s AND m.scope = locked.scope AND m.memory_id = locked.memory_id
"""
_EMPTY = b"""
    DELETE FROM memory_owner_t AS had
    WHERE had.host_id = %(host)s AND had.scope IN ('session', 'user') AND had.rows = 0
        AND had.written_ts < now() - make_interval(secs => %(ttl)s)
        AND NOT EXISTS (SELECT FROM memory_t AS m WHERE m.host_id = %(host)s
            AND m.scope = had.scope AND m.owner = had.owner)
"""
