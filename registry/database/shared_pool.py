"""A pool of connections that callers share: turns go round among them, and one caller holds three
quarters at most.

The gateway's own work, such as its audit log, borrows for no caller, and waits for no turn.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import anyio
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from registry.database.fair_limiter import FairLimiter
from registry.database.silent_server import BoundedConnection

Caller = tuple[str, str]  # tenant and principal

_CALLER: ContextVar[Caller | None] = ContextVar("toolgate_database_caller", default=None)


@contextmanager
def borrow_for(caller: Caller) -> Iterator[None]:
    """Connections that are borrowed within count for this caller."""
    before = _CALLER.set(caller)
    try:
        yield
    finally:
        _CALLER.reset(before)


class SharedPool(AsyncConnectionPool[BoundedConnection]):
    def __init__(self, *args: Any, max_size: int, **options: Any) -> None:
        super().__init__(*args, max_size=max_size, **options)
        # The rest is for other callers, who else would wait behind all that one has sent at once.
        # Some work borrows a second connection.
        self._turns = FairLimiter(max_size, of_owner=max(2, max_size * 3 // 4))
        self._callers: dict[BoundedConnection, Caller] = {}

    async def getconn(self, timeout: float | None = None) -> BoundedConnection:
        """Raises PoolTimeout."""
        caller = _CALLER.get()
        if caller is None:
            return await super().getconn(timeout)
        timeout_s = self.timeout if timeout is None else timeout
        began = time.monotonic()
        try:
            with anyio.fail_after(timeout_s):
                await self._turns.acquire(*caller)
        except TimeoutError as error:
            raise PoolTimeout(f"no turn for the caller after {timeout_s:.2f} sec") from error
        try:
            connection = await super().getconn(timeout_s - (time.monotonic() - began))
        except BaseException:
            self._turns.release(*caller)
            raise
        self._callers[connection] = caller
        return connection

    async def putconn(self, conn: BoundedConnection) -> None:
        caller = self._callers.pop(conn, None)
        try:
            await super().putconn(conn)
        finally:
            if caller is not None:
                self._turns.release(*caller)
