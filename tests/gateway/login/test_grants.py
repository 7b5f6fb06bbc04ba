"""Codes and refresh tokens: what they are bound to, how often they are good, and how they end."""

import asyncio
from datetime import timedelta
from typing import Any

import jwt
import pytest

from config.settings import DatabaseSettings
from tests.gateway.login.company import REDIRECT, Company, browsing, company
from tests.gateway.login.test_attacks import sql

pytestmark = pytest.mark.anyio


async def test_a_code_is_bound_and_good_once(made: Company) -> None:
    async with browsing() as browser:
        client = (await made.register(REDIRECT, "https://app.example/back"))["client_id"]
        other = (await made.register())["client_id"]
        back = await browser.log_in(made.authorize(client))
        code = back.query["code"]
        for changes in (
            {"code_verifier": "w" * 50},
            {"code_verifier": "short"},
            {"redirect_uri": "https://app.example/back"},
            {"resource": f"{made.url}/rpc"},
            {"client_id": other},
            {"code": code[:-1]},
        ):
            wanted: dict[str, Any] = {"client_id": client, "code": code, **changes}
            status, answer = await made.take_code(
                wanted.pop("client_id"), wanted.pop("code"), **wanted
            )
            assert status == 400, changes
            assert answer["error"] in ("invalid_grant", "invalid_target"), changes
        status, tokens = await made.take_code(client, code)
        assert status == 200
        assert await made.status(tokens["access_token"]) == 200

        status, answer = await made.take_code(client, code)  # somebody has a copy
        assert (status, answer["error"]) == (400, "invalid_grant")
        assert await made.status(tokens["access_token"]) == 401
        status, _ = await made.refresh(client, tokens["refresh_token"])
        assert status == 400


async def test_two_processes_of_a_client_refresh_at_once(made: Company) -> None:
    async with browsing() as browser:
        client, tokens = await made.grant_tokens(browser)
        first, second = await asyncio.gather(
            made.refresh(client, tokens["refresh_token"]),
            made.refresh(client, tokens["refresh_token"]),
        )
        assert first[0] == second[0] == 200
        assert first[1]["refresh_token"] == second[1]["refresh_token"] != tokens["refresh_token"]
        status, _ = await made.refresh(client, first[1]["refresh_token"])
        assert status == 200
        other = (await made.register())["client_id"]
        status, answer = await made.refresh(other, first[1]["refresh_token"])
        assert (status, answer["error"]) == (400, "invalid_grant")
        assert await made.status(tokens["access_token"]) == 200  # a stranger ends nothing


async def test_a_refresh_token_that_is_used_later_again_ends_all(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings, refresh_grace_s=1e-6) as made, browsing() as browser:
        client, tokens = await made.grant_tokens(browser)
        status, following = await made.refresh(client, tokens["refresh_token"])
        assert status == 200
        status, answer = await made.refresh(client, tokens["refresh_token"])
        assert (status, answer["error"]) == (400, "invalid_grant")
        status, _ = await made.refresh(client, following["refresh_token"])
        assert status == 400
        assert await made.status(following["access_token"]) == 401


async def test_a_token_is_refreshed_for_its_resource_alone(made: Company) -> None:
    async with browsing() as browser:
        client, tokens = await made.grant_tokens(browser)
        status, answer = await made.refresh(
            client, tokens["refresh_token"], resource=f"{made.url}/rpc"
        )
        assert (status, answer["error"]) == (400, "invalid_target")
        for resource in (f"{made.url}/mcp", f"{made.url}/mcp/"):
            status, answer = await made.refresh(client, tokens["refresh_token"], resource=resource)
            assert status == 200, answer
        claims = jwt.decode(answer["access_token"], options={"verify_signature": False})
        assert claims["aud"] == f"{made.url}/mcp"


async def test_a_client_that_names_no_resource_gets_a_token_for_the_gateway(made: Company) -> None:
    async with browsing() as browser:
        _, tokens = await made.grant_tokens(browser, resource="")
        claims = jwt.decode(tokens["access_token"], options={"verify_signature": False})
        assert claims["aud"] == made.url
        assert await made.status(tokens["access_token"]) == 200
        assert await made.status(tokens["access_token"], "/rpc") != 401


async def test_a_revoked_token_ends_its_family(made: Company) -> None:
    async with browsing() as browser:
        for name in ("access_token", "refresh_token"):
            client, tokens = await made.grant_tokens(browser)
            other = (await made.register())["client_id"]
            for sender, lasts in ((other, True), (client, False)):
                form = {"token": tokens[name], "client_id": sender}
                async with made.http.post(f"{made.url}/revoke", data=form) as answer:
                    assert answer.status == 200
                assert (await made.status(tokens["access_token"]) == 200) is lasts
            status, _ = await made.refresh(client, tokens["refresh_token"])
            assert status == 400


async def test_a_refresh_asks_the_provider_whether_the_person_left(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings, check_s=1e-6) as made, browsing() as browser:
        made.identity.rotates = True
        client, tokens = await made.grant_tokens(browser)
        made.identity.person["roles"] = ["clerk"]
        status, tokens = await made.refresh(client, tokens["refresh_token"])
        assert status == 200
        made.identity.fails = 503  # an outage logs nobody out
        status, tokens = await made.refresh(client, tokens["refresh_token"])
        assert status == 200
        made.identity.fails = 0
        status, tokens = await made.refresh(client, tokens["refresh_token"])
        claims = jwt.decode(tokens["access_token"], options={"verify_signature": False})
        assert claims["roles"] == ["clerk"]  # as the provider now says
        assert claims["scope"] == "tools:read"  # no more than was allowed
        made.identity.left = True
        status, answer = await made.refresh(client, tokens["refresh_token"])
        assert (status, answer["error"]) == (400, "invalid_grant")
        assert "left" in answer["error_description"]
        assert await made.status(tokens["access_token"]) == 401
        assert made.identity.refreshed == 3


async def test_a_provider_that_answers_wrong_for_long_keeps_nobody_logged_in(
    database_settings: DatabaseSettings,
) -> None:
    """Checks may fail for `login.unchecked_s` at a stretch."""
    changes = {"check_s": 1e-6, "unchecked_s": 1e-3}
    async with company(database_settings, **changes) as made, browsing() as browser:
        client, tokens = await made.grant_tokens(browser)
        for fails in (503, 0, 400, 0, 503):  # short ones
            made.identity.fails = fails
            status, tokens = await made.refresh(client, tokens["refresh_token"])
            assert status == 200, tokens
        status, answer = await made.refresh(client, tokens["refresh_token"])
        assert (status, answer["error"]) == (400, "invalid_grant")
        assert "too long" in answer["error_description"]
        assert await made.status(tokens["access_token"]) == 401


async def test_people_of_a_provider_that_was_removed_are_logged_out(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings, unchecked_s=1e-3) as made, browsing() as browser:
        client, tokens = await made.grant_tokens(browser)
        made.gateway.login._server.parts.providers.pop("corp")  # type: ignore[union-attr]
        status, tokens = await made.refresh(client, tokens["refresh_token"])
        assert status == 200
        status, answer = await made.refresh(client, tokens["refresh_token"])
        assert (status, answer["error"]) == (400, "invalid_grant")


async def test_an_answer_about_somebody_else_is_no_check(
    database_settings: DatabaseSettings,
) -> None:
    changes = {"check_s": 1e-6, "unchecked_s": 1e-3}
    async with company(database_settings, **changes) as made, browsing() as browser:
        client, tokens = await made.grant_tokens(browser)
        made.identity.person["sub"] = "bob"
        status, tokens = await made.refresh(client, tokens["refresh_token"])
        claims = jwt.decode(tokens["access_token"], options={"verify_signature": False})
        assert (status, claims["sub"]) == (200, "corp:ann")
        status, answer = await made.refresh(client, tokens["refresh_token"])
        assert (status, answer["error"]) == (400, "invalid_grant")


async def test_a_login_without_a_check_ends_soon(database_settings: DatabaseSettings) -> None:
    async with company(database_settings, unchecked_s=60.0) as made, browsing() as browser:
        made.identity.gives_refresh = False
        client, tokens = await made.grant_tokens(browser)
        (lasts,) = await sql(database_settings, "SELECT expires_ts - created_ts FROM login_t")
        assert lasts == (timedelta(seconds=60),)
        await sql(database_settings, "UPDATE login_t SET expires_ts = now()")
        status, answer = await made.refresh(client, tokens["refresh_token"])
        assert (status, answer["error"]) == (400, "invalid_grant")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b'{"error": "invalid_grant", "error_description": null}'),
        (400, b'{"error": "invalid_grant", "error_description": 70008}'),
        (200, b'{"error": "invalid_grant"}'),
    ],
    ids=["null", "number", "status 200"],
)
async def test_a_provider_writes_a_leaver_in_several_ways(
    database_settings: DatabaseSettings, status: int, body: bytes
) -> None:
    async with company(database_settings, check_s=0.001) as made, browsing() as browser:
        client, tokens = await made.grant_tokens(browser)
        made.identity.fails, made.identity.body = status, body
        refused, answer = await made.refresh(client, tokens["refresh_token"])
        assert (refused, answer["error"]) == (400, "invalid_grant")
        assert "left" in answer["error_description"]
        assert await made.status(tokens["access_token"]) == 401


@pytest.mark.parametrize("body", [b"{}", b"[]", b"\xff", b"[" * 100_000])
async def test_an_answer_without_tokens_is_no_check(
    database_settings: DatabaseSettings, body: bytes
) -> None:
    """A provider that answers 200 and nothing more says of nobody that they are still there."""
    changes = {"check_s": 0.001, "unchecked_s": 0.001}
    async with company(database_settings, **changes) as made, browsing() as browser:
        client, tokens = await made.grant_tokens(browser)
        made.identity.fails, made.identity.body = 200, body
        token = tokens["refresh_token"]
        for _ in range(2):  # the first failure begins the time that may pass
            status, answer = await made.refresh(client, token)
            token = answer.get("refresh_token", token)
        assert (status, answer["error"]) == (400, "invalid_grant")
