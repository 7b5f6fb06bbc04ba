"""A pool of connections that callers share: turns go round among them, and one caller holds three
quarters at most.

The gateway's own work, such as its audit log, borrows for no caller, and waits for no turn; nor
does a task that has a connection already.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import anyio
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from registry.database.fair_limiter import FairLimiter
from registry.database.silent_server import BoundedConnection

Caller = tuple[str, str]  # tenant and principal

# A turn is waited for behind requests of the same caller, not for the database: as many times
# longer than for a connection, so that all requests of a burst are served.
PATIENCE = 6


class NoTurn(PoolTimeout):
    """Too many requests of the same caller are waiting."""


@dataclass(slots=True, eq=False)
class _Request:
    caller: Caller
    is_open: bool = True  # tasks that were started within may outlive it


_REQUEST: ContextVar[_Request | None] = ContextVar("toolgate_database_request", default=None)


@contextmanager
def borrow_for(caller: Caller) -> Iterator[None]:
    """Connections that are borrowed within count for this caller."""
    request = _Request(caller)
    before = _REQUEST.set(request)
    try:
        yield
    finally:
        request.is_open = False
        _REQUEST.reset(before)


class SharedPool(AsyncConnectionPool[BoundedConnection]):
    def __init__(self, *args: Any, max_size: int, **options: Any) -> None:
        super().__init__(*args, max_size=max_size, **options)
        # The rest is for other callers, who else would wait behind all that one has sent at once.
        # Two at least: tasks of one request may each need one.
        self._turns = FairLimiter(max_size, of_owner=max(2, max_size * 3 // 4))
        self._taken: dict[BoundedConnection, tuple[Caller, asyncio.Task[Any] | None]] = {}

    async def getconn(self, timeout: float | None = None) -> BoundedConnection:
        """Raises PoolTimeout, and NoTurn, which is one."""
        return await self.lend(await self.take_turn(timeout), timeout)

    async def take_turn(self, timeout: float | None = None) -> Caller | None:
        """The caller that a connection of this task counts for, once it is its turn; `lend` has to
        follow. None: it counts for nobody. Raises NoTurn."""
        request = _REQUEST.get()
        if request is None or not request.is_open or self._holds_turn(asyncio.current_task()):
            return None
        caller = request.caller
        if not self._turns.take(*caller):  # else without the cost of a deadline
            await self._await_turn(caller, self.timeout if timeout is None else timeout)
        return caller

    async def lend(self, turn: Caller | None, timeout: float | None = None) -> BoundedConnection:
        """A connection for a turn, which ends with it. Raises PoolTimeout."""
        try:
            connection = await super().getconn(timeout)
        except BaseException:
            if turn is not None:
                self._turns.release(*turn)
            raise
        if turn is not None:
            self._taken[connection] = turn, asyncio.current_task()
        return connection

    async def _await_turn(self, caller: Caller, timeout_s: float) -> None:
        longest_s = PATIENCE * timeout_s
        try:
            with anyio.fail_after(longest_s):
                await self._turns.acquire(*caller)
        except TimeoutError as error:
            raise NoTurn(f"no turn for the caller after {longest_s:.2f} sec") from error

    def _holds_turn(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether the task has a connection: requests with one would wait for one another."""
        return any(holder is task for _, holder in self._taken.values())

    async def putconn(self, conn: BoundedConnection) -> None:
        turn = self._taken.pop(conn, None)
        try:
            await super().putconn(conn)
        finally:
            if turn is not None:
                self._turns.release(*turn[0])
