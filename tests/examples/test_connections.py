"""The example of connections, as its README says, with pages that a program fills in."""

import re
from pathlib import Path

import httpx2
import pytest

from config.settings import DatabaseSettings
from tests.documentation.walk import Block, blocks, walking
from tests.examples.conftest import ROOT
from tests.fixtures_servers import free_ports
from tests.polling import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

EXAMPLE = ROOT / "examples/connections"


def test_readme_shows_the_settings_of_the_example() -> None:
    settings = (EXAMPLE / "toolgate.yaml").read_text()
    shown = [block.text for block in blocks(EXAMPLE / "README.md") if block.language == "yaml"]
    assert len(shown) == 3
    assert [text for text in shown if text not in settings] == []


async def test_people_connect_accounts_as_the_readme_says(
    tmp_path: Path, database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with walking(tmp_path, database_settings, monkeypatch) as reader:
        own = (reader.port, reader.service, *free_ports(2))
        ports = {str(usual): str(port) for usual, port in zip(range(8765, 8769), own, strict=True)}

        def with_own_ports(text: str) -> str:
            return re.sub("|".join(ports), lambda match: ports[match[0]], text)

        for file in [*EXAMPLE.glob("*.py"), EXAMPLE / "toolgate.yaml"]:
            (tmp_path / file.name).write_text(with_own_ports(file.read_text()))
        for block in blocks(EXAMPLE / "README.md"):
            if block.language != "yaml":
                await reader.take(Block(block.language, block.title, with_own_ports(block.text)))
            if block.stays:
                await until(lambda: has_imported(reader.place))


async def has_imported(place: str) -> bool:
    """Whether the gateway serves the tools of all services."""
    try:
        async with httpx2.AsyncClient() as http:
            state = (await http.get(f"http://{place}/ready")).json()
    except httpx2.TransportError:
        return False
    return state.get("sources") == dict.fromkeys(("notes", "code", "tracker"), "ok")
