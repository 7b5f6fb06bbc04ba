"""Keys, tokens, codes, verifiers and tickets are in no log, table, page or answer."""

import logging
from pathlib import Path

import pytest
from psycopg.sql import SQL, Identifier

from config.settings import DatabaseSettings
from tests.gateway.connections.oauth_service import Drive
from tests.gateway.connections.services import connect, link_of, office, token_of
from tests.gateway.connections.test_oauth import authorize, drive_office
from tests.gateway.login.company import Company, browsing, query_of

pytestmark = pytest.mark.anyio

KEY = "planted-key-0123456789"


async def dump(made: Company) -> str:
    """All rows of all tables, as text."""
    pool = made.gateway._handle.pool()
    assert pool is not None
    texts: list[str] = []
    async with pool.connection() as connection:
        names = await connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        )
        for (name,) in await names.fetchall():
            rows = await connection.execute(
                SQL("SELECT row_to_json(t)::text FROM {} AS t").format(Identifier(name))
            )
            texts += [row[0] for row in await rows.fetchall()]
    return "\n".join(texts)


async def test_a_key_is_in_no_log_table_or_page(
    database_settings: DatabaseSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with office(database_settings, tmp_path) as made, browsing() as browser:
        made.notes.keys[KEY] = "ann"
        token = await token_of(made, browser)
        link = link_of(await made.call(token))
        ticket = query_of(link)["ticket"]
        pages = [(await connect(browser, link, KEY)).text]
        assert (await made.call(token))["result"]["structuredContent"] == {"owner": "ann"}
        made.notes.keys.clear()
        refused = await made.call(token)
        link_of(refused)
        pages += [(await browser.get(f"{made.url}/connect")).text, str(refused)]
        await made.company.gateway.access.settle()
        stored = await dump(made.company)
    assert '"principal":"corp:ann"' in stored
    for secret in (KEY, ticket):
        assert secret not in stored
        assert secret not in caplog.text
    assert all(KEY not in page for page in pages)


async def test_tokens_codes_and_verifiers_are_in_no_log_or_table(
    database_settings: DatabaseSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    drive = Drive()
    async with (
        drive_office(database_settings, tmp_path, drive) as made,
        browsing() as browser,
    ):
        token = await token_of(made, browser)
        link = link_of(await made.call(token))
        under_way = await browser.get(link)
        assert under_way.status == 200
        await authorize(browser, link)
        first = {*drive.access, *drive.refresh}
        drive.end_tokens()
        await made.call(token)
        drive.down = True
        drive.end_tokens()
        await made.call(token)  # a renewal that fails
        await made.company.gateway.access.settle()
        stored = await dump(made.company)
        secrets = {*first, *drive.access, *drive.refresh, drive.asked[0]["state"]}
    assert len(secrets) >= 4
    for secret in (*secrets, "gateway-secret"):
        assert secret not in stored
        assert secret not in caplog.text
