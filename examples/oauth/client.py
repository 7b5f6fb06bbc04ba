"""The official MCP client: it finds out where to log in, logs in, and calls.

    python -m examples.oauth.client [--as NAME:PASSWORD] [URL]

Opens a browser, or fills in the form itself with `--as ada:lovelace`. Needs `mcp` (2.3).
"""

import argparse
import asyncio
import sys
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult, TextContent

URL = "http://127.0.0.1:8765/mcp"
DONE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nYou can go back.\n"


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
    """The person's part: a page to agree on, and where the browser goes afterwards."""

    def __init__(self, credentials: str | None) -> None:
        """`credentials`: NAME:PASSWORD to fill in; None leaves it to a person."""
        self._credentials = credentials
        self._came: asyncio.Queue[str] = asyncio.Queue()
        self.scopes: list[str] = []  # that were asked for, login by login
        self.url = ""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Login"]:
        """A page on loopback (RFC 8252, section 7.3)."""
        server = await asyncio.start_server(self._page, "127.0.0.1", 0)
        async with server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback"
            yield self

    async def redirect(self, url: str) -> None:
        self.scopes.append(parse_qs(urlsplit(url).query).get("scope", [""])[0])
        print(f"logging in, to {self.scopes[-1]}", flush=True)
        if self._credentials is None:
            webbrowser.open(url)
            return
        name, _, password = self._credentials.partition(":")
        form = {"username": name, "password": password, "answer": "allow"}
        async with httpx2.AsyncClient() as http:
            page = await http.get(url)
            page.raise_for_status()
            sent = await http.post(url, data=form)  # the form goes to its own address
        if not sent.has_redirect_location:
            sys.exit(f"the authorization server did not let {name} in: HTTP {sent.status_code}")
        self._came.put_nowait(sent.headers.get("location", ""))

    async def callback(self) -> AuthorizationCodeResult:
        said = parse_qs(urlsplit(await self._came.get()).query)
        code, state, iss = ((said.get(name) or [None])[0] for name in ("code", "state", "iss"))
        return AuthorizationCodeResult(code=code or "", state=state, iss=iss)

    async def _page(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode("latin-1").split()
        if len(line) > 1 and line[1].startswith("/callback?"):
            self._came.put_nowait(line[1])
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


async def main(url: str, credentials: str | None) -> None:
    async with (
        Login(credentials).listening() as login,
        httpx2.AsyncClient(auth=provider(url, login, Memory()), timeout=60) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        print("tools:", *sorted(tool.name for tool in (await client.list_tools()).tools))
        print("listOrders:", await called(client, "listOrders"))
        print("placeOrder:", await called(client, "placeOrder", item="coffee"))
        print("orders_refund:", await called(client, "orders_refund", item="tea"))


async def called(client: Client, name: str, **arguments: str) -> str:
    try:
        return text_of(await client.call_tool(name, arguments))
    except MCPError as error:
        return f"refused: {error}"


def text_of(result: CallToolResult) -> str:
    text = "\n".join(item.text for item in result.content if isinstance(item, TextContent))
    return f"failed: {text}" if result.is_error else text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m examples.oauth.client")
    parser.add_argument("url", nargs="?", default=URL)
    parser.add_argument("--as", dest="credentials", help="NAME:PASSWORD, instead of a browser")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.url, arguments.credentials))
