"""Statements that a server leaves unanswered: it is frozen, or a network swallows its packets.

TCP cannot tell: the kernel of a stopped server goes on to acknowledge. So after a while without a
byte the server is asked over a new connection. If that is answered, the statement is slow, and is
awaited further; if not, it fails as if the connection had been lost.
"""

import errno
import logging
import math
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from traceback import clear_frames
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

import anyio
from psycopg import AsyncConnection, OperationalError, pq
from psycopg.abc import PQGen
from psycopg.conninfo import make_conninfo
from psycopg.errors import ConnectionTimeout
from psycopg.rows import TupleRow
from psycopg.waiting import READY_NONE

log = logging.getLogger("toolgate.database")

Result = TypeVar("Result")

# Errors of the network, of which libpq gives only the text.
_UNREACHABLE = tuple(
    os.strerror(code)
    for code in (
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ETIMEDOUT,
    )
)


class Silence(OperationalError):
    """The server sent nothing for the time that it has."""


class ServerProbe:
    """Asks the server of `conninfo` whether it runs statements; it has `timeout_s` to answer."""

    def __init__(self, conninfo: str, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self.conninfo = conninfo
        self._lock = anyio.Lock()
        self._scopes: set[anyio.CancelScope] = set()
        self._ended = -math.inf
        self._answered = False

    async def is_answered(self) -> bool:
        """Single-flight: concurrent callers share one run."""
        called = monotonic()
        async with self._lock:
            if self._ended < called:
                self._answered = await self._ask()
                self._ended = monotonic()
        return self._answered

    @contextmanager
    def ending_at_silence(self) -> Iterator[None]:
        """Ends the body when the server has answered no question; then raises Silence."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)
        if scope.cancelled_caught:
            raise Silence("the server answers no new connections")

    async def _ask(self) -> bool:
        answered = False
        with anyio.move_on_after(self._timeout_s):
            answered = await self._runs_statement()
        if not answered:
            log.warning("database_silent", extra={"waited_s": self._timeout_s})
            for scope in self._scopes:
                scope.cancel()
        return answered

    async def _runs_statement(self) -> bool:
        """A refusal is an answer, too: such a server ends its connections itself. An error of
        the network, such as "No route to host", is none."""
        try:
            connection = await BoundedConnection.connect(self.conninfo, autocommit=True)
            connection.answer_timeout_s = self._timeout_s
            try:
                await connection.execute("SELECT")
            finally:
                await connection.close()
        except (ConnectionTimeout, Silence):
            return False
        except OperationalError as error:
            return not any(reason in str(error) for reason in _UNREACHABLE)
        return True


class ServerProbes:
    """One probe for each server that connections of `conninfo` have: it may list several hosts, and
    a host may have several addresses. A probe lives as long as its connections."""

    def __init__(self, conninfo: str, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self.conninfo = conninfo
        self._probes: WeakValueDictionary[str, ServerProbe] = WeakValueDictionary()

    def get(self, connection: AsyncConnection) -> ServerProbe:
        info = connection.info
        conninfo = make_conninfo(
            self.conninfo, host=info.host, hostaddr=info.hostaddr, port=info.port
        )
        return self._probes.setdefault(conninfo, ServerProbe(conninfo, self._timeout_s))


async def never() -> bool:
    return False


class BoundedConnection(AsyncConnection[TupleRow]):
    """A connection that waits for a silent server as long as `is_answered` says that it lives.

    A wait for notifications is no wait for an answer.
    """

    answer_timeout_s: float = math.inf
    is_answered: Callable[[], Awaitable[bool]] = staticmethod(never)

    @classmethod
    async def connect(cls, conninfo: str = "", **options: Any) -> Self:
        """Connect, or leave nothing open. The error of psycopg and the frame that raised it hold
        each other, and the socket: many would wait for the garbage collector."""
        try:
            return await super().connect(conninfo, **options)
        except OperationalError as error:
            clear_frames(error.__traceback__)
            raise

    async def wait(self, gen: PQGen[Result], *args: Any, **options: Any) -> Result:
        """Raises Silence, and closes the connection."""
        resumed = False
        while True:
            try:
                return await super().wait(
                    _until_silent(gen, self.answer_timeout_s, resumed), *args, **options
                )
            except Silence:
                resumed = True
                if self.pgconn.transaction_status != pq.TransactionStatus.ACTIVE:
                    continue
                if not await self._server_lives():
                    raise

    async def _server_lives(self) -> bool:
        lives = False
        try:
            lives = await self.is_answered()
        finally:
            if not lives:  # also where the caller was cancelled: a statement still runs on it
                await self.close()
        return lives


def _until_silent(gen: PQGen[Result], silence_s: float, resumed: bool) -> PQGen[Result]:
    """The generator, until its socket was silent for `silence_s`; it can be continued by another.

    psycopg resumes a generator without readiness at intervals, so that it can be interrupted.
    """
    heard = monotonic()
    try:
        event = gen.send(READY_NONE) if resumed else next(gen)
        while True:
            ready = yield event
            if ready:
                heard = monotonic()
            elif monotonic() - heard >= silence_s:
                raise Silence(f"the server has not answered for {silence_s:g} s")
            event = gen.send(ready)
    except StopIteration as end:
        result: Result = end.value
        return result
