"""Tables of a database in which a text stands."""

from registry.database.postgres import Pool


async def holding(pool: Pool, text: str) -> list[str]:
    """Tables of which a row holds the text, also as bytes."""
    tables = (
        "SELECT c.oid::regclass::text FROM pg_class AS c"
        " WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'm')"
    )
    found = []
    async with pool.connection() as connection:
        for (table,) in await (await connection.execute(tables)).fetchall():
            rows = await connection.execute(
                f"SELECT count(*) FROM {table} AS row WHERE strpos(row::text, %s) > 0"
                " OR strpos(row::text, %s) > 0".encode(),
                [text, text.encode().hex()],
            )
            if await rows.fetchone() != (0,):
                found.append(table)
    return found
