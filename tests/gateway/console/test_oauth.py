"""Logins of the console at the authorization server of `examples/oauth`."""

from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from config.settings import DatabaseSettings
from examples.oauth.accounts import Client
from tests.examples.conftest import ROOT
from tests.servers.authorization import company

pytestmark = pytest.mark.anyio

ENV = {
    "TOOLGATE_CONSOLE__ENABLED": "true",
    "TOOLGATE_CONSOLE__CLIENT_ID": "console",
    "TOOLGATE_CONSOLE__SCOPES": '["orders:read"]',
}
ADA = {"username": "ada", "password": "lovelace", "answer": "allow"}


def query(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


async def test_a_visitor_logs_in_with_code_and_pkce(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        company(database_settings, ENV) as made,
        aiohttp.ClientSession(cookie_jar=jar) as http,
    ):
        console = f"{made.url}/console"
        callback = f"{console}/callback"
        made.server.accounts.add(Client("console", "", "Console", redirect_uris=(callback,)))

        async def location(url: str, **form: str) -> str:
            method = "POST" if form else "GET"
            async with http.request(method, url, data=form, allow_redirects=False) as answer:
                assert answer.status in {302, 303}, await answer.text()
                return answer.headers["location"]

        async def status(url: str, session: aiohttp.ClientSession = http) -> int:
            async with session.get(url, allow_redirects=False) as answer:
                return answer.status

        asked = await location(f"{console}/login/begin?next=tools")
        said = query(asked)
        assert said["code_challenge_method"] == "S256"
        assert said["resource"] == f"{made.url}/admin/v1"
        back = await location(asked, **ADA)
        assert back.startswith(callback)

        code, state, issuer = (query(back)[name] for name in ("code", "state", "iss"))
        async with aiohttp.ClientSession() as other:  # another browser cannot use the code
            assert await status(back, other) == 401
        for wrong in (
            f"{callback}?code={code}&state=other&iss={issuer}",
            f"{callback}?code={code}&state={state}&iss=https://evil.example",
            f"{callback}?error=access_denied&state={state}",
        ):
            assert await status(wrong) == 401
        assert (await location(back)).endswith("/console/tools")
        assert await status(f"{console}/tools") == 403  # without a scope of the admin API
        async with http.get(console) as answer:
            assert "ada" in await answer.text()
        assert await status(back) == 401  # the code is good once

        served = made.client.gateway.console
        assert served is not None
        assert served._doors._oauth is not None
        served._doors._oauth._server._cached = b'{"issuer": "incomplete"}'
        assert await status(f"{console}/login/begin") == 401
