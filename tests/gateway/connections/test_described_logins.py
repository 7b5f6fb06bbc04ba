"""Logins that an OpenAPI description names: followed at addresses of the operator only."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from config.load import load
from config.settings import DatabaseSettings
from gateway.connections.oauth_accounts import PIN_CHANGED, OAuthAccounts, OAuthRefused, Pending
from registry.database.postgres import Database
from registry.sources.import_specs import ImportSpec
from registry.sources.imports import Sources
from registry.sources.tool_store import ToolStore
from schemas.binding import Credential
from schemas.source import DescribedLogin, Source
from tests.fixtures_database import HOST
from tests.fixtures_servers import serving
from tests.gateway.connections.oauth_service import Drive
from tests.gateway.connections.services import Notes, Office, description, link_of, token_of
from tests.gateway.connections.test_oauth import authorize
from tests.gateway.login.company import browsing, company, fields, settings_of

pytestmark = pytest.mark.anyio

CLIENT = {"id": "gateway", "secret": "gateway-secret"}


def flow(at: str, *scopes: str, **urls: str) -> dict[str, Any]:
    urls = {"authorizationUrl": f"{at}/authorize", "tokenUrl": f"{at}/token", **urls}
    return {
        "type": "oauth2",
        "flows": {"authorizationCode": {**urls, "scopes": dict.fromkeys(scopes, "")}},
    }


def write(path: Path, drive: Drive, scheme: dict[str, Any]) -> None:
    path.write_text(json.dumps(description(drive.url, {"login": ["notes.read"]}, login=scheme)))


@asynccontextmanager
async def office_of(
    database: DatabaseSettings, path: Path, drive: Drive, **connect: Any
) -> AsyncIterator[Office]:
    """A gateway in front of `drive`, as the description at `path` has it."""
    env = {
        "TOOLGATE_CONNECTIONS__REFUSED_TOKEN_S": "0.001",
        "TOOLGATE_SOURCES__DRIVE__OPENAPI": str(path),
        "TOOLGATE_SOURCES__DRIVE__BASE_URL": drive.url,
        "TOOLGATE_SOURCES__DRIVE__CONNECT": json.dumps({"mode": "user", **connect}),
    }
    async with company(database, env=env) as made:
        yield Office(made, Notes())


@pytest.mark.parametrize("kind", ["oauth2", "openIdConnect"])
async def test_a_described_login_needs_no_settings(
    database_settings: DatabaseSettings, tmp_path: Path, kind: str
) -> None:
    """CON-3: URLs and scopes stand in the description, the gateway registers itself."""
    drive, path = Drive(), tmp_path / "drive.json"
    async with serving(drive.app) as drive.url, browsing() as browser:
        document = f"{drive.url}/.well-known/openid-configuration"
        scheme = {"type": kind, "openIdConnectUrl": document}
        if kind == "oauth2":
            scheme = flow(drive.url, "notes.read", "notes.write", "offline_access")
        write(path, drive, scheme)
        async with office_of(database_settings, path, drive) as made:
            token = await token_of(made, browser)
            done = await authorize(browser, link_of(await made.call(token)))
            assert done.status == 200, done.text
            assert (await made.call(token))["result"]["structuredContent"] == {"owner": "ann"}
            offline = ["offline_access"] if kind == "oauth2" else []
            assert drive.asked[0]["scope"].split() == ["notes.read", *offline]
            assert drive.requests == {"register": 1, "authorization_code": 1}


@pytest.mark.parametrize(
    "member",
    [
        *("authorizationUrl", "tokenUrl", "openIdConnectUrl"),
        *("authorizationUrl with a query", "openIdConnectUrl of a document"),
    ],
)
async def test_a_login_elsewhere_is_refused_and_named(
    database_settings: DatabaseSettings,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    member: str,
) -> None:
    """U3: nothing is sent to an address that only a description names."""
    drive, elsewhere, path = Drive(), Drive(), tmp_path / "drive.json"
    async with (
        serving(drive.app) as drive.url,
        serving(elsewhere.app) as elsewhere.url,
        browsing() as browser,
    ):
        member, _, more = member.partition(" ")
        url = f"{elsewhere.url}/token"
        if more == "with a query":  # the service would show the request of another client
            url = f"{drive.url}/authorize?client_id=evil&redirect_uri={elsewhere.url}"
        named = flow(drive.url, **{member: url})
        keys = ["authorization_url", "token_url"]
        if member == "openIdConnectUrl":
            named, keys = {"type": member.removesuffix("Url"), member: url}, ["issuer"]
        if more == "of a document":  # which names a token endpoint elsewhere
            drive.changes["token_endpoint"] = url = "https://elsewhere.example/token"
            named[member] = f"{drive.url}/.well-known/openid-configuration"
        write(path, drive, named)
        async with office_of(database_settings, path, drive, client=CLIENT) as made:
            link = link_of(await made.call(await token_of(made, browser)))
            page = await browser.get(link)
            with caplog.at_level(logging.WARNING, "toolgate.connections"):
                refused = await browser.post(link, {**fields(page.text), "choice": "authorize"})
        assert refused.status == 502
        assert elsewhere.url not in refused.text
        (reason,) = [r.__dict__["reason"] for r in caplog.records if r.msg == "connection_failed"]
        assert url in reason
        assert all(f"sources.drive.connect.{key}" in reason for key in keys)
        assert not elsewhere.requests


async def test_a_key_can_be_pasted_where_the_described_login_is_elsewhere(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    drive, path = Drive(), tmp_path / "drive.json"
    async with serving(drive.app) as drive.url, browsing() as browser:
        write(path, drive, flow("https://elsewhere.example"))
        async with office_of(database_settings, path, drive) as made:
            page = await browser.get(link_of(await made.call(await token_of(made, browser))))
            assert 'name="scheme-0"' in page.text
            assert "elsewhere" not in page.text


async def test_settings_win_over_the_description(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    drive, path = Drive(), tmp_path / "drive.json"
    async with serving(drive.app) as drive.url, browsing() as browser:
        write(path, drive, flow("https://elsewhere.example"))
        named = {"authorization_url": f"{drive.url}/authorize", "token_url": f"{drive.url}/token"}
        async with office_of(database_settings, path, drive, client=CLIENT, **named) as made:
            token = await token_of(made, browser)
            await authorize(browser, link_of(await made.call(token)))
            assert (await made.call(token))["result"]["structuredContent"] == {"owner": "ann"}


async def test_a_description_that_moves_its_login_is_not_followed(
    database_settings: DatabaseSettings,
) -> None:
    """CON-5: the server of the first connection stays until the settings name another."""
    connect = json.dumps({"mode": "user", "client": CLIENT})
    env = {
        "TOOLGATE_SOURCES__DRIVE__OPENAPI": "https://drive.example/openapi.json",
        "TOOLGATE_SOURCES__DRIVE__CONNECT": connect,
    }
    settings = settings_of("http://127.0.0.1:1", "http://127.0.0.1:2", database_settings, env)

    wanted = [Credential("login", "oauth2")]
    at = "https://drive.example"

    async with Database.open(database_settings) as database:
        accounts = OAuthAccounts(lambda: settings, lambda: database.pool)

        async def begin(login: DescribedLogin, pinned: dict[str, Any] | None) -> Pending:
            source = Source("1", "drive", "openapi", at, None, False, logins={"login": login})
            _, _, pending = await accounts.begin(source, wanted, (), pinned=pinned, away=False)
            return pending

        login = DescribedLogin(f"{at}/authorize", f"{at}/token")
        pinned = msgspec.to_builtins((await begin(login, None)).server)
        assert (await begin(login, pinned)).server.token_endpoint == f"{at}/token"
        moved = DescribedLogin(f"{at}/authorize", f"{at}/moved")
        expected = f"{at}/moved; set sources.drive.connect.authorization_url and token_url"
        with pytest.raises(OAuthRefused, match=expected) as refused:
            await begin(moved, pinned)
    assert refused.value.reason == PIN_CHANGED


async def test_a_token_is_renewed_at_an_address_that_an_import_named(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """The settings name no address of a source that was imported by command."""
    drive, path = Drive(), tmp_path / "drive.json"
    async with (
        serving(drive.app) as drive.url,
        Database.open(database_settings) as database,
        browsing() as browser,
    ):
        write(path, drive, flow(drive.url))
        sources = Sources(ToolStore(database.pool), HOST, load(None, {}).imports)
        await sources.import_(ImportSpec("drive", str(path), drive.url))
        env = {
            "TOOLGATE_CONNECTIONS__REFUSED_TOKEN_S": "0.001",
            "TOOLGATE_SOURCES__DRIVE__CONNECT": '{"mode": "user"}',
        }
        async with company(database_settings, env=env) as made:
            office = Office(made, Notes())
            token = await token_of(office, browser)
            await authorize(browser, link_of(await office.call(token)))
            drive.end_tokens()
            assert (await office.call(token))["result"]["structuredContent"] == {"owner": "ann"}
            assert drive.requests["refresh_token"] == 1
