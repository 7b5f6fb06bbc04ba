"""The official MCP client: it finds out where to log in, logs in, and calls a tool.

    python client.py [--as NAME:PASSWORD] [URL]

Opens a browser, or fills in the pages itself with `--as`, and prints each request. Needs `mcp` 2.3.
"""

import argparse
import asyncio
import logging
import re
import sys
import time
import webbrowser
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp import Client, MCPError
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)

URL = "http://127.0.0.1:8765/mcp"
DONE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nYou can go back.\n"
FORM = re.compile(r"<form.*?</form>", re.DOTALL)
FIELD = re.compile(r'<(?:input|button)[^>]* name="([\w-]+)"(?:[^>]* value="([^"]*)")?')
PAGES = 3  # that lead to the end, with the right password


class LoginRefused(Exception):
    """The pages let nobody in with these credentials."""


# `EOFError`: a question without a terminal
MENDABLE = (LoginRefused, EOFError, httpx2.ConnectError, MCPError)


class Memory:
    """Where a program would keep what it must not lose, under lock and key."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Login:
    """The person's part: pages to fill in, and where the browser goes afterwards."""

    def __init__(self, credentials: str | None) -> None:
        """`credentials`: NAME:PASSWORD to fill in; None leaves it to a person."""
        self._credentials = credentials
        self._answers: asyncio.Queue[str] = asyncio.Queue()
        self.url = ""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Login"]:
        """A page on loopback (RFC 8252, section 7.3)."""
        server = await asyncio.start_server(self._page, "127.0.0.1", 0)
        async with server, httpx2.AsyncClient(follow_redirects=True, timeout=60) as self._browser:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback"
            yield self

    async def redirect(self, url: str) -> None:
        if self._credentials is None:
            print("log in at", url, flush=True)
            webbrowser.open(url)
        else:
            await self.fill_in(url, self._credentials)

    async def fill_in(self, url: str, secret: str) -> None:
        """Do as a person does: fill in the first form of each page, and press its first button.
        `secret`: NAME:PASSWORD, or the key that a page asks for."""
        name, _, password = secret.partition(":")
        typed = {"name": name, "username": name, "password": password, "scheme-0": secret}
        page = await self._browser.get(url)
        for _ in range(PAGES):
            if (form := FORM.search(page.text)) is None:
                return
            fields = {key: unescape(text) for key, text in reversed(FIELD.findall(form[0]))}
            fields |= {key: typed[key] for key in fields.keys() & typed.keys()}
            print("filling in the page of", page.url.netloc.decode(), flush=True)
            origin = f"{page.url.scheme}://{page.url.netloc.decode()}"
            page = await self._browser.post(page.url, data=fields, headers={"Origin": origin})
        raise LoginRefused(f"{page.url.netloc.decode()} lets nobody in with this")

    async def callback(self) -> AuthorizationCodeResult:
        query = parse_qs(urlsplit(await self._answers.get()).query)
        code, state, iss = ((query.get(name) or [None])[0] for name in ("code", "state", "iss"))
        return AuthorizationCodeResult(code=code or "", state=state, iss=iss)

    async def _page(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode("latin-1").split()
        if len(line) > 1 and line[1].startswith("/callback?"):
            self._answers.put_nowait(line[1])
        writer.write(DONE)
        await writer.drain()
        writer.close()


def provider(url: str, login: Login, memory: Memory) -> OAuthClientProvider:
    metadata = OAuthClientMetadata(
        client_name="The example client",
        redirect_uris=[login.url],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
    )
    return OAuthClientProvider(url, metadata, memory, login.redirect, login.callback)


async def show(answer: httpx2.Response) -> None:
    print(answer.request.method, answer.request.url.path, answer.status_code, flush=True)


@asynccontextmanager
async def open_session(
    url: str, login: Login, *hooks: Any
) -> AsyncIterator[tuple[Client, OAuthClientProvider]]:
    """A client, which logs in when it has to. `hooks` get each answer."""
    async with login.listening():
        oauth = provider(url, login, Memory())
        async with (
            httpx2.AsyncClient(auth=oauth, event_hooks={"response": hooks}, timeout=60) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            yield client, oauth


def run(program: Coroutine[Any, Any, None]) -> None:
    """Run a program, and end it with a sentence for what a person can mend. Errors come in groups,
    since tasks of the client have them."""
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # it logs the errors that it raises, too
    try:
        asyncio.run(program)
    except ExceptionGroup as group:
        error: Exception | None = group.subgroup(MENDABLE)
        if error is None:
            raise
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        is_away = isinstance(error, httpx2.ConnectError)
        sys.exit(f"nothing answers at {error.request.url}" if is_away else str(error))


async def main(url: str, credentials: str | None) -> None:
    async with open_session(url, Login(credentials), show) as (client, oauth):
        print("who I am:", (await client.call_tool("person_whoAmI")).content[0].text)
        print("the token ends: it is refreshed, and nobody has to log in")
        oauth.context.token_expiry_time = time.time() - 1
        print("who I am:", (await client.call_tool("person_whoAmI")).content[0].text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python client.py")
    parser.add_argument("url", nargs="?", default=URL)
    parser.add_argument("--as", dest="credentials", help="NAME:PASSWORD, instead of a browser")
    arguments = parser.parse_args()
    run(main(arguments.url, arguments.credentials))
