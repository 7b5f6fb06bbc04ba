"""Streams of events in the registry's database, shared by all its gateways.

An append locks the row of the stream's head until the commit: so events become visible in the order
of their numbers, and readers skip none. A NOTIFY of an append carries the stream's name.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType

import anyio
from psycopg import AsyncConnection

from gateway.abc import Event
from gateway.state.postgres import Opened, connection_of, only_row
from gateway.state.streams import StreamPlace, check, event_id, place_of
from gateway.state.watches import Watchers
from registry.database.postgres import RESYNC, Notice

CHANNEL = "toolgate_state"
POLL_S = 0.2  # while waiting for the first connection


class PostgresLog:
    def __init__(
        self,
        opened: Opened,
        keep_events: int,
        keep_s: float,
        apart: Mapping[str, int] = MappingProxyType({}),
        prefix: str = "",
        not_prefix: str = "",
    ) -> None:
        """Keeps at most `keep_events` of a stream (`apart` overrides this by stream name), for
        `keep_s` after its last event. `purge` is limited to streams whose names begin with
        `prefix`, but not with `not_prefix`."""
        self._prefix = prefix
        self._not_prefix = not_prefix
        self._opened = opened
        self._keep_events = keep_events
        self._apart = apart
        self._keep_s = keep_s
        self._watchers = Watchers()

    async def listen(self) -> None:
        """Wake watchers on notifications, until cancelled."""
        while (database := self._opened()) is None:  # noqa: ASYNC110 - nobody sets an event
            await anyio.sleep(POLL_S)
        await database.listen(CHANNEL, self._heard)

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
                    "keep": self._kept_of(stream),
                    "channel": CHANNEL,
                },
            )
            born, last, _ = await only_row(added)
        return event_id(stream, StreamPlace(born, last))

    async def read(self, stream: str, after: str, limit: int = 1000) -> Sequence[Event]:
        place = place_of(stream, after)
        async with connection_of(self._opened) as connection:
            found = await connection.execute(
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
                    "keep": self._kept_of(stream),
                    "limit": limit,
                },
                binary=True,
            )
            rows = await found.fetchall()
        if not rows:
            return []
        born, last = rows[0][:2]
        check(
            place,
            StreamPlace(born, max(1, last - self._kept_of(stream) + 1)),
            StreamPlace(born, last),
        )
        return [
            Event(event_id(stream, StreamPlace(born, n)), data)
            for _, _, n, data in rows
            if n is not None  # LEFT JOIN without an event
        ]

    async def last(self, stream: str) -> str:
        async with connection_of(self._opened) as connection:
            found = await connection.execute(
                "SELECT born, last FROM state_stream_t WHERE stream = %s", [stream]
            )
            row = await found.fetchone()
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
                {"keep_s": self._keep_s, "prefix": self._prefix, "other": self._not_prefix},
            )
            await _delete_events(connection, await dropped.fetchall())

    def _kept_of(self, stream: str) -> int:
        return self._apart.get(stream, self._keep_events)

    async def _heard(self, notice: Notice) -> None:
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
