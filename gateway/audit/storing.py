"""Idempotent, ordered inserts of records into the database."""

from typing import LiteralString

import msgspec
from anyio.lowlevel import checkpoint
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from gateway.audit.records import AuditEntry, ChainEnd, Head, Header, Line, first_hash, seal
from registry.database.postgres import Pool, borrowed

_header = msgspec.json.Decoder(Header)

_BEGIN = """
INSERT INTO audit_chain_t (host_id, chain_id, header, last_sequence, last_hash, last_ts,
    removed_hash, seal)
VALUES (%(host)s, %(chain)s, %(header)s::json, 0, %(hash)s, %(started)s, %(hash)s, %(seal)s)
ON CONFLICT DO NOTHING
"""
_LAST = """
SELECT last_sequence, last_hash, removed_sequence, removed_hash, seal
  FROM audit_chain_t WHERE host_id = %(host)s AND chain_id = %(chain)s FOR UPDATE
"""
_END = """
UPDATE audit_chain_t SET last_sequence = %(sequence)s, last_hash = %(hash)s, last_ts = %(ts)s,
    seal = %(seal)s
 WHERE host_id = %(host)s AND chain_id = %(chain)s
"""
_SEEN = """
SELECT chain_id::text, last_sequence, encode(last_hash, 'hex') FROM audit_chain_t
 WHERE host_id = %s AND last_ts > current_timestamp - make_interval(days => %s)
   AND removed_sequence < last_sequence
 ORDER BY last_ts DESC LIMIT 1000
"""


def _copy() -> LiteralString:
    names: LiteralString = ", ".join(AuditEntry.__struct_fields__)
    return "COPY audit_t (chain_id, sequence, " + names + ", hash) FROM STDIN"


PIECE = 32  # records

_COPY = _copy()
_COLUMNS = ("chain_id", "sequence", *AuditEntry.__struct_fields__)
_members = msgspec.json.Decoder(dict[str, str | int])


async def store(
    pool: Pool, key: bytes, header: bytes, lines: list[Line], *, pauses: bool = True
) -> int:
    """Insert records of the chain with `header`; returns how many were new. With `pauses` it yields
    to other tasks every `PIECE` records. Raises psycopg.Error and PoolTimeout."""
    begun = _header.decode(header)
    async with borrowed(pool) as connection:
        before = await _end(connection, begun, header, key)
        new = _new(lines, before.last[0])
        if not new:
            return 0
        async with connection.cursor().copy(_COPY) as copy:
            for number, line in enumerate(new):
                if pauses and number % PIECE == 0:
                    await checkpoint()
                member = _members.decode(line.text).get  # omitted members are null
                await copy.write_row([*map(member, _COLUMNS), line.hash])
        end = new[-1]
        values = {
            "host": begun.host_id,
            "chain": begun.chain_id,
            "sequence": end.sequence,
            "hash": end.hash,
            "ts": end.recorded_ts,
            "seal": before.sealed_with(key, last=(end.sequence, end.hash)),
        }
        await connection.execute(_END, values)
    return len(new)


async def heads(pool: Pool, host_id: str, days: int) -> list[Head]:
    """Heads of chains with records of the last `days`. Raises psycopg.Error and PoolTimeout."""
    async with borrowed(pool) as connection:
        rows = await connection.execute(_SEEN, [host_id, days])
        return [Head(*row) async for row in rows]


async def _end(
    connection: AsyncConnection[TupleRow], begun: Header, header: bytes, key: bytes
) -> ChainEnd:
    """The end of the chain, locked; inserts the chain if it is new."""
    names = {"host": begun.host_id, "chain": begun.chain_id}
    found = await connection.execute(_LAST, names)
    row = await found.fetchone()
    if row is not None:
        return ChainEnd.of(begun.chain_id, *row)
    start = (0, first_hash(key, header))
    fresh = ChainEnd(begun.chain_id, start, start, seal(key, begun.chain_id, start, start))
    values = {
        **names,
        "header": header.decode(),
        "hash": start[1],
        "started": begun.started_ts,
        "seal": fresh.seal,
    }
    await connection.execute(_BEGIN, values)
    return fresh


def _new(lines: list[Line], last: int) -> list[Line]:
    """Lines that the database lacks: a spool may contain duplicates."""
    new = []
    for line in lines:
        if line.sequence > last:
            new.append(line)
            last = line.sequence
    return new
