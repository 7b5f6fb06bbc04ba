"""`toolgate login`: a person logs in in their browser, and commands act as them."""

import asyncio
import json
import os
import re
import stat
import sys
from pathlib import Path

import pytest

from config.settings import DatabaseSettings
from tests.fixtures_gateway import DEADLINE_S
from tests.gateway.login.company import Browser, browsing, company

pytestmark = pytest.mark.anyio

OPERATORS = {"*": ("admin",)}
ADDRESS = re.compile(r"http://\S+/authorize\?\S+")


class Terminal:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "toolgate" / "logins.json"
        self._env = {**os.environ, "XDG_CONFIG_HOME": str(folder)}

    async def run(self, *words: str, browser: Browser | None = None) -> tuple[int | None, str]:
        """Exit code and standard error of a command; `browser` opens the address that it
        prints."""
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
                    back = await browser.log_in(address[0])
                    await browser.get(back.location)
            return await process.wait(), text


async def test_commands_act_as_the_person_of_the_login(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    terminal = Terminal(tmp_path)
    async with company(database_settings, scopes=OPERATORS) as made, browsing() as browser:
        lists = ("keys", "list", "--url", made.url)
        code, _ = await terminal.run(*lists)
        assert code != 0
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
