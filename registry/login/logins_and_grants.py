"""Logins of people, and what clients got by them: codes, and families of refresh tokens.

A code and a refresh token are random; the database has their SHA-256. The successor of a refresh
token is encrypted under that token, so that whoever shows it once more within the grace period gets
the same answer, and nobody else does (OAuth 2.1, 4.3.1, allows either rotation or binding; real
clients refresh from two processes at once).
"""

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, LiteralString
from uuid import UUID, uuid4

from msgspec import Struct
from msgspec.structs import astuple
from psycopg import AsyncConnection
from psycopg.rows import class_row
from psycopg.sql import SQL, Identifier
from psycopg.types.json import Jsonb

from registry.access.secret_digests import secret_digest
from registry.database.postgres import Pool, borrow
from registry.database.tables import Tables
from registry.database.tenants import lock_tenant

if TYPE_CHECKING:  # a gateway without a login does not import it
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

RANDOM_BYTES = 32
NONCE_BYTES = 12
CODE_S = 60.0  # OAuth 2.1, 4.1.2, recommends at most ten minutes; a client comes at once
REFRESH_PREFIX = "tgr_"
HOUR_S = 3600.0  # after which a code that nobody took is deleted
CONSENT = timedelta(days=180)  # for which a consent is remembered after its last use
REVOCATION_LIFETIME = timedelta(
    days=1
)  # lifetime of a revocation: longer than that of any access token
RENEWING = timedelta(minutes=1)  # for which one node uses the refresh token of a provider
LOGIN_MARK = "login:"  # before the id of a login: the credential of its browser's session


class NewGrant(Struct, frozen=True):
    """A grant to make, bound to its redirect URI, its challenge (S256) and a resource."""

    client_id: str
    client_name: str
    redirect: str
    challenge: str
    resource: str
    scopes: tuple[str, ...]


class CodeClaim(Struct, frozen=True):
    """A code, and all that it is bound to, as a client says."""

    code: str
    client_id: str
    redirect: str
    challenge: str  # made of the client's verifier
    resource: str  # "": that of the code


class Consent(Struct, frozen=True):
    """Scopes of a resource that a person allows a client, at one host or scheme of its
    redirects."""

    tenant: str
    principal: str
    client_id: str
    redirect: str
    resource: str
    scopes: tuple[str, ...]


class Grant(Struct, frozen=True):
    """A grant of a client, and the login that it comes from."""

    id: UUID
    login: UUID
    client_id: str
    redirect: str
    resource: str
    scopes: list[str]
    tenant: str
    principal: str
    provider: str
    person: dict[str, Any]
    used: datetime
    expires: datetime  # the login


Refusal = Literal["unknown", "reused", "client", "redirect", "challenge", "resource", "ended"]


@dataclass(frozen=True, slots=True)
class Taken:
    """A grant, and its next refresh token."""

    grant: Grant
    refresh: str


@dataclass(frozen=True, slots=True)
class Refused:
    reason: Refusal
    grant: Grant | None = None  # which a reuse has ended


class LoginRow(Struct, frozen=True):
    """A login, or what a client has by one (`client` is not empty)."""

    id: str
    principal: str
    provider: str
    client: str
    client_name: str
    resource: str
    began: datetime
    used: datetime
    expires: datetime


_GRANT = SQL(
    "SELECT g.grant_id AS id, g.login_id AS login, g.client_id, g.redirect, g.resource, g.scopes,"
    " l.tenant_id::text AS tenant, l.principal, l.provider, l.person, g.used_ts AS used,"
    " l.expires_ts AS expires FROM login_grant_t AS g JOIN login_t AS l USING (host_id, login_id)"
)


class Logins(Tables):
    """All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool, host_id: str) -> None:
        self._pool = pool
        self._host_id = host_id

    async def add_attempt(
        self, state: str, browser: str, attempt: dict[str, Any], ttl_s: float
    ) -> None:
        """Remember that a browser is sent to a provider, until it comes back with `state`."""
        async with borrow(self._pool) as connection:
            await connection.execute(
                "DELETE FROM login_attempt_t WHERE host_id = %s AND expires_ts < now()",
                [self._host_id],
            )
            await connection.execute(
                "INSERT INTO login_attempt_t (host_id, digest, attempt, expires_ts)"
                " VALUES (%s, %s, %s, now() + make_interval(secs => %s))",
                [self._host_id, _attempt_digest(state, browser), Jsonb(attempt), ttl_s],
            )

    async def take_attempt(self, state: str, browser: str) -> dict[str, Any] | None:
        """The attempt of a browser; None for any other. It is good once: later it is `used`, and
        says where the browser may begin again, as after the end of a node that had taken it."""
        place = [self._host_id, _attempt_digest(state, browser)]
        async with borrow(self._pool) as connection:
            rows = await connection.execute(
                "SELECT attempt FROM login_attempt_t WHERE host_id = %s AND digest = %s"
                " AND expires_ts > now() FOR UPDATE",
                place,
            )
            row = await rows.fetchone()
            if row is None:
                return None
            await connection.execute(
                "UPDATE login_attempt_t SET attempt = attempt || %s"
                " WHERE host_id = %s AND digest = %s",
                [Jsonb({"used": True}), *place],
            )
        attempt: dict[str, Any] = row[0]
        return attempt

    async def add_grant(self, login: str, new: NewGrant) -> str | None:
        """The code of a new grant of a login; None where the login has ended."""
        code = secrets.token_urlsafe(RANDOM_BYTES)
        async with borrow(self._pool) as connection:
            standing = await connection.execute(
                "UPDATE login_t SET used_ts = now() WHERE (host_id, login_id) = (%s, %s)"
                " AND expires_ts > now()",
                [self._host_id, login],
            )
            if standing.rowcount == 0:
                return None
            await connection.execute(
                "INSERT INTO login_grant_t (host_id, grant_id, login_id, client_id,"
                " client_name, redirect, resource, scopes, code, challenge, code_ts)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, now())",
                [
                    *(self._host_id, uuid4(), login, new.client_id, new.client_name),
                    *(new.redirect, new.resource, [*new.scopes]),
                    *(secret_digest(code), new.challenge),
                ],
            )
        return code

    async def take_code(self, claim: CodeClaim) -> Taken | Refused:
        """The grant of a code, once. A second use ends what the first one gave (OAuth 2.1,
        4.1.3)."""
        async with borrow(self._pool) as connection, connection.transaction():
            rows = await connection.execute(
                "SELECT grant_id, challenge, code_ts > now() - make_interval(secs => %s), taken_ts"
                " FROM login_grant_t WHERE host_id = %s AND code = %s FOR UPDATE",
                [CODE_S, self._host_id, secret_digest(claim.code)],
            )
            row = await rows.fetchone()
            if row is None:
                return Refused("unknown")
            grant_id, challenge, fresh, taken_at = row
            grant = await self._grant(connection, grant_id)
            if grant is None or grant.client_id != claim.client_id:
                return Refused("client")
            if taken_at is not None:
                await end_grants(connection, self._host_id, [grant])
                return Refused("reused", grant)
            if not fresh:
                return Refused("ended")
            if grant.redirect != claim.redirect:
                return Refused("redirect")
            if not secrets.compare_digest(challenge, claim.challenge):
                return Refused("challenge")
            if claim.resource not in ("", grant.resource):
                return Refused("resource")
            await connection.execute(
                "UPDATE login_grant_t SET taken_ts = now() WHERE (host_id, grant_id) = (%s, %s)",
                [self._host_id, grant_id],
            )
            return Taken(grant, await self._add_refresh(connection, grant_id))

    async def refresh(
        self, token: str, client_id: str, resource: str, *, grace_s: float, idle_s: float
    ) -> Taken | Refused:
        """The successor of a refresh token: the same one for `grace_s` after its first use; later
        a use ends the family, because somebody else has a copy. `resource`: "" for that of the
        grant. Times are the database's, since nodes have clocks of their own."""
        async with borrow(self._pool) as connection, connection.transaction():
            grant = await self._lock_family(connection, secret_digest(token))
            if isinstance(grant, Refused):
                return grant
            if grant.client_id != client_id:
                return Refused("client")
            if resource not in ("", grant.resource):
                return Refused("resource")
            return await self._succeed(connection, token, grant, grace_s=grace_s, idle_s=idle_s)

    async def _lock_family(
        self, connection: AsyncConnection[Any], digest: bytes
    ) -> Grant | Refused:
        """The grant of a refresh token. Its login is locked before it, as by whoever ends the
        login; then the grant, for one refresh of a family at a time, at all nodes."""
        rows = await connection.execute(
            "SELECT r.grant_id, g.login_id FROM login_refresh_t AS r"
            " JOIN login_grant_t AS g USING (host_id, grant_id)"
            " WHERE host_id = %s AND r.digest = %s",
            [self._host_id, digest],
        )
        row = await rows.fetchone()
        if row is None:
            return Refused("unknown")
        grant_id, login_id = row
        await connection.execute(
            "SELECT 1 FROM login_t WHERE (host_id, login_id) = (%s, %s) FOR NO KEY UPDATE",
            [self._host_id, login_id],
        )
        await connection.execute(
            "SELECT 1 FROM login_grant_t WHERE (host_id, grant_id) = (%s, %s) FOR UPDATE",
            [self._host_id, grant_id],
        )
        return await self._grant(connection, grant_id) or Refused("ended")

    async def _succeed(
        self,
        connection: AsyncConnection[Any],
        token: str,
        grant: Grant,
        *,
        grace_s: float,
        idle_s: float,
    ) -> Taken | Refused:
        """The successor of a token of a locked family."""
        place = [self._host_id, secret_digest(token)]
        rows = await connection.execute(
            "SELECT clock_timestamp(), replaced_ts, successor FROM login_refresh_t"
            " WHERE host_id = %s AND digest = %s",
            place,
        )
        now, replaced, successor = await rows.fetchone() or (grant.expires, None, b"")
        if grant.expires <= now or grant.used + timedelta(seconds=idle_s) <= now:
            await end_grants(connection, self._host_id, [grant])
            return Refused("ended", grant)
        if replaced is None:
            following = await self._add_refresh(connection, grant.id)
            await connection.execute(
                "UPDATE login_refresh_t SET replaced_ts = %s, successor = %s"
                " WHERE host_id = %s AND digest = %s",
                [now, _seal_successor(token, following), *place],
            )
        elif (now - replaced).total_seconds() <= grace_s:
            following = _unseal_successor(token, successor)
        else:
            await end_grants(connection, self._host_id, [grant])
            return Refused("reused", grant)
        await connection.execute(
            "UPDATE login_grant_t SET used_ts = %s WHERE (host_id, grant_id) = (%s, %s)",
            [now, self._host_id, grant.id],
        )
        await connection.execute(
            "UPDATE login_t SET used_ts = %s WHERE (host_id, login_id) = (%s, %s)",
            [now, self._host_id, grant.login],
        )
        return Taken(grant, following)

    async def claim_check(self, login: UUID, check_s: float) -> bytes | None:
        """The provider's refresh token of a login that was not checked for `check_s`, for one
        caller of all nodes; None: nothing is due."""
        row = await self._fetch_first(
            "UPDATE login_t SET checked_ts = now(), renewing_ts = now()"
            " WHERE (host_id, login_id) = (%s, %s)"
            " AND upstream IS NOT NULL AND checked_ts < now() - make_interval(secs => %s)"
            " AND (renewing_ts IS NULL OR renewing_ts < now() - %s) RETURNING upstream",
            [self._host_id, login, check_s, RENEWING],
        )
        return None if row is None else bytes(row[0])

    async def find_upstream(self, tenant: str, principal: str) -> tuple[UUID, str] | None:
        """A person's newest login with a refresh token of a provider, and the provider's name."""
        return await self._fetch_first(
            "SELECT login_id, provider FROM login_t WHERE (host_id, tenant_id, principal)"
            " = (%s, %s, %s) AND upstream IS NOT NULL AND expires_ts > now()"
            " ORDER BY created_ts DESC LIMIT 1",
            [self._host_id, tenant, principal],
        )

    async def begin_renewal(self, login: UUID) -> bytes | None:
        """The provider's refresh token of a login, for one caller of all nodes until it calls
        `end_renewal`, or has not for RENEWING; None: another one has it."""
        row = await self._fetch_first(
            "UPDATE login_t SET renewing_ts = now() WHERE (host_id, login_id) = (%s, %s)"
            " AND upstream IS NOT NULL"
            " AND (renewing_ts IS NULL OR renewing_ts < now() - %s) RETURNING upstream",
            [self._host_id, login, RENEWING],
        )
        return None if row is None else bytes(row[0])

    async def end_renewal(self, login: UUID, upstream: bytes | None) -> None:
        """Keep the provider's new refresh token; None: the one before."""
        await self._execute(
            "UPDATE login_t SET renewing_ts = NULL, upstream = coalesce(%s, upstream)"
            " WHERE (host_id, login_id) = (%s, %s)",
            [upstream, self._host_id, login],
        )

    async def note_check(self, login: UUID, upstream: bytes, person: dict[str, Any] | None) -> None:
        """Keep the provider's new refresh token, and what it now says of the person."""
        await self._execute(
            "UPDATE login_t SET upstream = %s, person = coalesce(%s, person),"
            " failing_ts = NULL, renewing_ts = NULL WHERE (host_id, login_id) = (%s, %s)",
            [upstream, None if person is None else Jsonb(person), self._host_id, login],
        )

    async def note_failure(self, login: UUID, longest_s: float) -> bool:
        """Note that a check failed; returns whether checks have failed for `longest_s`."""
        row = await self._fetch_first(
            "UPDATE login_t SET failing_ts = coalesce(failing_ts, now()), renewing_ts = NULL"
            " WHERE (host_id, login_id) = (%s, %s)"
            " RETURNING failing_ts < now() - make_interval(secs => %s)",
            [self._host_id, login, longest_s],
        )
        return row is not None and bool(row[0])

    async def find(self, login: str) -> dict[str, Any] | None:
        """The person of a login that has not ended."""
        row = await self._fetch_first(
            "SELECT person FROM login_t WHERE (host_id, login_id) = (%s, %s)"
            " AND expires_ts > now()",
            [self._host_id, login],
        )
        return None if row is None else row[0]

    async def find_by_refresh(self, token: str) -> Grant | None:
        """The grant that a refresh token belongs to, used or not."""
        async with borrow(self._pool) as connection:
            rows = await connection.execute(
                "SELECT grant_id FROM login_refresh_t WHERE host_id = %s AND digest = %s",
                [self._host_id, secret_digest(token)],
            )
            row = await rows.fetchone()
            return None if row is None else await self._grant(connection, row[0])

    async def has_consent(self, consent: Consent) -> bool:
        """Whether a person has allowed as much before."""
        row = await self._fetch_first(
            "SELECT 1 FROM login_consent_t WHERE host_id = %s AND tenant_id = %s"
            " AND principal = %s AND client_id = %s AND redirect = %s AND resource = %s"
            " AND scopes @> %s",
            self._consent(consent),
        )
        return row is not None

    async def add_consent(self, consent: Consent) -> None:
        """Remember a consent, as of now; those of half a year ago are forgotten."""
        async with borrow(self._pool) as connection:
            await connection.execute(
                "DELETE FROM login_consent_t WHERE host_id = %s AND created_ts < now() - %s",
                [self._host_id, CONSENT],
            )
            await connection.execute(
                "INSERT INTO login_consent_t (host_id, tenant_id, principal, client_id, redirect,"
                " resource, scopes) VALUES (%s, %s, %s, %s, %s, %s, %s)"
                " ON CONFLICT (host_id, tenant_id, principal, client_id, redirect, resource)"
                " DO UPDATE SET scopes = excluded.scopes, created_ts = now()",
                self._consent(consent),
            )

    def _consent(self, consent: Consent) -> list[Any]:
        *key, scopes = astuple(consent)
        return [self._host_id, *key, [*scopes]]

    async def all(self, tenant: str, principal: str | None = None) -> list[LoginRow]:
        """Logins of a tenant, or of one of its people, and what clients have by them; newest use
        first."""
        return await self._fetch_rows(
            LoginRow,
            "SELECT login_id::text AS id, principal, provider, '' AS client,"
            " '' AS client_name, '' AS resource, created_ts AS began, used_ts AS used,"
            " expires_ts AS expires FROM login_t WHERE host_id = %(host)s"
            " AND tenant_id = %(tenant)s AND expires_ts > now()"
            " AND principal = coalesce(%(principal)s, principal)"
            " UNION ALL SELECT g.grant_id::text, l.principal, l.provider, g.client_id,"
            " g.client_name, g.resource, g.created_ts, g.used_ts, l.expires_ts"
            " FROM login_grant_t AS g JOIN login_t AS l USING (host_id, login_id)"
            " WHERE host_id = %(host)s AND l.tenant_id = %(tenant)s AND l.expires_ts > now()"
            " AND g.taken_ts IS NOT NULL AND l.principal = coalesce(%(principal)s, l.principal)"
            " ORDER BY used DESC, id",
            {"host": self._host_id, "tenant": tenant, "principal": principal},
        )

    async def end(self, tenant: str, id_: str, principal: str | None = None) -> bool:
        """End a login, or what one client has; of `principal` alone, if given. Returns whether it
        was there."""
        try:
            named = UUID(id_)
        except ValueError:
            return False
        async with borrow(self._pool) as connection, connection.transaction():
            grant = await self._grant(connection, named)
            if grant is not None:
                if grant.tenant != tenant or principal not in (None, grant.principal):
                    return False
                await end_grants(connection, self._host_id, [grant])
                return True
            return await end_logins(
                connection, self._host_id, tenant, principal=principal, login=named
            )

    async def revoke(self, tenant: str, sid: str) -> None:
        """Revoke an access token that no login stands behind: of a client for itself, or by an
        assertion."""
        async with borrow(self._pool) as connection, connection.transaction():
            await _revoke(connection, tenant, [UUID(sid)])

    async def end_revoked(self) -> None:
        """End logins that began before a revocation of their person's tokens: clients may have
        refreshed tokens by them since."""
        await self._end_where(
            "EXISTS (SELECT FROM revocation_t AS r WHERE r.host_id = l.tenant_id"
            " AND r.subject = l.principal AND r.issued_before_ts >= l.created_ts)"
        )

    async def sweep(self, idle_s: float, session_s: float) -> None:
        """Delete logins that are over, and what clients did not use for `idle_s`, with refresh
        tokens that were replaced then. `session_s`: how long a browser is logged in at most."""
        long_ago = SQL("{} < now() - make_interval(secs => %s)")
        for table, condition, after_s in (
            (
                "login_grant_t",
                SQL("taken_ts IS NULL AND ") + long_ago.format(SQL("code_ts")),
                HOUR_S,
            ),
            ("login_grant_t", long_ago.format(SQL("used_ts")), idle_s),
            ("login_refresh_t", long_ago.format(SQL("replaced_ts")), idle_s),
        ):
            async with borrow(self._pool) as connection:  # each alone, so that none waits for two
                await connection.execute(
                    SQL("DELETE FROM {} WHERE host_id = %s AND {}").format(
                        Identifier(table), condition
                    ),
                    [self._host_id, after_s],
                )
        await self._end_where(  # of browsers that were given up, as one is at each login
            "l.used_ts < now() - make_interval(secs => %s) AND NOT EXISTS"
            " (SELECT FROM login_grant_t AS g"
            " WHERE (g.host_id, g.login_id) = (l.host_id, l.login_id))",
            max(idle_s, session_s),
        )
        await self._end_where("l.expires_ts < now()")

    async def _end_where(self, condition: LiteralString, *values: Any) -> None:
        async with borrow(self._pool) as connection:
            await _end_where(connection, self._host_id, condition, *values)

    async def use_once(self, assertion: str, until: datetime) -> bool:
        """Whether an assertion is used for the first time, at all nodes."""
        async with borrow(self._pool) as connection:
            await connection.execute(
                "DELETE FROM login_replay_t WHERE host_id = %s AND expires_ts < now()",
                [self._host_id],
            )
            added = await connection.execute(
                "INSERT INTO login_replay_t (host_id, digest, expires_ts) VALUES (%s, %s, %s)"
                " ON CONFLICT DO NOTHING",
                [self._host_id, secret_digest(assertion), until],
            )
        return added.rowcount == 1

    async def _grant(self, connection: AsyncConnection[Any], id_: UUID) -> Grant | None:
        cursor = connection.cursor(row_factory=class_row(Grant))
        await cursor.execute(
            SQL("{} WHERE host_id = %s AND g.grant_id = %s").format(_GRANT), [self._host_id, id_]
        )
        return await cursor.fetchone()

    async def _add_refresh(self, connection: AsyncConnection[Any], grant_id: UUID) -> str:
        token = REFRESH_PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
        await connection.execute(
            "INSERT INTO login_refresh_t (host_id, digest, grant_id) VALUES (%s, %s, %s)",
            [self._host_id, secret_digest(token), grant_id],
        )
        return token


async def add_login(
    connection: AsyncConnection[Any],
    host_id: str,
    *,
    login: UUID,
    tenant: str,
    principal: str,
    provider: str,
    person: dict[str, Any],
    upstream: bytes | None,
    lasts_s: float,
) -> None:
    """Store a login. `upstream`: the provider's refresh token, encrypted."""
    await connection.execute(
        "INSERT INTO login_t (host_id, login_id, tenant_id, principal, provider, person, upstream,"
        " expires_ts) VALUES (%s, %s, %s, %s, %s, %s, %s, now() + make_interval(secs => %s))",
        [host_id, login, tenant, principal, provider, Jsonb(person), upstream, lasts_s],
    )


async def end_logins(
    connection: AsyncConnection[Any],
    host_id: str,
    tenant: str,
    *,
    principal: str | None = None,
    login: UUID | None = None,
) -> bool:
    """End logins of a tenant, with all that clients have by them; returns whether there were any.
    Their access tokens are revoked."""
    return await _end_where(
        connection,
        host_id,
        "l.tenant_id = %s AND l.principal = coalesce(%s, l.principal)"
        " AND l.login_id = coalesce(%s, l.login_id)",
        tenant,
        principal,
        login,
    )


async def _end_where(
    connection: AsyncConnection[Any], host_id: str, condition: LiteralString, *values: Any
) -> bool:
    """End logins, what clients have by them, and sessions of browsers; returns whether there were
    any. Rows of logins are locked before all others: a grant made at the same time is refused, or
    ends with them."""
    rows = await connection.execute(
        SQL(
            "SELECT l.login_id, l.tenant_id::text, l.used_ts > now() - %s"
            " FROM login_t AS l WHERE l.host_id = %s AND {} ORDER BY l.login_id FOR UPDATE OF l"
        ).format(SQL(condition)),
        [REVOCATION_LIFETIME, host_id, *values],
    )
    logins = await rows.fetchall()
    if not logins:
        return False
    ids = [login for login, _, _ in logins]
    rows = await connection.execute(
        "DELETE FROM login_grant_t WHERE host_id = %s AND login_id = ANY(%s)"
        " RETURNING login_id, grant_id",
        [host_id, ids],
    )
    grants = await rows.fetchall()
    await connection.execute(
        "DELETE FROM login_t WHERE host_id = %s AND login_id = ANY(%s)", [host_id, ids]
    )
    await _end_sessions(connection, host_id, ids)
    recent = {login: tenant for login, tenant, is_recent in logins if is_recent}
    for tenant in sorted({*recent.values()}):
        tenant_logins = {login for login in recent if recent[login] == tenant}
        sids = [grant for login, grant in grants if login in tenant_logins]
        await _revoke(connection, tenant, [*tenant_logins, *sids])
    return True


async def _end_sessions(
    connection: AsyncConnection[Any], host_id: str, logins: Sequence[UUID]
) -> None:
    """End the sessions of browsers that belong to logins: those may last longer than a
    revocation."""
    if logins:
        await connection.execute(
            "DELETE FROM console_session_t WHERE host_id = %s"
            " AND caller->'principal'->>'mark' = ANY(%s)",
            [host_id, [f"{LOGIN_MARK}{login}" for login in logins]],
        )


async def end_grants(
    connection: AsyncConnection[Any], host_id: str, grants: Sequence[Grant]
) -> None:
    """End what clients have; their access tokens are revoked."""
    if not grants:
        return
    await connection.execute(
        "DELETE FROM login_grant_t WHERE host_id = %s AND grant_id = ANY(%s)",
        [host_id, [grant.id for grant in grants]],
    )
    for tenant in sorted({grant.tenant for grant in grants}):
        ids = [grant.id for grant in grants if grant.tenant == tenant]
        await _revoke(connection, tenant, ids)


async def end_client(connection: AsyncConnection[Any], host_id: str, client_id: str) -> None:
    """End what programs have by a client, at all tenants, and forget what people allowed it."""
    cursor = connection.cursor(row_factory=class_row(Grant))
    await cursor.execute(
        SQL("{} WHERE host_id = %s AND g.client_id = %s").format(_GRANT), [host_id, client_id]
    )
    await end_grants(connection, host_id, await cursor.fetchall())
    await connection.execute(
        "DELETE FROM login_consent_t WHERE host_id = %s AND client_id = %s", [host_id, client_id]
    )


async def _revoke(connection: AsyncConnection[Any], tenant: str, ids: Sequence[UUID]) -> None:
    """Revoke the access tokens whose `sid` is one of these, until they have expired by
    themselves."""
    if not ids:
        return
    await lock_tenant(connection, tenant)
    await connection.execute(
        "INSERT INTO revocation_t (host_id, revocation_id, jti, reason, created_ts, expires_ts)"
        " SELECT %s, gen_random_uuid(), id::text, 'login ended', now(), now() + %s"
        " FROM unnest(%s::uuid[]) AS id WHERE NOT EXISTS (SELECT FROM revocation_t AS r"
        " WHERE r.host_id = %s AND r.jti = id::text AND r.expires_ts > now() + interval '1 hour')",
        [tenant, REVOCATION_LIFETIME, [*ids], tenant],
    )


async def revoke_subject(
    connection: AsyncConnection[Any], tenant: str, principal: str, reason: str
) -> None:
    """Revoke all access tokens that a person has so far, also those without a login."""
    await lock_tenant(connection, tenant)
    await connection.execute(
        "INSERT INTO revocation_t (host_id, revocation_id, subject, issued_before_ts, reason,"
        " created_ts, expires_ts) VALUES (%s, gen_random_uuid(), %s, now(), %s, now(), now() + %s)",
        [tenant, principal, reason, REVOCATION_LIFETIME],
    )


def _attempt_digest(state: str, browser: str) -> bytes:
    """The place of an attempt, from which neither `state` nor the browser's cookie can be had."""
    return secret_digest(f"{state} {browser}")


def _seal_successor(token: str, successor: str) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return nonce + _cipher(token).encrypt(nonce, successor.encode(), b"")


def _unseal_successor(token: str, sealed: bytes) -> str:
    return _cipher(token).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], b"").decode()


def _cipher(token: str) -> "AESGCM":
    """The cipher of a token, whose 256 bits are random."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(secret_digest(f"successor of {token}"))
