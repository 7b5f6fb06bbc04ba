"""Follower of access data in the database: keys, revocations, rules, secrets.

The triggers of the tables notify `toolgate_access` with the name of the changed kind. A
notification can be missed, so everything is also re-read at an interval.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

import anyio

from registry.database.postgres import AWAY, RESYNC, Database, Notice, Pool

log = logging.getLogger("toolgate.access")

CHANNEL = "toolgate_access"

Load = Callable[[Pool], Awaitable[None]]
"""Read one kind of thing again, whole. What it raises leaves things as they were."""


class AccessFeed:
    def __init__(self, loads: Mapping[str, Load], every_s: float) -> None:
        """A follower with `loads` by the names in notifications; every `every_s` seconds all are
        run."""
        self._loads = loads
        self._every_s = every_s
        self._turn = asyncio.Lock()  # an older read must not replace a newer one

    async def load(self, pool: Pool) -> None:
        """Load everything. No request may be served before that has succeeded once."""
        async with self._turn:
            for load in self._loads.values():
                await load(pool)

    async def reload(self, name: str, pool: Pool) -> None:
        """Run one load now, for a change that was made here: its notification comes later. What
        cannot be read is left to that."""
        try:
            await self._load(name, pool)
        except AWAY:
            log.warning("access_read_failed", extra={"what": name})

    async def run(self, database: Database) -> None:
        """Run until cancelled; data that cannot be read stays as it was."""

        async def reload(notice: Notice) -> None:
            names = self._loads if notice is RESYNC else [notice]
            for name in names:
                await self._load(name, database.pool)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._look_again, database.pool)
            await database.listen(CHANNEL, reload)

    async def _look_again(self, pool: Pool) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            for name in self._loads:
                try:
                    await self._load(name, pool)
                except AWAY:
                    break  # the listener detects the loss, and reloads all after reconnecting

    async def _load(self, name: str, pool: Pool) -> None:
        """Run one load. Raises OperationalError and PoolTimeout."""
        load = self._loads.get(name)
        if load is None:
            return  # sent by a newer release
        try:
            async with self._turn:
                await load(pool)
        except AWAY:
            raise
        except Exception:
            log.exception("access_read_failed", extra={"what": name})
