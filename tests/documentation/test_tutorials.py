"""The tutorials, run block by block."""

from pathlib import Path

import pytest

from config.settings import DatabaseSettings
from tests.documentation.walk import TUTORIALS, blocks, walking

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

FIRST = "first-tools.md"
BY_MEANING = {"search.md"}  # those that need the model; without it, starting takes half the time


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
async def test_every_block_of_a_tutorial_has_the_described_effect(
    page: Path,
    tmp_path: Path,
    database_settings: DatabaseSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    provider = "bundled" if page.name in BY_MEANING else "disabled"
    env = {"TOOLGATE_EMBEDDING__PROVIDER": provider}
    async with walking(tmp_path, database_settings, monkeypatch, **env) as reader:
        if f"]({FIRST})" in page.read_text() and page.name != FIRST:  # goes on in its folder
            for block in blocks(page.with_name(FIRST)):
                if block.title and not block.stays:
                    await reader.take(block)
        for block in blocks(page):
            await reader.take(block)
    assert "sh" in reader.done
