"""People who logged in, with roles as their provider last said; operators may disable them."""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace
from psycopg import AsyncConnection

from registry.database.postgres import Pool, borrow
from registry.database.tables import Tables
from registry.login.logins_and_grants import end_logins, revoke_subject

ERASED = "erased "  # before the digest of a principal


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

    @property
    def id(self) -> str:
        """The name in addresses."""
        is_erased = not self.provider and self.principal.startswith(ERASED)
        return self.principal.removeprefix(ERASED) if is_erased else handle_of(self.principal)


class People(Tables):
    """All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool, host_id: str) -> None:
        self._pool = pool
        self._host_id = host_id

    async def all(self, tenant: str) -> Sequence[PersonRow]:
        """The people of a tenant, by principal."""
        return await self._fetch_rows(
            PersonRow,
            "SELECT tenant_id::text AS tenant, principal, provider, name, roles,"
            " first_ts AS first, last_ts AS last, disabled_ts AS disabled FROM login_person_t"
            " WHERE host_id = %s AND tenant_id = %s ORDER BY principal",
            [self._host_id, tenant],
        )

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
                await revoke_subject(connection, tenant, principal, "person disabled")
            else:  # of an erased person nothing is left to keep
                await connection.execute(
                    "DELETE FROM login_person_t WHERE (host_id, tenant_id, principal, provider)"
                    " = (%s, %s, %s, '')",
                    [self._host_id, tenant, principal],
                )
        return done.rowcount == 1


async def erase_person(
    connection: AsyncConnection[Any], host_id: str, tenant: str, principal: str, *, bars: bool
) -> None:
    """Delete all that is known of a person, end their logins and revoke their tokens. `bars`: one
    who is disabled stays so, by a digest in place of the principal."""
    whom = [host_id, tenant, principal]
    rows = await connection.execute(
        "DELETE FROM login_person_t WHERE host_id = %s AND tenant_id = %s AND principal = %s"
        " RETURNING disabled_ts",
        whom,
    )
    (disabled,) = await rows.fetchone() or (None,)
    if bars and disabled is not None:
        await connection.execute(
            "INSERT INTO login_person_t (host_id, tenant_id, principal, provider, name, roles,"
            " first_ts, last_ts, disabled_ts) VALUES (%s, %s, %s, '', 'erased', '{}', %s, %s, %s)",
            [host_id, tenant, bar_of(principal), disabled, disabled, disabled],
        )
    await connection.execute(
        "DELETE FROM login_consent_t WHERE host_id = %s AND tenant_id = %s AND principal = %s",
        whom,
    )
    await end_logins(connection, host_id, tenant, principal=principal)
    await revoke_subject(connection, tenant, principal, "person erased")


def handle_of(principal: str) -> str:
    """The id of a person in addresses, where a principal could have any characters."""
    return hashlib.sha256(b"person " + principal.encode()).hexdigest()[:32]


def bar_of(principal: str) -> str:
    """The principal in the row of a person who was erased while disabled."""
    return ERASED + handle_of(principal)


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
    """Store that a person logs in; returns whether they may. Nothing is stored of one who was
    erased while disabled."""
    rows = await connection.execute(
        "INSERT INTO login_person_t (host_id, tenant_id, principal, provider, name, roles, email)"
        " SELECT %s, %s, %s, %s, %s, %s, %s WHERE NOT EXISTS (SELECT FROM login_person_t"
        " WHERE (host_id, tenant_id, principal) = (%s, %s, %s) AND disabled_ts IS NOT NULL)"
        " ON CONFLICT (host_id, tenant_id, principal) DO UPDATE"
        " SET provider = excluded.provider, name = excluded.name, roles = excluded.roles,"
        " email = excluded.email, last_ts = now() RETURNING disabled_ts IS NULL",
        [
            *(host_id, person.tenant, person.principal, person.provider, person.name),
            *([*person.roles], person.email or None),
            *(host_id, person.tenant, bar_of(person.principal)),
        ],
    )
    row = await rows.fetchone()
    return row is not None and bool(row[0])
