"""Clients of the login that registered, and the documents that clients publish about themselves."""

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from registry.database.postgres import Pool, borrow
from registry.database.tables import Tables
from registry.login.logins_and_grants import end_client

UNUSED_LIFETIME = timedelta(days=1)  # of a registration that no login has used; then it is deleted
IDLE_LIFETIME = timedelta(days=180)  # likewise one that was used, since its last use

Kind = Literal["registered", "document"]


class ClientRow(Struct, frozen=True):
    """A client in a list; `grants` are those that programs have by it now."""

    client_id: str
    kind: Kind
    name: str
    redirects: list[str]
    created: datetime
    used: datetime | None
    grants: int

    @property
    def id(self) -> str:
        """The name in addresses, where a client_id may be a URL."""
        return hashlib.sha256(b"client " + self.client_id.encode()).hexdigest()[:32]


class StoredClient(Struct, frozen=True):
    """A row; `document` is of the metadata of RFC 7591."""

    client_id: str
    kind: Kind
    document: dict[str, Any]
    secret: bytes | None = None  # SHA-256
    fresh_until: datetime | None = None  # of a document


class Clients(Tables):
    """All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool, host_id: str) -> None:
        self._pool = pool
        self._host_id = host_id

    async def find(self, client_id: str) -> StoredClient | None:
        row = await self._fetch_first(
            "SELECT client_id, kind, document, secret, fresh_ts FROM login_client_t"
            " WHERE (host_id, client_id) = (%s, %s)",
            [self._host_id, client_id],
        )
        return None if row is None else StoredClient(*row)

    async def all(self) -> list[ClientRow]:
        """All clients, by id."""
        return await self._fetch_rows(
            ClientRow,
            "SELECT c.client_id, kind,"
            " left(coalesce(document->>'client_name', ''), 200) AS name,"
            " coalesce(document->'redirect_uris', '[]') AS redirects, created_ts AS created,"
            " used_ts AS used, coalesce(g.grants, 0) AS grants FROM login_client_t AS c"
            " LEFT JOIN (SELECT client_id, count(*) AS grants FROM login_grant_t"
            " WHERE host_id = %s AND taken_ts IS NOT NULL GROUP BY client_id) AS g"
            " ON g.client_id = c.client_id WHERE host_id = %s ORDER BY c.client_id",
            [self._host_id, self._host_id],
        )

    async def remove(self, client_id: str) -> bool:
        """Delete a client, what programs have by it, and what people have allowed it; returns
        whether it was there."""
        async with borrow(self._pool) as connection, connection.transaction():
            done = await connection.execute(
                "DELETE FROM login_client_t WHERE (host_id, client_id) = (%s, %s)",
                [self._host_id, client_id],
            )
            if done.rowcount:
                await end_client(connection, self._host_id, client_id)
        return done.rowcount == 1

    async def add(self, client: StoredClient, most_unused: int, flood_s: float) -> bool:
        """Store a registration; False where there are `most_unused` that nobody has used within
        `flood_s`: older ones make room, so that a flood keeps nobody out for long."""
        async with borrow(self._pool) as connection, connection.transaction():
            await self._make_room(connection, client.kind, most_unused, flood_s)
            added = await connection.execute(
                "INSERT INTO login_client_t (host_id, client_id, kind, document, secret)"
                " SELECT %s, %s, %s, %s, %s WHERE (SELECT count(*) FROM login_client_t"
                " WHERE host_id = %s AND used_ts IS NULL AND kind = 'registered') < %s",
                [
                    *(self._host_id, client.client_id, client.kind),
                    *(Jsonb(client.document), client.secret, self._host_id, most_unused),
                ],
            )
        return added.rowcount == 1

    async def put_document(self, client: StoredClient, most_unused: int) -> None:
        """Store a document as it was fetched, in place of that before. The oldest of more than
        `most_unused` that nobody used is forgotten: it is fetched again where it is needed."""
        async with borrow(self._pool) as connection, connection.transaction():
            await self._make_room(connection, client.kind, most_unused, 0.0)
            await connection.execute(
                "INSERT INTO login_client_t (host_id, client_id, kind, document, fresh_ts)"
                " VALUES (%s, %s, 'document', %s, %s) ON CONFLICT (host_id, client_id)"
                " DO UPDATE SET document = excluded.document, fresh_ts = excluded.fresh_ts",
                [self._host_id, client.client_id, Jsonb(client.document), client.fresh_until],
            )

    async def _make_room(
        self, connection: AsyncConnection[Any], kind: Kind, most_unused: int, least_s: float
    ) -> None:
        """Delete clients that nobody uses, and the oldest of `most_unused` of a kind that nobody
        has used, if they are older than `least_s`."""
        now = datetime.now(UTC)
        await connection.execute(
            "DELETE FROM login_client_t WHERE host_id = %s"
            " AND (used_ts IS NULL AND created_ts < %s OR used_ts < %s)",
            [self._host_id, now - UNUSED_LIFETIME, now - IDLE_LIFETIME],
        )
        await connection.execute(
            "DELETE FROM login_client_t WHERE host_id = %s AND client_id IN"
            " (SELECT client_id FROM login_client_t WHERE host_id = %s AND used_ts IS NULL"
            " AND kind = %s ORDER BY created_ts DESC OFFSET greatest(%s - 1, 0))"
            " AND used_ts IS NULL AND created_ts < now() - make_interval(secs => %s)",
            [self._host_id, self._host_id, kind, most_unused, least_s],
        )

    async def note_use(self, client_id: str) -> None:
        await self._execute(
            "UPDATE login_client_t SET used_ts = now() WHERE (host_id, client_id) = (%s, %s)"
            " AND (used_ts IS NULL OR used_ts < now() - interval '1 hour')",
            [self._host_id, client_id],
        )
