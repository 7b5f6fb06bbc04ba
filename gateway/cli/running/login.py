"""`toolgate login`, `toolgate logout`: a person's login at a gateway, for commands with --url."""

import asyncio
import hmac
import secrets
import webbrowser
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from urllib.parse import parse_qsl, urlencode, urlsplit

import aiohttp
import click
import msgspec
from msgspec import Struct

from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import USAGE, fail, warn
from gateway.cli.running.http_requests import FORM_TIMEOUT_S, post_form
from gateway.cli.running.stored_logins import (
    CLIENT_ID,
    FINAL_ERRORS,
    file_of_logins,
    keep_login,
    login_of,
    read_logins,
)
from schemas.pkce import challenge_of

WAIT_S = 600.0  # for a person to log in
LOGIN_DONE_TEXT = "You can close this page, and go back to the terminal.\n"
FOREIGN = (
    "This is not the answer to the login that the terminal waits for, and is ignored: the terminal "
    "goes on waiting.\n"
)


class Metadata(Struct):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    revocation_endpoint: str


@click.command()
@click.argument("url")
@click.option("--no-browser", is_flag=True, help="Print the address instead of opening it.")
def login(url: str, no_browser: bool) -> None:
    """Log in at the gateway at URL with your account, in a browser.

    Commands with --url URL then act as you. The login is kept in a file that only you
    can read, and refreshed until it ends; `toolgate logout URL` ends it.

    \b
    Examples:
      toolgate login https://gateway.example.com
      toolgate keys list --url https://gateway.example.com
    """
    url = url.rstrip("/")
    run(_log_in(url, opens=not no_browser))
    warn(f"logged in at {url}; kept in {file_of_logins()}")


@click.command()
@click.argument("url")
def logout(url: str) -> None:
    """End your login at the gateway at URL."""
    url = url.rstrip("/")
    stored = read_logins().get(url)
    if stored is None:
        fail(f"there is no login at {url}; there are: {', '.join(read_logins()) or 'none'}")
    form = {"token": stored.refresh_token or stored.access_token, "client_id": CLIENT_ID}
    status, answer = run(post_form(stored.revocation_endpoint, form))
    if status != 200 and answer.get("error") not in FINAL_ERRORS:
        fail(f"{url} has not ended the login, which is kept for another try: HTTP {status}")
    keep_login(url, None)
    warn(f"logged out at {url}")


async def _log_in(url: str, *, opens: bool) -> None:
    metadata = await _find_metadata(url)
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    async with listen_for_answer(state) as (port, arrived):
        redirect = f"http://127.0.0.1:{port}/callback"
        query = {
            "response_type": "code",
            "client_id": CLIENT_ID,
            "redirect_uri": redirect,
            "state": state,
            "code_challenge": challenge_of(verifier),
            "code_challenge_method": "S256",
        }
        address = f"{metadata.authorization_endpoint}?{urlencode(query)}"
        if not opens or not webbrowser.open(address):
            warn(f"open this address in a browser of this machine: {address}")
        back = await wait_for_answer(arrived)
    if back.get("iss") != metadata.issuer:  # RFC 9207
        fail("the answer is from another server; begin again")
    if "code" not in back:
        fail(f"not logged in: {back.get('error_description') or back.get('error', 'no reason')}")
    form = {
        "grant_type": "authorization_code",
        "client_id": CLIENT_ID,
        "code": back["code"],
        "redirect_uri": redirect,
        "code_verifier": verifier,
    }
    status, tokens = await post_form(metadata.token_endpoint, form)
    if status != 200:
        fail(f"not logged in: {tokens.get('error_description', f'HTTP {status}')}")
    keep_login(url, login_of(tokens, metadata.token_endpoint, metadata.revocation_endpoint))


Answer = Mapping[str, str]
"""The parameters of an answer to a login."""


@asynccontextmanager
async def listen_for_answer(
    state: str, path: str = "/callback"
) -> AsyncIterator[tuple[int, asyncio.Future[Answer]]]:
    """Listen on loopback for the answer to the login of `state`: the port, and the answer."""
    arrived: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode("latin-1").split()
        back = _callback(line[1] if len(line) > 1 else "", path, state)
        if back is not None and not arrived.done():
            arrived.set_result(back)
        writer.write(_page(FOREIGN, 400) if back is None else _page(LOGIN_DONE_TEXT, 200))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], arrived


async def wait_for_answer(answer: asyncio.Future[Answer]) -> Answer:
    try:
        async with asyncio.timeout(WAIT_S):
            return await answer
    except TimeoutError:
        fail(f"nobody logged in within {WAIT_S / 60:.0f} minutes")


def _callback(target: str, path: str, state: str) -> Answer | None:
    """The parameters of an answer to this login; None for any other request, which any page in the
    person's browser can send."""
    parts = target.partition("?")
    if parts[0] != path:
        return None
    back = dict(parse_qsl(parts[2]))
    return back if hmac.compare_digest(state.encode(), back.get("state", "").encode()) else None


def _page(text: str, status: int) -> bytes:
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
    return (
        f"{head}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n{text}"
    ).encode()


async def _find_metadata(url: str) -> Metadata:
    """The metadata of the login of the gateway at `url` (RFC 8414)."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        fail(f"expected a URL such as https://gateway.example.com, not {url!r}", USAGE)
    place = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{parts.path}"
    timeout = aiohttp.ClientTimeout(FORM_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.get(place, allow_redirects=False) as response,
        ):
            body = await response.read()
            if response.status != 200:
                fail(f"nobody can log in at {url} (HTTP {response.status}): is login.enabled set?")
        metadata = msgspec.json.decode(body, type=Metadata)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        fail(f"{url} does not answer: {type(error).__name__}")
    except msgspec.MsgspecError as error:
        fail(f"the metadata of {url} is not as expected: {error}")
    if metadata.issuer != url:
        fail(f"{url} says that it is {metadata.issuer}: log in there (server.public_url)")
    return metadata
