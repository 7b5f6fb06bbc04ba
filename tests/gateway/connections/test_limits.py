"""Links, connections and renewals of one person are bounded (CT10)."""

from pathlib import Path

import pytest

from config.settings import DatabaseSettings
from registry.connections.accounts import Owner
from tests.gateway.connections.oauth_service import Drive
from tests.gateway.connections.services import connect, link_of, office, token_of
from tests.gateway.connections.test_oauth import connected_office
from tests.gateway.login.company import browsing
from tests.gateway.login.test_attacks import sql

pytestmark = pytest.mark.anyio

COUNT = "SELECT count(*) FROM connection_ticket_t"


async def test_links_of_one_person_are_few(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """Calls share a link; of links for other needs, the oldest end, and those of others do not."""
    env = {"TOOLGATE_CONNECTIONS__TICKETS": "3"}
    async with (
        office(database_settings, tmp_path, env=env) as made,
        browsing() as ann,
        browsing() as bob,
    ):
        tokens = [await token_of(made, ann), await token_of(made, bob, "bob")]
        links = [link_of(await made.call(token)) for token in tokens for _ in range(4)]
        assert len({*links}) == 2
        assert str(await sql(database_settings, COUNT)) == "[(2,)]"
        people = made.company.gateway.connections
        assert people is not None
        tenant = made.company.gateway.principal.tenant
        for number in range(9):
            owner = Owner(tenant, "corp:ann", f"source-{number}")
            await people.connector.connection_fault(owner, (), "missing")
        assert str(await sql(database_settings, COUNT)) == "[(4,)]"
        assert (await ann.get(links[0])).status == 404
        assert (await bob.get(links[-1])).status == 200


async def test_connections_of_one_person_are_limited(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    env = {"TOOLGATE_CONNECTIONS__PER_PERSON": "1"}
    async with office(database_settings, tmp_path, env=env) as made, browsing() as browser:
        token = await token_of(made, browser)
        link = link_of(await made.call(token))
        tenant = made.company.gateway.principal.tenant
        await sql(
            database_settings,
            "INSERT INTO connection_t (host_id, connection_id, tenant_id, principal, source, label,"
            f" scheme, kind, sealed) VALUES ('{tenant}', gen_random_uuid(), '{tenant}', 'corp:ann',"
            " 'other', '', 'key', 'api_key', '')",
        )
        page = await connect(browser, link, "ann-key-123456")
        assert page.status == 422
        assert "connections.per_person" in page.text


async def test_a_service_that_refuses_every_token_causes_one_renewal(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    drive, more = Drive(), {"TOOLGATE_CONNECTIONS__REFUSED_TOKEN_S": "60"}
    async with connected_office(database_settings, tmp_path, drive, more=more) as (
        made,
        _browser,
        token,
    ):
        drive.acr, drive.challenge = "never", 'Bearer error="invalid_token"'
        for _ in range(6):
            assert (await made.call(token))["result"]["isError"]
        assert drive.requests["refresh_token"] == 1
