"""Connections of people who were disabled, and to sources that were removed."""

import json
from pathlib import Path

import pytest

from config.settings import DatabaseSettings
from gateway.cli.local import open_operations
from registry.access.secrets import Keys
from registry.connections.accounts import Connections, Owner
from registry.database.postgres import Pool, borrow
from registry.login.people import handle_of
from tests.fixtures_database import HOST
from tests.gateway.connections.services import (
    Office,
    connect,
    description,
    link_of,
    office,
    token_of,
)
from tests.gateway.login.company import browsing
from tests.polling import until

pytestmark = pytest.mark.anyio
KEY = "ann-key-123456"


def pool_of(made: Office) -> Pool:
    database = made.company.gateway.feed.database
    assert database is not None
    return database.pool


async def test_connections_of_a_disabled_person_are_suspended_until_the_person_is_enabled(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """A credential that the login does not know, such as a token of the provider, is still good:
    the connection is not (CT6)."""
    async with office(database_settings, tmp_path) as made, browsing() as browser:
        token = await token_of(made, browser)
        await connect(browser, link_of(await made.call(token)), KEY)
        assert "structuredContent" in (await made.call(token))["result"]
        pool = pool_of(made)

        async def disable(disabled: bool) -> None:
            async with borrow(pool) as connection:
                await connection.execute(
                    "UPDATE login_person_t SET disabled_ts = CASE WHEN %s THEN now() END",
                    [disabled],
                )

        async def reason() -> str:
            result = (await made.call(token))["result"]
            meta = result.get("_meta") or {}
            return str(meta.get("toolgate/connect", {}).get("reason", "none"))

        async def is_suspended() -> bool:
            return await reason() == "suspended"

        async def is_good() -> bool:
            return await reason() == "none"

        await disable(True)
        await until(is_suspended)
        calls = len(made.notes.seen)
        assert await reason() == "suspended"
        assert len(made.notes.seen) == calls
        async with open_operations(made.company.gateway.settings) as operations:
            (entry,) = (await operations.call("listConnections", {})).value["items"]
            assert entry["state"] == "suspended"
        await disable(False)
        await until(is_good)


async def test_disabling_a_person_by_the_operation_suspends_their_connections(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with office(database_settings, tmp_path) as made, browsing() as browser:
        token = await token_of(made, browser)
        await connect(browser, link_of(await made.call(token)), KEY)
        async with open_operations(made.company.gateway.settings) as operations:
            (entry,) = (await operations.call("listConnections", {})).value["items"]
            person = {"person": handle_of(entry["principal"])}
            for operation, state in (("disablePerson", "suspended"), ("enablePerson", "ok")):
                await operations.call(operation, person)
                (entry,) = (await operations.call("listConnections", {})).value["items"]
                assert entry["state"] == state


async def test_a_removed_source_leaves_no_connection_to_its_namesake(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with office(database_settings, tmp_path) as made, browsing() as browser:
        token = await token_of(made, browser)
        await connect(browser, link_of(await made.call(token)), KEY)
        settings = made.company.gateway.settings
        stored = Connections(pool_of(made), HOST, Keys.of(settings.secrets))
        (row,) = await stored.all(HOST)
        owner = Owner(HOST, row.principal, "shop")
        async with borrow(pool_of(made)) as connection:
            await connection.execute("UPDATE connection_t SET source = 'shop'")
        assert len(await stored.of(owner)) == 1
        document = json.dumps(description("http://127.0.0.1:1"))
        body = {"kind": "openapi", "name": "shop", "document": document}
        async with open_operations(settings) as operations:
            await operations.call(
                "importSource", {"body": {**body, "base_url": "https://s.example"}}
            )
            await operations.call("deleteSource", {"source": "shop"})
        assert await stored.of(owner) == []
