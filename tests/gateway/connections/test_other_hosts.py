"""A person's credential goes to the service that the operator names, whatever answers or
descriptions say (CT5)."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from config.settings import DatabaseSettings
from tests.fixtures_servers import Serve
from tests.gateway.connections.services import (
    Notes,
    Office,
    connect,
    description,
    link_of,
    office,
    token_of,
)
from tests.gateway.login.company import browsing, company

pytestmark = pytest.mark.anyio

KEY = {"type": "apiKey", "in": "header", "name": "X-Key"}


async def test_a_redirect_takes_no_credential_along(
    database_settings: DatabaseSettings, tmp_path: Path, serve: Serve
) -> None:
    elsewhere = Notes()
    address = await serve(elsewhere.app)

    async def lead(_request: Request) -> Response:
        return RedirectResponse(f"{address}/notes", 307)

    leading = await serve(Starlette(routes=[Route("/notes", lead)]))
    env = {"TOOLGATE_SOURCES__NOTES__BASE_URL": leading}
    async with office(database_settings, tmp_path, env=env) as made, browsing() as browser:
        token = await token_of(made, browser)
        await connect(browser, link_of(await made.call(token)), "ann-key-123456")
        assert (await made.call(token))["result"]["isError"]
        assert elsewhere.seen == []


async def test_an_operation_with_a_server_of_its_own_gets_no_credential(
    database_settings: DatabaseSettings, tmp_path: Path, serve: Serve
) -> None:
    elsewhere = Notes()
    address = await serve(elsewhere.app)

    def spec(url: str) -> dict[str, Any]:
        made = description(url, {"key": []}, key=KEY)
        made["paths"]["/notes"]["get"]["servers"] = [{"url": address}]
        return made

    async with office(database_settings, tmp_path, spec=spec) as made, browsing() as browser:
        token = await token_of(made, browser)
        await connect(browser, link_of(await made.call(token, "add_note")), "ann-key-123456")
        await made.call(token)
        assert [seen for seen in elsewhere.seen if "x-key" in seen] == []


async def test_an_address_of_a_description_alone_gets_no_credential(
    database_settings: DatabaseSettings, tmp_path: Path, serve: Serve
) -> None:
    notes = Notes()
    path = tmp_path / "notes.json"
    path.write_text(json.dumps(description(await serve(notes.app), {"key": []}, key=KEY)))
    env = {
        "TOOLGATE_SOURCES__NOTES__OPENAPI": str(path),
        "TOOLGATE_SOURCES__NOTES__CONNECT": json.dumps({"mode": "user"}),
    }
    async with company(database_settings, env=env) as made_company, browsing() as browser:
        made = Office(made_company, notes)
        token = await token_of(made, browser)
        await connect(browser, link_of(await made.call(token)), "ann-key-123456")
        answer = await made.call(token)
        assert "only its description says where it is" in json.dumps(answer)
        assert notes.seen == []
