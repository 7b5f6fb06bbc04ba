"""Commands that are done once, however often they are sent (Idempotency-Key).

The table `command_idempotency_t` remembers a key before its command runs, so two nodes cannot both
run it. What the command gave, failure included, is kept with it. A command whose node died midway
stays "running": nobody knows what it did, so it is not done again under that key.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable

import msgspec
import psycopg
from psycopg_pool import PoolTimeout

from gateway.abc import Command
from registry.postgres import Pool, borrowed
from schemas.hybrid import IDEMPOTENCY_CONFLICT, UNAVAILABLE, StatusFault
from schemas.jsonrpc import encode
from schemas.tool import ToolResult

log = logging.getLogger("toolgate.idempotency")

_results = msgspec.json.Decoder(ToolResult)
_KEY = "host_id = %s AND principal_id = %s AND service_id = %s AND idempotency_key = %s"


class Idempotency:
    def __init__(self, pool: Callable[[], Pool | None], ttl_s: float) -> None:
        """`pool` gives None while there is no database. Results are kept for `ttl_s` seconds."""
        self._pool = pool
        self._ttl_s = ttl_s

    async def once(self, command: Command, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        """Run the command, or give what it gave before. `run` never fails but by its result, and
        nobody cancels this: the row would stay "running".

        Raises StatusFault: 409 for a key that belongs to another request, or to one that still
        runs; 503 without a database, and then nothing was done.
        """
        try:
            earlier = await self._claim(command)
        except (psycopg.OperationalError, PoolTimeout) as error:
            raise StatusFault(UNAVAILABLE, _NO_DATABASE) from error
        if earlier is not None:
            return earlier
        result = await run()
        try:
            await self._keep(command, result)
        except (psycopg.OperationalError, PoolTimeout, StatusFault):
            log.exception("command_not_recorded", extra={"action": command.service})
        return result

    async def purge(self) -> None:
        """Forget what has expired."""
        pool = self._pool()
        if pool is None:
            return
        async with borrowed(pool) as connection:
            await connection.execute(
                "DELETE FROM command_idempotency_t WHERE expires_ts < current_timestamp"
            )

    async def _keep(self, command: Command, result: ToolResult) -> None:
        async with borrowed(self._open()) as connection:
            await connection.execute(
                f"UPDATE command_idempotency_t SET state = 'done', response = %s WHERE {_KEY}",  # noqa: S608
                [encode(result), *_key(command)],
            )

    async def _claim(self, command: Command) -> ToolResult | None:
        """None when the command is now ours to run."""
        digest = hashlib.sha256(command.body).digest()
        async with borrowed(self._open()) as connection:
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
                [*_key(command), digest, self._ttl_s],
            )
            if await claimed.fetchone() is not None:
                return None
            found = await connection.execute(
                f"SELECT request_hash, response FROM command_idempotency_t WHERE {_KEY}",  # noqa: S608
                _key(command),
                binary=True,
            )
            row = await found.fetchone()
        if row is None:  # it expired and was purged between the two statements
            return await self._claim(command)
        if row[0] != digest:
            raise StatusFault(IDEMPOTENCY_CONFLICT, "was used for a different request")
        if row[1] is None:
            raise StatusFault(IDEMPOTENCY_CONFLICT, _UNCONFIRMED)
        return _results.decode(row[1])

    def _open(self) -> Pool:
        pool = self._pool()
        if pool is None:
            raise StatusFault(UNAVAILABLE, _NO_DATABASE)
        return pool


_NO_DATABASE = "The database that remembers Idempotency-Keys does not answer; nothing was done"
_UNCONFIRMED = (
    "belongs to a request that still runs, or whose outcome is not known; look before "
    "you send it again under another key"
)


def _key(command: Command) -> list[str]:
    return [command.principal.tenant, command.principal.id[:256], command.service, command.key]
