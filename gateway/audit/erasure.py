"""Pseudonymisation of audit records of a person, with the hash chains intact.

A record keeps its hash, on which the next one is built, so that the chain is verified as before.
All members that tell about the caller go, the random id of the request among them: without it
nobody confirms a guessed name by that hash. `erased` is a hash over what is left, chained to the
record's own, so that later changes are detected as ever.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection, sql
from psycopg.errors import InsufficientPrivilege
from psycopg.rows import dict_row

from gateway.audit.queries import COLUMNS, hashes_before, recorded_entry
from gateway.audit.records import link_hash
from registry.database.person_rows import BATCH, ErasedPerson
from registry.database.postgres import Pool, borrow

Place = tuple[Any, UUID, int]
_BEGINNING: Place = ("-infinity", UUID(int=0), 0)
_OF_PERSON = """
    (principal = %(person)s OR owner = %(person)s
        OR subject ~ %(word)s OR arguments ~ %(word)s)
"""
_COUNT = sql.SQL("SELECT count(*) FROM audit_t WHERE host_id = %(host)s AND {}").format(
    sql.SQL(_OF_PERSON)
)
_SOURCES = (
    "SELECT DISTINCT source FROM audit_t WHERE host_id = %(host)s AND principal = %(person)s"
    " AND source IS NOT NULL ORDER BY source"
)
_BATCH = sql.SQL(
    "SELECT {columns}, subject ~ %(word)s AS is_named, ARRAY({before}) AS before FROM audit_t AS r"
    " WHERE host_id = %(host)s AND {of_person}"
    " AND (recorded_ts, chain_id, sequence) > (%(ts)s::timestamptz, %(chain)s, %(sequence)s)"
    " ORDER BY recorded_ts, chain_id, sequence LIMIT {batch} FOR UPDATE"
).format(
    columns=COLUMNS,
    before=hashes_before(sql.SQL("r.chain_id"), sql.SQL("r.sequence - 1")),
    of_person=sql.SQL(_OF_PERSON),
    batch=sql.Literal(BATCH),
)
# Of the caller, and what a hash could be guessed with.
_CLEARED = ("session", "request_id", "client", "arguments", "digest", "connection", "owner", "mark")
_NAMING = ("request_id", "arguments", "digest", "connection", "owner")  # in records of others
_BLANK = sql.SQL(
    "UPDATE audit_t SET {} WHERE host_id = %(host)s AND recorded_ts = %(recorded_ts)s"
    " AND chain_id = %(chain_id)s AND sequence = %(sequence)s"
).format(
    sql.SQL(", ").join(
        sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder(name))
        for name in ("principal", "subject", "erased", *_CLEARED)
    )
)


class AuditEraser:
    """Implements `PersonEraser`. A database user without UPDATE on audit_t leaves all as it is."""

    place = "audit records"
    remains = "tools, times and outcomes, under the pseudonym, until audit.retention_days"
    is_copy = False

    def __init__(
        self, pool: Callable[[], Pool | None], key: bytes, flush: Callable[[], Awaitable[None]]
    ) -> None:
        """`flush` stores the records that this process has not stored yet."""
        self._pool = pool
        self._key = key
        self._flush = flush

    async def count_person(self, person: ErasedPerson) -> int:
        rows = await self._fetch(_COUNT, person)
        return int(rows[0][0]) if rows else 0

    async def find_sources(self, person: ErasedPerson) -> list[str]:
        """The sources that were called for the person."""
        return [name for (name,) in await self._fetch(_SOURCES, person)]

    async def erase_person(self, person: ErasedPerson) -> int:
        pool, total, place = self._pool(), 0, _BEGINNING
        await self._flush()
        if pool is None:
            return 0
        while True:
            try:
                async with borrow(pool) as connection:
                    rows = await self._read_batch(connection, person, place)
                    blanked = [person.values | self._pseudonymise(person, row) for row in rows]
                    await connection.cursor().executemany(_BLANK, blanked)
            except InsufficientPrivilege:
                return total
            if not rows:
                return total
            total += len(rows)
            place = (rows[-1]["recorded_ts"], rows[-1]["chain_id"], rows[-1]["sequence"])

    async def _fetch(self, statement: Any, person: ErasedPerson) -> Sequence[Any]:
        if (pool := self._pool()) is None:
            return ()
        async with borrow(pool) as connection:
            return await (await connection.execute(statement, person.values)).fetchall()

    async def _read_batch(
        self, connection: AsyncConnection, person: ErasedPerson, place: Place
    ) -> list[dict[str, Any]]:
        ts, chain, sequence = place
        values = {**person.values, "ts": ts, "chain": chain, "sequence": sequence}
        async with connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(_BATCH, values)
            return await cursor.fetchall()

    def _pseudonymise(self, person: ErasedPerson, row: Mapping[str, Any]) -> dict[str, Any]:
        """The row, blanked. One that was tampered with has no valid hash afterwards, either."""
        is_own = row["principal"] == person.id
        left = {**row, **dict.fromkeys(_CLEARED if is_own else _NAMING), "erased": None}
        if is_own:
            left["principal"] = person.pseudonym
        if row["is_named"]:
            left["subject"] = None
        erased = bytes(32)
        with suppress(ValueError):  # of a row that no gateway writes
            record = recorded_entry(row)
            if any(record.is_intact(self._key, bytes(before)) for before in row["before"]):
                erased = link_hash(self._key, record.hash, recorded_entry(left).text)
        return {**left, "erased": erased}
