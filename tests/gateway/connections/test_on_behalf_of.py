"""People who logged in at the gateway, for whom it gets tokens of an API at their provider."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from config.settings import DatabaseSettings
from tests.fixtures_servers import serving
from tests.gateway.connections.services import Notes, Office, description, token_of
from tests.gateway.login.company import Browser, browsing, company
from tests.servers.authorization import Late
from tests.servers.entra import CLAIMS, CONSENT, FACTOR, Entra
from tests.servers.identity import CLIENT, SECRET

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def act_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """People of tests are faster than those for whom a refusal is remembered some seconds."""
    monkeypatch.setattr("gateway.upstreams.auth.service_tokens.INTERACTION_TTL_S", 0.0)


async def orders(request: Request) -> Response:
    return JSONResponse({"token": request.headers.get("authorization")})


@asynccontextmanager
async def orders_office(
    database: DatabaseSettings,
    folder: Path,
    entra: Entra,
    *,
    at: str = "",
    check_s: float = 3600.0,
    **exchange: Any,
) -> AsyncIterator[Office]:
    """`at`: the URL of another gateway of theirs."""
    service, issuer = Starlette(routes=[Route("/notes", orders)]), Late()
    async with serving(service) as url, serving(issuer) as provider:
        if not entra.url:
            entra.url, issuer.app = provider, entra.app
        path = folder / "orders.json"
        path.write_text(json.dumps(description(url)))
        settings = {
            "profile": "entra_obo",
            "token_url": f"{entra.url}/token",
            "client_id": CLIENT,
            "client_secret": SECRET,
            "audience": "api://orders",
            **exchange,
        }
        env = {
            "TOOLGATE_SOURCES__ORDERS__OPENAPI": str(path),
            "TOOLGATE_SOURCES__ORDERS__BASE_URL": url,
            "TOOLGATE_SOURCES__ORDERS__EXCHANGE": json.dumps(settings),
            "TOOLGATE_AUTH__ISSUERS__CORP__ISSUER": entra.url,
            "TOOLGATE_AUTH__ISSUERS__CORP__JWKS_URL": f"{entra.url}/jwks",
            "TOOLGATE_AUTH__ISSUERS__CORP__AUDIENCE": CLIENT,
        }
        async with company(database, entra, url=at, env=env, check_s=check_s) as made:
            yield Office(made, Notes())


def sent_token(answer: dict[str, Any]) -> str:
    text: str = json.loads(answer["result"]["content"][0]["text"])["token"]
    return text


async def log_in_again(browser: Browser, url: str) -> None:
    sent = await browser.press(url, "at:corp")
    back = await browser.get(sent.location)
    assert (await browser.get(back.location, site="cross-site")).status == 303


async def call_with(made: Office, path: str, token: str) -> Any:
    """The answer to a client of 2026-07-28, or to one of JSON-RPC."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "list_notes", "arguments": {}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "list_notes",
    }
    async with made.company.http.post(made.url + path, json=body, headers=headers) as answer:
        await answer.read()
        return answer


async def test_people_of_the_login_get_tokens_by_their_provider_s(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """The provider's token is had by the refresh token of the login, once for calls at once, also
    where that is good once."""
    entra = Entra(rotates=True)
    async with (
        orders_office(database_settings, tmp_path, entra) as made,
        browsing() as ann,
        browsing() as bob,
    ):
        tokens = [
            await token_of(made, browser, name) for name, browser in (("ann", ann), ("bob", bob))
        ]
        entra.person = {}  # whoever a refresh token is of
        answers: set[str] = set()

        async def call(token: str) -> None:
            answers.add(sent_token(await made.call(token)).partition(":")[2])

        for _ in range(2):
            async with anyio.create_task_group() as group:
                for token in tokens * 5:
                    group.start_soon(call, token)
        assert answers == {"ann@api://orders", "bob@api://orders"}
        assert (len(entra.forms), entra.refreshed) == (2, 2)


async def test_a_refresh_token_that_is_good_once_is_used_by_one_gateway_at_a_time(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """Also while the login is checked, as whenever a client renews its own token."""
    entra = Entra(rotates=True, slow_s=0.2)
    async with (
        orders_office(database_settings, tmp_path, entra, check_s=0.001) as made,
        orders_office(database_settings, tmp_path, entra, at=made.url, check_s=0.001) as other,
        browsing() as browser,
    ):
        client, tokens = await made.company.grant_tokens(browser)
        answers: list[Any] = []

        async def call(node: Office) -> None:
            answers.append(sent_token(await node.call(tokens["access_token"])).partition(":")[2])

        async def renew() -> None:
            status, _ = await made.company.refresh(client, tokens["refresh_token"])
            answers.append(status)

        async with anyio.create_task_group() as group:
            for node in (made, other):
                group.start_soon(call, node)
                group.start_soon(renew)
        assert sorted(map(str, answers)) == ["200", "200", *["ann@api://orders"] * 2]


@pytest.mark.parametrize(("refusal", "reason"), [(FACTOR, "expired"), (CONSENT, "scopes")])
async def test_a_second_factor_or_consent_is_given_by_another_login(
    database_settings: DatabaseSettings, tmp_path: Path, refusal: dict[str, Any], reason: str
) -> None:
    """The link leads to the provider with the API's scope and the claims that it wanted; the same
    call is good afterwards."""
    entra = Entra()
    async with orders_office(database_settings, tmp_path, entra) as made, browsing() as browser:
        token = await token_of(made, browser)
        entra.refusal = refusal
        asked = (await made.call(token))["result"]["_meta"]["toolgate/connect"]
        assert (asked["source"], asked["reason"]) == ("orders", reason)
        await log_in_again(browser, asked["url"])
        assert entra.asked[-1]["scope"].split()[-1] == "api://orders/.default"
        assert entra.asked[-1].get("claims") == refusal.get("claims")
        entra.refusal = {}
        assert sent_token(await made.call(token)).endswith("ann@api://orders")


async def test_a_missing_consent_for_another_application_leads_nowhere(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    entra = Entra(client="another", refusal=CONSENT)
    async with (
        orders_office(database_settings, tmp_path, entra, client_id="another") as made,
        browsing() as browser,
    ):
        result = (await made.call(await token_of(made, browser)))["result"]
        assert "an administrator has to allow the gateway" in result["content"][0]["text"]
        url = f"{made.url}/login?{urlencode({'for': 'orders', 'claims': CLAIMS})}"
        await log_in_again(browser, url)
        assert "claims" not in entra.asked[-1]
        assert "orders" not in entra.asked[-1]["scope"]


async def test_a_client_with_the_provider_s_token_hears_of_the_claims(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    entra = Entra()
    async with orders_office(database_settings, tmp_path, entra) as made:
        entra.refusal = FACTOR
        for path in ("/rpc", "/mcp"):
            answer = await call_with(made, path, entra.user_token("ann"))
            assert answer.status == 401
            assert 'error="insufficient_claims"' in answer.headers["WWW-Authenticate"]
            claims = answer.headers["WWW-Authenticate"].split('claims="')[1].split('"')[0]
            assert base64.b64decode(claims).decode() == CLAIMS
        entra.refusal = {}
        assert (await call_with(made, "/mcp", entra.user_token("ann"))).status == 200


async def test_a_login_that_its_provider_does_not_renew_is_made_again(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    entra = Entra()
    async with orders_office(database_settings, tmp_path, entra) as made, browsing() as browser:
        token = await token_of(made, browser)
        entra.left = True
        asked = (await made.call(token))["result"]["_meta"]["toolgate/connect"]
        assert asked["reason"] == "expired"
        entra.left = False
        await log_in_again(browser, asked["url"])
        assert sent_token(await made.call(token)).endswith("ann@api://orders")


async def test_a_provider_s_token_goes_to_no_other_server(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    entra = Entra()
    elsewhere = "https://login.example.com/token"
    async with (
        orders_office(database_settings, tmp_path, entra, token_url=elsewhere) as made,
        browsing() as browser,
    ):
        result = (await made.call(await token_of(made, browser)))["result"]
        assert "whose tokens another server cannot exchange" in result["content"][0]["text"]
        assert entra.refreshed == 0
