"""Connections of people: rows, and the secrets in them.

Every secret is encrypted for its row, so that one copied to another person, source or scheme cannot
be opened. A token is stored before it is used: the next refresh needs what came with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID, uuid4

import msgspec
from msgspec import Struct
from psycopg import AsyncConnection, sql
from psycopg.sql import SQL
from psycopg.types.json import Jsonb

from config.access import RESERVED_ISSUER, USERS_PROVIDER
from config.sources import SchemeSettings
from registry.access.column_encryption import SealedColumn, Vault
from registry.access.secrets import Keys, SecretRefused
from registry.database.postgres import Pool, borrow
from registry.database.tables import Tables
from schemas.errors import ToolgateError

Kind = Literal["api_key", "basic", "bearer", "oauth"]
State = Literal["ok", "expired", "suspended"]


class TooManyAccounts(ToolgateError):
    """A person has as many connections as one may have."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A person at a source: `principal` is that of their calls, whatever they logged in with.
    `shared`: as others see them, who have what the person shares."""

    tenant: str
    principal: str
    source: str
    label: str = ""
    shared: bool = False


class Secret(Struct, frozen=True, omit_defaults=True):
    """Everything of a connection that nobody may read."""

    entry: SchemeSettings  # what calls are sent with
    refresh: str = ""
    client: dict[str, str] = {}  # the gateway at the authorization server, for OAuth


class Connection(Struct, frozen=True):
    """A connection, without its secret."""

    id: UUID
    principal: str
    source: str
    scheme: str
    label: str
    kind: Kind
    state: State
    hint: str  # the last characters of a key
    scopes: list[str]
    issuer: str
    client_id: str
    server: dict[str, Any] | None  # the authorization server as it was at the first connection
    version: int
    away: bool
    failure: str
    expires: datetime | None
    created: datetime
    used: datetime | None
    shared_with: list[str] | None  # roles whose people use it, too


class StoredConnection(Connection, frozen=True):
    """A connection as a call reads it."""

    sealed: bytes
    waits_s: float  # before its token should be renewed; 0: now
    renewed_s: float  # since its token was renewed; infinite for the first one


class NewConnection(Struct, frozen=True):
    """A connection to make, or to replace."""

    scheme: str
    kind: Kind
    secret: Secret
    hint: str = ""
    scopes: tuple[str, ...] = ()
    issuer: str = ""
    client_id: str = ""
    server: dict[str, Any] | None = None
    away: bool = False
    lasts_s: float | None = None  # of its token; None: for good


# The state of a disabled person's connections comes back as it was when they are enabled again.
# A principal of an API key may have several, of which one is enough.
_STATE = SQL(
    "CASE WHEN EXISTS (SELECT FROM"
    " login_person_t p WHERE (p.host_id, p.tenant_id, p.principal) = (connection_t.host_id,"
    " connection_t.tenant_id, connection_t.principal) AND p.disabled_ts IS NOT NULL)"
    " OR EXISTS (SELECT FROM login_user_t u WHERE (u.host_id, u.tenant_id, {} || u.name)"
    " = (connection_t.host_id, connection_t.tenant_id, connection_t.principal)"
    " AND u.disabled_ts IS NOT NULL) OR starts_with(principal, {}) AND NOT EXISTS (SELECT FROM"
    " api_key_t k WHERE (k.host_id, k.principal) = (connection_t.tenant_id,"
    " connection_t.principal) AND k.revoked_ts IS NULL AND coalesce(k.expires_ts > now(), true))"
    " THEN 'suspended' ELSE state END"
).format(sql.Literal(f"{USERS_PROVIDER}:"), sql.Literal(f"{RESERVED_ISSUER}:"))
_VIEW_COLUMNS = SQL(
    "connection_id AS id, principal, source, scheme, label, kind, {} AS state, hint, scopes,"
    " issuer, client_id, server, version, away, failure, expires_ts AS expires,"
    " created_ts AS created, used_ts AS used, shared_with"
).format(_STATE)
# 30 s before the end, or at half of a shorter life
_WAITS = SQL(
    "coalesce(extract(epoch FROM expires_ts - now() - least(interval '30 s',"
    " (expires_ts - renewed_ts) / 2))::float8, 'infinity'::float8) AS waits_s,"
    " CASE WHEN renewed_ts > created_ts THEN extract(epoch FROM now() - renewed_ts)::float8"
    " ELSE 'infinity'::float8 END AS renewed_s"
)
# Connections of a person are made, counted and shared one at a time, at all gateways.
_TURN = SQL("SELECT pg_advisory_xact_lock(hashtextextended(%s || ' ' || %s || ' ' || %s, 23))")
_IS_OWN = SQL("host_id = %s AND tenant_id = %s AND principal = %s AND source = %s AND label = %s")


class Connections(Tables):
    """All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool, host_id: str, keys: Keys) -> None:
        self._pool = pool
        self._host_id = host_id
        self._vault = Vault(keys, host_id)

    async def ending(self, tenant: str, days: int, limit: int) -> list[Connection]:
        """Connections of a tenant that have ended, whose renewal fails, or whose key ends within
        these days."""
        query = SQL(
            "SELECT {} FROM connection_t WHERE host_id = %s AND tenant_id = %s"
            " AND (state = 'expired' OR failure <> ''"
            "  OR kind <> 'oauth' AND expires_ts < now() + make_interval(days => %s))"
            " ORDER BY created_ts LIMIT %s"
        ).format(_VIEW_COLUMNS)
        return await self._fetch_rows(Connection, query, [self._host_id, tenant, days, limit])

    async def of(self, owner: Owner) -> Sequence[StoredConnection]:
        """The connections of a person to a source, one for each scheme."""
        return await self._fetch_rows(
            StoredConnection,
            SQL(
                "SELECT {}, sealed, {} FROM connection_t WHERE {}"
                " AND (shared_with IS NOT NULL OR NOT %s)"
            ).format(_VIEW_COLUMNS, _WAITS, _IS_OWN),
            [*self._place(owner), owner.shared],
        )

    async def lenders(self, tenant: str, source: str) -> dict[str, frozenset[str]]:
        """The people who share an account at a source, the first one first, and with which
        roles."""
        rows = await self._fetch(
            "SELECT principal, shared_with FROM connection_t WHERE host_id = %s"
            " AND tenant_id = %s AND source = %s AND label = '' AND shared_with IS NOT NULL"
            " ORDER BY created_ts, principal",
            [self._host_id, tenant, source],
        )
        return {principal: frozenset(roles) for principal, roles in rows}

    async def share(self, tenant: str, row: Connection, roles: Sequence[str]) -> None:
        """Share a person's account at a source, all its schemes, with roles, or with nobody."""
        place = self._place(Owner(tenant, row.principal, row.source, row.label))
        async with borrow(self._pool) as connection, connection.transaction():
            await connection.execute(_TURN, place[:3])
            await connection.execute(
                SQL("UPDATE connection_t SET shared_with = %s WHERE {}").format(_IS_OWN),
                [[*roles] or None, *place],
            )

    async def all(
        self, tenant: str, principal: str | None = None, source: str | None = None
    ) -> Sequence[Connection]:
        """The connections of a tenant, or of one person, or to one source."""
        condition = SQL(
            "(%s::text IS NULL OR principal = %s) AND (%s::text IS NULL OR source = %s)"
        )
        return await self._select(tenant, condition, principal, principal, source, source)

    async def find(self, tenant: str, id_: str) -> Connection | None:
        rows = await self._select(tenant, SQL("connection_id = %s"), _read_id(id_))
        return rows[0] if rows else None

    async def _select(
        self, tenant: str, condition: SQL, *values: str | UUID | None
    ) -> Sequence[Connection]:
        return await self._fetch_rows(
            Connection,
            SQL(
                "SELECT {} FROM connection_t WHERE host_id = %s AND tenant_id = %s AND {}"
                " ORDER BY source, principal, label, scheme"
            ).format(_VIEW_COLUMNS, condition),
            [self._host_id, tenant, *values],
        )

    async def count(self) -> dict[tuple[str, str], int]:
        """Connections of all tenants by source and state, which may also be "failing"."""
        rows = await self._fetch(
            SQL(
                "SELECT source, CASE WHEN state = 'ok' AND failure <> '' THEN 'failing'"
                " ELSE state END, count(*) FROM (SELECT source, failure, {} AS state"
                " FROM connection_t WHERE host_id = %s) GROUP BY 1, 2"
            ).format(_STATE),
            [self._host_id],
        )
        return {(source, state): count for source, state, count in rows}

    async def pinned_server(self, source: str) -> dict[str, Any] | None:
        """The authorization server of a source as its first connection has it."""
        row = await self._fetch_first(
            "SELECT server FROM connection_t WHERE host_id = %s AND source = %s"
            " AND server IS NOT NULL ORDER BY created_ts LIMIT 1",
            [self._host_id, source],
        )
        return None if row is None else row[0]

    async def put(self, owner: Owner, new: NewConnection, limit: int) -> UUID:
        """Make a connection, in place of the one before, shared as that was. Raises SecretRefused,
        and TooManyAccounts where the person has `limit` others."""
        id_ = uuid4()
        sealed = self._seal(id_, owner, new.scheme, new.secret)
        async with borrow(self._pool) as connection, connection.transaction():
            await connection.execute(_TURN, self._place(owner)[:3])
            rows = await connection.execute(
                SQL("SELECT max(shared_with) FROM connection_t WHERE {}").format(_IS_OWN),
                self._place(owner),
            )
            shared = await rows.fetchone()
            await connection.execute(
                SQL("DELETE FROM connection_t WHERE {} AND scheme = %s").format(_IS_OWN),
                [*self._place(owner), new.scheme],
            )
            rows = await connection.execute(
                "SELECT count(*) FROM connection_t WHERE (host_id, tenant_id, principal)"
                " = (%s, %s, %s)",
                [self._host_id, owner.tenant, owner.principal],
            )
            row = await rows.fetchone()
            if row is not None and row[0] >= limit:
                raise TooManyAccounts(
                    f"there are {row[0]} connections already (connections.per_person): disconnect "
                    "one that is not needed"
                )
            await connection.execute(
                "INSERT INTO connection_t (host_id, connection_id, tenant_id, principal, source,"
                " label, scheme, kind, hint, scopes, issuer, client_id, server, sealed, away,"
                " expires_ts, shared_with) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,"
                " %s, %s, %s, now() + make_interval(secs => %s), %s)",
                [
                    *(self._host_id, id_, owner.tenant, owner.principal, owner.source),
                    *(owner.label, new.scheme, new.kind, new.hint, [*new.scopes], new.issuer),
                    new.client_id,
                    None if new.server is None else Jsonb(new.server),
                    *(sealed, new.away, new.lasts_s, shared and shared[0]),
                ],
            )
        return id_

    async def begin_renewal(self, id_: UUID, version: int, timeout_s: float) -> bool:
        """Whether the caller is to renew the token of this `version`: one gateway at a time may,
        until `timeout_s` have passed."""
        changed = await self._execute(
            "UPDATE connection_t SET renewing_ts = now() WHERE host_id = %s"
            " AND connection_id = %s AND version = %s AND (renewing_ts IS NULL"
            " OR renewing_ts < now() - make_interval(secs => %s))",
            [self._host_id, id_, version, timeout_s],
        )
        return changed == 1

    async def store_renewal(
        self,
        owner: Owner,
        row: Connection,
        secret: Secret,
        *,
        lasts_s: float | None,
        scopes: Sequence[str],
    ) -> bool:
        """Store a renewed token; returns False where the connection has ended meanwhile."""
        sealed = self._seal(row.id, owner, row.scheme, secret)
        changed = await self._execute(
            "UPDATE connection_t SET sealed = %s, version = version + 1, renewing_ts = NULL,"
            " renewed_ts = now(), state = 'ok', failure = '', scopes = %s, expires_ts = now()"
            " + make_interval(secs => %s) WHERE host_id = %s AND connection_id = %s"
            " AND version = %s",
            [sealed, [*scopes], lasts_s, self._host_id, row.id, row.version],
        )
        return changed == 1

    async def fail_renewal(self, row: Connection, failure: str, *, over: bool) -> None:
        """Note why a token could not be renewed; `over`: its person has to connect again."""
        await self._execute(
            "UPDATE connection_t SET renewing_ts = NULL, failure = %s,"
            " state = CASE WHEN %s THEN 'expired' ELSE state END WHERE host_id = %s"
            " AND connection_id = %s AND version = %s",
            [failure, over, self._host_id, row.id, row.version],
        )

    async def set_away(self, tenant: str, principal: str, id_: str, away: bool) -> bool:
        changed = await self._execute(
            "UPDATE connection_t SET away = %s WHERE host_id = %s AND tenant_id = %s"
            " AND principal = %s AND connection_id = %s",
            [away, self._host_id, tenant, principal, _read_id(id_)],
        )
        return changed == 1

    async def note_use(self, ids: Sequence[UUID]) -> None:
        await self._execute(
            "UPDATE connection_t SET used_ts = now() WHERE host_id = %s"
            " AND connection_id = ANY(%s)",
            [self._host_id, [*ids]],
        )

    async def delete(
        self, tenant: str, id_: str, principal: str | None = None
    ) -> StoredConnection | None:
        """Delete a connection of a tenant, or of one person alone; returns it as it was."""
        return await self._fetch_row(
            StoredConnection,
            SQL(
                "DELETE FROM connection_t WHERE host_id = %s AND tenant_id = %s"
                " AND connection_id = %s AND (%s::text IS NULL OR principal = %s)"
                " RETURNING {}, sealed, {}"
            ).format(_VIEW_COLUMNS, _WAITS),
            [self._host_id, tenant, _read_id(id_), principal, principal],
        )

    def open(self, owner: Owner, row: StoredConnection) -> Secret:
        """Raises SecretRefused."""
        plain = self._vault.unseal(
            row.sealed, SealedColumn.CONNECTION, *_row_place(row.id, owner, row.scheme)
        )
        try:
            return msgspec.json.decode(plain, type=Secret)
        except msgspec.MsgspecError as error:
            raise SecretRefused("a connection was stored by another release") from error

    def _seal(self, id_: UUID, owner: Owner, scheme: str, secret: Secret) -> bytes:
        place = _row_place(id_, owner, scheme)
        return self._vault.seal(msgspec.json.encode(secret), SealedColumn.CONNECTION, *place)

    def _place(self, owner: Owner) -> list[str]:
        return [self._host_id, owner.tenant, owner.principal, owner.source, owner.label]


async def erase_connections(
    connection: AsyncConnection[Any], host_id: str, tenant: str, principal: str
) -> None:
    """Delete all connections of a person, and their open links."""
    for statement in (
        SQL("DELETE FROM connection_t WHERE (host_id, tenant_id, principal) = (%s, %s, %s)"),
        SQL("DELETE FROM connection_ticket_t WHERE (host_id, tenant_id, principal) = (%s, %s, %s)"),
    ):
        await connection.execute(statement, [host_id, tenant, principal])


def _row_place(id_: UUID, owner: Owner, scheme: str) -> tuple[str, ...]:
    return (str(id_), owner.tenant, owner.principal, owner.source, scheme, owner.label)


def _read_id(text: str) -> UUID | None:
    """The id that somebody sends; None, which no row has, for any other text."""
    try:
        return UUID(text)
    except ValueError:
        return None
