"""People who logged in, with roles as their provider last said; operators may disable them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace
from psycopg import AsyncConnection
from psycopg.rows import class_row
from psycopg.sql import SQL, Identifier

from registry.database.postgres import Pool, borrow
from registry.login.logins import end_logins, revoke_subject


class Person(Struct, frozen=True):
    """A person as their provider describes them. `claims` are those that rules may read; `email` is
    verified, and known only where it may name the person in assertions."""

    tenant: str
    principal: str
    provider: str
    name: str
    roles: tuple[str, ...] = ()
    claims: dict[str, Any] = field(default_factory=dict)
    email: str = ""


class PersonRow(Struct, frozen=True):
    tenant: str
    principal: str
    provider: str
    name: str
    roles: list[str]
    first: datetime
    last: datetime
    disabled: datetime | None


class People:
    """All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool, host_id: str) -> None:
        self._pool = pool
        self._host_id = host_id

    async def all(self, tenant: str) -> Sequence[PersonRow]:
        """The people of a tenant, by principal."""
        async with borrow(self._pool) as connection:
            cursor = connection.cursor(row_factory=class_row(PersonRow))
            await cursor.execute(
                "SELECT tenant_id::text AS tenant, principal, provider, name, roles,"
                " first_ts AS first, last_ts AS last, disabled_ts AS disabled FROM login_person_t"
                " WHERE host_id = %s AND tenant_id = %s ORDER BY principal",
                [self._host_id, tenant],
            )
            return await cursor.fetchall()

    async def set_disabled(self, tenant: str, principal: str, disabled: bool) -> bool:
        """Disable a person, which ends all their logins, or enable them again; returns whether
        they have ever logged in."""
        async with borrow(self._pool) as connection, connection.transaction():
            done = await connection.execute(
                "UPDATE login_person_t SET disabled_ts = CASE WHEN %s THEN now() END"
                " WHERE (host_id, tenant_id, principal) = (%s, %s, %s)",
                [disabled, self._host_id, tenant, principal],
            )
            if disabled:
                await end_logins(connection, self._host_id, tenant, principal=principal)
                await revoke_subject(connection, tenant, principal)
        return done.rowcount == 1


async def erase_login(pool: Pool, host_id: str, tenant: str, principal: str) -> None:
    """Delete all that is known of a person, and end their logins."""
    async with borrow(pool) as connection, connection.transaction():
        await end_logins(connection, host_id, tenant, principal=principal)
        for table in ("login_consent_t", "login_person_t"):
            await connection.execute(
                SQL(
                    "DELETE FROM {} WHERE host_id = %s AND tenant_id = %s AND principal = %s"
                ).format(Identifier(table)),
                [host_id, tenant, principal],
            )


async def match_email(connection: AsyncConnection[Any], host_id: str, person: Person) -> Person:
    """The person with the principal of the only one who has logged in with this e-mail address,
    where nobody has logged in with this subject."""
    rows = await connection.execute(
        "SELECT principal FROM login_person_t WHERE (host_id, tenant_id, provider) = (%s, %s, %s)"
        " AND (principal = %s OR lower(email) = lower(%s)) LIMIT 3",
        [host_id, person.tenant, person.provider, person.principal, person.email or None],
    )
    principals = {row[0] for row in await rows.fetchall()}
    if person.principal in principals or len(principals) != 1:
        return person
    return replace(person, principal=principals.pop())


async def note_login(connection: AsyncConnection[Any], host_id: str, person: Person) -> bool:
    """Store that a person logs in; returns whether they may."""
    rows = await connection.execute(
        "INSERT INTO login_person_t (host_id, tenant_id, principal, provider, name, roles, email)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (host_id, tenant_id, principal) DO UPDATE"
        " SET provider = excluded.provider, name = excluded.name, roles = excluded.roles,"
        " email = excluded.email, last_ts = now() RETURNING disabled_ts IS NULL",
        [
            *(host_id, person.tenant, person.principal, person.provider, person.name),
            *([*person.roles], person.email or None),
        ],
    )
    row = await rows.fetchone()
    return row is not None and bool(row[0])
