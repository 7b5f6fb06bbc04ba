"""The example of logging in, as its README says: with a password of the gateway's own, and at a
company's provider."""

import asyncio
import io
import subprocess
from pathlib import Path

import pytest

from config.settings import DatabaseSettings
from examples.connections.client import connect
from examples.login.client import Login, LoginRefused, run
from tests.documentation.walk import BLOCK, Block, walking
from tests.examples.conftest import ROOT, python

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

EXAMPLE = ROOT / "examples/login"
INTRODUCTION, *WAYS = (EXAMPLE / "README.md").read_text().split("\n## ")


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.partition("\n")[0])
async def test_people_log_in_as_the_readme_says(
    way: str, tmp_path: Path, database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"TOOLGATE_EMBEDDING__PROVIDER": "disabled"}
    async with walking(tmp_path, database_settings, monkeypatch, **env) as reader:
        ports = {"8765": str(reader.port), "8770": str(reader.service)}
        for file in [*EXAMPLE.glob("*.py"), *EXAMPLE.glob("*.yaml")]:
            text = file.read_text()
            for usual, port in ports.items():
                text = text.replace(usual, port)
            (tmp_path / file.name).write_text(text)
        for block in BLOCK.findall(f"{INTRODUCTION}\n{way}"):
            await reader.take(Block(*block))
    before, _, after = reader.printed.rpartition("it is refreshed, and nobody has to log in")
    assert "POST /token 200" in before
    assert "POST /token 200" in after
    assert "filling in" not in after


async def refuse_login() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(Login("ann:wrong").fill_in("", ""))


@pytest.mark.parametrize("client", ["login/client.py", "notes/client.py", "client.py"])
def test_clients_say_in_a_sentence_that_no_gateway_answers(client: str) -> None:
    ran = subprocess.run(
        python(str(ROOT / "examples" / client), "http://127.0.0.1:9/mcp"),
        capture_output=True, check=False, cwd=ROOT, text=True,
    )  # fmt: skip
    assert ran.returncode == 1
    assert ran.stderr.lower().startswith("nothing answers at http://127.0.0.1:9/mcp")


def test_refused_credentials_are_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lets_nobody_in(*_: object) -> None:
        raise LoginRefused("127.0.0.1 lets nobody in with this")

    monkeypatch.setattr(Login, "fill_in", lets_nobody_in)
    with pytest.raises(SystemExit, match="lets nobody in"):
        run(refuse_login())


async def connect_by_hand() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(connect("", Login(None), None))


def test_an_account_that_no_terminal_confirms_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda _link: False)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(SystemExit, match="expected a terminal, or --there SECRET"):
        run(connect_by_hand())
