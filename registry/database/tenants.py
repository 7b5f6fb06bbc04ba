"""Tenants as rows, which are there from the first thing that is written for them."""

from psycopg import AsyncConnection


async def lock(connection: AsyncConnection, host_id: str) -> None:
    """Writers of one tenant go one after the other, until the transaction ends: each has to see
    what the others have named."""
    await connection.execute(
        "INSERT INTO host_t (host_id, name) VALUES (%s, %s) ON CONFLICT DO NOTHING",
        [host_id, host_id],
    )
    await connection.execute("SELECT FROM host_t WHERE host_id = %s FOR NO KEY UPDATE", [host_id])
