"""The tool `connections`: callers list, connect and disconnect their own accounts (CON-10)."""

import json
from pathlib import Path
from typing import Any

import pytest

from config.settings import DatabaseSettings
from registry.database.postgres import borrow
from tests.gateway.connections.services import Office, connect, link_of, office, rows_of, token_of
from tests.gateway.connections.test_audit import ACTS
from tests.gateway.connections.test_fronts import call_stateless
from tests.gateway.connections.test_leavers import pool_of
from tests.gateway.login.company import browsing

pytestmark = pytest.mark.anyio
KEY = "ann-key-123456"


async def ask(made: Office, token: str, action: str, **more: str) -> Any:
    """The data of an answer, or the text of a refusal."""
    answer = await made.call(token, "connections", arguments={"action": action, **more})
    if "error" in answer:
        return answer["error"]["message"]
    result = answer["result"]
    return result["content"][0]["text"] if result.get("isError") else result["structuredContent"]


async def names_of(made: Office, token: str, version: str) -> list[str]:
    listed = await made.ask(token, "tools/list", {}, version)
    return [tool["name"] for tool in listed["result"]["tools"]]


@pytest.mark.parametrize("mode", ["direct", "search"])
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_the_tool_is_listed_where_a_source_takes_accounts(
    database_settings: DatabaseSettings, tmp_path: Path, version: str, mode: str
) -> None:
    env = {"TOOLGATE_DISCLOSURE__MODE": mode}
    async with office(database_settings, tmp_path, env=env) as made, browsing() as browser:
        token = await token_of(made, browser)
        assert "connections" in await names_of(made, token, version)


async def test_the_tool_is_absent_where_no_source_takes_accounts(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    connect = {"mode": "off"}
    async with office(database_settings, tmp_path, connect=connect) as made, browsing() as browser:
        token = await token_of(made, browser)
        assert await names_of(made, token, "2025-06-18") == ["add_note", "list_notes"]
        assert "Unknown tool" in await ask(made, token, "list")


async def test_callers_connect_and_disconnect_their_own_accounts_alone(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with office(database_settings, tmp_path) as made, browsing() as ann, browsing() as bob:
        of_ann, of_bob = await token_of(made, ann), await token_of(made, bob, "bob")
        nothing = {"services": [{"source": "notes", "connections": []}]}
        assert await ask(made, of_ann, "list") == nothing
        link = (await ask(made, of_ann, "link", source="notes"))["url"]
        await connect(ann, link, KEY)
        listed = await ask(made, of_ann, "list")
        (row,) = listed["services"][0]["connections"]
        assert (row["state"], row["scheme"]) == ("ok", "key")
        assert KEY[-4:] not in json.dumps(listed)
        assert await ask(made, of_bob, "list") == nothing
        assert "expected the id" in await ask(made, of_bob, "disconnect", connection=row["id"])
        assert "expected one that" in await ask(made, of_ann, "link", source="none")
        assert "structuredContent" in (await made.call(of_ann))["result"]
        done = await ask(made, of_ann, "disconnect", connection=row["id"])
        assert done == {"disconnected": row["id"]}
        link_of(await made.call(of_ann))
        last = (await rows_of(made, ACTS))[-1]
        assert last == ("disconnect", f"notes/{row['id']}", "allow")


async def test_stateless_clients_and_rpc_have_the_tool(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with office(database_settings, tmp_path) as made, browsing() as browser:
        nothing = {"services": [{"source": "notes", "connections": []}]}
        token, listing = await token_of(made, browser), {"action": "list"}
        answer = await call_stateless(made, token, {}, name="connections", arguments=listing)
        assert answer["result"]["structuredContent"] == nothing
        _, tokens = await made.company.grant_tokens(browser, resource=f"{made.url}/rpc")
        headers = {"Authorization": f"Bearer {tokens['access_token']}"}
        body = {"jsonrpc": "2.0", "id": 1, "method": "connections", "params": listing}
        async with made.company.http.post(f"{made.url}/rpc", json=body, headers=headers) as asked:
            assert (await asked.json())["result"] == nothing


async def test_the_tool_has_no_service_that_rules_hide_from_its_caller(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    rule = {"effect": "deny", "tools": ["*_note*"], "when": "principal.id != 'corp:ann'"}
    env = {"TOOLGATE_POLICY__RULES__NOTES": json.dumps(rule)}
    async with (
        office(database_settings, tmp_path, env=env) as made,
        browsing() as ann,
        browsing() as bob,
    ):
        of_ann, of_bob = await token_of(made, ann), await token_of(made, bob, "bob")
        (service,) = (await ask(made, of_ann, "list"))["services"]
        assert service["source"] == "notes"
        assert await names_of(made, of_bob, "2025-06-18") == []
        assert "Unknown tool" in await ask(made, of_bob, "link", source="notes")


async def test_the_tool_ends_no_connection_to_an_unlisted_service(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """A client of one toolset does not act beyond it, whatever ids its model has read."""
    async with office(database_settings, tmp_path) as made, browsing() as browser:
        token = await token_of(made, browser)
        await connect(browser, link_of(await made.call(token)), KEY)
        async with borrow(pool_of(made)) as connection:
            await connection.execute("UPDATE connection_t SET source = 'shop'")
        ((id_,),) = await rows_of(made, "SELECT connection_id::text FROM connection_t")
        assert "expected the id" in await ask(made, token, "disconnect", connection=id_)
        assert await rows_of(made, "SELECT source FROM connection_t") == [("shop",)]
