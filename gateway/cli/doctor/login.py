"""`toolgate doctor login`: a login as a client begins it, step by step."""

import asyncio
import os
import webbrowser
from collections.abc import Iterator
from urllib.parse import urlsplit

import aiohttp
import click

from config.load import load
from config.settings import Settings
from config.yaml_document import SettingsError
from gateway.cli.common.checks import Check, print_check
from gateway.cli.common.failure import FAILED, USAGE, fail, warn
from gateway.cli.common.options import config_option, json_option
from gateway.cli.common.output import print_json
from gateway.cli.common.settings import named_file
from gateway.cli.doctor.login_clients import CLIENTS
from gateway.cli.doctor.login_walk import TIMEOUT_S, Walk, can_come_back

ENDPOINT = "/mcp"


@click.command()
@click.argument("url", required=False)
@click.option(
    "--as",
    "client",
    type=click.Choice([*CLIENTS]),
    metavar="CLIENT",
    default="inspector",
    show_default=True,
    help="Act as this client: claude, claude-code, chatgpt, codex, vscode, opencode, cursor, "
    "gemini, n8n, mcp-remote, inspector.",
)
@click.option(
    "--browser",
    is_flag=True,
    help="Go on to the end: a person logs in, and a call is made with the token.",
)
@config_option
@json_option
def login(
    url: str | None, client: str, browser: bool, config_file: str | None, as_json: bool
) -> None:
    """Walk the way of a login as a client does, and name the first step that fails.

    URL is the endpoint that people add to the client [default: that of the settings].
    Secrets and keys of providers are checked too where the settings are those of that
    gateway. Nobody logs in but with --browser.

    \b
    Examples:
      toolgate doctor login --as vscode
      toolgate doctor login https://gateway.example.com/mcp --as claude-code
    """
    if browser and not can_come_back(CLIENTS[client]):
        names = ", ".join(
            name for name, login_client in CLIENTS.items() if can_come_back(login_client)
        )
        fail(f"{client} leads back to its own server; --browser is for {names}", USAGE)
    settings: Settings | None = None
    try:
        settings = load(named_file(config_file), os.environ)
    except SettingsError as error:
        if url is None:
            fail(str(error), USAGE)
    endpoint = _endpoint(url or _own_url(settings))
    checks = asyncio.run(_walk(endpoint, client, settings, browser, as_json))
    if as_json:
        print_json(checks)
    if checks[-1].status == "failed":
        click.get_current_context().exit(FAILED)


def _own_url(settings: Settings | None) -> str:
    server = settings.server if settings else None
    return (server.public_url or f"http://{server.host}:{server.port}") if server else ""


def _endpoint(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        fail(f"expected a URL such as https://gateway.example.com/mcp, not {url!r}", USAGE)
    return url if parts.path.strip("/") else f"{url.rstrip('/')}{ENDPOINT}"


async def _walk(
    url: str, client: str, settings: Settings | None, browser: bool, as_json: bool
) -> list[Check]:
    checks: list[Check] = []
    jar = aiohttp.CookieJar(unsafe=True)  # a gateway on loopback has no name
    timeout = aiohttp.ClientTimeout(TIMEOUT_S)
    async with aiohttp.ClientSession(cookie_jar=jar, timeout=timeout) as http:
        walk = Walk(http=http, url=url, client=CLIENTS[client], settings=settings)
        async for check in walk.steps(_open if browser else None):
            checks.append(check)
            if not as_json:
                print_check(check)
    return checks


def _open(address: str) -> None:
    warn(f"log in, in a browser of this machine, at {address}")
    webbrowser.open(address)


def check_forwarded_tokens(settings: Settings) -> Iterator[Check]:
    """Sources that get the caller's token, which is the gateway's own after a login, and which
    neither the service nor its authorization server knows. An exchange takes that of the provider
    instead, where there is one."""
    if not settings.login.enabled:
        return
    for name, source in settings.sources.items():
        exchange = source.exchange if not settings.login.providers else None
        for key, is_set in (("exchange", exchange), ("forward_token", source.forward_token)):
            if is_set:
                text = (
                    f"sources.{name}.{key}: people who log in at the gateway (login.enabled) have "
                    f"a token of {settings.server.public_url}, which the service has to trust; "
                    "use connect or credentials for them"
                )
                yield Check("login", "warning", text)
