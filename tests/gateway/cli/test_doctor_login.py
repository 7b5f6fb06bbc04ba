"""`toolgate doctor login`: the way of a login as clients go it, at real gateways and providers."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import aiohttp
import pytest
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from config.login import ProviderSettings
from config.settings import DatabaseSettings, Settings
from gateway.cli.common.checks import Check
from gateway.cli.doctor.login_clients import CLIENTS
from gateway.cli.doctor.login_walk import Walk, visible_text
from tests.fixtures_servers import free_ports
from tests.gateway.login.company import Company, browsing, company
from tests.gateway.login.test_clients import Published
from tests.gateway.login.test_command import Terminal
from tests.servers.identity import SECRET, Identity

pytestmark = pytest.mark.anyio

STEPS = [
    *("challenge", "resource", "server", "register", "authorize"),
    *("corp: discovery", "corp: keys", "corp: secret", "corp: redirect", "token"),
]


class Provider(Identity):
    """A provider that knows its client and its redirect URI, and has a page to log in."""

    page: Response = HTMLResponse("<h1>Sign in</h1>")

    async def _authorize(self, request: Request) -> Response:
        return self.page

    async def _token(self, request: Request) -> Response:
        pair = aiohttp.BasicAuth.decode(request.headers["authorization"])
        if unquote_plus(pair.password) != SECRET:
            said = {"error": "invalid_client", "error_description": "AADSTS7000215: wrong secret"}
            return JSONResponse(said, 401)
        return await super()._token(request)


async def walk_as(
    name: str, made: Company, settings: Settings | None = None, path: str = "/mcp"
) -> list[Check]:
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as http:
        walk = Walk(http=http, url=f"{made.url}{path}", client=CLIENTS[name], settings=settings)
        return [check async for check in walk.steps()]


@pytest.fixture
def documents(monkeypatch: pytest.MonkeyPatch) -> None:
    """The documents of clients, at addresses that no test can reach."""

    published = Published()
    for client in CLIENTS.values():
        published.documents[client.document] = {"client_id": client.document, **client.registration}
    monkeypatch.setattr("gateway.login.clients.fetch", published.fetch)


@pytest.mark.usefixtures("documents")
async def test_every_known_client_gets_to_the_page_of_the_provider(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings, Provider()) as made:
        for name in CLIENTS:
            checks = await walk_as(name, made, made.gateway.settings)
            assert [check.name for check in checks] == STEPS, (name, checks[-1])
            assert {check.status for check in checks} == {"ok"}, (name, checks[-1])
            if CLIENTS[name].document:
                assert CLIENTS[name].document in checks[STEPS.index("register")].detail


async def test_without_the_settings_of_the_gateway_its_secrets_are_not_checked(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings, Provider()) as made:
        for settings in (None, replace(made.gateway.settings, server=elsewhere(made))):
            names = [check.name for check in await walk_as("inspector", made, settings)]
            assert names == [*STEPS[:5], "corp: redirect", "token"]


def elsewhere(made: Company) -> Any:
    return replace(made.gateway.settings.server, public_url="https://other.example")


def entry(settings: Settings, **changes: str) -> Settings:
    """The settings, with changes of the provider's entry."""
    corp: ProviderSettings = replace(settings.login.providers["corp"], **changes)
    return replace(settings, login=replace(settings.login, providers={"corp": corp}))


def refusing(page: Response) -> Provider:
    made = Provider()
    made.page = page
    return made


def back_with_error() -> Provider:
    class Refusing(Provider):
        async def _authorize(self, request: Request) -> Response:
            answer = "error=unauthorized_client&error_description=not+yours"
            return RedirectResponse(f"{request.query_params['redirect_uri']}?{answer}", 302)

    return Refusing()


@pytest.mark.parametrize(
    ("provider", "step", "words"),
    [
        (
            lambda: refusing(HTMLResponse("<h1>Sorry</h1>Invalid parameter: redirect_uri", 400)),
            "corp: redirect",
            ["HTTP 400", "Invalid parameter: redirect_uri", "/login/callback/corp"],
        ),
        (
            lambda: refusing(HTMLResponse('<script>{"e":"AADSTS50011: The redirect"}</script>')),
            "corp: redirect",
            ["AADSTS50011: The redirect"],
        ),
        (back_with_error, "corp: redirect", ["unauthorized_client not yours"]),
    ],
    ids=["page", "entra", "answer"],
)
async def test_a_provider_that_refuses_the_redirect_is_quoted(
    database_settings: DatabaseSettings,
    provider: Callable[[], Provider],
    step: str,
    words: list[str],
) -> None:
    async with company(database_settings, provider()) as made:
        *before, last = await walk_as("cursor", made, made.gateway.settings)
    assert [check.name for check in before] == STEPS[: STEPS.index(step)]
    assert (last.name, last.status) == (step, "failed")
    for word in words:
        assert word in last.detail


async def test_a_wrong_secret_is_named_with_the_words_of_the_provider(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings, Provider()) as made:
        wrong = entry(made.gateway.settings, client_secret="another")
        *_, last = await walk_as("gemini", made, wrong)
    assert (last.name, last.status) == ("corp: secret", "failed")
    assert "AADSTS7000215: wrong secret" in last.detail
    assert "login.providers.corp" in last.detail
    assert "another" not in last.detail


async def test_the_discovery_of_a_provider_is_checked_as_the_gateway_does(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings, Provider()) as made:
        issuer, [port] = made.identity.url, free_ports(1)
        for given, words in (
            (f"http://127.0.0.1:{port}", "cannot be reached"),  # nobody listens
            (issuer.replace("127.0.0.1", "localhost"), f"has the issuer {issuer}, expected"),
            (f"{issuer}/tenant", "answers HTTP 404"),
        ):
            settings = entry(made.gateway.settings, issuer=given)
            *_, last = await walk_as("n8n", made, settings)
            assert (last.name, last.status) == ("corp: discovery", "failed")
            assert words in last.detail
            assert given in last.detail


async def test_a_provider_that_the_gateway_cannot_reach_is_told_by_its_page(
    database_settings: DatabaseSettings,
) -> None:
    [port] = free_ports(1)
    provider = Provider()
    provider.url = f"http://127.0.0.1:{port}"
    async with company(database_settings, provider) as made:
        *_, last = await walk_as("inspector", made)
    assert (last.name, last.status) == ("corp: redirect", "failed")
    assert "The identity provider cannot be reached." in last.detail


async def test_a_provider_whose_keys_cannot_be_had_is_named(
    database_settings: DatabaseSettings,
) -> None:
    provider = Provider()
    provider.jwks = "/none"
    async with company(database_settings, provider) as made:
        *_, last = await walk_as("inspector", made, made.gateway.settings)
    assert (last.name, last.status) == ("corp: keys", "failed")
    assert f"{provider.url}/none" in last.detail


@pytest.mark.parametrize(
    ("registration", "client", "step", "words"),
    [
        ("closed", "cursor", "register", "login.registration"),
        ("closed", "claude-code", "register", "login.registration"),
        ("cimd", "mcp-remote", "register", "login.registration"),
        # its document is at an address that this gateway does not reach
        ("cimd", "vscode", "authorize", "not known to this gateway"),
    ],
)
async def test_a_client_that_the_gateway_does_not_take_is_told_why(
    database_settings: DatabaseSettings,
    monkeypatch: pytest.MonkeyPatch,
    registration: str,
    client: str,
    step: str,
    words: str,
) -> None:
    monkeypatch.setattr("gateway.login.clients.fetch", Published().fetch)
    async with company(database_settings, registration=registration) as made:
        *_, last = await walk_as(client, made)
    assert (last.name, last.status) == (step, "failed")
    assert words in last.detail


async def test_redirects_that_the_settings_refuse_fail_the_registration(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings, redirects=("https://*.corp.example/*",)) as made:
        *_, last = await walk_as("cursor", made)
    assert (last.name, last.status) == ("register", "failed")
    assert "login.redirects" in last.detail


async def test_a_gateway_without_a_login_is_told_at_the_first_step(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings) as made:
        for path, step in (("/nowhere", "challenge"), ("/mcp", "resource")):
            if step == "resource":
                made = replace_url(made, "localhost")
            *_, last = await walk_as("inspector", made, path=path)
            assert (last.name, last.status) == (step, "failed"), last
    assert "server.public_url" in last.detail


def replace_url(made: Company, host: str) -> Company:
    """The company by another name of its host than the public one."""
    url = made.url.replace("127.0.0.1", host)
    return Company(url, made.gateway, made.identity, made.http)


async def test_with_a_browser_a_person_logs_in_and_a_call_is_made(
    database_settings: DatabaseSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROWSER", "true %s")  # a program that does nothing
    async with company(database_settings) as made, browsing() as browser:
        code, text = await Terminal(tmp_path).run(
            *("doctor", "login", made.url, "--as", "mcp-remote", "--browser"),
            browser=browser,
        )
        assert code == 0, text
        assert "/authorize?" in text


async def test_the_command_names_the_first_step_that_fails(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings, registration="closed") as made:
        words = ("doctor", "login", made.url, "--as", "cursor", "--json")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", *words), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
    assert process.returncode == 1
    checks = json.loads(output)
    assert [check["name"] for check in checks] == ["challenge", "resource", "server", "register"]
    assert [check["status"] for check in checks] == ["ok", "ok", "ok", "failed"]


def test_the_text_of_a_page_begins_at_its_heading() -> None:
    page = "<title>x</title><style>a{}</style><h1>No &amp; no</h1>\n <p>Ask</p><script>1</script>"
    assert visible_text(page) == "No & no Ask"
    assert visible_text("plain") == "plain"
