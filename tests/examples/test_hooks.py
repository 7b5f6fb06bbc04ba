"""The example of hooks, as its README says."""

from pathlib import Path

import pytest

from config.settings import DatabaseSettings
from tests.documentation.walk import Block, blocks, walking
from tests.examples.conftest import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

EXAMPLE = ROOT / "examples/hooks"


async def test_calls_meet_the_hooks_as_the_readme_says(
    tmp_path: Path, database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with walking(tmp_path, database_settings, monkeypatch) as reader:
        ports = {"8765": str(reader.port), "8766": str(reader.service)}
        for file in [*EXAMPLE.glob("*.py"), *EXAMPLE.glob("*.yaml")]:
            text = file.read_text()
            for usual, port in ports.items():
                text = text.replace(usual, port)
            (tmp_path / file.name).write_text(text)
        for block in blocks(EXAMPLE / "README.md"):
            await reader.take(Block(block.language, block.title, block.text))
