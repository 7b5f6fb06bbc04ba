"""The notes example: two MCP servers behind one gateway."""

import sys

import anyio
import pytest
from mcp.client.client import Client as McpClient
from msgspec.structs import replace

from config.load import load
from config.settings import DatabaseSettings
from tests.examples.conftest import ROOT, python
from tests.fixtures_gateway import running

pytestmark = pytest.mark.anyio

NOTES = ROOT / "examples/notes"


async def test_an_agent_uses_both_servers_and_is_asked_in_either_era(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    settings = load(str(NOTES / "toolgate.yaml"), {"PYTHON": sys.executable})
    async with running(replace(settings, database=database_settings)) as gateway:
        command = python(str(NOTES / "client.py"), gateway.url + "/mcp")
        with anyio.fail_after(60):
            done = await anyio.run_process(command, check=False)
        assert done.returncode == 0, done.stderr.decode()
        tools = "tools: home_add_note home_clear_notes work_add_note work_clear_notes"
        said = [line for line in done.stdout.decode().splitlines() if "notes." not in line]
        assert [line for line in said if not line.startswith("asked: ")] == [
            *("speaking 2025-11-25", tools, "prompts: home_summarise work_summarise"),
            "All notes are gone.",
            *("speaking 2026-07-28", tools, "prompts: home_summarise work_summarise"),
            "All notes are gone.",
        ]
        assert sum(line.startswith("asked: home: Throw away ") for line in said) == 2
        async with McpClient(gateway.url + "/mcp/reading", mode="auto") as reading:
            assert (await reading.list_tools()).tools == []
            resources = (await reading.list_resources()).resources
            assert {str(one.uri) for one in resources} >= {"toolgate://work/notes://bob/1"}
            [note] = (await reading.read_resource("toolgate://work/notes://bob/1")).contents
            assert note.text == "bob likes tea."
