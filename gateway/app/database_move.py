"""The move of the database to another server, with its audit log verified on both sides."""

from collections.abc import Callable

from config.settings import Settings
from gateway.audit.verification import verify
from registry.database.embedded_server import DatabaseError
from registry.database.move import DatabaseMove, MovePlan, open_move, reopen
from registry.database.postgres import Database, borrow


async def move_database(
    settings: Settings,
    url: str,
    wait_s: float,
    *,
    waiting: Callable[[str], None],
    copied: Callable[[str, int], None],
    warn: Callable[[str], None],
    dry_run: bool,
) -> MovePlan:
    """Move everything to the database at `url`. `waiting` gets the sessions that the move waits
    for, `copied` each table and the number of all. Raises DatabaseError; the source can be used as
    before."""
    async with open_move(settings.database, url) as move:
        plan = await move.plan()
        if dry_run:
            return plan
        await move.close_source(wait_s, waiting)
        await move.copy(lambda table: copied(table, len(plan.tables)))
        if differences := await move.compare():
            raise DatabaseError(
                "the copy is incomplete: " + "; ".join(differences) + ". The source can be used "
                "as before"
            )
        await _verify_chains(move, settings.audit.key.encode(), warn)
        await move.finish()
        return plan


async def reopen_database(settings: Settings) -> bool:
    """Let the database be used again that a move has closed; returns whether one had."""
    opened = Database.open(settings.database, wait=False, migrate=False, even_closed=True)
    async with opened as database, database.connect() as connection:
        return await reopen(connection) is not None


async def _verify_chains(move: DatabaseMove, key: bytes, warn: Callable[[str], None]) -> None:
    """The audit log of each tenant has the same chains on both sides, with the same breaks."""
    async with borrow(move.source.pool) as connection:
        rows = await connection.execute("SELECT DISTINCT host_id::text FROM audit_chain_t")
        tenants: list[str] = [tenant async for (tenant,) in rows]
    for tenant in tenants:
        source = await verify(move.source.pool, tenant, key)
        target = await verify(move.target.pool, tenant, key)
        if source != target:
            raise DatabaseError(
                f"the audit log of the tenant {tenant} is not the same in the target: "
                f"{target.records} valid records of {source.records}. The source can be used "
                "as before"
            )
        if source.problems:
            warn(
                f"the audit log of the tenant {tenant} was broken before the move, at "
                f"{len(source.problems)} places: see `toolgate audit verify`"
            )
