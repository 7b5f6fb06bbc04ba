"""A whole login: a client that registers itself, a person at their provider, tokens, calls."""

import aiohttp
import jwt
import pytest

from config.settings import DatabaseSettings
from tests.gateway.login.company import REDIRECT, browsing, company

pytestmark = pytest.mark.anyio


async def document(http: aiohttp.ClientSession, url: str) -> dict[str, object]:
    async with http.get(url, headers={"Origin": "https://any.example"}) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.headers["access-control-allow-origin"] == "*"
        read: dict[str, object] = await answer.json()
        return read


async def test_metadata_leads_from_the_endpoint_to_the_login(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings) as made:
        async with made.http.post(f"{made.url}/mcp", json={}) as refused:
            assert refused.status == 401
            challenge = refused.headers["www-authenticate"]
        resource = challenge.partition('resource_metadata="')[2].rstrip('"')
        described = await document(made.http, resource)
        assert described["resource"] == f"{made.url}/mcp"
        assert described["authorization_servers"] == [made.url]
        for place in ("oauth-authorization-server", "openid-configuration"):
            metadata = await document(made.http, f"{made.url}/.well-known/{place}")
            assert metadata["issuer"] == made.url
            assert metadata["code_challenge_methods_supported"] == ["S256"]
            assert metadata["client_id_metadata_document_supported"] is True
        keys = await document(made.http, str(metadata["jwks_uri"]))
        assert [key["alg"] for key in keys["keys"]] == ["ES256"]  # type: ignore[attr-defined]


async def test_a_person_gives_a_client_a_token_for_one_endpoint(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings) as made, browsing() as browser:
        made.identity.person["roles"] = ["clerk"]
        client = (await made.register())["client_id"]
        page = await browser.get(made.authorize(client))
        assert "unverified" in page.text
        assert "127.0.0.1" in page.text
        back = await browser.log_in(made.authorize(client))
        assert back.location.startswith(f"{REDIRECT}?")
        assert back.query["state"] == "s t/ä"
        assert back.query["iss"] == made.url
        (asked,) = made.identity.asked
        assert "resource" not in asked
        assert asked["state"] != back.query["state"]
        status, tokens = await made.take_code(client, back.query["code"])
        assert status == 200, tokens
        claims = jwt.decode(tokens["access_token"], options={"verify_signature": False})
        assert claims["sub"] == "corp:ann"
        assert claims["aud"] == f"{made.url}/mcp"
        assert claims["scope"] == tokens["scope"] == "tools:read tools:write"
        assert await made.status(tokens["access_token"]) == 200
        assert await made.status(tokens["access_token"], "/rpc") == 401

        status, again = await made.refresh(client, tokens["refresh_token"])
        assert status == 200, again
        assert await made.status(again["access_token"]) == 200
