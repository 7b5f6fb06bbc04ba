"""Users of the gateway's own: names, roles, hashes of passwords, invitations, wrong passwords.

Each change of a password, of roles or of a right to log in ends what the user has by logins.
"""

import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import class_row
from psycopg.sql import SQL, Composed

from config.access import USERS_PROVIDER
from registry.access.secret_digests import secret_digest
from registry.database.postgres import Pool, borrow
from registry.database.tables import Tables
from registry.login.logins_and_grants import RANDOM_BYTES, end_logins
from registry.login.people import Person, erase_person

NAME = r"^[a-z0-9][a-z0-9._@+-]{0,63}$"
FORGETTING_FACTOR = 4  # times the longest delay, after which failures are forgotten
_is_name = re.compile(NAME.rstrip("$")).fullmatch


class User(Struct, frozen=True):
    """`invited`: when the invitation ends that has not been used; `totp`: the encrypted secret of
    one-time codes, if they are set up."""

    name: str
    tenant: str
    roles: list[str]
    password: str | None  # its hash
    invited: datetime | None
    created: datetime
    disabled: datetime | None
    totp: bytes | None = None

    @property
    def person(self) -> Person:
        roles = tuple(self.roles)
        return Person(self.tenant, principal_of(self.name), USERS_PROVIDER, self.name, roles)


_USER = SQL(
    "name, tenant_id::text AS tenant, roles, password, invited_ts AS invited,"
    " created_ts AS created, disabled_ts AS disabled, totp"
)


class Users(Tables):
    """All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool, host_id: str) -> None:
        self._pool = pool
        self._host_id = host_id

    async def all(self, tenant: str) -> Sequence[User]:
        """The users of a tenant, by name."""
        return await self._select(SQL("tenant_id = %s ORDER BY name"), tenant)

    async def find(self, name: str) -> User | None:
        users = await self._select(SQL("name = %s"), name) if _is_name(name) else []
        return users[0] if users else None

    async def find_by_invitation(self, ticket: str) -> User | None:
        """The user of an invitation that is still good."""
        where = SQL("invitation = %s AND invited_ts > now() AND disabled_ts IS NULL")
        users = await self._select(where, secret_digest(ticket))
        return users[0] if users else None

    async def add(
        self, tenant: str, name: str, roles: Sequence[str], lasts_s: float, *, again: bool
    ) -> str | None:
        """The invitation of a new user; None where the name is in use. A name whose earlier user
        has logged in is given `again` only if that is said: its principal is the same."""
        ticket, until = new_ticket(lasts_s)
        added = await self._execute(
            "INSERT INTO login_user_t (host_id, tenant_id, name, roles, invitation, invited_ts)"
            " SELECT %s, %s, %s, %s, %s, %s WHERE %s OR NOT EXISTS (SELECT FROM login_person_t"
            " WHERE host_id = %s AND principal = %s) ON CONFLICT (host_id, name) DO NOTHING",
            [
                *(self._host_id, tenant, name, [*roles], secret_digest(ticket), until, again),
                *(self._host_id, principal_of(name)),
            ],
        )
        return ticket if added == 1 else None

    async def invite(self, tenant: str, name: str, lasts_s: float) -> str | None:
        """A new invitation, in place of the one before; the password stays until it is used."""
        ticket, until = new_ticket(lasts_s)
        changes = SQL("invitation = %s, invited_ts = %s")
        done = await self._change(tenant, name, changes, secret_digest(ticket), until, ends=False)
        return ticket if done else None

    async def set_roles(self, tenant: str, name: str, roles: Sequence[str]) -> bool:
        """Give other roles. An open invitation ends: whoever has it was to have the former ones."""
        changes = SQL("roles = %s, invitation = NULL, invited_ts = NULL")
        return await self._change(tenant, name, changes, [*roles])

    async def set_disabled(self, tenant: str, name: str, disabled: bool) -> bool:
        changes = SQL(
            "disabled_ts = CASE WHEN %s THEN now() END, invitation = NULL, invited_ts = NULL"
        )
        return await self._change(tenant, name, changes, disabled)

    async def remove(self, tenant: str, name: str) -> bool:
        async with borrow(self._pool) as connection, connection.transaction():
            done = await connection.execute(
                "DELETE FROM login_user_t WHERE (host_id, tenant_id, name) = (%s, %s, %s)",
                [self._host_id, tenant, name],
            )
            await self._end(connection, tenant, name)
        return done.rowcount == 1

    async def accept(self, ticket: str, password: str) -> User | None:
        """Set the password by an invitation, once."""
        where = SQL("invitation = %s AND invited_ts > now() AND disabled_ts IS NULL")
        return await self._set_password(where, secret_digest(ticket), password=password)

    async def change_password(self, user: User, password: str) -> User | None:
        """Replace a password that is still what it was when it was checked."""
        where = SQL("name = %s AND password = %s AND disabled_ts IS NULL")
        return await self._set_password(where, user.name, user.password, password=password)

    async def set_totp(
        self, user: User, sealed_secret: bytes, step: int, recovery: Sequence[bytes]
    ) -> bool:
        """Set one-time codes up for a user who has none, whose password is still what was checked;
        all that the user has by logins ends. `step`: of the code that was shown; `recovery`:
        digests."""
        async with borrow(self._pool) as connection, connection.transaction():
            done = await connection.execute(
                "UPDATE login_user_t SET totp = %s, totp_step = %s, recovery = %s"
                " WHERE host_id = %s AND name = %s AND password = %s AND totp IS NULL"
                " AND disabled_ts IS NULL",
                [sealed_secret, step, [*recovery], self._host_id, user.name, user.password],
            )
            if done.rowcount:
                await self._end(connection, user.tenant, user.name)
        return done.rowcount == 1

    async def use_step(self, user: User, step: int) -> bool:
        """Whether a one-time code of that step is used for the first time, at all nodes, and after
        all codes before."""
        return await self._use(user, SQL("totp_step = %s WHERE totp_step < %s"), step, step)

    async def use_recovery(self, user: User, digest: bytes) -> bool:
        """Whether it is a recovery code of the user, which is good no longer."""
        changes = SQL("recovery = array_remove(recovery, %s) WHERE %s = ANY(recovery)")
        return await self._use(user, changes, digest, digest)

    async def reset_totp(self, tenant: str, name: str) -> bool:
        """Take one-time codes from a user, who can set others up, and end their logins."""
        changes = SQL("totp = NULL, totp_step = NULL, recovery = NULL")
        return await self._change(tenant, name, changes)

    async def _use(self, user: User, changes: SQL, *values: Any) -> bool:
        text = SQL("UPDATE login_user_t SET {} AND host_id = %s AND name = %s AND totp = %s")
        done = await self._execute(
            text.format(changes), [*values, self._host_id, user.name, user.totp]
        )
        return done == 1

    async def count_attempt(self, name: str, network: str, most: int, longest_s: float) -> float:
        """Count an attempt before its password is looked at, so that none at the same time goes
        uncounted; returns 0, or the seconds until the next one is allowed."""
        digest = secret_digest(f"{network} {name}")
        forgotten = timedelta(seconds=FORGETTING_FACTOR * longest_s)
        now = datetime.now(UTC)
        async with borrow(self._pool) as connection:
            await connection.execute(
                "DELETE FROM login_failure_t WHERE host_id = %s AND last_ts < %s",
                [self._host_id, now - forgotten],
            )
            rows = await connection.execute(
                "INSERT INTO login_failure_t AS f (host_id, digest, failures, last_ts, next_ts)"
                " VALUES (%(host)s, %(digest)s, 1, %(now)s, %(now)s)"
                " ON CONFLICT (host_id, digest) DO UPDATE SET failures = f.failures + 1,"
                " last_ts = %(now)s, next_ts = CASE WHEN f.failures + 1 < %(most)s THEN %(now)s"
                " ELSE %(now)s + least(power(2, least(f.failures + 1 - %(most)s, 30)),"
                " %(longest)s) * interval '1 second' END WHERE f.next_ts <= %(now)s"
                " RETURNING failures",
                {
                    "host": self._host_id,
                    "digest": digest,
                    "now": now,
                    "most": most,
                    "longest": longest_s,
                },
            )
            if await rows.fetchone() is not None:
                return 0.0
            rows = await connection.execute(
                "SELECT next_ts FROM login_failure_t WHERE host_id = %s AND digest = %s",
                [self._host_id, digest],
            )
            row = await rows.fetchone()
        return 1.0 if row is None else max(1.0, (row[0] - now).total_seconds())

    async def forget_attempts(self, name: str, network: str) -> None:
        """The password was right."""
        await self._execute(
            "DELETE FROM login_failure_t WHERE host_id = %s AND digest = %s",
            [self._host_id, secret_digest(f"{network} {name}")],
        )

    async def _select(self, where: SQL, *values: Any) -> list[User]:
        async with borrow(self._pool) as connection:
            cursor = connection.cursor(row_factory=class_row(User))
            text = SQL("SELECT {} FROM login_user_t WHERE host_id = %s AND {}").format(_USER, where)
            await cursor.execute(text, [self._host_id, *values])
            return await cursor.fetchall()

    async def _set_password(self, where: SQL, *values: Any, password: str) -> User | None:
        text = SQL(
            "UPDATE login_user_t SET password = %s, invitation = NULL, invited_ts = NULL"
            " WHERE host_id = %s AND {} RETURNING {}"
        ).format(where, _USER)
        async with borrow(self._pool) as connection, connection.transaction():
            cursor = connection.cursor(row_factory=class_row(User))
            await cursor.execute(text, [password, self._host_id, *values])
            user = await cursor.fetchone()
            if user is not None:
                await self._end(connection, user.tenant, user.name)
        return user

    async def _change(
        self, tenant: str, name: str, changes: SQL, *values: Any, ends: bool = True
    ) -> bool:
        text: Composed = SQL(
            "UPDATE login_user_t SET {} WHERE (host_id, tenant_id, name) = (%s, %s, %s)"
        ).format(changes)
        async with borrow(self._pool) as connection, connection.transaction():
            done = await connection.execute(text, [*values, self._host_id, tenant, name])
            if ends:
                await self._end(connection, tenant, name)
        return done.rowcount == 1

    async def _end(self, connection: AsyncConnection[Any], tenant: str, name: str) -> None:
        await end_logins(connection, self._host_id, tenant, principal=principal_of(name))


async def is_unchanged(connection: AsyncConnection[Any], host_id: str, user: User) -> bool:
    """Whether a user is as they were when their password was checked. The row is locked, so that a
    change of it comes before this transaction, or ends the login that it makes."""
    rows = await connection.execute(
        "SELECT 1 FROM login_user_t WHERE host_id = %s AND name = %s AND tenant_id = %s"
        " AND password = %s AND roles = %s AND disabled_ts IS NULL FOR SHARE",
        [host_id, user.name, user.tenant, user.password, user.roles],
    )
    return await rows.fetchone() is not None


async def erase_login(pool: Pool, host_id: str, tenant: str, principal: str) -> None:
    """Delete all that is known of a person, a user of the gateway's own among them: such a one can
    log in only when an operator adds them again."""
    name = principal.removeprefix(principal_of(""))
    is_user = name != principal
    async with borrow(pool) as connection:
        if is_user:
            await connection.execute(
                "DELETE FROM login_user_t WHERE (host_id, tenant_id, name) = (%s, %s, %s)",
                [host_id, tenant, name],
            )
        await erase_person(connection, host_id, tenant, principal, bars=not is_user)


def principal_of(name: str) -> str:
    return f"{USERS_PROVIDER}:{name}"


def new_ticket(lasts_s: float) -> tuple[str, datetime]:
    """A new invitation, and its end."""
    return secrets.token_urlsafe(RANDOM_BYTES), datetime.now(UTC) + timedelta(seconds=lasts_s)
