"""Sessions and counters in the registry's database, shared by all its gateways.

Every method is one transaction. Times are the database's: clocks of gateways may differ.
"""

import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import psycopg
from msgspec.structs import replace
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb
from psycopg_pool import PoolTimeout

from gateway.abc import SessionChange, SessionRecord, Verdict
from gateway.state.rates import SLOTS, admit, live, slot_us
from gateway.state.records import changed
from registry.database.postgres import Database, borrowed
from schemas.errors import Unavailable

log = logging.getLogger("toolgate.state")

AWAY = "The database that gateways share does not answer; try again later"

Opened = Callable[[], Database | None]
"""The database; None until it has answered for the first time."""

_records = msgspec.json.Decoder(SessionRecord)


@asynccontextmanager
async def connection_of(opened: Opened) -> AsyncIterator[AsyncConnection]:
    database = opened()
    if database is None:
        raise Unavailable(AWAY)
    try:
        async with borrowed(database.pool) as connection:
            yield connection
    except (psycopg.OperationalError, PoolTimeout) as error:
        raise Unavailable(AWAY) from error


class PostgresSessions:
    shared = True

    def __init__(self, opened: Opened) -> None:
        self._opened = opened

    async def put(self, record: SessionRecord, ttl_s: float) -> None:
        async with connection_of(self._opened) as connection:
            await connection.execute(
                """
                INSERT INTO state_session_t (session_id, record, nodes, expires_ts)
                VALUES (%s, %b, %s, clock_timestamp() + make_interval(secs => %s))
                ON CONFLICT (session_id) DO UPDATE
                    SET record = excluded.record, nodes = excluded.nodes,
                        expires_ts = excluded.expires_ts
                """,
                [record.id, msgspec.json.encode(record), list(record.nodes), ttl_s],
            )

    async def get(self, session_id: str) -> SessionRecord | None:
        if not _storable(session_id):
            return None
        async with connection_of(self._opened) as connection:
            found = await connection.execute(
                "SELECT session_id, record, nodes FROM state_session_t"
                " WHERE session_id = %s AND expires_ts > clock_timestamp()",
                [session_id],
                binary=True,
            )
            row = await found.fetchone()
        return _read(row) if row else None

    async def hold(self, session_id: str, node: str, ttl_s: float) -> SessionRecord | None:
        if not _storable(session_id):
            return None
        async with connection_of(self._opened) as connection:
            found = await connection.execute(
                """
                UPDATE state_session_t
                SET expires_ts = clock_timestamp() + make_interval(secs => %s),
                    nodes = array_append(array_remove(nodes, %s::text), %s::text)
                WHERE session_id = %s AND expires_ts > clock_timestamp()
                RETURNING session_id, record, nodes
                """,
                [ttl_s, node, node, session_id],
                binary=True,
            )
            row = await found.fetchone()
        return _read(row) if row else None

    async def change(
        self, session_id: str, change: SessionChange, ttl_s: float
    ) -> SessionRecord | None:
        if not _storable(session_id):
            return None
        async with connection_of(self._opened) as connection:
            found = await connection.execute(
                "SELECT session_id, record, nodes FROM state_session_t"
                " WHERE session_id = %s AND expires_ts > clock_timestamp() FOR UPDATE",
                [session_id],
                binary=True,
            )
            row = await found.fetchone()
            record = _read(row) if row else None
            if record is None:
                return None
            record = changed(record, change)
            await connection.execute(
                "UPDATE state_session_t"
                " SET record = %b, expires_ts = clock_timestamp() + make_interval(secs => %s)"
                " WHERE session_id = %s",
                [msgspec.json.encode(record), ttl_s, session_id],
            )
        return record

    async def delete(self, session_id: str) -> bool:
        if not _storable(session_id):
            return False
        async with connection_of(self._opened) as connection:
            deleted = await connection.execute(
                "DELETE FROM state_session_t WHERE session_id = %s"
                " RETURNING expires_ts > clock_timestamp()",
                [session_id],
            )
            return await deleted.fetchone() == (True,)

    async def all(self) -> list[SessionRecord]:
        async with (
            connection_of(self._opened) as connection,
            connection.cursor(binary=True) as rows,
        ):
            await rows.execute(
                "SELECT session_id, record, nodes FROM state_session_t"
                " WHERE expires_ts > clock_timestamp()"
            )
            return [record async for row in rows if (record := _read(row)) is not None]

    async def purge(self) -> int:
        async with connection_of(self._opened) as connection:
            await connection.execute(
                "DELETE FROM state_node_t WHERE expires_ts <= clock_timestamp()"
            )
            purged = await connection.execute(
                "DELETE FROM state_session_t WHERE expires_ts <= clock_timestamp()"
            )
            return purged.rowcount

    async def beat(self, node: str, ttl_s: float) -> None:
        async with connection_of(self._opened) as connection:
            await connection.execute(
                """
                INSERT INTO state_node_t (node, expires_ts)
                VALUES (%s, clock_timestamp() + make_interval(secs => %s))
                ON CONFLICT (node) DO UPDATE SET expires_ts = excluded.expires_ts
                """,
                [node, ttl_s],
            )

    async def beats(self, node: str) -> bool:
        if not _storable(node):
            return False
        async with connection_of(self._opened) as connection:
            found = await connection.execute(
                "SELECT FROM state_node_t WHERE node = %s AND expires_ts > clock_timestamp()",
                [node],
            )
            return await found.fetchone() is not None

    async def secret(self) -> bytes:
        async with connection_of(self._opened) as connection:
            # A no-op update: without it the row of another gateway is not returned.
            kept = await connection.execute(
                """
                INSERT INTO state_secret_t AS known (name, secret) VALUES ('seal', %b)
                ON CONFLICT (name) DO UPDATE SET secret = known.secret RETURNING secret
                """,
                [secrets.token_bytes(32)],
                binary=True,
            )
            secret: bytes = (await only_row(kept))[0]
        return secret


class PostgresCounter:
    def __init__(self, opened: Opened) -> None:
        self._opened = opened

    async def hit(self, key: str, limit: int, window_s: float, wanted: int = 1) -> Verdict:
        slot = slot_us(window_s)
        key = f"{slot}:{key}"
        async with connection_of(self._opened) as connection:
            locked = await connection.execute(
                """
                INSERT INTO state_counter_t AS known (key, expires_ts)
                VALUES (%s, clock_timestamp() + make_interval(secs => %s))
                ON CONFLICT (key) DO UPDATE SET expires_ts = excluded.expires_ts
                RETURNING uses, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
                """,
                [key, window_s * (SLOTS + 1) / SLOTS],
            )
            stored, now_us = await only_row(locked)
            uses = live({int(one): count for one, count in stored.items()}, now_us, slot)
            verdict = admit(uses, limit, now_us, slot, wanted)
            if verdict.allowed:
                await connection.execute(
                    "UPDATE state_counter_t SET uses = %s WHERE key = %s", [Jsonb(uses), key]
                )
        return verdict

    async def purge(self) -> None:
        """Remove keys that were not used within their windows."""
        async with connection_of(self._opened) as connection:
            await connection.execute(
                """
                DELETE FROM state_counter_t WHERE key IN (
                    SELECT key FROM state_counter_t WHERE expires_ts <= clock_timestamp()
                    FOR UPDATE SKIP LOCKED
                )
                """
            )


async def only_row(cursor: AsyncCursor[TupleRow]) -> TupleRow:
    row = await cursor.fetchone()
    if row is None:
        raise psycopg.DataError("expected one row, found none")
    return row


def _read(row: TupleRow) -> SessionRecord | None:
    session_id, written, nodes = row
    try:
        record = _records.decode(written)
    except msgspec.DecodeError as error:
        log.error("session_unreadable", extra={"reason": str(error)[:300]})
        return None
    return replace(record, id=session_id, nodes=tuple(nodes))


def _storable(text: str) -> bool:
    """Whether PostgreSQL can store `text`: a client may send any session id."""
    return "\0" not in text and text.isprintable()
