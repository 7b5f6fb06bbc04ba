"""Two nodes of one login, of which one is killed while people log in and their clients refresh.

A person whose request is not answered does what browsers and clients do: sends it again, which
reaches the other node, and follows where that leads.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import aiohttp
import msgspec
import pytest
from aiohttp import ClientError

from config.settings import DatabaseSettings
from tests.fixtures_servers import serving
from tests.gateway.cli.processes import Served, serve_process, start
from tests.gateway.login.company import KEY, REDIRECT, VERIFIER, Answer, challenge, fields, query_of
from tests.properties import SHARE
from tests.servers.authorization import Late
from tests.servers.identity import CLIENT, SECRET, Identity

pytestmark = pytest.mark.anyio

LOGINS = 500 if SHARE >= 1 else 20
AT_ONCE = 20
AIMS = ("/login/callback", "/token", "/authorize", "/mcp")  # the last: between refreshes
PUBLIC = "http://127.0.0.1:7778"  # of both nodes, in front of which would be a proxy
CALL = f"{PUBLIC}/mcp"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {},
               "clientInfo": {"name": "test", "version": "1"}},
}  # fmt: skip


@dataclass
class Nodes:
    """The first node, which is killed at a random request, and the second one."""

    environment: dict[str, str]
    first: Served | None = None
    second: Served | None = None
    aim: str = ""  # path of the requests among which it is killed
    left: int = -1  # such requests before the kill
    kills: int = 0
    unanswered: Counter[str] = field(default_factory=Counter)

    async def start(self) -> Served:
        node = Served(await start("serve", "--port", "0", **self.environment))
        await node.ready()
        return node

    @property
    def urls(self) -> list[str]:
        return [node.url for node in (self.first, self.second) if node is not None]

    async def ask(self, http: aiohttp.ClientSession, method: str, url: str, **sent: Any) -> Answer:
        """Send a request, and once more where a node does not answer."""
        if url.startswith(PUBLIC + self.aim):
            if self.first is not None and self.left == 0:
                self.first.process.kill()
                self.kills += 1
            self.left -= 1
        for node in self.urls:
            at_node = url.replace(PUBLIC, node) if url.startswith(PUBLIC) else url
            try:
                async with http.request(method, at_node, allow_redirects=False, **sent) as answer:
                    location, text = answer.headers.get("location", ""), await answer.text()
                    if location.startswith("/"):
                        location = PUBLIC + location
                    return Answer(answer.status, location, text, answer.headers)
            except (ClientError, OSError):
                self.unanswered[url.removeprefix(PUBLIC).partition("?")[0]] += 1
        raise AssertionError(f"no node answers {url}")


@dataclass
class Visitor:
    """A person with a browser and a client."""

    nodes: Nodes
    client: str
    http: aiohttp.ClientSession
    begun: int = 0  # how often the client sent the person to log in
    refresh: str = ""

    @property
    def url(self) -> str:
        query = {
            "response_type": "code",
            "client_id": self.client,
            "redirect_uri": REDIRECT,
            "code_challenge": challenge(),
            "code_challenge_method": "S256",
            "resource": CALL,
        }
        return f"{PUBLIC}/authorize?{urlencode(query)}"

    async def get(self, url: str, site: str) -> Answer:
        return await self.nodes.ask(self.http, "GET", url, headers={"Sec-Fetch-Site": site})

    async def code(self) -> str:
        """Walk through pages until the browser is sent back to the client."""
        self.begun += 1
        url, site = self.url, "none"
        for _ in range(12):
            answer = await self.get(url, site)
            if answer.status == 200:
                choice = "allow" if 'value="allow"' in answer.text else "at:corp"
                form = {**fields(answer.text), "choice": choice}
                headers = {"Sec-Fetch-Site": "same-origin", "Origin": PUBLIC}
                answer = await self.nodes.ask(self.http, "POST", url, data=form, headers=headers)
            if answer.status == 403:  # the provider's code was used before the node's end
                url, site = self.url, "none"
                continue
            assert answer.status in (302, 303), answer.text
            if answer.location.startswith(REDIRECT):
                assert "code" in query_of(answer.location), answer.location
                return query_of(answer.location)["code"]
            url, site = answer.location, "cross-site"
        raise AssertionError("the browser goes round in circles")

    async def token(self, **form: str) -> tuple[int, dict[str, Any]]:
        form = {"client_id": self.client, **form}
        answer = await self.nodes.ask(self.http, "POST", f"{PUBLIC}/token", data=form)
        tokens: dict[str, Any] = msgspec.json.decode(answer.text)
        return answer.status, tokens

    async def log_in(self) -> None:
        for _ in range(3):
            status, tokens = await self.token(**code_form(await self.code()))
            if status == 200:
                self.refresh = tokens["refresh_token"]
                return
            # the code was taken by a node that did not live to answer: clients begin again
            assert (status, tokens["error"]) == (400, "invalid_grant")
        raise AssertionError("the client gets no token")

    async def renew(self) -> str:
        status, tokens = await self.token(grant_type="refresh_token", refresh_token=self.refresh)
        assert status == 200, tokens
        self.refresh = tokens["refresh_token"]
        access: str = tokens["access_token"]
        return access

    async def call(self, token: str) -> int:
        headers = {"Authorization": f"Bearer {token}",
                   "Accept": "application/json, text/event-stream"}  # fmt: skip
        answer = await self.nodes.ask(self.http, "POST", CALL, json=INITIALIZE, headers=headers)
        return answer.status

    async def take_twice(self) -> int:
        """How often a code is accepted that both nodes get at once."""
        code, statuses = await self.code(), []

        async def take(node: str) -> None:
            form = {"client_id": self.client, **code_form(code)}
            async with self.http.post(f"{node}/token", data=form) as answer:
                statuses.append(answer.status)

        await asyncio.gather(*map(take, self.nodes.urls * 2))
        return statuses.count(200)


def code_form(code: str) -> dict[str, str]:
    return {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": REDIRECT,
        "code_verifier": VERIFIER,
    }


@asynccontextmanager
async def visiting(nodes: Nodes, client: str) -> AsyncIterator[list[Visitor]]:
    async with AsyncExitStack() as stack:
        visitors = []
        for _ in range(AT_ONCE):
            http = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
            visitors.append(Visitor(nodes, client, await stack.enter_async_context(http)))
        yield visitors


def environment(database: DatabaseSettings, issuer: str) -> dict[str, str]:
    return {
        "TOOLGATE_DATABASE__URL": database.url,
        "TOOLGATE_EMBEDDING__PROVIDER": "disabled",
        "TOOLGATE_SERVER__PUBLIC_URL": PUBLIC,
        "TOOLGATE_AUTH__MODE": "jwt",
        "TOOLGATE_SECRETS__KEY": KEY,
        "TOOLGATE_LOGIN__ENABLED": "true",
        "TOOLGATE_LOGIN__REQUESTS": "0",
        "TOOLGATE_LOGIN__CHECK_S": "0.001",
        "TOOLGATE_LOGIN__PROVIDERS__CORP__ISSUER": issuer,
        "TOOLGATE_LOGIN__PROVIDERS__CORP__CLIENT_ID": CLIENT,
        "TOOLGATE_LOGIN__PROVIDERS__CORP__CLIENT_SECRET": SECRET,
    }


@pytest.mark.timeout(900)
async def test_a_killed_node_loses_no_login(database_settings: DatabaseSettings) -> None:
    """A node dies in the middle of logins and of refreshes: all people get their tokens at the
    other one, and no code is accepted twice."""
    identity, issuer, chance = Identity(), Late(), random.Random(37)
    start = random.randrange(len(AIMS))
    lost: list[BaseException] = []
    accepted: Counter[int] = Counter()
    begun: Counter[int] = Counter()
    async with AsyncExitStack() as stack:
        identity.url = await stack.enter_async_context(serving(issuer))
        issuer.app = identity.app
        nodes = Nodes(environment(database_settings, identity.url))
        nodes.second = await nodes.start()
        await stack.enter_async_context(serve_process(nodes.second.process))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        body = {"client_name": "Test", "redirect_uris": [REDIRECT]}
        answer = await nodes.ask(http, "POST", f"{PUBLIC}/register", json=body)
        client = msgspec.json.decode(answer.text)["client_id"]

        async def live(visitor: Visitor) -> None:
            await visitor.log_in()
            for _ in range(2):
                assert await visitor.call(await visitor.renew()) == 200

        for number in range(LOGINS // AT_ONCE):
            nodes.first = await nodes.start()
            async with serve_process(nodes.first.process), visiting(nodes, client) as visitors:
                twice = await asyncio.gather(*(visitor.take_twice() for visitor in visitors[:5]))
                accepted.update(twice)
                nodes.aim, nodes.left = AIMS[(start + number) % len(AIMS)], chance.randrange(5, 15)
                ended = await asyncio.gather(*map(live, visitors), return_exceptions=True)
                lost += [error for error in ended if error is not None]
                begun.update(visitor.begun for visitor in visitors[5:])
                nodes.left = -1
    print(f"{LOGINS} logins, {nodes.kills} kills, {len(lost)} lost, {dict(nodes.unanswered)},")
    print(f"logins begun {dict(begun)}, codes accepted {dict(accepted)}")
    assert not lost, lost[:3]
    assert {*accepted} == {1}
    assert nodes.kills == LOGINS // AT_ONCE
    assert nodes.unanswered
