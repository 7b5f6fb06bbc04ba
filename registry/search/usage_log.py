"""A log of requests and of the tools that were called after them, for sets of an evaluation.

Off by default, as requests are texts of people: what looks like personal data or a secret is masked
before it is stored, callers are hashed, and rows are deleted after some days.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import anyio

from registry.database.postgres import AWAY, Pool, borrow
from registry.embedding.texts import readable
from registry.search.feedback import caller_hash
from schemas.personal_data import mask

PRUNE_S = 3600.0  # interval of deleting old requests
MASKING_FACTOR = 4  # times the characters that are kept are masked, so that nothing half cut stays
REQUESTS_LISTED = 10_000  # newest requests of a set


@dataclass(frozen=True, slots=True)
class UsedRequest:
    query: str
    tools: tuple[str, ...]  # their ids, of those that exist


class UsageLog:
    """Raises `psycopg.OperationalError`."""

    def __init__(self, pool: Callable[[], Pool | None], days: float, characters: int) -> None:
        """`days` that a request is kept, and the `characters` of it."""
        self._pool = pool
        self._days = days
        self._characters = characters

    async def record(
        self, host_id: str, entity_id: str, *, request_id: str, query: str, principal: str
    ) -> None:
        """Record that a tool was called with success after a request."""
        if (pool := self._pool()) is None:
            return
        values = {
            "host": host_id,
            "tool": entity_id,
            "request": request_id,
            "query": self._masked_query(query),
            "caller": caller_hash(principal),
        }
        async with borrow(pool) as connection:
            await connection.execute(_RECORD, values)

    def _masked_query(self, query: str) -> str:
        return mask(readable(query, MASKING_FACTOR * self._characters))[0][: self._characters]

    async def run(self) -> None:
        """Delete old requests regularly, until cancelled."""
        while True:
            with suppress(*AWAY):
                await self.prune()
            await anyio.sleep(PRUNE_S)

    async def prune(self) -> None:
        """Delete old requests, tenant by tenant: also of those that make no more."""
        if (pool := self._pool()) is None:
            return
        async with borrow(pool) as connection:
            rows = await connection.execute(_TENANTS_TO_PRUNE, {"days": self._days})
            tenants = [host async for (host,) in rows]
        for host in tenants:
            async with borrow(pool) as connection:
                await connection.execute(_PRUNE, {"host": host, "days": self._days})

    async def requests(self, host_id: str) -> list[UsedRequest]:
        """The newest requests of a tenant, each text once, with all tools called after it."""
        if (pool := self._pool()) is None:
            return []
        values = {"host": host_id, "days": self._days, "limit": REQUESTS_LISTED}
        async with borrow(pool) as connection:
            rows = await connection.execute(_LIST, values)
            return [UsedRequest(query, tuple(tools)) async for query, tools in rows]


_RECORD = """
INSERT INTO usage_request_t AS own (host_id, request_id, caller, query, called)
VALUES (%(host)s, %(request)s, %(caller)s, %(query)s, ARRAY[%(tool)s]::uuid[])
ON CONFLICT (host_id, request_id) DO UPDATE SET called = own.called || excluded.called
    WHERE NOT own.called @> excluded.called
"""

_TENANTS_TO_PRUNE = """
SELECT DISTINCT host_id::text FROM usage_request_t
WHERE asked_ts < now() - make_interval(days => %(days)s)
"""
_PRUNE = """
DELETE FROM usage_request_t
WHERE host_id = %(host)s AND asked_ts < now() - make_interval(days => %(days)s)
"""

# One caller that repeats a request has no more weight than others.
_LIST = """
SELECT query, array_agg(DISTINCT tool_id::text ORDER BY tool_id::text) FROM (
    SELECT query, asked_ts, called FROM usage_request_t
    WHERE host_id = %(host)s AND asked_ts >= now() - make_interval(days => %(days)s)
    ORDER BY asked_ts DESC LIMIT %(limit)s
) AS asked
JOIN tool_t ON tool_t.host_id = %(host)s AND tool_id = ANY (called)
GROUP BY query ORDER BY max(asked_ts) DESC, query
"""
