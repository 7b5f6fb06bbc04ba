"""The official client logs in, is refreshed, and logs in again, against this login."""

import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from msgspec.structs import replace

from config.login import LoginClient
from config.settings import DatabaseSettings
from examples.login.client import Memory
from tests.fixtures_servers import serving
from tests.gateway.login.company import REDIRECT, Browser, Company, browsing, company, query_of
from tests.gateway.login.test_clients import Published
from tests.servers.authorization import Late
from tests.servers.identity import Identity

pytestmark = pytest.mark.anyio


class Desk:
    """A person with a browser, whom the client sends to log in."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.logins = 0
        self.back: dict[str, str] = {}

    async def redirect(self, url: str) -> None:
        self.logins += 1
        answer = await self.browser.get(url)
        if answer.status == 200:
            answer = await self.browser.log_in(url)
        self.back = query_of(answer.location)

    async def callback(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(
            code=self.back["code"], state=self.back["state"], iss=self.back["iss"]
        )


@asynccontextmanager
async def connecting(
    made: Company, desk: Desk, memory: Memory, **more: Any
) -> AsyncIterator[tuple[Client, OAuthClientProvider]]:
    metadata = OAuthClientMetadata(
        client_name="The official client",
        redirect_uris=[REDIRECT],  # type: ignore[list-item]
        grant_types=["authorization_code", "refresh_token"],
        token_endpoint_auth_method="none",
    )
    url = f"{made.url}/mcp"
    oauth = OAuthClientProvider(url, metadata, memory, desk.redirect, desk.callback, **more)
    async with (
        httpx2.AsyncClient(auth=oauth, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client, oauth


async def test_the_client_registers_logs_in_and_refreshes(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings) as made, browsing() as browser:
        desk, memory = Desk(browser), Memory()
        async with connecting(made, desk, memory) as (client, oauth):
            await client.list_tools()
            assert desk.logins == 1
            before = memory.tokens
            oauth.context.token_expiry_time = time.time() - 1
            await client.call_tool("search_tools", {"query": "pets"})
            assert memory.tokens != before
            assert desk.logins == 1
        async with connecting(made, desk, memory) as (client, _):
            await client.list_tools()  # in another process
            assert desk.logins == 1


async def test_the_client_logs_in_again_where_its_login_has_ended(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings) as made, browsing() as browser:
        desk, memory = Desk(browser), Memory()
        async with connecting(made, desk, memory) as (client, _):
            await client.list_tools()
        assert memory.tokens is not None
        form = {"token": memory.tokens.refresh_token, "client_id": memory.client.client_id}  # type: ignore[union-attr]
        async with made.http.post(f"{made.url}/revoke", data=form) as answer:
            assert answer.status == 200
        async with connecting(made, desk, memory) as (client, _):
            await client.list_tools()
        assert desk.logins == 2


async def test_two_nodes_serve_one_login(database_settings: DatabaseSettings) -> None:
    async with company(database_settings) as made, browsing() as browser:
        client, tokens = await made.grant_tokens(browser)
        login = made.gateway.login
        assert login is not None
        settings = made.gateway.settings
        async with company(database_settings, made.identity, url=made.url) as other:
            assert other.gateway.settings.server.public_url == settings.server.public_url
            assert await other.status(tokens["access_token"]) == 200
            status, following = await other.refresh(client, tokens["refresh_token"])
            assert status == 200
            assert await made.status(following["access_token"]) == 200
            back = await browser.log_in(made.authorize(client))
            status, _ = await other.take_code(client, back.query["code"])
            assert status == 200
            status, _ = await made.take_code(client, back.query["code"])
            assert status == 400
            form = {"token": following["refresh_token"], "client_id": client}
            async with other.http.post(f"{other.url}/revoke", data=form) as answer:
                assert answer.status == 200
            assert await other.status(following["access_token"]) == 401


SECRET = "a secret of a machine"


async def list_tools(made: Company, oauth: httpx2.Auth) -> None:
    async with (
        httpx2.AsyncClient(auth=oauth, timeout=60) as http,
        Client(streamable_http_client(f"{made.url}/mcp", http_client=http)) as client,
    ):
        await client.list_tools()


async def test_the_client_is_known_by_its_document(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = "https://program.example/oauth/client.json"
    published = Published()
    published.documents[document] = {
        "client_id": document,
        "client_name": "Program",
        "redirect_uris": [REDIRECT],
    }
    monkeypatch.setattr("gateway.login.clients.fetch", published.fetch)
    async with company(database_settings) as made, browsing() as browser:
        desk, memory = Desk(browser), Memory()
        async with connecting(made, desk, memory, client_metadata_url=document) as (client, oauth):
            await client.list_tools()
            oauth.context.token_expiry_time = time.time() - 1
            await client.list_tools()
        assert desk.logins == 1
        assert memory.client is not None
        assert memory.client.client_id == document


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_the_client_acts_for_itself_with_a_secret(
    database_settings: DatabaseSettings, method: Any
) -> None:
    machine = LoginClient(secret=SECRET, grants=("client_credentials",), roles=("clerk",))
    async with company(database_settings, clients={"machine": machine}) as made:
        memory = Memory()
        oauth = ClientCredentialsOAuthProvider(
            f"{made.url}/mcp", memory, "machine", SECRET, method, issuer=made.url
        )
        await list_tools(made, oauth)
        assert memory.tokens is not None
        assert memory.tokens.scope == "tools:read tools:write"


async def test_the_client_acts_for_itself_with_a_key(database_settings: DatabaseSettings) -> None:
    identity, gate = Identity(), Late()  # which has the keys of the client, too
    gate.app = identity.app
    async with serving(gate) as identity.url:
        machine = LoginClient(jwks_uri=f"{identity.url}/jwks", grants=("client_credentials",))
        async with company(database_settings, identity, clients={"machine": machine}) as made:
            key = identity._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            signed = SignedJWTParameters(
                issuer="machine",
                subject="machine",
                signing_key=key.decode(),
                signing_algorithm="ES256",
            )
            oauth = PrivateKeyJWTOAuthProvider(
                f"{made.url}/mcp",
                Memory(),
                "machine",
                signed.create_assertion_provider(),
                issuer=made.url,
            )
            await list_tools(made, oauth)


async def test_the_client_gets_a_token_by_an_identity_assertion(
    database_settings: DatabaseSettings,
) -> None:
    machine = LoginClient(secret=SECRET, grants=("id_jag",))
    async with company(database_settings, clients={"machine": machine}) as made:
        server = made.gateway.login._server  # type: ignore[union-attr]
        assert server is not None
        corp = server.parts.providers["corp"]
        corp.entry = replace(corp.entry, id_jag=True)

        async def assertion(audience: str, resource: str) -> str:
            claims = {"sub": "ann", "aud": audience, "resource": resource, "client_id": "machine"}
            more = {"jti": str(uuid.uuid4()), "scope": "tools:read"}
            return made.identity.sign({**claims, **more}, "oauth-id-jag+jwt")

        memory = Memory()
        oauth = IdentityAssertionOAuthProvider(
            f"{made.url}/mcp", memory, "machine", SECRET, made.url, assertion
        )
        await list_tools(made, oauth)
        assert memory.tokens is not None
        assert memory.tokens.refresh_token is None
