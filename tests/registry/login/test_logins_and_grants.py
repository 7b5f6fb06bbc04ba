"""The end of logins: whatever clients have by them ends, too, at all nodes."""

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import anyio
import pytest

from config.settings import DatabaseSettings
from gateway.console.sessions import CONSOLE
from registry.access.revocations import RevocationCache, load_revocations
from registry.database.postgres import Database, borrow
from registry.login import LOGIN
from registry.login.logins_and_grants import (
    CodeClaim,
    Logins,
    NewGrant,
    Refused,
    Taken,
    add_login,
    revoke_subject,
    secret_digest,
)
from tests.registry.access.test_api_keys import waits

pytestmark = pytest.mark.anyio

HOST = "01964b05-0000-7000-8000-000000000003"
NEW_GRANT = NewGrant("app", "App", "https://app.example/back", "challenge", "resource", ())


@pytest.fixture
async def database(database_settings: DatabaseSettings) -> AsyncIterator[Database]:
    parts = (CONSOLE, LOGIN)
    async with Database.open(database_settings, wait=False, components=parts) as opened:
        yield opened


async def log_in(database: Database, principal: str = "corp:ann") -> UUID:
    login = uuid4()
    async with borrow(database.pool) as connection:
        await add_login(
            connection, HOST, login=login, tenant=HOST, principal=principal, provider="corp",
            person={}, upstream=None, lasts_s=1000.0,
        )  # fmt: skip
    return login


async def take_code(logins: Logins, login: UUID) -> Taken:
    code = await logins.add_grant(str(login), NEW_GRANT)
    assert code is not None
    claim = CodeClaim(code, "app", NEW_GRANT.redirect, NEW_GRANT.challenge, "")
    taken = await logins.take_code(claim)
    assert isinstance(taken, Taken)
    return taken


def is_revoked(revoked: RevocationCache, id_: UUID) -> bool:
    """Whether a token that was issued just now is refused for its `sid`."""
    return revoked.has(HOST, None, {"sid": str(id_)})


async def test_tokens_refreshed_after_a_revocation_are_revoked(database: Database) -> None:
    """A client that refreshed before any node ended the login has a token that is newer than the
    revocation of its person."""
    logins = Logins(database.pool, HOST)
    taken = await take_code(logins, await log_in(database))
    await take_code(logins, bob := await log_in(database, "corp:bob"))
    async with borrow(database.pool) as connection:
        await revoke_subject(connection, HOST, "corp:ann", "gone")
    refreshed = await logins.refresh(taken.refresh, "app", "", grace_s=60.0, idle_s=1000.0)
    assert isinstance(refreshed, Taken)
    assert not is_revoked(await load_revocations(database.pool), taken.grant.id)
    await logins.end_revoked()
    assert is_revoked(await load_revocations(database.pool), taken.grant.id)
    ended = await logins.refresh(refreshed.refresh, "app", "", grace_s=60.0, idle_s=1000.0)
    assert isinstance(ended, Refused)
    assert await logins.find(str(bob)) is not None


async def test_a_grant_that_is_made_while_its_login_ends_is_revoked(database: Database) -> None:
    """The end of a login waits for a grant that is half made, and ends it, too."""
    logins, grant = Logins(database.pool, HOST), uuid4()
    login = await log_in(database)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks, borrow(database.pool) as connection:
            await connection.execute(
                "INSERT INTO login_grant_t (host_id, grant_id, login_id, client_id,"
                " client_name, redirect, resource, scopes, code, challenge, code_ts)"
                " VALUES (%s, %s, %s, 'app', 'App', '', '', '{}', %s, '', now())",
                [HOST, grant, login, secret_digest("code")],
            )
            tasks.start_soon(logins.end, HOST, str(login))
            await waits(database)
    assert is_revoked(await load_revocations(database.pool), grant)
    assert await logins.find(str(login)) is None


async def test_a_login_that_has_expired_gives_no_code(database: Database) -> None:
    logins, login = Logins(database.pool, HOST), await log_in(database)
    async with borrow(database.pool) as connection:
        await connection.execute("UPDATE login_t SET expires_ts = now()")
    assert await logins.add_grant(str(login), NEW_GRANT) is None


async def test_logins_end_and_refresh_at_once_without_a_deadlock(database: Database) -> None:
    """Whoever refreshes takes the locks in the order of whoever ends the login."""
    logins = Logins(database.pool, HOST)
    login = await log_in(database)
    taken = await take_code(logins, login)
    answers: list[Taken | Refused] = []

    async def refresh() -> None:
        answers.append(await logins.refresh(taken.refresh, "app", "", grace_s=60.0, idle_s=1000.0))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks, borrow(database.pool) as connection:
            await connection.execute("SELECT 1 FROM login_t FOR UPDATE")  # as its end does
            tasks.start_soon(refresh)
            await waits(database)
            await connection.execute("DELETE FROM login_grant_t")
            await connection.execute("DELETE FROM login_t")
    assert answers == [Refused("ended")]
