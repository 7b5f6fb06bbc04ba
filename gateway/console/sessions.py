"""Sessions of the console: who logged in, by the digest of a random id in a cookie.

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
from typing import NamedTuple

from config.access import ConsoleSettings as Settings
from gateway.operations.callers import StoredCaller, read_caller
from registry.database.migrate import Component
from registry.database.postgres import Pool, borrowed

CONSOLE = Component("console", files("gateway.console").joinpath("sql"))
ID_BYTES = 32
ID = re.compile(r"[\w-]{43}", re.ASCII)  # as new_id makes them
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
    """Whether a text may be the id of a session, and is worth a look into the database."""
    return ID.fullmatch(text) is not None


def csrf_token(session_id: str) -> str:
    """The token of forms: only a page of the session's own knows it."""
    return hmac.new(session_id.encode(), b"toolgate csrf", hashlib.sha256).hexdigest()


def is_csrf_token(session_id: str, token: str) -> bool:
    return bool(session_id) and hmac.compare_digest(csrf_token(session_id).encode(), token.encode())


def _digest(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode()).digest()


class ConsoleSessions:
    """Sessions of the tenant of a gateway; their callers may be of others. All methods raise
    psycopg.OperationalError."""

    def __init__(self, pool: Pool, host_id: str, settings: Settings) -> None:
        self._pool = pool
        self._host_id = host_id
        self._idle = timedelta(seconds=settings.session_idle_s)
        self._longest = timedelta(seconds=settings.session_s)

    async def begin(self, caller: bytes, until: datetime | None = None) -> str:
        """The id of a new session; it ends at `until` at the latest. Removes those that ended."""
        now, session_id = datetime.now(UTC), new_id()
        ends = now + self._longest
        ends = ends if until is None else min(ends, until)
        async with borrowed(self._pool) as connection:
            await connection.execute(
                "DELETE FROM console_session_t WHERE host_id = %s"
                " AND (expires_ts < %s OR used_ts < %s)",
                [self._host_id, now, now - self._idle],
            )
            await connection.execute(
                "INSERT INTO console_session_t (host_id, digest, caller, expires_ts)"
                " VALUES (%s, %s, %s, %s)",
                [self._host_id, _digest(session_id), caller.decode(), ends],
            )
        return session_id

    async def caller(self, session_id: str) -> StoredCaller | None:
        """The caller of a session that has not ended; that it was used is written now and then."""
        now = datetime.now(UTC)
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(
                "SELECT caller::text, used_ts FROM console_session_t WHERE host_id = %s"
                " AND digest = %s AND expires_ts > %s AND used_ts > %s",
                [self._host_id, _digest(session_id), now, now - self._idle],
            )
            found = await cursor.fetchone()
            if found is None:
                return None
            if (now - found[1]).total_seconds() > TOUCH_S:
                await connection.execute(
                    "UPDATE console_session_t SET used_ts = %s WHERE host_id = %s AND digest = %s",
                    [now, self._host_id, _digest(session_id)],
                )
        return read_caller(found[0])

    async def end(self, session_id: str) -> None:
        async with borrowed(self._pool) as connection:
            await connection.execute(
                "DELETE FROM console_session_t WHERE host_id = %s AND digest = %s",
                [self._host_id, _digest(session_id)],
            )


def cookies_of(header: str) -> Mapping[str, str]:
    """Cookies of a request; the first of a name counts."""
    found: dict[str, str] = {}
    for pair in header.split(";"):
        name, _, value = pair.strip().partition("=")
        found.setdefault(name, value)
    return found
