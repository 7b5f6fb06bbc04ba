"""Idempotency keys: work that runs once for each key, and commands under an Idempotency-Key.

The table `command_idempotency_t` records a key before its work begins, so two nodes cannot both do
it. The result, failures included, is kept with it. Work whose node died midway stays "running": its
outcome is unknown, so it is not repeated under that key.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec
from psycopg import sql

from gateway.interfaces import RepeatableCommand
from registry.database.postgres import AWAY, Pool, borrow, unavailability
from registry.database.shared_pool import borrow_for
from schemas.errors import ToolgateError
from schemas.hybrid import IDEMPOTENCY_CONFLICT, UNAVAILABLE, StatusFault
from schemas.jsonrpc import encode
from schemas.tool import ToolResult

_KEY = sql.SQL("host_id = %s AND principal_id = %s AND service_id = %s AND idempotency_key = %s")

log = logging.getLogger("toolgate.idempotency")


_UNCONFIRMED_TEXT = (
    "belongs to a request that is still running, or whose outcome is unknown; check "
    "that before you send it again under another key"
)


class KeyScope(NamedTuple):
    """The scope of an idempotency key."""

    tenant: str
    principal: str
    service: str
    key: str


class NoDatabase(ToolgateError):
    """No database is available to record the key in; the work was not done."""


class OtherRequest(ToolgateError):
    """The key was used for another request (409)."""


class StillRunning(ToolgateError):
    """The request of this key is still running, or its outcome is unknown."""


class IdempotencyKeys:
    """All methods raise NoDatabase, `psycopg.OperationalError` and PoolTimeout."""

    def __init__(self, pool: Callable[[], Pool | None], ttl_s: float) -> None:
        """Idempotency keys in the database that `pool` returns; None while there is none. Results
        are kept for `ttl_s` seconds."""
        self._pool = pool
        self._ttl_s = ttl_s

    async def claim(self, owner: KeyScope, request: bytes) -> bytes | None:
        """Claim the key: None when the caller now has to do the work, else the earlier result.
        Raises OtherRequest and StillRunning."""
        digest = hashlib.sha256(request).digest()
        # What follows the work waits for no turn: its result would be lost with it.
        with borrow_for((owner.tenant, owner.principal)):
            return await self._claim(owner, request, digest)

    async def _claim(self, owner: KeyScope, request: bytes, digest: bytes) -> bytes | None:
        async with borrow(self._open()) as connection:
            claimed = await connection.execute(
                """
                INSERT INTO command_idempotency_t AS old (host_id, principal_id, service_id,
                    idempotency_key, request_hash, state, expires_ts)
                VALUES (%s, %s, %s, %s, %s, 'running',
                    current_timestamp + make_interval(secs => %s))
                ON CONFLICT (host_id, principal_id, service_id, idempotency_key) DO UPDATE SET
                    request_hash = excluded.request_hash, state = 'running', response = NULL,
                    created_ts = current_timestamp, expires_ts = excluded.expires_ts
                WHERE old.expires_ts < current_timestamp
                RETURNING true
                """,
                [*owner, digest, self._ttl_s],
            )
            if await claimed.fetchone() is not None:
                return None
            rows = await connection.execute(
                sql.SQL(
                    "SELECT request_hash, response FROM command_idempotency_t WHERE {key}"
                ).format(key=_KEY),
                owner,
                binary=True,
            )
            row = await rows.fetchone()
        if row is None:  # it expired and was purged between the two statements
            return await self._claim(owner, request, digest)
        if row[0] != digest:
            raise OtherRequest
        if row[1] is None:
            raise StillRunning
        return bytes(row[1])

    async def record(self, owner: KeyScope, result: bytes) -> None:
        """Store the `result` of the key, JSON text."""
        async with borrow(self._open()) as connection:
            await connection.execute(
                sql.SQL(
                    "UPDATE command_idempotency_t SET state = 'done', response = %s WHERE {key}"
                ).format(key=_KEY),
                [result, *owner],
            )

    async def release(self, owner: KeyScope) -> None:
        """Delete the key, so that it can be reused: the work was not done."""
        async with borrow(self._open()) as connection:
            await connection.execute(
                sql.SQL("DELETE FROM command_idempotency_t WHERE {key}").format(key=_KEY), owner
            )

    async def purge(self) -> None:
        """Delete expired keys."""
        pool = self._pool()
        if pool is None:
            return
        async with borrow(pool) as connection:
            await connection.execute(
                "DELETE FROM command_idempotency_t WHERE expires_ts < current_timestamp"
            )

    def _open(self) -> Pool:
        pool = self._pool()
        if pool is None:
            raise NoDatabase
        return pool


_results = msgspec.json.Decoder(ToolResult)


class Idempotency:
    def __init__(self, pool: Callable[[], Pool | None], ttl_s: float) -> None:
        """`pool` returns None while there is no database. Results are kept for `ttl_s` seconds."""
        self._keys = IdempotencyKeys(pool, ttl_s)

    async def once(
        self, command: RepeatableCommand, run: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        """Run the command, or return its recorded result. `run` must not raise, and callers must
        not cancel this: the row would stay "running".

        Raises StatusFault: 409 for a key that belongs to another request, or to one still running;
        503 without a database: then the command was not run.
        """
        owner = _owner(command)
        try:
            earlier = await self._keys.claim(owner, command.body)
        except (*AWAY, NoDatabase) as error:
            text = f"{unavailability(error)}; the command was not run"
            raise StatusFault(UNAVAILABLE, text) from error
        except OtherRequest as error:
            text = "was used for a different request"
            raise StatusFault(IDEMPOTENCY_CONFLICT, text) from error
        except StillRunning as error:
            raise StatusFault(IDEMPOTENCY_CONFLICT, _UNCONFIRMED_TEXT) from error
        if earlier is not None:
            return _results.decode(earlier)
        result = await run()
        try:
            await self._keys.record(owner, encode(result))
        except (*AWAY, NoDatabase):
            log.exception("command_not_recorded", extra={"action": command.service})
        return result

    async def purge(self) -> None:
        """Delete expired keys."""
        await self._keys.purge()


def _owner(command: RepeatableCommand) -> KeyScope:
    principal = command.principal
    return KeyScope(principal.tenant, principal.id[:256], command.service, command.key)
