"""A company with its provider and a gateway in front of it, and browsers and clients of people."""

import asyncio
import base64
import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
from msgspec.structs import replace

from config.load import load
from config.settings import DatabaseSettings, Settings
from gateway.app.gateway import Gateway
from tests.fixtures_gateway import DEADLINE_S
from tests.fixtures_servers import serving
from tests.servers.authorization import Late
from tests.servers.identity import CLIENT, SECRET, Identity

FIELD = re.compile(r'name="([^"]+)" value="([^"]*)"')
VERIFIER = "v" * 50
KEY = base64.b64encode(bytes(32)).decode()
REDIRECT = "http://127.0.0.1:7777/callback"


def challenge(verifier: str = VERIFIER) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def query_of(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


@dataclass
class Answer:
    status: int
    location: str
    text: str
    headers: Mapping[str, str]

    @property
    def query(self) -> dict[str, str]:
        return query_of(self.location)


class Browser:
    """A browser that follows nothing by itself, and says where its requests come from."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http = http

    async def get(self, url: str, site: str = "none") -> Answer:
        return await self._ask("GET", url, {"Sec-Fetch-Site": site}, None)

    async def post(
        self, url: str, form: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> Answer:
        parts = urlsplit(url)
        own = {"Sec-Fetch-Site": "same-origin", "Origin": f"{parts.scheme}://{parts.netloc}"}
        return await self._ask("POST", url, own if headers is None else headers, form)

    async def press(self, url: str, choice: str) -> Answer:
        """Open a page and press one of its buttons."""
        page = await self.get(url)
        assert page.status == 200, page.text
        return await self.post(url, {**fields(page.text), "choice": choice})

    async def log_in(self, url: str, provider: str = "corp") -> Answer:
        """Allow at the consent page, and log in at the provider: the way back to the client."""
        sent = await self.press(url, f"at:{provider}")
        assert sent.status == 303, sent.text
        back = await self.get(sent.location)
        return await self.get(back.location, site="cross-site")

    async def _ask(
        self, method: str, url: str, headers: Mapping[str, str], form: Mapping[str, str] | None
    ) -> Answer:
        async with self.http.request(
            method, url, data=form, headers=headers, allow_redirects=False
        ) as answer:
            text = await answer.text()
            return Answer(answer.status, answer.headers.get("location", ""), text, answer.headers)


def fields(text: str) -> dict[str, str]:
    """The hidden fields of a page's first form."""
    return {
        name: value for name, value in FIELD.findall(text) if name in {"_csrf", "again", "next"}
    }


@dataclass
class Company:
    url: str
    gateway: Gateway
    identity: Identity
    http: aiohttp.ClientSession

    async def register(self, *redirects: str, **more: Any) -> dict[str, Any]:
        """A client that registers itself."""
        body = {"client_name": "Test", "redirect_uris": [*(redirects or (REDIRECT,))], **more}
        async with self.http.post(f"{self.url}/register", json=body) as answer:
            assert answer.status == 201, await answer.text()
            registered: dict[str, Any] = await answer.json()
            return registered

    def authorize(self, client_id: str, **changes: str) -> str:
        """The URL to which a client sends a browser; a change to "" leaves a parameter out."""
        query = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": REDIRECT,
            "code_challenge": challenge(),
            "code_challenge_method": "S256",
            "state": "s t/ä",
            "resource": f"{self.url}/mcp",
            **changes,
        }
        return f"{self.url}/authorize?{urlencode({k: v for k, v in query.items() if v})}"

    async def token(self, **form: str) -> tuple[int, dict[str, Any]]:
        async with self.http.post(f"{self.url}/token", data=form) as answer:
            return answer.status, await answer.json()

    async def take_code(self, client_id: str, code: str, **changes: str) -> tuple[int, Any]:
        form = {
            "grant_type": "authorization_code",
            "client_id": client_id,
            "code": code,
            "redirect_uri": REDIRECT,
            "code_verifier": VERIFIER,
            **changes,
        }
        return await self.token(**{k: v for k, v in form.items() if v})

    async def refresh(self, client_id: str, token: str, **more: str) -> tuple[int, Any]:
        return await self.token(
            grant_type="refresh_token", client_id=client_id, refresh_token=token, **more
        )

    async def status(self, token: str, path: str = "/mcp") -> int:
        """The status of a call with a token."""
        params = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json, text/event-stream",
        }
        async with self.http.post(self.url + path, json=request, headers=headers) as answer:
            return answer.status

    async def grant_tokens(self, browser: Browser, **changes: str) -> tuple[str, dict[str, Any]]:
        """A new client's id, and the tokens that a person gave it."""
        client = (await self.register())["client_id"]
        back = await browser.log_in(self.authorize(client, **changes))
        status, tokens = await self.take_code(client, back.query["code"])
        assert status == 200, tokens
        return client, tokens


def settings_of(
    url: str, issuer: str, database: DatabaseSettings, env: Mapping[str, str], **changes: Any
) -> Settings:
    """Settings of a gateway with the provider "corp" and those of `env`; `changes` are of
    `login`."""
    env = {
        **env,
        "TOOLGATE_SERVER__PUBLIC_URL": url,
        "TOOLGATE_AUTH__MODE": "jwt",
        "TOOLGATE_SECRETS__KEY": KEY,
        "TOOLGATE_LOGIN__ENABLED": "true",
        "TOOLGATE_LOGIN__PROVIDERS__CORP__ISSUER": issuer,
        "TOOLGATE_LOGIN__PROVIDERS__CORP__CLIENT_ID": CLIENT,
        "TOOLGATE_LOGIN__PROVIDERS__CORP__CLIENT_SECRET": SECRET,
        "TOOLGATE_LOGIN__SCOPES": '{"*": ["tools:read"], "clerk": ["tools:write"]}',
    }
    settings = load(None, env)
    return replace(
        settings,
        database=database,
        embedding=replace(settings.embedding, provider="disabled"),
        login=replace(settings.login, **changes),
    )


@asynccontextmanager
async def company(
    database: DatabaseSettings,
    identity: Identity | None = None,
    *,
    url: str = "",
    env: Mapping[str, str] | None = None,
    **changes: Any,
) -> AsyncIterator[Company]:
    """The company, ready; `changes` are of the settings of the login, `env` of others. `url`: the
    public one of a node before this one."""
    identity, gate, issuer = identity or Identity(), Late(), Late()
    async with AsyncExitStack() as stack:
        own = await stack.enter_async_context(serving(gate))
        if not identity.url:
            identity.url = await stack.enter_async_context(serving(issuer))
            issuer.app = identity.app
        gateway = Gateway(settings_of(url or own, identity.url, database, env or {}, **changes))
        gate.app = app = gateway.app()
        http = await stack.enter_async_context(
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        )
        async with gateway.lifespan(app):
            async with asyncio.timeout(DEADLINE_S):
                await gateway.feed.settled.wait()
            yield Company(own, gateway, identity, http)


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        yield Browser(http)
