"""Sessions, counters and streams of events in the registry's database, shared by all its gateways.

Every method is one transaction. Times are the database's: clocks of gateways may differ.

An append locks the row of the stream's head until the commit: so events become visible in the order
of their numbers, and readers skip none. A NOTIFY of an append carries the stream's name.
"""

import logging
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from hashlib import blake2b
from types import MappingProxyType

import anyio
import msgspec
import psycopg
from msgspec.structs import replace
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from gateway.interfaces import Event, SessionChange, SessionRecord, Verdict
from gateway.state.open_sessions import with_change
from gateway.state.rate_windows import SLOTS, admit, live, slot_us
from gateway.state.session_streams import StreamPlace, Watchers, check, event_id, place_of
from registry.database.postgres import AWAY, RESYNC, Database, Notice, borrow, unavailability
from schemas.errors import Unavailable

log = logging.getLogger("toolgate.state")

UNAVAILABLE = "The shared database does not answer; try again later"

GetDatabase = Callable[[], Database | None]
"""The database; None until it has answered for the first time."""

PURPOSE = b"toolgate state"  # personalisation of digests, unique to this use
SEAL = b"toolgate seal"  # the same, for the secret of another store
_records = msgspec.json.Decoder(SessionRecord)

CHANNEL = "toolgate_state"
POLL_S = 0.2  # while waiting for the first connection


@asynccontextmanager
async def connection_of(get_database: GetDatabase) -> AsyncIterator[AsyncConnection]:
    database = get_database()
    if database is None:
        raise Unavailable(UNAVAILABLE)
    try:
        async with borrow(database.pool) as connection:
            yield connection
    except AWAY as error:
        raise Unavailable(f"{unavailability(error)}; try again later") from error


class PostgresSessions:
    shared = True

    def __init__(self, database: GetDatabase) -> None:
        self._opened = database

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
            rows = await connection.execute(
                "SELECT session_id, record, nodes FROM state_session_t"
                " WHERE session_id = %s AND expires_ts > clock_timestamp()",
                [session_id],
                binary=True,
            )
            row = await rows.fetchone()
        return _read(row) if row else None

    async def hold(self, session_id: str, node: str, ttl_s: float) -> SessionRecord | None:
        if not _storable(session_id):
            return None
        async with connection_of(self._opened) as connection:
            rows = await connection.execute(
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
            row = await rows.fetchone()
        return _read(row) if row else None

    async def change(
        self, session_id: str, change: SessionChange, ttl_s: float
    ) -> SessionRecord | None:
        if not _storable(session_id):
            return None
        async with connection_of(self._opened) as connection:
            rows = await connection.execute(
                "SELECT session_id, record, nodes FROM state_session_t"
                " WHERE session_id = %s AND expires_ts > clock_timestamp() FOR UPDATE",
                [session_id],
                binary=True,
            )
            row = await rows.fetchone()
            record = _read(row) if row else None
            if record is None:
                return None
            record = with_change(record, change)
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

    async def is_alive(self, node: str) -> bool:
        if not _storable(node):
            return False
        async with connection_of(self._opened) as connection:
            rows = await connection.execute(
                "SELECT FROM state_node_t WHERE node = %s AND expires_ts > clock_timestamp()",
                [node],
            )
            return await rows.fetchone() is not None

    async def secret(self) -> bytes:
        async with connection_of(self._opened) as connection:
            # A no-op update: without it the row of another gateway is not returned.
            rows = await connection.execute(
                """
                INSERT INTO state_secret_t AS known (name, secret) VALUES ('seal', %b)
                ON CONFLICT (name) DO UPDATE SET secret = known.secret RETURNING secret
                """,
                [secrets.token_bytes(32)],
                binary=True,
            )
            secret: bytes = (await only_row(rows))[0]
        return secret


async def derive_secret(database: GetDatabase, place: str) -> bytes:
    """Secret for a place in another store, the same for all gateways of a database, derived from
    its secret. Raises Unavailable."""
    secret = await PostgresSessions(database).secret()
    return blake2b(place.encode(), key=secret, digest_size=32, person=SEAL).digest()


async def read_installation(database: GetDatabase) -> str:
    """Id of the installation, the same for all gateways of a database, derived from its secret.
    Raises Unavailable."""
    secret = await PostgresSessions(database).secret()
    return blake2b(secret, digest_size=16, person=PURPOSE).hexdigest()


class PostgresCounter:
    def __init__(self, database: GetDatabase, timeout_s: float) -> None:
        self._opened = database
        self._timeout_s = timeout_s

    async def hit(self, key: str, limit: int, window_s: float, count: int = 1) -> Verdict:
        """A call waits for this: less long than others wait for a server that may be frozen."""
        try:
            with anyio.fail_after(self._timeout_s):
                return await self._hit(key, limit, window_s, count)
        except TimeoutError as error:
            raise Unavailable(UNAVAILABLE) from error

    async def _hit(self, key: str, limit: int, window_s: float, count: int) -> Verdict:
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
            known_uses = {int(slot): used for slot, used in stored.items()}
            uses = live(known_uses, now_us, slot)
            verdict = admit(uses, limit, now_us, slot, count=count)
            if uses != known_uses:
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


class PostgresLog:
    is_remote = True

    def __init__(
        self,
        database: GetDatabase,
        max_events: int,
        keep_s: float,
        *,
        limits_by_stream: Mapping[str, int] = MappingProxyType({}),
        prefix: str = "",
        not_prefix: str = "",
    ) -> None:
        """A log that keeps at most `max_events` of a stream (`limits_by_stream` overrides this by
        stream name), for `keep_s` after its last event. `purge` is limited to streams whose names
        begin with `prefix`, but not with `not_prefix`."""
        self._prefix = prefix
        self._not_prefix = not_prefix
        self._opened = database
        self._max_events = max_events
        self._limits_by_stream = limits_by_stream
        self._retention_s = keep_s
        self._watchers = Watchers()

    async def listen(self) -> None:
        """Wake the watchers on notifications, until cancelled."""
        while (database := self._opened()) is None:  # noqa: ASYNC110 - no event is set
            await anyio.sleep(POLL_S)
        await database.listen(CHANNEL, self._on_notice)

    async def append(self, stream: str, data: bytes) -> str:
        # DELETE sees the snapshot from the statement's start, so it may leave a few for the next
        # one; reads skip them.
        async with connection_of(self._opened) as connection:
            added = await connection.execute(
                """
                WITH head AS (
                    INSERT INTO state_stream_t AS known (stream) VALUES (%(stream)s)
                    ON CONFLICT (stream) DO UPDATE
                        SET last = known.last + 1, update_ts = clock_timestamp()
                    RETURNING born, last
                ), forgotten AS (
                    DELETE FROM state_event_t event USING head
                    WHERE event.stream = %(stream)s AND event.born = head.born
                        AND event.n <= head.last - %(keep)s
                ), added AS (
                    INSERT INTO state_event_t (stream, born, n, data)
                    SELECT %(stream)s, born, last, %(data)b FROM head
                )
                SELECT born, last, pg_notify(%(channel)s, %(stream)s) FROM head
                """,
                {
                    "stream": stream,
                    "data": data,
                    "keep": self._limit_of(stream),
                    "channel": CHANNEL,
                },
            )
            born, last, _ = await only_row(added)
        return event_id(stream, StreamPlace(born, last))

    async def read(self, stream: str, after: str, limit: int = 1000) -> Sequence[Event]:
        place = place_of(stream, after)
        async with connection_of(self._opened) as connection:
            result = await connection.execute(
                """
                SELECT head.born, head.last, event.n, event.data
                FROM state_stream_t head LEFT JOIN state_event_t event
                    ON event.stream = head.stream AND event.born = head.born
                    AND event.n > head.last - %(keep)s
                    AND event.n > CASE WHEN head.born = %(born)s THEN %(n)s ELSE 0 END
                WHERE head.stream = %(stream)s ORDER BY event.n LIMIT %(limit)s
                """,
                {
                    "stream": stream,
                    "born": place.born,
                    "n": place.n,
                    "keep": self._limit_of(stream),
                    "limit": limit,
                },
                binary=True,
            )
            rows = await result.fetchall()
        if not rows:
            return []
        born, last = rows[0][:2]
        check(
            place,
            StreamPlace(born, max(1, last - self._limit_of(stream) + 1)),
            StreamPlace(born, last),
        )
        return [
            Event(event_id(stream, StreamPlace(born, n)), data)
            for _, _, n, data in rows
            if n is not None  # LEFT JOIN without an event
        ]

    async def last(self, stream: str) -> str:
        async with connection_of(self._opened) as connection:
            rows = await connection.execute(
                "SELECT born, last FROM state_stream_t WHERE stream = %s", [stream]
            )
            row = await rows.fetchone()
        return event_id(stream, StreamPlace(*row)) if row else ""

    def watch(self, stream: str, wake: Callable[[], None]) -> AbstractContextManager[None]:
        return self._watchers.watch(stream, wake)

    async def drop(self, stream: str) -> None:
        async with connection_of(self._opened) as connection:
            dropped = await connection.execute(
                "DELETE FROM state_stream_t WHERE stream = %s RETURNING stream, born", [stream]
            )
            await _delete_events(connection, await dropped.fetchall())

    async def purge(self) -> None:
        """Remove the streams without an event for `keep_s`."""
        async with connection_of(self._opened) as connection:
            dropped = await connection.execute(
                """
                DELETE FROM state_stream_t WHERE stream IN (
                    SELECT stream FROM state_stream_t
                    WHERE update_ts <= clock_timestamp() - make_interval(secs => %(keep_s)s)
                        AND starts_with(stream, %(prefix)s)
                        AND (%(other)s = '' OR NOT starts_with(stream, %(other)s))
                    FOR UPDATE SKIP LOCKED
                ) RETURNING stream, born
                """,
                {"keep_s": self._retention_s, "prefix": self._prefix, "other": self._not_prefix},
            )
            await _delete_events(connection, await dropped.fetchall())

    def _limit_of(self, stream: str) -> int:
        return self._limits_by_stream.get(stream, self._max_events)

    async def _on_notice(self, notice: Notice) -> None:
        if notice is RESYNC:
            self._watchers.wake_all()
        else:
            self._watchers.wake(notice)


async def _delete_events(connection: AsyncConnection, streams: Sequence[tuple[str, int]]) -> None:
    """Delete the events of streams whose heads this transaction has deleted. A separate statement:
    it has to see events added until then."""
    if streams:
        await connection.execute(
            "DELETE FROM state_event_t event USING unnest(%s::text[], %s::bigint[]) gone(stream, b)"
            " WHERE event.stream = gone.stream AND event.born = gone.b",
            [[stream for stream, _ in streams], [born for _, born in streams]],
        )
