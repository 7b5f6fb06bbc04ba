"""The toy wing on the command line, and the gateway without wings."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.settings import DatabaseSettings, Settings
from gateway.wings import table
from gateway.wings.table import WingRow
from tests.fixtures_gateway import running
from tests.gateway.cli.conftest import Toolgate, bare, folder, toolgate
from tests.gateway.cli.processes import command
from tests.wings.rig import wings, with_toy

__all__ = ["bare", "folder", "toolgate"]

ON = {"TOOLGATE_TOY__ENABLED": "true"}
BARE = """
import json, sys
from config.load import load
from gateway.app.gateway import build_app
import gateway.cli.doctor.command, gateway.cli.installation, gateway.cli.installation
build_app(load(None, {}))
OFF = ("gateway.wings", "gateway.app.wings", "gateway.wings.documents")
found = [name for name in sys.modules if name.startswith(OFF)]
print(json.dumps(sorted(found)))
"""


@pytest.fixture(autouse=True)
def with_row() -> Iterator[None]:
    with wings():
        yield


@pytest.mark.anyio
async def test_its_operations_are_commands(settings: Settings) -> None:
    async with running(with_toy(settings, enabled=True)) as client:

        async def run_command(*args: str) -> tuple[int, str]:
            """Its code, and its output."""
            code, out, err = await command("toy", *args, "--url", client.url, **ON)
            return code, err if code else out

        code, said = await run_command("add", "text=milk")
        assert (code, json.loads(said)) == (0, {"number": 1, "text": "milk"})
        code, said = await run_command("list", "--args", '{"contains": "il"}')
        assert (code, json.loads(said)) == (0, {"notes": [{"number": 1, "text": "milk"}]})
        texts = '{"texts": ["tea"]}'
        code, said = await run_command("copy", "--args", texts, "as_job=true", "--no-wait")
        assert (code, json.loads(said)["operation"]) == (0, "toy_copy")
        await run_command("add", "text=go")
        code, said = await run_command("copy", "--args", texts, "as_job=true")
        assert (code, json.loads(said)["state"]) == (0, "succeeded")
        code, said = await run_command("list_jobs")
        assert (code, len(json.loads(said)["items"])) == (0, 2)
        code, said = await run_command("operations")
        assert (code, "Write a note down" in said) == (0, True)
        code, said = await run_command("operations", "add")
        assert (code, said.split()[:3]) == (0, ["text", "string", "required"])
        code, said = await run_command("add")
        assert (code, "text" in said) == (2, True)
        code, said = await run_command("nothing")
        assert (code, "toy_nothing" in said) == (2, True)


def test_its_group_has_help_and_its_own_commands(toolgate: Toolgate) -> None:
    said = toolgate("toy", "--help", **ON).out
    assert "Toy notes: its operations" in said
    assert "sweep" in said
    assert toolgate("toy", "sweep", **ON).out == "swept\n"


def test_wing_migrations_and_settings_are_checked(toolgate: Toolgate) -> None:
    assert "toy" not in toolgate("migrate", "--status").out
    assert "pending" in toolgate("migrate", "--status", **ON).out
    assert "toy/0001_notes pending" in toolgate("doctor", **ON).out
    assert "Applied now: toy/0001_notes" in toolgate("migrate", **ON).out
    assert "toy: has its table" in toolgate("doctor", **ON).out
    assert "toy: " not in toolgate("doctor").out
    assert "more notes" in toolgate("config", "check", **ON, TOOLGATE_TOY__LIMIT="5000").err


def test_a_wing_that_cannot_be_imported_is_named(
    toolgate: Toolgate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "WINGS", {"toy": WingRow("tests.wings.missing:WING", "")})
    for words in (("serve", "--port", "0"), ("migrate",), ("toy", "list")):
        ran = toolgate(*words, **ON)
        assert ran.code in (1, 2)
        assert "toy.enabled: the wing cannot be imported: No module named" in ran.err
    assert "toy.enabled: the wing cannot be imported" in toolgate("doctor", **ON).out


def test_a_gateway_without_wings_imports_none(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BARE], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert json.loads(done.stdout) == ["gateway.wings", "gateway.wings.table"]


@pytest.mark.anyio
async def test_a_disabled_wing_creates_no_tables(
    settings: Settings, database_settings: DatabaseSettings
) -> None:
    async with running(with_toy(settings, enabled=False)) as client:
        assert client.gateway.wings is None
        assert client.gateway.feed.pool is not None
        async with client.gateway.feed.pool.connection() as connection:
            found = await connection.execute("SELECT to_regclass('toy_note_t')")
            assert await found.fetchall() == [(None,)]
            found = await connection.execute("SELECT component FROM schema_version_t GROUP BY 1")
            assert ("toy",) not in await found.fetchall()
    assert database_settings.url
