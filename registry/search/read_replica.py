"""Searches on a read replica (`database.read_url`), where that is as new as the catalog.

The primary's position in its write-ahead log, read after a catalog was loaded, covers all that is
in it. A streaming replica that has replayed the log that far finds every tool that this gateway
lists; until then, and while it does not answer, searches read from the primary. Vectors may be
older: those that are written later do not change a catalog.
"""

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import psycopg
from psycopg_pool import PoolTimeout

from config.settings import DatabaseSettings as Settings
from registry.database.postgres import Pool, borrow, make_pool
from registry.search.search_breaker import SearchBreaker
from registry.search.transaction import PLANNER, A, Planner, Transaction, Work, read, transaction
from schemas.signals import Signal

log = logging.getLogger("toolgate.search")

POSITION = "SELECT pg_current_wal_insert_lsn()::text"

_PLANNER = PLANNER + b", coalesce(pg_last_wal_replay_lsn() >= %(position)s::pg_lsn, false)"


class StaleReplica(Exception):
    """The replica has not replayed the log up to the catalog, or is no streaming replica."""


class ReplicaTransaction(Transaction):
    """Compares positions in the statement that begins a transaction, so that it costs no round
    trip: a replica never goes back."""

    position = ""

    async def plan(self, planner: Planner) -> None:
        values = {**planner, "position": self.position}
        await self._cursor.execute(_PLANNER, values)
        *_, reached = await self._cursor.fetchone() or (False,)
        if not reached:
            raise StaleReplica


class Replica:
    """Runs the statements of searches, on the primary where the replica cannot."""

    def __init__(
        self,
        settings: Settings,
        loaded: Signal[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`loaded`: a tenant's catalog was loaded. Raises DatabaseError for an unusable URL."""
        self._pool = make_pool(
            settings,
            "read_url",
            size=settings.read_pool_max,
            timeout_s=settings.read_timeout_s,
        )
        self._rest = SearchBreaker(settings.retry_max_s, clock)
        self._position: str | None = None  # of the newest catalog; None: not queried yet
        self._loads = 0
        self.reads = self.fallbacks = 0
        loaded.subscribe(self._forget)

    async def open(self) -> None:
        """Does not wait for the replica."""
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()

    async def read(self, pool: Pool, work: Work[A]) -> A:
        """The result of `work` in a transaction of the replica, or else of `pool`, the primary."""
        if self._rest.rests() or (position := await self._known_position(pool)) is None:
            return await read(pool, work)
        try:
            async with self._transaction(position) as opened:
                done = await work(opened)
        except StaleReplica:
            self._on_answer()
        except psycopg.errors.SerializationFailure:
            pass  # cancelled, because it was in the way of what the replica replays
        except (psycopg.Error, PoolTimeout) as error:
            self._on_failure(error)
        else:
            self._on_answer()
            self.reads += 1
            return done
        self.fallbacks += 1
        return await read(pool, work)

    @asynccontextmanager
    async def _transaction(self, position: str) -> AsyncIterator[Transaction]:
        async with transaction(self._pool, ReplicaTransaction) as opened:
            opened.position = position
            yield opened

    async def _known_position(self, primary: Pool) -> str | None:
        """The primary's position since the newest catalog; None: unknown."""
        if self._position is not None:
            return self._position
        loads = self._loads
        try:
            async with borrow(primary) as connection:
                row = await (await connection.execute(POSITION)).fetchone()
        except (psycopg.Error, PoolTimeout):
            return None
        position = str(row[0]) if row else None
        if loads == self._loads:  # else another catalog was loaded meanwhile
            self._position = position
        return position

    def _forget(self, _tenant: str) -> None:
        self._position = None
        self._loads += 1

    def _on_failure(self, error: Exception) -> None:
        reason = {"reason": type(error).__name__, "retry_s": self._rest.record_failure()}
        log.warning("search_replica_unavailable", extra=reason)

    def _on_answer(self) -> None:
        if self._rest.record_answer():
            log.info("search_replica_recovered")
