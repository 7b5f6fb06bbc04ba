"""`toolgate` without a command: the help, what is here, and what comes next."""

import json
from pathlib import Path

from tests.gateway.cli.conftest import Toolgate
from tests.gateway.cli.test_doctor import answering

FREE = {"TOOLGATE_SERVER__PORT": "1"}  # nobody listens there


def test_an_empty_place_is_told_to_import(bare: Toolgate, folder: Path) -> None:
    ran = bare(**FREE, TOOLGATE_DATABASE__DATA_DIR=str(folder / "none"))
    assert ran.code == 0
    assert ran.out.startswith("Usage: toolgate")
    assert "settings: the defaults (toolgate init" in ran.out
    assert "none at 127.0.0.1:1, and no database yet" in ran.out
    assert "next:     toolgate import openapi" in ran.out


def test_a_gateway_that_stands_still_is_told_to_serve(toolgate: Toolgate, folder: Path) -> None:
    folder.joinpath("toolgate.yaml").write_text("server: {port: 1}\n")
    out = toolgate().out
    assert "settings: toolgate.yaml\n" in out
    assert "next:     toolgate serve" in out


def test_tools_of_a_running_gateway_are_counted(toolgate: Toolgate, description: Path) -> None:
    assert toolgate("import", "openapi", str(description), "--name", "pets").code == 0
    with answering({"/": json.dumps({"name": "toolgate"}).encode()}) as port:
        ran = toolgate(TOOLGATE_SERVER__PORT=str(port))
    assert f"gateway:  serves at 127.0.0.1:{port}" in ran.out
    assert "tools:    5\n" in ran.out


def test_a_database_that_is_away_is_named(bare: Toolgate) -> None:
    with answering({"/": json.dumps({"name": "toolgate"}).encode()}) as port:
        away = {"TOOLGATE_DATABASE__URL": "postgresql://127.0.0.1:1/x"}
        ran = bare(TOOLGATE_SERVER__PORT=str(port), **away)
    assert ran.code == 3
    assert "database" in ran.err


def test_invalid_settings_are_named(bare: Toolgate, folder: Path) -> None:
    folder.joinpath("toolgate.yaml").write_text("servr: {}\n")
    ran = bare()
    assert ran.code == 2
    assert ran.out.startswith("Usage: toolgate")
    assert "servr" in ran.err
