"""Sessions of the console: who logged in, by the digest of a random id in a signed cookie.

Credentials are not stored: a session has the caller's facts, which are checked again with each
request (`current_caller`). A refresh token is encrypted under the id of its session.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any, NamedTuple

from msgspec import Struct
from psycopg import AsyncConnection

from config.access import ConsoleSettings as Settings
from gateway.operations.stored_callers import StoredCaller, read_caller
from gateway.protocol.sealed_state import Sealer
from registry.database.migrate import Component
from registry.database.postgres import Pool, borrow
from schemas.errors import InvalidParams

CONSOLE = Component("console", files("gateway.console").joinpath("sql"))
ID_BYTES = 32
ID = re.compile(r"[\w-]{43}", re.ASCII)  # as new_id makes them
SIGNATURE = 32  # hexadecimal digits
REFRESH = "console refresh token"
REFRESH_S = 30 * 86_400.0  # a session ends earlier
TOUCH_S = 30.0  # shortest interval between writes of `used_ts`


class CookieNames(NamedTuple):
    """Names of cookies: with the prefix that binds them to host and path where the page came over
    TLS. Browsers do not take that prefix over plain HTTP, as on loopback."""

    session: str
    login: str

    @classmethod
    def of(cls, secure: bool) -> "CookieNames":
        prefix = "__Host-" if secure else ""
        return cls(f"{prefix}toolgate", f"{prefix}toolgate-login")


def new_id() -> str:
    return secrets.token_urlsafe(ID_BYTES)


def is_id(text: str) -> bool:
    """Whether a text may be the id of a session."""
    return ID.fullmatch(text) is not None


def csrf_token(session_id: str) -> str:
    """The token of forms: only a page of the session's own knows it."""
    return hmac.new(session_id.encode(), b"toolgate csrf", hashlib.sha256).hexdigest()


def is_csrf_token(session_id: str, token: str) -> bool:
    return bool(session_id) and hmac.compare_digest(csrf_token(session_id).encode(), token.encode())


def _digest(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode()).digest()


class SignedIds:
    """Ids of sessions as cookies have them: signed, so that a forged one costs no query."""

    def __init__(self, host_id: str) -> None:
        self._host_id = host_id
        self._key = b""

    async def prepare(self, pool: Pool) -> None:
        """Read the key, which all nodes share, or make it. Raises psycopg.OperationalError."""
        if self._key:
            return
        async with borrow(pool) as connection:
            kept = await connection.execute(
                "INSERT INTO console_key_t AS known (host_id, key) VALUES (%s, %s)"
                " ON CONFLICT (host_id) DO UPDATE SET key = known.key RETURNING key",
                [self._host_id, secrets.token_bytes(ID_BYTES)],
            )
            ((key,),) = await kept.fetchall()
        self._key = bytes(key)

    def sign(self, session_id: str) -> str:
        return f"{session_id}.{self._signature(session_id)}"

    def read(self, cookie: str) -> str:
        """The id in a cookie; "" where the signature is missing or another."""
        session_id, _, signature = cookie.partition(".")
        if not self._key or not is_id(session_id):
            return ""
        wanted = self._signature(session_id).encode()
        return session_id if hmac.compare_digest(wanted, signature.encode()) else ""

    def _signature(self, session_id: str) -> str:
        return hmac.new(self._key, session_id.encode(), hashlib.sha256).hexdigest()[:SIGNATURE]


class RefreshToken(Struct, frozen=True):
    text: str


class Ticket(NamedTuple):
    """Result of a login: the caller, and how it is renewed."""

    caller: bytes
    token_ends: datetime | None = None  # None: its session ends otherwise
    refresh: str = ""


class ConsoleSession(NamedTuple):
    """A session that has not ended."""

    caller: StoredCaller
    refresh: str  # "": it cannot be renewed
    is_due: bool  # its token has ended


class LockedSession:
    """A session that one request renews or ends, while the others wait."""

    def __init__(
        self, connection: AsyncConnection[Any], place: Sequence[Any], found: ConsoleSession
    ) -> None:
        self._connection = connection
        self._place = place
        self.found = found

    async def renew(self, session_id: str, ticket: Ticket) -> None:
        refresh = _seal_token(session_id, ticket.refresh)
        await self._connection.execute(
            "UPDATE console_session_t SET caller = %s, refresh = %s, token_ends_ts = %s"
            " WHERE host_id = %s AND digest = %s",
            [ticket.caller.decode(), refresh, ticket.token_ends, *self._place],
        )

    async def keep(self, session_id: str, refresh: str) -> None:
        """Keep another refresh token, with which the session is renewed later."""
        await self._connection.execute(
            "UPDATE console_session_t SET refresh = %s WHERE host_id = %s AND digest = %s",
            [_seal_token(session_id, refresh), *self._place],
        )

    async def end(self) -> None:
        await self._connection.execute(
            "DELETE FROM console_session_t WHERE host_id = %s AND digest = %s", [*self._place]
        )


class ConsoleSessions:
    """Sessions of the tenant of a gateway; their callers may be of others. All methods raise
    psycopg.OperationalError."""

    def __init__(self, pool: Pool, host_id: str, settings: Settings) -> None:
        self._pool = pool
        self._host_id = host_id
        self._idle = timedelta(seconds=settings.session_idle_s)
        self._longest = timedelta(seconds=settings.session_s)

    async def begin(self, ticket: Ticket, until: datetime | None = None) -> str:
        """The id of a new session; it ends at `until` at the latest. Removes those that ended."""
        now, session_id = datetime.now(UTC), new_id()
        ends = now + self._longest
        ends = ends if until is None else min(ends, until)
        kept = (ticket.caller.decode(), _seal_token(session_id, ticket.refresh), ticket.token_ends)
        async with borrow(self._pool) as connection:
            await connection.execute(
                "DELETE FROM console_session_t WHERE host_id = %s"
                " AND (expires_ts < %s OR used_ts < %s)",
                [self._host_id, now, now - self._idle],
            )
            await connection.execute(
                "INSERT INTO console_session_t"
                " (host_id, digest, caller, refresh, token_ends_ts, expires_ts)"
                " VALUES (%s, %s, %s, %s, %s, %s)",
                [*self._place(session_id), *kept, ends],
            )
        return session_id

    async def find(self, session_id: str) -> ConsoleSession | None:
        """A session; that it was used is written now and then."""
        now = datetime.now(UTC)
        async with borrow(self._pool) as connection:
            row = await self._row(connection, session_id, now)
            if row is None:
                return None
            if (now - row[3]).total_seconds() > TOUCH_S:
                await connection.execute(
                    "UPDATE console_session_t SET used_ts = %s WHERE host_id = %s AND digest = %s",
                    [now, *self._place(session_id)],
                )
        return _session(session_id, row, now)

    @asynccontextmanager
    async def lock(self, session_id: str) -> AsyncIterator[LockedSession | None]:
        """A session, for one request alone."""
        now = datetime.now(UTC)
        async with borrow(self._pool) as connection, connection.transaction():
            place = self._place(session_id)
            await connection.execute(
                "SELECT 1 FROM console_session_t WHERE host_id = %s AND digest = %s FOR UPDATE",
                [*place],
            )
            row = await self._row(connection, session_id, now)
            if row is None:
                yield None
            else:
                yield LockedSession(connection, place, _session(session_id, row, now))

    async def end(self, session_id: str) -> str:
        """End a session; gives its refresh token, "" without one."""
        async with borrow(self._pool) as connection:
            ended = await connection.execute(
                "DELETE FROM console_session_t WHERE host_id = %s AND digest = %s"
                " RETURNING refresh",
                [*self._place(session_id)],
            )
            row = await ended.fetchone()
        return "" if row is None else _unseal_token(session_id, row[0])

    async def _row(self, connection: AsyncConnection[Any], session_id: str, now: datetime) -> Any:
        cursor = await connection.execute(
            "SELECT caller::text, refresh, token_ends_ts, used_ts FROM console_session_t"
            " WHERE host_id = %s AND digest = %s AND expires_ts > %s AND used_ts > %s",
            [*self._place(session_id), now, now - self._idle],
        )
        return await cursor.fetchone()

    def _place(self, session_id: str) -> tuple[str, bytes]:
        return self._host_id, _digest(session_id)


def _session(session_id: str, row: Any, now: datetime) -> ConsoleSession:
    caller, refresh, ends, _ = row
    is_due = ends is not None and ends <= now
    return ConsoleSession(read_caller(caller), _unseal_token(session_id, refresh), is_due)


def _seal_token(session_id: str, token: str) -> str:
    """A refresh token as the database has it: only who has the id of the session can read it."""
    if not token:
        return ""
    return Sealer(session_id.encode()).seal(REFRESH, RefreshToken(token), b"", REFRESH_S)


def _unseal_token(session_id: str, sealed: str) -> str:
    if not sealed:
        return ""
    try:
        return Sealer(session_id.encode()).unseal(REFRESH, sealed, RefreshToken, b"").text
    except InvalidParams:  # it is too old
        return ""


def cookies_of(header: str) -> Mapping[str, str]:
    """Cookies of a request; the first of a name counts."""
    cookies: dict[str, str] = {}
    for pair in header.split(";"):
        name, _, value = pair.strip().partition("=")
        cookies.setdefault(name, value)
    return cookies
