"""Audit chain of a command: one process, whose records are stored when they are made, because no
gateway has to be running."""

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import anyio
import psycopg
from msgspec.structs import replace
from psycopg_pool import PoolTimeout

from config.settings import Settings
from gateway.audit.database_writer import heads, is_recorded, store
from gateway.audit.records import AuditEntry, Chain, Line
from registry.database.postgres import Pool

log = logging.getLogger("toolgate.audit")


class CommandTrail:
    """Audit chain of a command. It begins with the first record; each is stored when it is made."""

    def __init__(self, pool: Pool, settings: Settings) -> None:
        self._pool = pool
        self._settings = settings
        self._key = settings.audit.key.encode()
        self._chain: Chain | None = None
        self._lines: list[Line] = []  # in the chain, but not stored yet
        self._last = datetime.fromtimestamp(0, UTC)
        self._storing = anyio.Lock()

    async def add(self, entry: AuditEntry) -> None:
        """Store a record, where such are written. Raises psycopg.Error and PoolTimeout."""
        if not is_recorded(self._settings):
            return
        async with self._storing:
            # times in a chain never go back
            self._last = max(self._last, entry.recorded_ts)
            chain = await self._begin()
            self._lines += chain.link([replace(entry, recorded_ts=self._last)])
            await self._store()

    async def close(self) -> None:
        """Store what the database did not take before."""
        if not self._lines:
            return
        try:
            await self._store()
        except (psycopg.Error, PoolTimeout):
            log.error("audit_lost", extra={"records": len(self._lines)})

    async def _begin(self) -> Chain:
        if self._chain is None:
            host_id = self._settings.tenant.host_id
            self._chain = Chain(
                host_id,
                node=socket.gethostname(),
                started=self._last,
                key=self._key,
                seen=await heads(self._pool, host_id, self._settings.audit.retention_days),
            )
        return self._chain

    async def _store(self) -> None:
        chain = await self._begin()
        await store(self._pool, self._key, chain.header, self._lines)
        self._lines.clear()


@asynccontextmanager
async def open_trail(pool: Pool, settings: Settings) -> AsyncIterator[CommandTrail]:
    """The chain of a command, complete at the end of the block."""
    trail = CommandTrail(pool, settings)
    try:
        yield trail
    finally:
        await trail.close()
