"""Logins of the console at the authorization server of `examples/oauth`."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import LiteralString
from urllib.parse import parse_qs, urlsplit

import aiohttp
import anyio
import msgspec
import pytest

from config.settings import DatabaseSettings
from examples.oauth.accounts import Client
from examples.oauth.keys import Keys
from gateway.console.login import _moment
from gateway.console.oauth import OAuthLogin
from gateway.context import Identity, Principal
from gateway.state.postgres import only_row
from registry.database.postgres import borrow
from schemas.errors import Unavailable
from tests.examples.conftest import ROOT
from tests.fixtures_gateway import DEADLINE_S
from tests.servers.authorization import Company, company

pytestmark = pytest.mark.anyio

TOKEN = re.compile(r'name="_csrf" value="([0-9a-f]+)"')
ENV = {
    "TOOLGATE_CONSOLE__ENABLED": "true",
    "TOOLGATE_CONSOLE__CLIENT_ID": "console",
    "TOOLGATE_CONSOLE__SCOPES": '["orders:read"]',
}
ADA = {"username": "ada", "password": "lovelace", "answer": "allow"}


def query(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


class Visitor:
    """A browser at the console of the company."""

    def __init__(self, made: Company, http: aiohttp.ClientSession) -> None:
        self.console = f"{made.url}/console"
        self.callback = f"{self.console}/callback"
        self.http = http
        client = Client("console", "", "Console", redirect_uris=(self.callback,))
        made.server.accounts.add(client)

    async def location(self, url: str, **form: str) -> str:
        method = "POST" if form else "GET"
        async with self.http.request(method, url, data=form, allow_redirects=False) as answer:
            assert answer.status in {302, 303}, await answer.text()
            return answer.headers["location"]

    async def status(self, url: str) -> int:
        async with self.http.get(url, allow_redirects=False) as answer:
            return answer.status

    async def text(self, url: str) -> str:
        async with self.http.get(url) as answer:
            return await answer.text()

    async def asked(self) -> str:
        """The URL of the authorization server that the console sends its visitor to."""
        return await self.location(f"{self.console}/login/begin?next=tools")


@asynccontextmanager
async def visiting(
    database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch, **env: str
) -> AsyncIterator[tuple[Company, Visitor, OAuthLogin]]:
    monkeypatch.chdir(ROOT)
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        company(database, {**ENV, **env}) as made,
        aiohttp.ClientSession(cookie_jar=jar) as http,
    ):
        served = made.client.gateway.console
        assert served is not None
        assert served._doors._oauth is not None
        yield made, Visitor(made, http), served._doors._oauth


async def test_a_visitor_logs_in_with_code_and_pkce(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with visiting(database_settings, monkeypatch) as (made, visitor, oauth):
        console, callback = visitor.console, visitor.callback
        asked = await visitor.asked()
        said = query(asked)
        assert said["code_challenge_method"] == "S256"
        assert said["resource"] == f"{made.url}/admin/v1"
        assert "nonce" not in said
        back = await visitor.location(asked, **ADA)
        assert back.startswith(callback)

        code, state, issuer = (query(back)[name] for name in ("code", "state", "iss"))
        async with aiohttp.ClientSession() as other:  # another browser cannot use the code
            assert await Visitor(made, other).status(back) == 401
        for wrong in (
            f"{callback}?code={code}&state=other&iss={issuer}",
            f"{callback}?code={code}&state={state}&iss=https://evil.example",
            f"{callback}?error=access_denied&state={state}",
        ):
            assert await visitor.status(wrong) == 401
        assert (await visitor.location(back)).endswith("/console/tools")
        assert await visitor.status(f"{console}/tools") == 403  # without a scope of the admin API
        assert "ada" in await visitor.text(console)
        assert await visitor.status(back) == 401  # the code is good once

        oauth._server._cached = b'{"issuer": "incomplete"}'
        assert await visitor.status(f"{console}/login/begin") == 401


async def test_a_session_is_renewed_by_one_request_and_ends_at_the_issuer_too(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with visiting(database_settings, monkeypatch) as (made, visitor, oauth):
        await visitor.location(await visitor.location(await visitor.asked(), **ADA))
        given = made.server.accounts.refresh_tokens
        (first,) = given
        pool = made.client.gateway._handle.pool()
        assert pool is not None

        async def change(statement: LiteralString) -> None:
            async with borrow(pool) as connection:
                await connection.execute(statement)

        async def sealed() -> str:
            async with borrow(pool) as connection:
                found = await connection.execute("SELECT refresh FROM console_session_t")
                return str((await only_row(found))[0])

        assert first not in await sealed()  # the database alone reveals none
        await change("UPDATE console_session_t SET token_ends_ts = now() - interval '1 s'")
        async with anyio.create_task_group() as tasks:  # a page and its parts
            for _ in range(4):
                tasks.start_soon(visitor.text, visitor.console)
        assert "ada" in await visitor.text(visitor.console)
        assert first not in given
        assert len(given) == 1

        token = TOKEN.search(await visitor.text(visitor.console))
        assert token is not None
        headers = {"Sec-Fetch-Site": "same-origin"}
        metadata = await oauth._metadata()
        metadata.end_session_endpoint = f"{made.server.issuer}/end"
        oauth._server._cached = msgspec.json.encode(metadata)
        async with visitor.http.post(
            f"{visitor.console}/logout", data={"_csrf": token[1]}, headers=headers
        ) as answer:
            assert f"{made.server.issuer}/end?client_id=console" in await answer.text()
        assert not given

        await visitor.location(await visitor.location(await visitor.asked(), **ADA))
        given.clear()  # as where an administrator ends the session at the issuer
        await change("UPDATE console_session_t SET token_ends_ts = now() - interval '1 s'")
        assert await visitor.status(f"{visitor.console}/tools") == 303  # to the login


async def test_an_id_token_has_to_repeat_the_nonce_of_its_login(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    scopes = {"TOOLGATE_CONSOLE__SCOPES": '["openid", "orders:read"]'}
    async with visiting(database_settings, monkeypatch, **scopes) as (made, visitor, oauth):
        asked = await visitor.asked()
        other = query(asked)["nonce"]
        back = await visitor.location(asked.replace(other, "another"), **ADA)
        assert await visitor.status(back) == 401
        back = await visitor.location(await visitor.asked(), **ADA)
        assert (await visitor.location(back)).endswith("/console/tools")
        for audience, good in (("console", True), ("another", False)):
            claims = {"iss": made.server.issuer, "sub": "ada", "aud": audience, "exp": 4e9}
            found = await oauth._id_token(made.server.keys.sign(claims), "console")
            assert (found is not None) is good
        forged = Keys(1).sign({"iss": made.server.issuer, "aud": "console", "exp": 4e9})
        assert await oauth._id_token(forged, "console") is None


OUTAGES = [
    (500, b""),
    (429, b'{"error": "slow_down"}'),
    (302, b""),
    (404, b"<html>no such host</html>"),
    (200, b"<html>back soon</html>"),
    (400, b"<html>a proxy's own</html>"),
    (400, b'{"error": "temporarily_unavailable"}'),
]


async def end_tokens(made: Company) -> None:
    """End the access tokens of all sessions."""
    pool = made.client.gateway._handle.pool()
    assert pool is not None
    async with borrow(pool) as connection:
        await connection.execute(
            "UPDATE console_session_t SET token_ends_ts = now() - interval '1 s'"
        )


async def test_an_outage_of_the_authorization_server_ends_no_session(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with visiting(database_settings, monkeypatch) as (made, visitor, oauth):
        await visitor.location(await visitor.location(await visitor.asked(), **ADA))
        posted = oauth._post_form
        for outage in OUTAGES:

            async def answer(
                _url: str, _form: dict[str, str], outage: tuple[int, bytes] = outage
            ) -> tuple[int, bytes]:
                return outage

            await end_tokens(made)
            monkeypatch.setattr(oauth, "_post_form", answer)
            assert await visitor.status(visitor.console) == 502, outage
        good, oauth._server._cached = oauth._server._cached, b'{"issuer": "incomplete"}'
        assert await visitor.status(visitor.console) == 502
        oauth._server._cached = good
        monkeypatch.setattr(oauth, "_post_form", posted)
        assert "ada" in await visitor.text(visitor.console)

        await end_tokens(made)
        doors = made.client.gateway.console._doors  # type: ignore[union-attr]

        async def identify(_scope: object) -> Identity:
            return Identity(Principal("anonymous", ""), refusal=Unavailable("no keys to verify"))

        with monkeypatch.context() as patched:
            patched.setattr(doors, "_parts", replace(doors._parts, identify=identify))
            assert await visitor.status(visitor.console) == 502
        assert "ada" in await visitor.text(visitor.console)  # by the refresh token of that answer


async def test_a_slow_authorization_server_keeps_one_connection_of_the_pool(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions that were due at once kept the whole pool, and all other requests waiting."""
    wait = {"TOOLGATE_OAUTH__METADATA_TIMEOUT_S": "0.5"}
    async with (
        visiting(database_settings, monkeypatch, **wait) as (made, visitor, oauth),
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http,
    ):
        second = Visitor(made, http)
        for each in (visitor, second):
            await each.location(await each.location(await each.asked(), **ADA))
        await end_tokens(made)
        posted, asked, answered = oauth._post_form, anyio.Event(), anyio.Event()
        calls = []

        async def slow(url: str, form: dict[str, str]) -> tuple[int, bytes]:
            calls.append(url)
            asked.set()
            await answered.wait()
            return await posted(url, form)

        monkeypatch.setattr(oauth, "_post_form", slow)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(visitor.text, visitor.console)
            with anyio.fail_after(DEADLINE_S):
                await asked.wait()
                assert await second.status(second.console) == 502
            assert len(calls) == 1
            answered.set()
        assert "ada" in await second.text(second.console)


@pytest.mark.parametrize("end", [1e20, 3e11, -1e20, float("nan"), "soon", None])
def test_a_time_that_no_calendar_has_ends_no_login(end: object) -> None:
    assert _moment(end) is None
