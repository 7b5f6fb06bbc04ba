"""The OAuth client of connections: `python -m tests.conformance.connections URL`, started by the
suite with the URL of an MCP server that wants a login.

The official client speaks MCP; whatever it is refused for is got by the gateway's own parts, and
the browser is one that follows the first redirect.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import anyio
import httpx2
from mcp import MCPError
from mcp.client.client import Client as McpClient
from mcp.client.streamable_http import streamable_http_client
from msgspec.structs import replace

from config.load import load
from config.login import ProviderSettings
from gateway.connections.oauth.discovery import Discovery, DiscoveryFailed, McpServer
from gateway.connections.oauth.gateway_as_client import ClientDocuments, OAuthClients, given_client
from gateway.connections.oauth.grants import AuthorizationRefused, Grants, Tokens, choose_scopes
from gateway.connections.oauth.guarded_requests import Reach
from gateway.connections.oauth.server_metadata import AuthorizationServer
from gateway.login.providers import Provider
from registry.connections.gateway_registrations import Registration
from schemas.challenges import Challenge, read_challenge
from schemas.errors import ToolgateError
from schemas.mcp.revisions import STATELESS

REVISION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
CALLBACK = "http://127.0.0.1:3333/connect/suite/callback"
DOCUMENT = "https://conformance-test.local/client-metadata.json"  # the suite's name of ours
ROUNDS = 3  # of logins for one request
MANAGED = "auth/enterprise-managed-authorization"
ENDLESS = "auth/scope-retry-limit"  # a server that no scope is enough for


@dataclass
class Rows:
    """Registrations in memory, by issuer and callback."""

    host_id: str = "suite"
    stored: dict[tuple[str, str], Registration] = field(default_factory=dict)

    async def find(self, issuer: str, callback: str) -> Registration | None:
        return self.stored.get((issuer, callback))

    async def find_or_add(
        self, issuer: str, callback: str, register: Callable[[], Awaitable[Registration]], **_: Any
    ) -> Registration:
        self.stored[issuer, callback] = await register()
        return self.stored[issuer, callback]


class Documents(ClientDocuments):
    def url(self, _method: str) -> str:
        return DOCUMENT


class Connection(httpx2.Auth):
    """The authentication of one person's requests, which logs in when it is asked to."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._reach = Reach(replace(load(None, {}).connections, private_networks=True))
        self._discovery = Discovery(self._reach.limits)
        public = "https://gateway.example.com" if SCENARIO == "auth/basic-cimd" else ""
        self._clients = OAuthClients(Documents(public, (CALLBACK,)))
        self._rows = Rows()
        self._tokens: Tokens | None = None
        self._turn = anyio.Lock()
        self.refusal: ToolgateError | None = None

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        for _ in range(ROUNDS):
            sent = self._tokens
            if sent is not None:
                request.headers["Authorization"] = f"Bearer {sent.access}"
            response = yield request
            challenge = read_challenge(response.headers.get_list("www-authenticate"))
            wider = challenge is not None and challenge.error == "insufficient_scope"
            if response.status_code != 401 and not (response.status_code == 403 and wider):
                return
            async with self._turn:
                if sent is not self._tokens:
                    continue
                try:
                    self._tokens = await self._connect(challenge)
                except (AuthorizationRefused, DiscoveryFailed) as error:
                    self.refusal = error
                    return

    async def _connect(self, challenge: Challenge | None) -> Tokens:
        mcp = McpServer(url=self._url, challenge=challenge)
        server = (await self._discovery.of_mcp_server(mcp, self._reach, fresh=True)).server
        grants = Grants(server, await self._client(server), self._reach)
        if SCENARIO == MANAGED:
            return await grants.assert_identity(await self._assertion(server), ())
        had = self._tokens.scopes if self._tokens else ()
        asked = challenge.scopes if challenge else ()
        scopes = choose_scopes(server, (), more=(*had, *asked))
        url, attempt = grants.begin(CALLBACK, "the state", scopes)
        async with (
            aiohttp.ClientSession() as http,
            http.get(url, allow_redirects=False) as answer,
        ):
            query = dict(parse_qsl(urlsplit(answer.headers["Location"]).query))
        assert query["state"] == "the state"
        return await grants.redeem(attempt, query)

    async def _assertion(self, server: AuthorizationServer) -> str:
        """The assertion of the suite's provider, which has sent an ID token before."""
        entry = ProviderSettings(CONTEXT["idp_issuer"], CONTEXT["idp_client_id"])
        provider = Provider("idp", entry, load(None, {}))
        return await provider.identity_assertion(
            CONTEXT["idp_id_token"], audience=server.issuer, resource=self._url, scope=""
        )

    async def _client(self, server: AuthorizationServer) -> Any:
        given = None
        if "client_id" in CONTEXT:
            given = given_client(server, CONTEXT["client_id"], CONTEXT["client_secret"])
        return await self._clients.find(
            server, CALLBACK, self._reach, self._rows, configured_client=given
        )


async def main(url: str) -> None:
    mode, connection = "auto" if REVISION in STATELESS else "legacy", Connection(url)
    try:
        async with (
            httpx2.AsyncClient(auth=connection, timeout=30) as http,
            McpClient(streamable_http_client(url, http_client=http), mode=mode) as mcp,
        ):
            await mcp.list_tools()
            await mcp.call_tool("test-tool", {})
    except* MCPError as errors:
        if connection.refusal is None and SCENARIO != ENDLESS:
            raise
        print(connection.refusal or errors)  # what the suite wanted to see


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
