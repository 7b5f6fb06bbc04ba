"""Gateways of one database that share no state, counted by a mark that each leaves there.

The mark is a shared advisory lock on a connection that the gateway holds as long as it serves, so
that it ends with the process and needs no table.
"""

from psycopg import AsyncConnection

LOCK = 0x746F6F6C6F776E73  # "toolowns"

_COUNT = """
SELECT count(*)::int FROM pg_locks
 WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted AND objsubid = 1
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND (classid::bigint << 32) + objid::bigint = %s
"""


async def mark_own_state(connection: AsyncConnection) -> int:
    """Mark a gateway until its connection ends; the number of marked gateways, this one among
    them."""
    await connection.execute("SELECT pg_advisory_lock_shared(%s)", [LOCK])
    return await count_own_states(connection)


async def count_own_states(connection: AsyncConnection) -> int:
    """The number of running gateways that share no state."""
    rows = await connection.execute(_COUNT, [LOCK])
    (row,) = await rows.fetchall()
    return int(row[0])
