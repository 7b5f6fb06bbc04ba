"""Gateways of one database that share no state, counted by a mark that each leaves there.

The mark is a shared advisory lock on a connection that the gateway holds as long as it serves, so
that it ends with the process and needs no table. Its second number is that of the gateway: after a
reconnection, the server may hold the lost connection for long.
"""

from psycopg import AsyncConnection

LOCK = 0x746F776E  # "town": of toolgate, own state

# Not by a pooler, which names another process than that of the server: there, the lock would
# outlive the gateway.
_MARK = "SELECT pg_advisory_lock_shared(%s, %s) WHERE pg_backend_pid() = %s"
_COUNT = """
SELECT count(DISTINCT objid)::int FROM pg_locks
 WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted AND objsubid = 2
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND classid = %s
"""


async def mark_own_state(connection: AsyncConnection, gateway: int) -> int:
    """Mark a gateway, by a number of 31 bits, until its connection ends; the number of marked
    gateways, this one among them."""
    await connection.execute(_MARK, [LOCK, gateway, connection.info.backend_pid])
    return await count_own_states(connection)


async def count_own_states(connection: AsyncConnection) -> int:
    """The number of running gateways that share no state."""
    rows = await connection.execute(_COUNT, [LOCK])
    (row,) = await rows.fetchall()
    return int(row[0])
