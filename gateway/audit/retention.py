"""Retention: partitions of audit_t are created ahead, and dropped when all records have expired.

The last removed record is noted in each chain, so that removal is not taken for tampering: a chain
then begins with its first remaining record.
"""

import logging
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, LiteralString

import anyio
import psycopg
from psycopg import AsyncConnection, sql
from psycopg.rows import TupleRow, dict_row
from psycopg_pool import PoolTimeout

from gateway.audit.queries import COLUMNS, is_valid
from gateway.audit.records import ChainEnd
from registry.database.postgres import Pool, borrow, read_clock

log = logging.getLogger("toolgate.audit")

LOCK = 0x746F6F6C61756474  # "toolaudt"
FIRST_S = 60.0  # delay after start: short-lived processes do no maintenance
EVERY_S = 3600.0
WEEKS_AHEAD = 2
DEFAULT: LiteralString = "audit_default_t"

_WEEKS = """
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'audit_t'::regclass AND c.relname ~ '^audit_[0-9]{8}_t$' ORDER BY 1
"""
_ENDS = """
SELECT DISTINCT ON (chain_id) {} FROM {} WHERE recorded_ts < %s ORDER BY chain_id, sequence DESC
"""
_CHAIN = """
SELECT host_id, last_sequence, last_hash, removed_sequence, removed_hash, seal FROM audit_chain_t
 WHERE chain_id = %s AND removed_sequence < %s AND last_sequence >= %s FOR UPDATE
"""
_REMOVED = """
UPDATE audit_chain_t SET removed_sequence = %s, removed_hash = %s, seal = %s
 WHERE host_id = %s AND chain_id = %s
"""


async def maintain_regularly(
    pool: Pool, key: bytes, days: int, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> None:
    """Create and drop partitions periodically (`EVERY_S`), until cancelled. Of this clock and that
    of the database the earlier one counts, since removed records cannot be had back."""
    await anyio.sleep(FIRST_S)
    while True:
        try:
            async with borrow(pool) as connection:
                database_now = await read_clock(connection)
            await maintain(pool, key, days, min(now(), database_now))
        except (psycopg.Error, PoolTimeout) as error:
            reason = str(error).split("\n", 1)[0][:200]
            log.warning("audit_not_maintained", extra={"reason": reason})
        await anyio.sleep(EVERY_S)


async def maintain(pool: Pool, key: bytes, days: int, now: datetime) -> list[str]:
    """Run the maintenance once, on one node at a time; returns the partitions dropped. Raises
    psycopg.Error and PoolTimeout."""
    cutoff = now - timedelta(days=days)
    async with borrow(pool) as connection:
        if not await _try_lock(connection):
            return []
        monday = now.date() - timedelta(days=now.weekday())
        for week in range(WEEKS_AHEAD + 1):
            await connection.execute("SELECT audit_make_week(%s)", [monday + timedelta(weeks=week)])
        rows = await connection.execute(_WEEKS)
        names = [name async for (name,) in rows]
    dropped = [name for name in names if _end(name) <= cutoff.date()]
    for name in dropped:
        await _remove(pool, key, name, cutoff)
        log.info("audit_partition_dropped", extra={"partition": name})
    await _remove(pool, key, DEFAULT, cutoff)
    return dropped


async def _remove(pool: Pool, key: bytes, name: str, cutoff: datetime) -> None:
    """Remove expired records of a partition: the whole table for a week's partition."""
    table = sql.Identifier(name)
    async with borrow(pool) as connection:
        if not await _try_lock(connection):
            return
        async with connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(sql.SQL(_ENDS).format(COLUMNS, table), [cutoff])
            ends = await cursor.fetchall()
        for row in ends:
            await _record_removed(connection, key, row)
        if name == DEFAULT:
            query = sql.SQL("DELETE FROM {} WHERE recorded_ts < %s").format(table)
            await connection.execute(query, [cutoff])
        else:
            # Writers queue up behind a session waiting for this lock.
            await connection.execute("SET LOCAL lock_timeout = '5s'")
            await connection.execute("SELECT audit_drop_week(%s)", [name])


async def _record_removed(
    connection: AsyncConnection[TupleRow], key: bytes, row: dict[str, Any]
) -> None:
    """Record `row` as the last removed record of its chain. Not if the record was tampered with:
    the removed records then count as missing."""
    chain_id, sequence = str(row["chain_id"]), row["sequence"]
    rows = await connection.execute(_CHAIN, [chain_id, sequence, sequence])
    chain = await rows.fetchone()
    if chain is None:
        return
    host_id, *end = chain
    chain_end = ChainEnd.of(chain_id, *end)
    if not await is_valid(connection, key, row):
        log.error("audit_record_tampered", extra={"chain": chain_id, "sequence": sequence})
        return
    sealed = chain_end.sealed_with(key, removed=(sequence, bytes(row["hash"])))
    await connection.execute(_REMOVED, [sequence, row["hash"], sealed, host_id, chain_id])


async def _try_lock(connection: AsyncConnection[TupleRow]) -> bool:
    """Take the advisory lock until the transaction ends; False if another node holds it."""
    rows = await connection.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK])
    return await rows.fetchone() == (True,)


def _end(name: str) -> date:
    """End of a week's partition, exclusive: 2026-11-23 for audit_20261116_t."""
    return datetime.strptime(name, "audit_%Y%m%d_t").date() + timedelta(weeks=1)  # noqa: DTZ007
