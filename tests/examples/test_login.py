"""The example of logging in, as its README says: with a password of the gateway's own, and at a
company's provider."""

from pathlib import Path

import pytest

from config.settings import DatabaseSettings
from tests.documentation.walk import BLOCK, Block, walking
from tests.examples.conftest import ROOT

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
