"""The audit log has each use of a connection, renewals that failed, and requests for scopes."""

from pathlib import Path

import pytest

from config.settings import DatabaseSettings
from tests.gateway.connections.oauth_service import Drive
from tests.gateway.connections.services import connect, link_of, office, rows_of, token_of
from tests.gateway.connections.test_mcp import files_office
from tests.gateway.connections.test_oauth import authorize, connected_office
from tests.gateway.login.company import browsing

pytestmark = pytest.mark.anyio


USES = "SELECT subject, outcome, connection FROM audit_t WHERE source IS NOT NULL ORDER BY sequence"
ACTS = "SELECT method, subject, decision FROM audit_t WHERE front = 'connection' ORDER BY sequence"
IDS = "SELECT connection_id::text FROM connection_t"


async def test_a_call_is_recorded_with_its_connection(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """CON-21: the first call with what was read, and the next."""
    async with office(database_settings, tmp_path) as made, browsing() as browser:
        token = await token_of(made, browser)
        await connect(browser, link_of(await made.call(token)), "ann-key-123456")
        await made.call(token)
        await made.call(token)
        ((id_,),) = await rows_of(made, IDS)
        assert await rows_of(made, USES) == [
            ("list_notes", "tool_error", None),
            ("list_notes", "ok", id_),
            ("list_notes", "ok", id_),
        ]


async def test_calls_prompts_and_resources_of_an_mcp_server_are_recorded_with_the_connection(
    database_settings: DatabaseSettings,
) -> None:
    drive = Drive()
    async with files_office(database_settings, drive) as made, browsing() as browser:
        token = await token_of(made, browser)
        await authorize(browser, link_of(await made.call(token, "whose")))
        await made.call(token, "whose")
        await made.ask(token, "prompts/get", {"name": "about"})
        await made.ask(token, "resources/read", {"uri": "files://mine"})
        ((id_,),) = await rows_of(made, IDS)
        uses = "SELECT method, connection FROM audit_t WHERE connection <> '' ORDER BY sequence"
        assert await rows_of(made, uses) == [
            ("tools/call", id_),
            ("prompts/get", id_),
            ("resources/read", id_),
        ]


async def test_failed_renewals_and_requests_for_scopes_are_recorded(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    drive = Drive()
    async with connected_office(database_settings, tmp_path, drive) as (made, _browser, token):
        ((id_,),) = await rows_of(made, IDS)
        drive.needs = "notes.write"
        await made.call(token)
        await made.call(token)
        drive.needs = ""
        drive.end_tokens()
        drive.down = True
        await made.call(token)
        assert await rows_of(made, ACTS) == [
            ("connect", f"drive/{id_}", "allow"),
            ("scopes", "drive: notes.write", "deny"),
            ("renew", f"drive/{id_}", "deny"),
        ]
