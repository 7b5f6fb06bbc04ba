"""Follows what the database says of who may do what: keys, revocations, rules, secrets.

The triggers of the tables notify `toolgate_access` with the name of what changed. A notice can be
missed, so everything is also read again after a while.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

import anyio
import psycopg
from psycopg_pool import PoolTimeout

from registry.database.postgres import RESYNC, Database, Notice, Pool

log = logging.getLogger("toolgate.access")

CHANNEL = "toolgate_access"

Load = Callable[[Pool], Awaitable[None]]
"""Read one kind of thing again, whole. What it raises leaves things as they were."""


class AccessFeed:
    def __init__(self, loads: Mapping[str, Load], every_s: float) -> None:
        """`loads` by the names that notices have; every `every_s` seconds all are read."""
        self._loads = loads
        self._every_s = every_s
        self._turn = asyncio.Lock()  # what was read earlier must not replace what is newer

    async def load(self, pool: Pool) -> None:
        """Read everything. Nobody may be served before that has succeeded once."""
        async with self._turn:
            for load in self._loads.values():
                await load(pool)

    async def run(self, database: Database) -> None:
        """Until cancelled; what cannot be read stays as it was."""

        async def changed(notice: Notice) -> None:
            names = self._loads if notice is RESYNC else [notice]
            for name in names:
                await self._load(name, database.pool)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._look_again, database.pool)
            await database.listen(CHANNEL, changed)

    async def _look_again(self, pool: Pool) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            for name in self._loads:
                try:
                    await self._load(name, pool)
                except (psycopg.OperationalError, PoolTimeout):
                    break  # whoever listens notices, and reads all when it is back

    async def _load(self, name: str, pool: Pool) -> None:
        """Raises OperationalError and PoolTimeout."""
        load = self._loads.get(name)
        if load is None:
            return  # of a newer release
        try:
            async with self._turn:
                await load(pool)
        except (psycopg.OperationalError, PoolTimeout):
            raise
        except Exception:
            log.exception("access_not_read", extra={"what": name})
