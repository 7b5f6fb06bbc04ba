"""Operators see the states of connections and end them; they never see a secret."""

import json
from pathlib import Path

import pytest

from config.settings import DatabaseSettings
from gateway.cli.local import open_operations
from tests.fixtures_database import HOST
from tests.gateway.connections.services import connect, link_of, office, token_of
from tests.gateway.login.company import browsing
from tests.polling import until

pytestmark = pytest.mark.anyio
KEY = "ann-key-123456"


async def test_an_operator_ends_a_connection_at_a_gateway_that_runs(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """The operation runs in another process than the calls, which ask their person again."""
    async with office(database_settings, tmp_path) as made, browsing() as browser:
        token = await token_of(made, browser)
        await connect(browser, link_of(await made.call(token)), KEY)
        assert "structuredContent" in (await made.call(token))["result"]
        async with open_operations(made.company.gateway.settings) as operations:
            listed = await operations.call("listConnections", {"source": "notes"})
            (entry,) = listed.value["items"]
            assert (entry["state"], entry["source"], entry["scheme"]) == ("ok", "notes", "key")
            assert entry["principal"].endswith("ann")
            assert KEY[-4:] not in json.dumps(listed.value)
            none = await operations.call("listConnections", {"principal": "nobody"})
            assert none.value["items"] == []
            await operations.call("deleteConnection", {"connection": entry["id"]})
            assert (await operations.call("listConnections", {})).value["items"] == []
        calls = len(made.notes.seen)

        async def is_refused() -> bool:
            return bool((await made.call(token))["result"].get("isError"))

        await until(is_refused)
        link_of(await made.call(token))
        assert all(seen["x-key"] == KEY for seen in made.notes.seen[calls:])


async def test_operators_of_another_tenant_see_no_connection(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with office(database_settings, tmp_path) as made, browsing() as browser:
        token = await token_of(made, browser)
        await connect(browser, link_of(await made.call(token)), KEY)
        settings = made.company.gateway.settings
        async with open_operations(settings) as operations:
            (entry,) = (await operations.call("listConnections", {})).value["items"]
        other = HOST[:-1] + ("0" if HOST[-1] != "0" else "1")
        async with open_operations(settings, other) as operations:
            assert (await operations.call("listConnections", {})).value["items"] == []
            with pytest.raises(Exception, match="connection"):
                await operations.call("deleteConnection", {"connection": entry["id"]})
        assert "structuredContent" in (await made.call(token))["result"]
