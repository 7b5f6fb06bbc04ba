"""A foreign authorization server, the official client, and the gateway between these and a service
that takes tokens of its own only."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from mcp.shared.exceptions import MCPError

from config.settings import DatabaseSettings
from registry.access.revocations import Revocation, Revocations
from tests.examples.conftest import ROOT
from tests.servers.authorization import Company, company, person

pytestmark = pytest.mark.anyio

READ, REFUND = "orders:read", "orders:refund"
LIST_ORDERS = {"name": "listOrders", "arguments": {}}


def claims(token: str) -> dict[str, Any]:
    return dict(jwt.decode(token, options={"verify_signature": False}))


@pytest.fixture
async def shop(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Company]:
    monkeypatch.chdir(ROOT)
    async with company(database_settings, leeway_s=0, jwks_cooldown_s=1e-6) as made:
        yield made


async def test_the_service_sees_the_user_and_never_the_gateway_token(shop: Company) -> None:
    async with person(f"{shop.url}/mcp", "ada:lovelace") as ada:
        answer = (await ada.mcp.call_tool("listOrders", {})).structured_content
        assert answer is not None
        assert (answer["askedBy"], answer["through"]) == ("ada", "toolgate")
        assert ada.memory.tokens is not None
        assert claims(ada.memory.tokens.access_token)["aud"] == f"{shop.url}/mcp"
    assert ada.memory.tokens.access_token not in shop.service.bearers
    (seen,) = map(claims, shop.service.bearers)
    assert (seen["sub"], seen["aud"]) == ("ada", shop.orders_url)
    assert (seen["act"], seen["scope"]) == ({"sub": "toolgate"}, READ)


async def test_a_client_requests_scopes_when_a_tool_requires_more(shop: Company) -> None:
    for mode, revision in (("auto", "2026-07-28"), ("legacy", "2025-11-25")):
        async with person(f"{shop.url}/mcp", "ada:lovelace", mode) as ada:
            assert ada.mcp.protocol_version == revision
            assert not (await ada.mcp.call_tool("listOrders", {})).is_error
            done = await ada.mcp.call_tool("orders_refund", {"item": "tea"})
            assert done.structured_content == {"refunded": "tea"}
            assert ada.login.scopes == [READ, f"{READ} {REFUND}"]
            tools = (await ada.mcp.list_tools()).tools
            assert "orders_refund" in [tool.name for tool in tools]
    async with person(f"{shop.url}/mcp", "bob:the-builder") as bob:  # who may not give it away
        with pytest.raises(MCPError, match="specification scopes"):
            await bob.mcp.call_tool("orders_refund", {"item": "tea"})
        assert bob.login.scopes == [READ, f"{READ} {REFUND}"]
        assert not (await bob.mcp.call_tool("listOrders", {})).is_error


async def test_a_client_continues_with_a_new_token_after_expiry(shop: Company) -> None:
    async with person(f"{shop.url}/mcp", "ada:lovelace") as ada:
        before = ada.memory.tokens
        ada.expire()
        assert not (await ada.mcp.call_tool("listOrders", {})).is_error
        after = ada.memory.tokens
        assert before is not None
        assert after is not None
        assert after.access_token != before.access_token
        assert ada.login.scopes == [READ]

        shop.server.accounts.refresh_tokens.clear()  # taken back: only a person can help
        ada.expire()
        assert not (await ada.mcp.call_tool("listOrders", {})).is_error
        assert ada.login.scopes == [READ, READ]


async def test_tokens_of_no_use_are_refused(shop: Company) -> None:
    good = shop.token("ada", READ)
    assert (await shop.ask(good))[0] == 200
    head, body, signature = good.split(".")
    other = "B" if signature[10] == "A" else "A"
    forged = f"{head}.{body}.{signature[:10]}{other}{signature[11:]}"
    for token, path, code in (
        (good, "/rpc", "ERR10000"),  # for another endpoint
        (shop.token("ada", READ, audience=shop.orders_url), "/mcp", "ERR10000"),
        (shop.token("ada", READ, ends=time.time() - 1), "/mcp", "ERR10001"),
        (forged, "/mcp", "ERR10000"),
    ):
        status, answer, headers = await shop.ask(token, path)
        assert (status, answer["error"]["data"]["code"]) == (401, code)
        told = f'{shop.url}/.well-known/oauth-protected-resource{path}"'
        assert headers["www-authenticate"].endswith(f'scope="{READ}", resource_metadata="{told}')
        assert 'error="invalid_token"' in headers["www-authenticate"]
    assert (await shop.ask(shop.token("ada", READ, "/rpc"), "/rpc"))[0] == 200
    status, answer, _ = await shop.ask(shop.token("ada", REFUND))
    assert (status, answer["error"]["data"]["code"]) == (403, "ERR10005")


async def test_keys_change_while_calls_run(shop: Company) -> None:
    first = shop.token("ada", READ)
    for turn in range(3):
        token = shop.token("ada", READ)
        calls = [shop.call(token, "tools/call", LIST_ORDERS) for _ in range(5)]
        running = [asyncio.create_task(call) for call in calls]
        shop.server.keys.rotate()
        for status, answer, _ in await asyncio.gather(*running):
            assert status == 200, (turn, answer)
            assert answer["result"]["structuredContent"].get("askedBy") == "ada", (turn, answer)
        assert (await shop.ask(shop.token("bob", READ)))[0] == 200  # by the newest key
    assert (await shop.ask(first))[0] == 200
    shop.server.keys.forget()
    assert (await shop.ask(shop.token("bob", READ)))[0] == 200
    assert (await shop.ask(first))[0] == 401  # although it was good, and has not ended


async def test_a_token_that_is_revoked_opens_nothing(shop: Company) -> None:
    token, other = shop.token("ada", READ), shop.token("ada", READ)
    assert (await shop.ask(token))[0] == 200
    gateway = shop.client.gateway
    pool = gateway.feed.pool
    assert pool is not None
    end = datetime.now(UTC) + timedelta(hours=1)
    revocation = Revocation(claims(token)["jti"], None, issued_before=None, expires=end)
    await Revocations(pool, gateway.principal.tenant).add(revocation)
    async with asyncio.timeout(30):
        while (await shop.ask(token))[0] != 401:  # noqa: ASYNC110 - a notice tells the gateway
            await asyncio.sleep(0.02)
    assert (await shop.ask(other))[0] == 200


async def test_gateway_metadata_matches_the_authorization_server(shop: Company) -> None:
    for path in ("oauth-authorization-server", "oauth-authorization-server/mcp"):
        async with shop.client.http.get(f"{shop.url}/.well-known/{path}") as response:
            assert json.loads(await response.read()) == shop.server.metadata
    async with shop.client.http.get(
        f"{shop.url}/.well-known/oauth-protected-resource/mcp"
    ) as response:
        told = json.loads(await response.read())
    assert told["authorization_servers"] == [shop.server.issuer]
    assert told["scopes_supported"] == [READ, "orders:write", REFUND]
