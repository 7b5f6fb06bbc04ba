"""Commands of hybrid services that are done once, however often they are sent (Idempotency-Key).

What the command gave, failure included, is kept (`gateway.state.once`).
"""

import logging
from collections.abc import Awaitable, Callable

import msgspec
import psycopg
from psycopg_pool import PoolTimeout

from gateway.abc import RepeatableCommand
from gateway.state.once import NoDatabase, Once, OtherRequest, Owner, Unfinished
from registry.database.postgres import Pool
from schemas.hybrid import IDEMPOTENCY_CONFLICT, UNAVAILABLE, StatusFault
from schemas.jsonrpc import encode
from schemas.tool import ToolResult

log = logging.getLogger("toolgate.idempotency")

_results = msgspec.json.Decoder(ToolResult)


class Idempotency:
    def __init__(self, pool: Callable[[], Pool | None], ttl_s: float) -> None:
        """`pool` gives None while there is no database. Results are kept for `ttl_s` seconds."""
        self._once = Once(pool, ttl_s)

    async def once(
        self, command: RepeatableCommand, run: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        """Run the command, or give what it gave before. `run` never fails but by its result, and
        nobody cancels this: the row would stay "running".

        Raises StatusFault: 409 for a key that belongs to another request, or to one that still
        runs; 503 without a database, and then nothing was done.
        """
        owner = _owner(command)
        try:
            earlier = await self._once.claim(owner, command.body)
        except (psycopg.OperationalError, PoolTimeout, NoDatabase) as error:
            raise StatusFault(UNAVAILABLE, _NO_DATABASE) from error
        except OtherRequest as error:
            text = "was used for a different request"
            raise StatusFault(IDEMPOTENCY_CONFLICT, text) from error
        except Unfinished as error:
            raise StatusFault(IDEMPOTENCY_CONFLICT, _UNCONFIRMED) from error
        if earlier is not None:
            return _results.decode(earlier)
        result = await run()
        try:
            await self._once.keep(owner, encode(result))
        except (psycopg.OperationalError, PoolTimeout, NoDatabase):
            log.exception("command_not_recorded", extra={"action": command.service})
        return result

    async def purge(self) -> None:
        """Forget what has expired."""
        await self._once.purge()


_NO_DATABASE = "The database that remembers Idempotency-Keys does not answer; nothing was done"
_UNCONFIRMED = (
    "belongs to a request that still runs, or whose outcome is not known; look before "
    "you send it again under another key"
)


def _owner(command: RepeatableCommand) -> Owner:
    principal = command.principal
    return Owner(principal.tenant, principal.id[:256], command.service, command.key)
