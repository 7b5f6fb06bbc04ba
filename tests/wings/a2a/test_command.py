"""`toolgate a2a card`."""

import json
from pathlib import Path

import pytest
from anyio import to_thread
from click.testing import CliRunner

from gateway.cli.main import cli
from tests.wings.a2a.rig import Rig

pytestmark = pytest.mark.anyio


async def test_a_caller_prints_their_card_of_an_agent(rig: Rig, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(rig.keys["ann"])

    def invoke(name: str) -> tuple[int, str, str]:
        words = ("a2a", "card", name, "--url", rig.client.url, "--key-file", str(key))
        ran = CliRunner().invoke(cli, words, env={"TOOLGATE_A2A__ENABLED": "true"})
        return ran.exit_code, ran.stdout, ran.stderr

    code, out, error = await to_thread.run_sync(invoke, "desk")
    assert (code, error) == (0, ""), error
    card = json.loads(out)
    assert (card["name"], "getPet" in [skill["name"] for skill in card["skills"]]) == ("desk", True)
    code, _, error = await to_thread.run_sync(invoke, "nobody")
    assert code == 1
    assert "nobody" in error
