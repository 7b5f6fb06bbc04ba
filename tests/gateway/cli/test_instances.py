"""Commands beside a gateway that runs with the database of another instance."""

import os
from pathlib import Path

import pytest

from registry.database.embedded_server import CLUSTER
from tests.gateway.cli.conftest import Toolgate


@pytest.fixture
def usual(scratch: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The usual data directory; the database of the instance `shop` beside it runs."""
    path = scratch / tmp_path.name / "toolgate"
    path.parent.mkdir(mode=0o755)
    run_as(path.with_name("toolgate-shop"), os.getpid())
    run_as(path.with_name("toolgate-stopped"), None)
    monkeypatch.setattr("registry.database.embedded_server._default", lambda: path)
    return path


def run_as(directory: Path, process: int | None) -> None:
    cluster = directory / CLUSTER
    cluster.mkdir(parents=True)
    if process is not None:
        (cluster / "postmaster.pid").write_text(f"{process}\n")


def test_a_command_names_the_instance_that_runs(bare: Toolgate, usual: Path) -> None:
    """The tools of a `make run` are not those of the usual database (mending 42)."""
    done = bare("tools", "list")
    assert (done.code, done.out) == (0, "")
    assert f"This is the database in {usual}, which no gateway uses." in done.err
    assert "TOOLGATE_DATABASE__INSTANCE=shop chooses it" in done.err
    assert "stopped" not in done.err


def test_a_command_on_a_chosen_or_used_database_names_none(
    toolgate: Toolgate, bare: Toolgate, usual: Path
) -> None:
    """The person has chosen, or asks the gateway that runs (mending 42)."""
    assert toolgate("tools", "list").err == ""
    chosen = str(usual.with_name("chosen"))
    assert "INSTANCE" not in bare("tools", "list", TOOLGATE_DATABASE__DATA_DIR=chosen).err
