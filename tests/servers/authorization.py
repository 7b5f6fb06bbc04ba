"""An authorization server, a service that takes tokens of its own only, and a gateway between them,
in the event loop of a test."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import httpx2
from mcp.client.client import Client as McpClient
from mcp.client.streamable_http import streamable_http_client
from msgspec.structs import replace
from starlette.types import ASGIApp, Receive, Scope, Send

from config.load import load
from config.settings import DatabaseSettings
from examples.login.client import Login, Memory, provider
from gateway.app.gateway import Gateway
from tests.fixtures_gateway import DEADLINE_S, Client
from tests.fixtures_servers import serving
from tests.servers.issuer.accounts import USERS, Grantee
from tests.servers.issuer.app import GATEWAY, build_app, with_gateway
from tests.servers.issuer.server import Server
from tests.servers.issuer.service import build_app as build_service

CONFIG = "tests/servers/issuer/toolgate.yaml"


@dataclass
class Late:
    """An application whose URL has to be known before it can be made."""

    app: ASGIApp | None = None
    bearers: list[str] = field(default_factory=list)  # that came

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self.app is not None
        for name, value in scope.get("headers", ()):
            if name == b"authorization":
                self.bearers.append(value.decode().removeprefix("Bearer "))
        await self.app(scope, receive, send)


@dataclass
class Company:
    """All three, ready. `client` is one of the gateway's without credentials."""

    client: Client
    server: Server
    service: Late
    orders_url: str

    @property
    def url(self) -> str:
        return self.client.url

    def token(self, name: str, scope: str, path: str = "/mcp", **claims: Any) -> str:
        """An access token of a user's for an endpoint of the gateway; `claims` are of Grantee."""
        said = {"audience": self.url + path, "roles": USERS[name].roles, **claims}
        client = self.server.accounts.clients[GATEWAY[0]]
        token = self.server.generate_token("test", client, Grantee(name, **said), scope)
        return str(token["access_token"])

    async def ask(self, token: str, path: str = "/mcp", method: str = "tools/list") -> Any:
        """Status, answer and headers of a 2026-07-28 request."""
        return await self.call(token, method, {}, path)

    async def call(
        self, token: str, method: str, params: dict[str, Any], path: str = "/mcp"
    ) -> Any:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        headers = {"Authorization": f"Bearer {token}", "MCP-Protocol-Version": "2026-07-28"}
        headers |= {"Mcp-Method": method} | ({"Mcp-Name": params["name"]} if params else {})
        return await self.client.post(path, request, headers)


class Browser(Login):
    """Fills in the form, and notes for which scopes."""

    def __init__(self, credentials: str) -> None:
        super().__init__(credentials)
        self.scopes: list[str] = []  # login by login

    async def redirect(self, url: str) -> None:
        self.scopes.append(query(url).get("scope", ""))
        await super().redirect(url)


@dataclass
class Person:
    """Somebody with the official client."""

    mcp: McpClient
    login: Browser
    memory: Memory
    oauth: Any

    def expire(self) -> None:
        """The client believes that its token has ended."""
        self.oauth.context.token_expiry_time = time.time() - 1


@asynccontextmanager
async def company(
    database: DatabaseSettings, env: Mapping[str, str] | None = None, **auth: Any
) -> AsyncIterator[Company]:
    """With the settings of CONFIG, but `auth` and the variables of `env`."""
    issuer, service, gate = Late(), Late(), Late()
    async with AsyncExitStack() as stack:
        served = [await stack.enter_async_context(serving(one)) for one in (issuer, service, gate)]
        issuer_url, orders_url, url = served
        server = with_gateway(Server(issuer_url, [url, orders_url]))
        issuer.app, service.app = build_app(server), build_service(issuer_url, orders_url)
        named = {"GATEWAY_URL": url, "ISSUER": issuer_url, "ORDERS_URL": orders_url}
        settings = load(CONFIG, {**named, **(env or {})})
        settings = replace(
            settings,
            database=database,
            embedding=replace(settings.embedding, provider="disabled"),
            auth=replace(settings.auth, **auth),
        )
        gateway = Gateway(settings)
        gate.app = app = gateway.app()
        http = await stack.enter_async_context(aiohttp.ClientSession())
        async with gateway.lifespan(app):
            await ready(http, url)
            yield Company(Client(gateway, url, http), server, service, orders_url)


async def ready(http: aiohttp.ClientSession, url: str) -> None:
    """The catalog is there, and so are the keys: until then it is 503 for everybody."""
    headers = {"Authorization": "Bearer eyJhbGciOiJFUzI1NiIsImtpZCI6IngifQ.e30.eA"}
    async with asyncio.timeout(DEADLINE_S):
        while True:
            async with http.post(url + "/mcp", headers=headers) as response:
                if response.status != 503:
                    return
            await asyncio.sleep(0.02)


@asynccontextmanager
async def person(url: str, credentials: str, mode: Any = "auto") -> AsyncIterator[Person]:
    """The official client of somebody who logs in with NAME:PASSWORD when they have to."""
    memory = Memory()
    login = Browser(credentials)
    async with login.listening():
        oauth = provider(url, login, memory)
        async with (
            httpx2.AsyncClient(auth=oauth, timeout=60) as http,
            McpClient(streamable_http_client(url, http_client=http), mode=mode) as mcp,
        ):
            yield Person(mcp, login, memory, oauth)


def query(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
