"""A visitor of the console without a browser: pages are read, and their forms posted."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from msgspec.structs import replace

from config.settings import Settings
from tests.fixtures_gateway import Client, running

TOKEN = re.compile(r'name="_csrf" value="([0-9a-f]+)"')


class Browser:
    """A visitor with a cookie jar, who sends the forms of the pages it has read."""

    def __init__(self, client: Client, http: aiohttp.ClientSession) -> None:
        self._root = f"{client.url}/console"
        self._http = http
        self.token = ""

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        async with self._http.get(f"{self._root}/{path}", headers=headers) as answer:
            return await self._read(answer)

    async def post(
        self,
        path: str,
        data: dict[str, str],
        token: str | None = None,
        also: Sequence[tuple[str, str]] = (),
        **headers: str,
    ) -> tuple[int, str]:
        """`also` are further values, as of boxes with one name of which several are selected."""
        sent = [("_csrf", self.token if token is None else token), *data.items(), *also]
        headers = {"Sec-Fetch-Site": "same-origin"} | headers
        async with self._http.post(f"{self._root}/{path}", data=sent, headers=headers) as answer:
            return await self._read(answer)

    async def head(self, path: str) -> int:
        async with self._http.head(f"{self._root}/{path}") as answer:
            return answer.status

    async def _read(self, answer: aiohttp.ClientResponse) -> tuple[int, str]:
        text = await answer.text()
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["cache-control"] == "no-store"
        if found := TOKEN.search(text):
            self.token = found[1]
        return answer.status, text


@asynccontextmanager
async def console(settings: Settings, **changes: Any) -> AsyncIterator[tuple[Client, Browser]]:
    admin = replace(settings.admin, requests=0)
    audit = replace(settings.audit, flush_s=0.05)
    wanted = replace(
        settings, admin=admin, audit=audit, console=replace(settings.console, enabled=True)
    )
    jar = aiohttp.CookieJar(unsafe=True)  # of an address without a name
    async with (
        running(replace(wanted, **changes)) as client,
        aiohttp.ClientSession(cookie_jar=jar) as http,
    ):
        yield client, Browser(client, http)
