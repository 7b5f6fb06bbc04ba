"""An account at an MCP server of the official SDK, which has its own login."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import httpx2
import pytest
from mcp.client.client import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from config.settings import DatabaseSettings
from examples.connections.tracker import LIFETIME_S
from gateway.connections.oauth.discovery import Discovery, McpServer
from gateway.connections.oauth.gateway_as_client import ClientDocuments, OAuthClients
from gateway.connections.oauth.grants import GrantFailed, Grants, Tokens, choose_scopes
from gateway.connections.oauth.guarded_requests import Reach
from registry.access.column_encryption import Vault
from registry.access.secrets import Keys
from registry.connections import CONNECTIONS
from registry.connections.gateway_registrations import RegisteredClients
from registry.database.postgres import Database
from registry.login import LOGIN
from tests.fixtures_servers import serving
from tests.gateway.connections.oauth.limits import limits
from tests.servers.authorization import Late
from tests.servers.mcp_login import SCOPE, Accounts, build_app

pytestmark = pytest.mark.anyio

HOST = "01964b05-0000-7000-8000-000000000004"
CALLBACK = "https://gateway.example/connect/pets/callback"


@dataclass
class Pets:
    url: str
    accounts: Accounts

    async def call(self, token: str) -> str:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            McpClient(streamable_http_client(f"{self.url}/mcp", http_client=http)) as mcp,
        ):
            result = await mcp.call_tool("feed", {"name": "Rex"})
            return str(result.content[0].text)  # type: ignore[union-attr]


@asynccontextmanager
async def pets() -> AsyncIterator[Pets]:
    late = Late()
    async with serving(late) as url:
        accounts, app = build_app(url)
        late.app = app
        async with app.router.lifespan_context(app):
            yield Pets(url, accounts)


async def redeem(grants: Grants, scopes: tuple[str, ...]) -> Tokens:
    url, attempt = grants.begin(CALLBACK, "state", scopes)
    async with aiohttp.ClientSession() as http, http.get(url, allow_redirects=False) as sent:
        assert sent.status == 302, await sent.text()
        query = dict(parse_qsl(urlsplit(sent.headers["Location"]).query))
    assert query["state"] == "state"
    return await grants.redeem(attempt, query)


async def test_a_person_connects_to_a_server_with_its_own_login(
    database_settings: DatabaseSettings,
) -> None:
    """CON-5, CON-6, CON-12: found by its 401, registered, redeemed, renewed, revoked."""
    async with (
        pets() as place,
        Database.open(database_settings, wait=False, components=(LOGIN, CONNECTIONS)) as database,
    ):
        reach = Reach(limits(), [place.url])  # it is inside; an operator named it
        found = await Discovery(reach.limits).of_mcp_server(
            McpServer(url=f"{place.url}/mcp"), reach
        )
        server = found.server
        assert server.resource == f"{place.url}/mcp"
        assert [step.detail for step in found.steps if step.name == "challenge"] == ["HTTP 401"]
        rows = RegisteredClients(database.pool, HOST, Vault(Keys(bytes(32)), HOST))
        client = await OAuthClients(ClientDocuments("", ())).find(server, CALLBACK, reach, rows)
        assert client.kind == "registered"
        grants = Grants(server, client, reach)
        tokens = await redeem(grants, choose_scopes(server, ()))
        assert (tokens.scopes, tokens.lasts_s) == ((SCOPE,), LIFETIME_S)
        assert await place.call(tokens.access) == "fed Rex"
        renewed = await grants.renew(tokens.refresh or "", tokens.scopes)
        assert await place.call(renewed.access) == "fed Rex"
        assert await grants.revoke(renewed.refresh or "", "refresh_token")
        with pytest.raises(GrantFailed) as over:
            await grants.renew(renewed.refresh or "", tokens.scopes)
        assert over.value.reason == "over"
        place.accounts.clients.clear()
        with pytest.raises(GrantFailed) as unknown:
            await grants.renew(renewed.refresh or "", tokens.scopes)
        assert unknown.value.reason == "client"
