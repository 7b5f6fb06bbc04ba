"""Accounts by OAuth, apart from calls and pages."""

import json
from uuid import UUID

import msgspec
import pytest

from config.settings import DatabaseSettings
from config.sources import SchemeSettings
from gateway.connections.oauth.clients import OAuthClient
from gateway.connections.oauth.servers import AuthorizationServer
from gateway.connections.oauth_accounts import OAuthAccounts
from registry.connections.accounts import Connection, Owner, Secret
from registry.database.postgres import Database
from tests.fixtures_servers import Serve
from tests.gateway.login.company import settings_of
from tests.servers.documents import DocumentServer

pytestmark = pytest.mark.anyio

TENANT = "01964b05-0000-7000-8000-000000000005"


async def test_tokens_of_named_private_servers_are_renewed(
    serve: Serve, database_settings: DatabaseSettings
) -> None:
    """Its authorization server is at the same origin, which no document has to be trusted for."""
    pets = DocumentServer({"/token": {"access_token": "new", "expires_in": 60}})
    url = await serve(pets)
    env = {
        "TOOLGATE_SOURCES__PETS__MCP": f"{url}/mcp",
        "TOOLGATE_SOURCES__PETS__CONNECT": json.dumps({"mode": "user"}),
    }
    settings = settings_of("http://127.0.0.1:1", "http://127.0.0.1:2", database_settings, env)

    server = AuthorizationServer(
        issuer=url, authorization_endpoint=f"{url}/authorize", token_endpoint=f"{url}/token"
    )
    row = dict.fromkeys(Connection.__struct_fields__, "") | {
        "id": UUID(int=1),
        "scopes": [],
        "server": msgspec.to_builtins(server),
    }
    client = msgspec.to_builtins(OAuthClient(id="gateway"))
    secret = Secret(SchemeSettings(token="old"), "refresh", client)
    owner = Owner(TENANT, "corp:ann", "pets")
    async with Database.open(database_settings) as database:
        accounts = OAuthAccounts(lambda: settings, lambda: database.pool)
        renewed = await accounts.renew(owner, Connection(**row), secret)
    assert renewed.secret.entry.token == "new"
    assert renewed.secret.refresh == "refresh"
