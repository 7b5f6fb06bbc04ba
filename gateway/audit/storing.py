"""Puts records into the database, in order, and each once however often they come."""

from typing import LiteralString

import msgspec
from anyio.lowlevel import checkpoint
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from gateway.audit.records import AuditEntry, Head, Header, Line, first_hash, seal
from registry.database.postgres import Pool, borrowed

_header = msgspec.json.Decoder(Header)

_BEGIN = """
INSERT INTO audit_chain_t (host_id, chain_id, header, last_sequence, last_hash, last_ts,
    removed_hash, seal)
VALUES (%(host)s, %(chain)s, %(header)s::json, 0, %(hash)s, %(started)s, %(hash)s, %(seal)s)
ON CONFLICT DO NOTHING
"""
_LAST = """
SELECT last_sequence, removed_sequence, removed_hash
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
    """Add records of the chain that `header` begins; how many of them were new. With `pauses` other
    tasks have their turn between pieces of them. Raises psycopg.Error and PoolTimeout."""
    begun = _header.decode(header)
    async with borrowed(pool) as connection:
        last, removed = await _last(connection, begun, header, key)
        new = _new(lines, last)
        if not new:
            return 0
        async with connection.cursor().copy(_COPY) as copy:
            for number, line in enumerate(new):
                if pauses and number % PIECE == 0:
                    await checkpoint()
                member = _members.decode(line.text).get  # what is left out is null
                await copy.write_row([*map(member, _COLUMNS), line.hash])
        end = new[-1]
        values = {
            "host": begun.host_id,
            "chain": begun.chain_id,
            "sequence": end.sequence,
            "hash": end.hash,
            "ts": end.recorded_ts,
            "seal": seal(key, begun.chain_id, (end.sequence, end.hash), removed),
        }
        await connection.execute(_END, values)
    return len(new)


async def heads(pool: Pool, host_id: str, days: int) -> list[Head]:
    """Where the chains end that have records of these days. Raises psycopg.Error, PoolTimeout."""
    async with borrowed(pool) as connection:
        rows = await connection.execute(_SEEN, [host_id, days])
        return [Head(*row) async for row in rows]


async def _last(
    connection: AsyncConnection[TupleRow], begun: Header, header: bytes, key: bytes
) -> tuple[int, tuple[int, bytes]]:
    """The sequence that the chain ends with, and what was removed of it; begun if necessary."""
    names = {"host": begun.host_id, "chain": begun.chain_id}
    found = await connection.execute(_LAST, names)
    row = await found.fetchone()
    if row is not None:
        return row[0], (row[1], row[2])
    start = (0, first_hash(key, header))
    values = {
        **names,
        "header": header.decode(),
        "hash": start[1],
        "started": begun.started_ts,
        "seal": seal(key, begun.chain_id, start, start),
    }
    await connection.execute(_BEGIN, values)
    return 0, start


def _new(lines: list[Line], last: int) -> list[Line]:
    """Those that the database does not have: a spool may have records twice."""
    new = []
    for line in lines:
        if line.sequence > last:
            new.append(line)
            last = line.sequence
    return new
