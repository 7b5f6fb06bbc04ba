"""Wake-ups between the processes of a database, and waits for ends of invocations.

NOTIFY takes a lock of the whole database, so it is sent apart from the transactions of invocations,
and the more seldom the more there is to say. It only wakes: who misses one finds all by polling.
"""

import logging
from collections.abc import Callable, Sequence

import anyio
import psycopg
from psycopg_pool import PoolTimeout

from gateway.wings.events.invocation_journal import Invocation, Journal
from registry.database.postgres import AWAY, RESYNC, Database, Notice, autocommit

log = logging.getLogger("toolgate.events")

CHANNEL = "toolgate_invocation"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.05  # between NOTIFYs; doubled while there are more
AGAIN_S = 1.0  # until notices are sent again that the database did not take
WORK, ENDED, CANCEL = "work:", "ended", "cancel"
Work = Callable[[str], None]
"""Called with a tenant that has something new; "": any may have."""

DATABASE_ERRORS = (psycopg.Error, PoolTimeout)  # what no loop of a process may end by


class WakeupChannel:
    """The notices of one process: `heard` is called with those of all, also its own."""

    def __init__(self, database: Database, on_notice: Callable[[Notice], None]) -> None:
        self._database = database
        self._heard = on_notice
        self._unsent: set[str] = set()
        self._wake = anyio.Event()

    def say(self, notice: str) -> None:
        """Wake other processes soon, and this one at once."""
        self._heard(notice)
        self._unsent.add(notice)
        self._wake.set()

    async def listen(self) -> None:
        async def hear(notice: Notice) -> None:
            self._heard(notice)

        await self._database.listen(CHANNEL, hear, lambda _error: self._heard(RESYNC))

    async def send(self) -> None:
        """Send notices until cancelled."""
        pause_s = FIRST_PAUSE_S
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            notices, self._unsent = sorted(self._unsent), set()
            try:
                async with autocommit(self._database.pool) as connection:
                    await connection.execute(
                        "SELECT pg_notify(%s, notice) FROM unnest(%s::text[]) AS notice",
                        [CHANNEL, notices],
                    )
            except DATABASE_ERRORS as error:
                extra = {"notices": len(notices)}
                log.warning("wakeups_not_sent", extra=extra, exc_info=True)
                if isinstance(error, AWAY):  # else others would find a question by polling alone
                    self._unsent.update(notices)
                    self._wake.set()
                    await anyio.sleep(AGAIN_S)
            await anyio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S) if self._unsent else FIRST_PAUSE_S


class CompletionWaiters:
    """Requests that wait for ends of invocations. One statement looks for all of them."""

    def __init__(self, journal: Journal, poll_s: float) -> None:
        self._journal = journal
        self.poll_s = poll_s
        self._waiting: dict[tuple[str, str], list[anyio.Event]] = {}
        self._wake = anyio.Event()

    def look(self) -> None:
        """Look soon whether any of them has ended."""
        if self._waiting:
            self._wake.set()

    def wake_waiters(self, ids: Sequence[tuple[str, str]]) -> None:
        """Wake those who wait for these invocations, of (tenant, id)."""
        for key in ids:
            for waiter in self._waiting.get(key, ()):
                waiter.set()

    async def until_ended(
        self, host_id: str, invocation_id: str, timeout_s: float
    ) -> Invocation | None:
        """The invocation, once it has ended, or as it is after `timeout_s`."""
        waited, key = anyio.Event(), (host_id, invocation_id)
        self._waiting.setdefault(key, []).append(waited)
        try:
            row = await self._journal.get(host_id, invocation_id)
            if row is None or row.has_ended:
                return row
            with anyio.move_on_after(timeout_s):
                await waited.wait()
        finally:
            self._waiting[key].remove(waited)
            if not self._waiting[key]:
                del self._waiting[key]
        return await self._journal.get(host_id, invocation_id)

    async def run(self) -> None:
        """Look for ends until cancelled."""
        while True:
            with anyio.move_on_after(self.poll_s):
                await self._wake.wait()
            self._wake = anyio.Event()
            if not self._waiting:
                continue
            keys = list(self._waiting)
            try:
                ended = await self._journal.ended_among(keys)
            except DATABASE_ERRORS:
                log.warning("journal_unavailable", exc_info=True)
                continue
            self.wake_waiters([key for key in keys if key[1] in ended])
