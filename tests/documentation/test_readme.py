"""The code blocks of the README; tests/examples/test_examples.py has those of its first section."""

import json
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from config.load import load
from config.settings import Settings
from tests.documentation.pages import ROOT
from tests.documentation.walk import Block, blocks, walking
from tests.fixtures_gateway import running
from tests.servers.rest import Recorder

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

FIRST = 3  # blocks of the first section
NOT_RUN = {"claude mcp add": "takes Claude Code", "toolgate serve": "the tutorials start it"}
NUMBER = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
NOTES = """\
from mcp.server import MCPServer

server = MCPServer("notes")


@server.tool()
def read_notes() -> str:
    return "none"


server.run()
"""


def describe_customers() -> str:
    """A description of what the README calls."""
    answers = {"200": {"description": "Found."}}
    customer = {"summary": "Show a customer", "parameters": [NUMBER], "responses": answers}
    refund = {"operationId": "pay", "summary": "Refund a payment", "responses": answers}
    paths = {"/customers/{id}": {"get": customer}, "/refunds": {"post": refund}}
    info = {"title": "Example", "version": "1"}
    return json.dumps({"openapi": "3.1.0", "info": info, "paths": paths})


def rest() -> list[Block]:
    return blocks(ROOT / "README.md")[FIRST:]


def test_settings_of_the_readme_are_valid(tmp_path: Path) -> None:
    found = [block.text for block in rest() if block.language == "yaml"]
    assert len(found) == 2
    for text in found:
        file = tmp_path / "toolgate.yaml"
        file.write_text(text)
        load(str(file), {"EXAMPLE_TOKEN": "secret"})


async def test_commands_of_the_readme_work(
    settings: Settings, service: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "openapi.json").write_text(describe_customers())
    (tmp_path / "notes.py").write_text(NOTES)
    async with running(replace(settings, sources={})) as gateway:
        ours = {
            ".venv/bin/toolgate": "toolgate",
            "https://example.com/openapi.json": str(tmp_path / "openapi.json"),
            "https://api.example.com": service.url,
            "https://mcp.example.com": gateway.url,
            "npx -y @modelcontextprotocol/server-filesystem /srv/files": (
                f"{sys.executable} {tmp_path / 'notes.py'}"
            ),
        }
        text = "".join(block.text for block in rest() if block.language == "sh")
        for theirs, own in ours.items():
            assert theirs in text
            text = text.replace(theirs, own)
        lines = [line for line in text.splitlines() if not line.startswith(tuple(NOT_RUN))]
        env = {"TOOLGATE_EMBEDDING__PROVIDER": "disabled"}
        async with walking(tmp_path, settings.database, monkeypatch, **env) as reader:
            await reader.take(Block("sh", "", "\n".join(lines)))
    assert "Refund a payment" in reader.printed
    assert [one["path"] for one in service.requests] == ["/customers/42"]


def test_every_block_of_the_readme_is_of_a_kind_that_is_run() -> None:
    assert {block.language for block in rest()} == {"sh", "yaml"}
    assert [block.language for block in blocks(ROOT / "README.md")[:FIRST]] == [
        "sh",
        "sh",
        "python",
    ]
