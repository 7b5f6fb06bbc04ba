"""Tenants, the rows of `host_t`: their list, and the lock of a tenant's writers."""

from psycopg import AsyncConnection

from registry.database.postgres import Pool, borrow


async def list_tenants(pool: Pool) -> list[str]:
    """The tenants that have, or had, rows."""
    async with borrow(pool) as connection:
        rows = await connection.execute("SELECT host_id::text FROM host_t ORDER BY host_id")
        return [host_id async for (host_id,) in rows]


async def lock_tenant(connection: AsyncConnection, host_id: str) -> None:
    """Serialise the writers of one tenant until the transaction ends: each has to see the names
    that the others assigned. Adds a tenant that is not there."""
    await connection.execute(
        "INSERT INTO host_t (host_id, name) VALUES (%s, %s) ON CONFLICT DO NOTHING",
        [host_id, host_id],
    )
    await connection.execute("SELECT FROM host_t WHERE host_id = %s FOR NO KEY UPDATE", [host_id])
