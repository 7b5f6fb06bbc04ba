"""Links by which people are asked to connect, and browsers that are at an authorization server."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from psycopg.types.json import Jsonb

from registry.access.secret_digests import secret_digest
from registry.connections.accounts import Owner
from registry.database.postgres import Pool, borrow
from registry.database.tables import Tables

TICKET_BYTES = 32
SESSIONS = 20  # most that are told of the end of one link


class Ticket(Struct, frozen=True):
    tenant: str
    principal: str
    source: str
    label: str
    reason: str
    wanted: list[dict[str, Any]]  # the schemes to satisfy, as `Credential`s
    login: dict[str, str]  # further parameters of the authorization request (RFC 9470)

    @property
    def owner(self) -> Owner:
        return Owner(self.tenant, self.principal, self.source, self.label)


class Tickets(Tables):
    """All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool, host_id: str) -> None:
        self._pool = pool
        self._host_id = host_id

    async def make(
        self,
        owner: Owner,
        schemes: Sequence[dict[str, Any]],
        *,
        reason: str,
        login: Mapping[str, str],
        lasts_s: float,
        limit: int,
    ) -> str:
        """A new link of a person, who has at most `limit`: the oldest others end."""
        text = secrets.token_urlsafe(TICKET_BYTES)
        async with borrow(self._pool) as connection, connection.transaction():
            await connection.execute(
                "DELETE FROM connection_ticket_t WHERE host_id = %s AND (expires_ts < now()"
                " OR digest IN (SELECT digest FROM connection_ticket_t WHERE host_id = %s"
                " AND tenant_id = %s AND principal = %s ORDER BY created_ts DESC OFFSET %s))",
                [self._host_id, self._host_id, owner.tenant, owner.principal, limit - 1],
            )
            await connection.execute(
                "INSERT INTO connection_ticket_t (host_id, digest, tenant_id, principal, source,"
                " label, reason, wanted, login, expires_ts)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s,"
                " now() + make_interval(secs => %s))",
                [
                    *(self._host_id, secret_digest(text), owner.tenant, owner.principal),
                    *(owner.source, owner.label, reason, Jsonb([*schemes]), Jsonb({**login})),
                    lasts_s,
                ],
            )
        return text

    async def find(self, text: str) -> Ticket | None:
        """The ticket of a link that is still open."""
        return await self.find_by_digest(secret_digest(text))

    async def find_by_digest(self, digest: bytes) -> Ticket | None:
        return await self._fetch_row(
            Ticket,
            "SELECT tenant_id::text AS tenant, principal, source, label, reason, wanted, login"
            " FROM connection_ticket_t WHERE host_id = %s AND digest = %s"
            " AND expires_ts > now()",
            [self._host_id, digest],
        )

    async def note_session(self, text: str, session: str) -> None:
        """Remember that a session was asked to open a link."""
        await self._execute(
            "UPDATE connection_ticket_t SET sessions = array_append(sessions, %s)"
            " WHERE host_id = %s AND digest = %s AND NOT sessions @> ARRAY[%s]"
            " AND cardinality(sessions) < %s",
            [session, self._host_id, secret_digest(text), session, SESSIONS],
        )

    async def use_up(self, digest: bytes) -> list[str]:
        """End a link, after its person has connected; returns the sessions that were asked to open
        it."""
        row = await self._fetch_first(
            "DELETE FROM connection_ticket_t WHERE host_id = %s AND digest = %s RETURNING sessions",
            [self._host_id, digest],
        )
        return [] if row is None else row[0]

    async def add_attempt(
        self, state: str, browser: str, *, ticket: bytes, sealed: bytes, lasts_s: float
    ) -> None:
        """Remember a browser that is sent to an authorization server, until it comes back with
        `state`."""
        async with borrow(self._pool) as connection, connection.transaction():
            await connection.execute(
                "DELETE FROM connection_attempt_t WHERE host_id = %s AND expires_ts < now()",
                [self._host_id],
            )
            await connection.execute(
                "INSERT INTO connection_attempt_t (host_id, digest, browser, ticket, sealed,"
                " expires_ts) VALUES (%s, %s, %s, %s, %s, now() + make_interval(secs => %s))",
                [
                    *(self._host_id, secret_digest(state), secret_digest(browser), ticket, sealed),
                    lasts_s,
                ],
            )

    async def take_attempt(self, state: str, browser: str) -> tuple[bytes, bytes] | None:
        """The ticket's digest and the sealed rest of a browser's attempt, which is good once; None
        for any other browser."""
        row = await self._fetch_first(
            "DELETE FROM connection_attempt_t WHERE host_id = %s AND digest = %s"
            " AND browser = %s AND expires_ts > now() RETURNING ticket, sealed",
            [self._host_id, secret_digest(state), secret_digest(browser)],
        )
        return None if row is None else (bytes(row[0]), bytes(row[1]))
