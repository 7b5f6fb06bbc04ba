"""Sessions of the console: who logged in, by the digest of a random id in a signed cookie.

Credentials are not stored: a session has the caller's facts, which are checked again with each
request (`current_caller`).
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from importlib.resources import files

from psycopg import AsyncConnection
from starlette.responses import Response

from config.access import ConsoleSettings as Settings
from gateway.operations.stored_callers import StoredCaller, read_caller
from registry.database.migrate import Component
from registry.database.postgres import Pool, borrow
from registry.database.tables import Tables

CONSOLE = Component("console", files("gateway.console").joinpath("sql"))
ID_BYTES = 32
ID = re.compile(r"[\w-]{43}", re.ASCII)  # as new_id makes them
SIGNATURE = 32  # hexadecimal digits
TOUCH_S = 30.0  # shortest interval between writes of `used_ts`


def session_cookie(secure: bool) -> str:
    """The name of the cookie: with the prefix that binds it to host and path where the page came
    over TLS. Browsers do not take that prefix over plain HTTP, as on loopback."""
    return "__Host-toolgate" if secure else "toolgate"


def set_cookie(response: Response, name: str, value: str) -> None:
    """Give a browser a cookie for as long as it is open; a name of `session_cookie` over TLS says
    that it is for TLS alone. Lax: a redirect from another site, as of a provider, brings it."""
    response.set_cookie(
        name,
        value,
        path="/",
        httponly=True,
        secure=name.startswith("__Host-"),
        samesite="lax",
    )


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
            rows = await connection.execute(
                "INSERT INTO console_key_t AS known (host_id, key) VALUES (%s, %s)"
                " ON CONFLICT (host_id) DO UPDATE SET key = known.key RETURNING key",
                [self._host_id, secrets.token_bytes(ID_BYTES)],
            )
            ((key,),) = await rows.fetchall()
        self._key = bytes(key)

    def sign(self, session_id: str) -> str:
        return f"{session_id}.{self._signature(session_id)}"

    def read(self, cookie: str) -> str:
        """The id in a cookie; "" where the signature is missing or another."""
        session_id, _, signature = cookie.partition(".")
        if not self._key or not is_id(session_id):
            return ""
        expected = self._signature(session_id).encode()
        return session_id if hmac.compare_digest(expected, signature.encode()) else ""

    def _signature(self, session_id: str) -> str:
        return hmac.new(self._key, session_id.encode(), hashlib.sha256).hexdigest()[:SIGNATURE]


class ConsoleSessions(Tables):
    """Sessions of the tenant of a gateway; their callers may be of others. All methods raise
    psycopg.OperationalError."""

    def __init__(self, pool: Pool, host_id: str, settings: Settings) -> None:
        self._pool = pool
        self._host_id = host_id
        self._idle = timedelta(seconds=settings.session_idle_s)
        self._longest = timedelta(seconds=settings.session_s)

    async def begin(self, caller: bytes, until: datetime | None = None) -> str:
        """The id of a new session; it ends at `until` at the latest. Removes those that ended."""
        await self.sweep()
        async with borrow(self._pool) as connection:
            return await self.add(connection, caller, until)

    async def add(
        self, connection: AsyncConnection, caller: bytes, until: datetime | None = None
    ) -> str:
        """The id of a new session, stored in a transaction of the caller's."""
        session_id, ends = new_id(), datetime.now(UTC) + self._longest
        ends = ends if until is None else min(ends, until)
        await connection.execute(
            "INSERT INTO console_session_t (host_id, digest, caller, expires_ts)"
            " VALUES (%s, %s, %s, %s)",
            [*self._place(session_id), caller.decode(), ends],
        )
        return session_id

    async def sweep(self) -> None:
        """Delete sessions that have ended."""
        now = datetime.now(UTC)
        await self._execute(
            "DELETE FROM console_session_t WHERE host_id = %s"
            " AND (expires_ts < %s OR used_ts < %s)",
            [self._host_id, now, now - self._idle],
        )

    async def find(self, session_id: str) -> StoredCaller | None:
        """The caller of a session; that it was used is written now and then."""
        now = datetime.now(UTC)
        async with borrow(self._pool) as connection:
            cursor = await connection.execute(
                "SELECT caller::text, used_ts FROM console_session_t"
                " WHERE host_id = %s AND digest = %s AND expires_ts > %s AND used_ts > %s",
                [*self._place(session_id), now, now - self._idle],
            )
            row = await cursor.fetchone()
            if row is None:
                return None
            if (now - row[1]).total_seconds() > TOUCH_S:
                await connection.execute(
                    "UPDATE console_session_t SET used_ts = %s WHERE host_id = %s AND digest = %s",
                    [now, *self._place(session_id)],
                )
        return read_caller(row[0])

    async def end(self, session_id: str) -> None:
        await self._execute(
            "DELETE FROM console_session_t WHERE host_id = %s AND digest = %s",
            [*self._place(session_id)],
        )

    def _place(self, session_id: str) -> tuple[str, bytes]:
        return self._host_id, _digest(session_id)


def cookies_of(header: str) -> Mapping[str, str]:
    """Cookies of a request; the first of a name counts."""
    cookies: dict[str, str] = {}
    for pair in header.split(";"):
        name, _, value = pair.strip().partition("=")
        cookies.setdefault(name, value)
    return cookies
