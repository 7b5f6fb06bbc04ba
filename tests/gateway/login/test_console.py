"""The console takes the login of the gateway, and people see and end their own logins."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from psycopg.sql import SQL, Identifier

from config.settings import DatabaseSettings
from registry.access.revocations import Revocation, Revocations
from registry.database.postgres import borrow
from registry.login.people import People, handle_of
from tests.gateway.login.company import Browser, Company, browsing, company, fields

pytestmark = pytest.mark.anyio

ENV = {"TOOLGATE_CONSOLE__ENABLED": "true"}
OPERATORS = {"*": ("tools:read",), "operator": ("admin",)}
ENTRY = re.compile(r'name="end" value="([^"]+)"')


async def console_of(made: Company, browser: Browser) -> str:
    """Log in from the console's page; the address that the browser arrives at."""
    page = await browser.get(f"{made.url}/console/login?next=tools")
    link = re.search(r'href="(/login\?[^"]+)"', page.text)
    assert link is not None
    sent = await browser.press(made.url + link[1].replace("&amp;", "&"), "at:corp")
    back = await browser.get(sent.location)
    return (await browser.get(back.location, site="cross-site")).location


async def test_an_operator_logs_in_with_their_account(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings, env=ENV, scopes=OPERATORS) as made:
        async with browsing() as browser:
            assert await console_of(made, browser) == "/console/tools"
            page = await browser.get(f"{made.url}/console/tools")
            assert page.status == 403  # without the role
            assert "corp:ann" in page.text
        made.identity.person["roles"] = ["operator"]
        async with browsing() as browser:
            await console_of(made, browser)
            assert (await browser.get(f"{made.url}/console/tools")).status == 200
            pool = made.gateway._handle.pool()
            assert pool is not None
            host_id = made.gateway.settings.tenant.host_id
            assert await People(pool, host_id).set_disabled(host_id, "corp:ann", disabled=True)
            assert (await browser.get(f"{made.url}/console/tools")).status == 303
            async with borrow(pool) as connection:
                rows = await connection.execute("SELECT count(*) FROM console_session_t")
                assert await rows.fetchone() == (0,)
            client = (await made.register())["client_id"]
            answer = await browser.log_in(made.authorize(client))
            assert answer.status == 403
            assert "disabled" in answer.text


async def test_people_end_their_own_logins(database_settings: DatabaseSettings) -> None:
    async with company(database_settings) as made, browsing() as ann, browsing() as bob:
        client, tokens = await made.grant_tokens(ann)
        made.identity.person = {"sub": "bob", "name": "Bob"}
        other, kept = await made.grant_tokens(bob)
        url = f"{made.url}/login/sessions"
        page = await ann.get(url)
        assert "Test" in page.text
        entries = ENTRY.findall(page.text)
        assert not set(entries) & set(ENTRY.findall((await bob.get(url)).text))
        foreign = ENTRY.findall((await bob.get(url)).text)[0]
        await ann.post(url, {**fields(page.text), "end": foreign})
        assert await made.status(kept["access_token"]) == 200  # another's
        forged = {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}
        answer = await ann.post(url, {**fields(page.text), "end": entries[0]}, forged)
        assert answer.status == 403
        for entry in entries:
            await ann.post(url, {**fields(page.text), "end": entry})
        assert await made.status(tokens["access_token"]) == 401
        status, _ = await made.refresh(client, tokens["refresh_token"])
        assert status == 400
        assert (await ann.get(url)).status == 303  # this browser's login was among them
        status, _ = await made.refresh(other, kept["refresh_token"])
        assert status == 200


async def test_a_revocation_of_a_person_ends_their_logins(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings) as made, browsing() as browser:
        client, tokens = await made.grant_tokens(browser)
        pool, access = made.gateway._handle.pool(), made.gateway.access
        assert pool is not None
        host_id = made.gateway.settings.tenant.host_id
        await Revocations(pool, host_id).add(_revocation("corp:ann"))
        await access.reload("revocations")
        assert await made.status(tokens["access_token"]) == 401
        status, _ = await made.refresh(client, tokens["refresh_token"])
        assert status == 400


async def test_an_erased_person_is_unknown(database_settings: DatabaseSettings) -> None:
    async with company(database_settings) as made, browsing() as browser:
        _, tokens = await made.grant_tokens(browser)
        host_id, pool = made.gateway.settings.tenant.host_id, made.gateway._handle.pool()
        await made.gateway.events.person_erased.publish(host_id, "corp:ann")
        assert pool is not None
        async with borrow(pool) as connection:
            for table in ("login_person_t", "login_consent_t", "login_t", "login_grant_t"):
                rows = await connection.execute(SQL("SELECT 1 FROM {}").format(Identifier(table)))
                assert await rows.fetchone() is None, table
        await made.gateway.access.reload("revocations")
        assert await made.status(tokens["access_token"]) == 401


async def test_erased_people_stay_disabled(
    database_settings: DatabaseSettings,
) -> None:
    """Nothing but a digest is kept of them, and an operator can let them in again."""
    async with company(database_settings) as made, browsing() as browser:
        await made.grant_tokens(browser)
        host_id, pool = made.gateway.settings.tenant.host_id, made.gateway._handle.pool()
        assert pool is not None
        people = People(pool, host_id)
        await people.set_disabled(host_id, "corp:ann", True)
        await made.gateway.events.person_erased.publish(host_id, "corp:ann")
        client = (await made.register())["client_id"]
        back = await browser.log_in(made.authorize(client))
        assert (back.status, back.location) == (403, "")
        (row,) = await people.all(host_id)
        assert "ann" not in f"{row.principal} {row.name} {row.provider}".casefold()
        assert row.id == handle_of("corp:ann")
        await people.set_disabled(host_id, row.principal, False)
        assert await people.all(host_id) == []
        await made.grant_tokens(browser)


async def test_tokens_of_an_erased_person_are_refused_at_once(
    database_settings: DatabaseSettings,
) -> None:
    """Also those that no login stands behind, as of an assertion."""
    async with company(database_settings) as made, browsing() as browser:
        _, tokens = await made.grant_tokens(browser)
        host_id, pool = made.gateway.settings.tenant.host_id, made.gateway._handle.pool()
        assert pool is not None
        async with borrow(pool) as connection:
            await connection.execute("DELETE FROM login_t")
        assert await made.status(tokens["access_token"]) == 200
        await made.gateway.events.person_erased.publish(host_id, "corp:ann")
        assert await made.status(tokens["access_token"]) == 401


async def test_a_browser_has_no_session_without_its_login(
    database_settings: DatabaseSettings,
) -> None:
    """Both are stored at once: whoever ends the login finds the session, too."""
    async with company(database_settings) as made, browsing() as browser:
        client, pool = (await made.register())["client_id"], made.gateway._handle.pool()
        assert pool is not None
        async with borrow(pool) as connection:
            await connection.execute(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE EXCEPTION 'no session'; END $$"
            )
            await connection.execute(
                "CREATE TRIGGER refuse BEFORE INSERT ON console_session_t"
                " FOR EACH ROW EXECUTE FUNCTION refuse()"
            )
        try:
            answer = await browser.log_in(made.authorize(client))
            assert answer.status >= 500
            async with borrow(pool) as connection:
                rows = await connection.execute("SELECT count(*) FROM login_t")
                assert await rows.fetchone() == (0,)
        finally:
            async with borrow(pool) as connection:
                await connection.execute("DROP FUNCTION refuse CASCADE")


def _revocation(subject: str) -> Revocation:
    now = datetime.now(UTC)
    return Revocation(None, subject, issued_before=now, expires=now + timedelta(hours=1))
