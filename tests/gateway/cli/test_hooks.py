"""`toolgate hooks`, and the check of `toolgate doctor`."""

import json
from pathlib import Path

from tests.gateway.cli.conftest import Toolgate

SETTINGS = """
hooks:
  second: {at: before, use: tests.servers.hooks:rename, order: 2, changes: true}
  first: {at: before, use: tests.servers.hooks:refuse}
  crashing: {at: after, use: tests.servers.hooks:crash, failure: pass}
"""


def config(folder: Path, text: str = SETTINGS) -> str:
    file = folder / "hooks.yaml"
    file.write_text(text)
    return str(file)


def test_hooks_are_listed_in_the_order_of_their_calls(bare: Toolgate, tmp_path: Path) -> None:
    ran = bare("-c", config(tmp_path), "hooks", "list", "--json")
    before = [row["hook"] for row in ran.json if row["at"] == "before"]
    assert before == ["first", "second"]
    assert ran.json[-1]["version"] == "7.1"


def test_a_hook_is_tried_with_a_call(bare: Toolgate, tmp_path: Path) -> None:
    call = json.dumps({"tool": {"name": "createPet"}, "arguments": {"name": "rex"}})
    file = config(tmp_path)
    ran = bare("-c", file, "hooks", "test", "second", "--call", "-", stdin=call)
    assert ran.json["answer"]["arguments"] == {"name": "rex the second"}
    ran = bare("-c", file, "hooks", "test", "crashing", "--call", "-", stdin=call)
    assert (ran.code, ran.json["failed"]) == (1, "RuntimeError in it, or in its answer")
    ran = bare("-c", file, "hooks", "test", "secnd", "--call", "-", stdin=call)
    assert "There is no hook 'secnd'. Did you mean second?" in ran.err


def test_a_hook_that_cannot_be_loaded_is_named(bare: Toolgate, tmp_path: Path) -> None:
    text = "hooks: {lost: {at: before, use: tests.servers.hooks:lost}}"
    ran = bare("-c", config(tmp_path, text), "hooks", "list")
    assert (ran.code, "hooks.lost.use" in ran.err) == (1, True)


def test_the_doctor_names_a_hook_that_cannot_be_loaded(bare: Toolgate, tmp_path: Path) -> None:
    text = "hooks: {lost: {at: before, use: tests.servers.hooks:lost}}"
    ran = bare("-c", config(tmp_path, text), "doctor")
    assert "lost: hooks.lost.use: the module tests.servers.hooks has no function lost" in " ".join(
        ran.out.split()
    )
