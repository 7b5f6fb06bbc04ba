"""Accounts by OAuth, apart from calls and pages."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

import jwt
import msgspec
import pytest

from config.settings import DatabaseSettings
from config.sources import SchemeSettings
from gateway.connections.oauth.gateway_as_client import AssertionKey, OAuthClient
from gateway.connections.oauth.server_metadata import AuthorizationServer
from gateway.connections.oauth_accounts import OAuthAccounts
from registry.connections.accounts import Connection, Owner, Secret
from registry.database.migrate import REGISTRY
from registry.database.postgres import Database
from registry.login import LOGIN
from tests.fixtures_servers import Serve
from tests.gateway.login.company import browsing, company, settings_of
from tests.servers.documents import DocumentServer

pytestmark = pytest.mark.anyio

TENANT = "01964b05-0000-7000-8000-000000000005"
OWNER = Owner(TENANT, "corp:ann", "pets")
Row = Any


@asynccontextmanager
async def pets_accounts(
    serve: Serve, database: DatabaseSettings
) -> AsyncIterator[tuple[OAuthAccounts, DocumentServer, Row]]:
    """Accounts at a server at the origin of the source, which no document has to be trusted for."""
    pets = DocumentServer({"/token": {"access_token": "new", "expires_in": 60}})
    url = await serve(pets)
    env = {
        "TOOLGATE_SOURCES__PETS__MCP": f"{url}/mcp",
        "TOOLGATE_SOURCES__PETS__CONNECT": json.dumps({"mode": "user"}),
    }
    settings = settings_of("http://127.0.0.1:1", "http://127.0.0.1:2", database, env)
    server = AuthorizationServer(
        issuer=url, authorization_endpoint=f"{url}/authorize", token_endpoint=f"{url}/token"
    )
    row = dict.fromkeys(Connection.__struct_fields__, "") | {
        "id": UUID(int=1),
        "scopes": [],
        "server": msgspec.to_builtins(server),
    }
    async with Database.open(database, components=(REGISTRY, LOGIN)) as opened:
        accounts = OAuthAccounts(lambda: settings, lambda: opened.pool)
        yield accounts, pets, Connection(**row)


async def test_tokens_of_named_private_servers_are_renewed(
    serve: Serve, database_settings: DatabaseSettings
) -> None:
    client = msgspec.to_builtins(OAuthClient(id="gateway"))
    secret = Secret(SchemeSettings(token="old"), "refresh", client)
    async with pets_accounts(serve, database_settings) as (accounts, _, row):
        renewed = await accounts.renew(OWNER, row, secret)
    assert renewed.secret.entry.token == "new"
    assert renewed.secret.refresh == "refresh"


async def test_the_keys_of_the_login_sign_the_gateway_s_authentication(
    serve: Serve, database_settings: DatabaseSettings
) -> None:
    """The document of the gateway names the key set that the login publishes."""
    client = OAuthClient(id="https://gateway.example/oauth/client.json", method="private_key_jwt")
    secret = Secret(SchemeSettings(token="old"), "refresh", msgspec.to_builtins(client))
    async with pets_accounts(serve, database_settings) as (accounts, pets, row):
        await accounts.renew(OWNER, row, secret)
        published = jwt.PyJWKSet.from_json((await accounts.keys.jwks()).decode())
    form = dict(parse_qsl(pets.posted[0].decode()))
    assertion, audience = form["client_assertion"], row.server["issuer"]
    key = published[jwt.get_unverified_header(assertion)["kid"]]
    claims = jwt.decode(assertion, key, ["ES256"], audience=audience)
    assert claims["iss"] == claims["sub"] == client.id


async def test_both_documents_of_the_gateway_are_published(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings) as made:
        documents = {}
        for name in ("client", "public-client"):
            async with made.http.get(f"{made.url}/oauth/{name}.json") as answer:
                assert answer.status == 200
                documents[name] = await answer.json()
            assert documents[name]["client_id"] == f"{made.url}/oauth/{name}.json"
        assert documents["public-client"]["token_endpoint_auth_method"] == "none"
        assert documents["client"]["token_endpoint_auth_method"] == "private_key_jwt"
        async with made.http.get(documents["client"]["jwks_uri"]) as answer:
            assert (await answer.json())["keys"]


async def test_a_signed_authentication_is_no_token_here(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings) as made, browsing() as browser:
        await made.grant_tokens(browser)
        server = made.gateway.login._server  # type: ignore[union-attr]
        assert server is not None
        key = await server._keys.current()
        for client_id in (f"{made.url}/oauth/client.json", made.url):
            form = AssertionKey(key.id, key.private).sign(client_id, f"{made.url}/mcp")
            assert await made.status(form["client_assertion"]) == 401
