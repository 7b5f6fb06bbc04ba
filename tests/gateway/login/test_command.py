"""`toolgate login`: a person logs in in their browser, and commands act as them."""

import asyncio
import json
import os
import re
import stat
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from config.settings import DatabaseSettings
from gateway.cli.running.stored_logins import StoredLogin, keep_login, read_logins, token_for
from tests.fixtures_gateway import DEADLINE_S
from tests.fixtures_servers import serving
from tests.gateway.login.company import Answer, Browser, browsing, company, query_of

pytestmark = pytest.mark.anyio

OPERATORS = {"*": ("admin",)}
Callback = Callable[[str], Awaitable[None]]
ADDRESS = re.compile(r"http://\S+/authorize\?\S+")


class Terminal:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "toolgate" / "logins.json"
        self._env = {**os.environ, "XDG_CONFIG_HOME": str(folder)}

    async def run(
        self, *words: str, browser: Browser | None = None, before: Callback | None = None
    ) -> tuple[int | None, str]:
        """Exit code and standard error of a command; `browser` opens the address that it prints,
        after `before` was called with it."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", *words),
            env=self._env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        text = ""
        async with asyncio.timeout(DEADLINE_S):
            async for line in process.stderr:
                text += line.decode()
                address = ADDRESS.search(line.decode())
                if browser is not None and address is not None:
                    if before is not None:
                        await before(query_of(address[0])["redirect_uri"])
                    back = await browser.log_in(address[0])
                    await browser.get(back.location)
            return await process.wait(), text


async def test_commands_act_as_the_person_of_the_login(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    terminal = Terminal(tmp_path)
    async with company(database_settings, scopes=OPERATORS) as made, browsing() as browser:
        lists = ("keys", "list", "--url", made.url)
        code, text = await terminal.run(*lists)
        assert (code, f"log in: toolgate login {made.url}" in text) == (1, True), text
        code, text = await terminal.run("login", made.url, "--no-browser", browser=browser)
        assert code == 0, text
        assert stat.S_IMODE(terminal.file.stat().st_mode) == 0o600
        code, text = await terminal.run(*lists)
        assert code == 0, text

        logins = json.loads(terminal.file.read_text())
        before = logins[made.url]["access_token"]
        logins[made.url]["ends"] = 0.0
        terminal.file.write_text(json.dumps(logins))
        code, text = await terminal.run(*lists)
        assert code == 0, text
        after = json.loads(terminal.file.read_text())[made.url]["access_token"]
        assert after != before

        logins[made.url] |= {"access_token": "ended", "ends": 2e9}
        terminal.file.write_text(json.dumps(logins))
        code, text = await terminal.run(*lists)
        assert (code, f"Has your login there ended? toolgate login {made.url}" in text) == (1, True)
        logins[made.url]["access_token"] = after
        terminal.file.write_text(json.dumps(logins))
        code, text = await terminal.run("logout", made.url)
        assert code == 0, text
        assert json.loads(terminal.file.read_text()) == {}
        assert await made.status(after) == 401
        code, text = await terminal.run("logout", made.url)
        assert "no login" in text


@pytest.mark.parametrize(
    ("url", "expected"),
    [("{url}/elsewhere", "login.enabled"), ("ftp://x", "https://gateway.example.com")],
)
async def test_gateways_without_a_login_are_named(
    database_settings: DatabaseSettings, tmp_path: Path, url: str, expected: str
) -> None:
    async with company(database_settings) as made:
        code, text = await Terminal(tmp_path).run("login", url.format(url=made.url), "--no-browser")
        assert code != 0
        assert expected in text.replace("\n", " "), text


async def test_answers_to_other_logins_are_ignored(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """LOG-18: any page in the person's browser can call the port that the command listens at."""
    async with company(database_settings) as made, browsing() as browser:
        answers: list[Answer] = []

        async def disturb(redirect: str) -> None:
            answers.append(await browser.get(f"{redirect}?error=access_denied"))
            answers.append(await browser.get(f"{redirect}?code=x&state=another&iss=x"))

        terminal = Terminal(tmp_path)
        code, text = await terminal.run(
            "login", made.url, "--no-browser", browser=browser, before=disturb
        )
        assert code == 0, text
        assert [answer.status for answer in answers] == [400, 400]
        assert "goes on waiting" in answers[0].text
        assert made.url in json.loads(terminal.file.read_text())


@pytest.mark.parametrize(
    ("status", "body", "kept"),
    [
        (400, {"error": "invalid_grant"}, False),
        (401, {"error": "invalid_client"}, False),
        (400, {"error": "invalid_request"}, True),
        (400, {}, True),
        (401, None, True),
        (429, {"error": "temporarily_unavailable"}, True),
        (503, {"error": "temporarily_unavailable"}, True),
        (502, None, True),
        (200, None, True),
    ],
)
async def test_a_stored_login_is_forgotten_after_its_end_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    body: dict[str, str] | None,
    kept: bool,
) -> None:
    """LOG-18: a proxy that answers for the gateway, or one that is away, ends no login."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    async def answer(_request: Request) -> Response:
        return Response("<html>", status) if body is None else JSONResponse(body, status)

    routes = [Route("/token", answer, methods=["POST"])]
    async with serving(Starlette(routes=routes)) as url:
        keep_login(url, StoredLogin(f"{url}/token", f"{url}/token", "old", "refresh", 0.0))
        with pytest.raises(click.ClickException):
            await token_for(url)
        assert (url in read_logins()) is kept


@pytest.mark.parametrize(
    ("status", "body", "kept"),
    [
        (200, {}, False),
        (401, {"error": "invalid_client"}, False),
        (503, {"error": "temporarily_unavailable"}, True),
        (502, None, True),
    ],
)
async def test_a_logout_keeps_logins_without_an_answer(
    tmp_path: Path, status: int, body: dict[str, Any] | None, kept: bool
) -> None:
    async def answer(_request: Request) -> Response:
        return Response("<html>", status) if body is None else JSONResponse(body, status)

    terminal = Terminal(tmp_path)
    async with serving(Starlette(routes=[Route("/revoke", answer, methods=["POST"])])) as url:
        terminal.file.parent.mkdir(parents=True)
        stored = {"token_endpoint": url, "revocation_endpoint": f"{url}/revoke", "ends": 0.0}
        login = {**stored, "access_token": "old", "refresh_token": "refresh"}
        terminal.file.write_text(json.dumps({url: login}))
        code, text = await terminal.run("logout", url)
        assert (code != 0) is kept, text
        assert (url in json.loads(terminal.file.read_text())) is kept
