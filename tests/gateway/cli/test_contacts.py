"""Nothing but what the settings name is contacted, by the gateway and by every command."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from config.settings import DatabaseSettings
from config.telemetry import SWITCHES
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.main import cli
from tests.fixtures_gateway import pets
from tests.isolated import networks, run_isolated

ROOT = Path(__file__).parents[3]
PACKAGES = ("schemas", "config", "registry", "gateway", "benchmarks")
ALLOWED = "registry/embedding/onnx_sessions.py"
TRAINING = "benchmarks/training/"
WINGS = ("agent", "events", "knowledge", "librarian", "memory")

CLEAN = {name: value for name, value in os.environ.items() if name not in SWITCHES}

needs_network = pytest.mark.skipif(
    not networks(), reason="this machine gives tests no network of their own (unshare, ip)"
)
EMBED = """
import anyio
from registry.embedding.bundled_model import BundledEmbedder
print(len(anyio.run(BundledEmbedder(8, 1).embed, ["list pets"])))
"""
RERANK = """
from pathlib import Path
from registry.search.rerank import CannotRerank, _CrossEncoder
try:
    _CrossEncoder(Path("registry/embedding/model"))
except CannotRerank as error:
    print(error)
"""
TRAIN = """
from benchmarks.training.inference import session
from pathlib import Path
print(session(Path("registry/embedding/model/model.onnx")))
"""
GATEWAY = """
import json, signal, subprocess, sys, urllib.request
gateway = subprocess.Popen(
    [sys.executable, "-m", "gateway", "serve", "--port", "0"], stdout=subprocess.PIPE, text=True
)
try:
    line = gateway.stdout.readline()
    url = line.partition(": ")[2].strip().removesuffix("/mcp")
    for query in ("show all animals", "animal by its number"):
        asked = {"jsonrpc": "2.0", "id": 1, "method": "search_tools", "params": {"query": query}}
        request = urllib.request.Request(
            url + "/rpc", json.dumps(asked).encode(), {"Content-Type": "application/json"}
        )
        answer = json.load(urllib.request.urlopen(request, timeout=60))
        assert "result" in answer, answer
finally:
    gateway.send_signal(signal.SIGTERM)
    gateway.wait(60)
print(line)
"""
EACH = """
import sys
from click.testing import CliRunner
from gateway.cli.main import cli
for line in sys.stdin.read().splitlines():
    print(line, CliRunner().invoke(cli, line.split(), prog_name="toolgate").exit_code, flush=True)
"""


def commands(command: click.Command, *path: str) -> Iterator[tuple[str, ...]]:
    if isinstance(command, LazyGroup):
        for name in command.list_commands(click.Context(command)):
            yield from commands(command.load(name), *path, name)
    else:
        yield path


def environment(folder: Path, database: DatabaseSettings) -> dict[str, str]:
    paths = {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache")}
    return CLEAN | paths | {"TOOLGATE_DATABASE__URL": database.url}


@pytest.mark.parametrize("code", [EMBED, RERANK, TRAIN], ids=["embedding", "rerank", "training"])
def test_onnxruntime_never_starts_its_telemetry(code: str, tmp_path: Path) -> None:
    """Each process that loads a model says so before onnxruntime is imported: else the library
    keeps a device id in the cache folder at once, and reports it seconds later (mending 2)."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        cwd=ROOT,
        env=CLEAN | {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        text=True,
    )
    assert done.stdout
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_onnxruntime_is_imported_in_few_places_only() -> None:
    """Another import would come without the switch (mending 2)."""
    importers = {
        str(file.relative_to(ROOT))
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        if "onnxruntime" in (text := file.read_text())
        for node in ast.walk(ast.parse(text))
        if (isinstance(node, ast.Import) and "onnxruntime" in [a.name for a in node.names])
        or (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("onnxruntime"))
    }
    assert {name for name in importers if not name.startswith(TRAINING)} == {ALLOWED}


@needs_network
def test_the_gateway_looks_nothing_up(folder: Path, database_settings: DatabaseSettings) -> None:
    """A gateway with every wing and both stages of embedding contacts nobody (mending 2)."""
    (folder / "pets.json").write_text(json.dumps(pets()))
    settings = {
        "sources": {"pets": {"openapi": "pets.json", "base_url": "http://127.0.0.1:9"}},
        **{wing: {"enabled": True} for wing in WINGS},
    }
    (folder / "toolgate.yaml").write_text(json.dumps(settings))
    ran = run_isolated(
        [sys.executable, "-c", GATEWAY],
        environment(folder, database_settings),
    )
    assert ran.contacts == []
    assert not (folder / "cache").exists()  # where onnxruntime keeps its device id
    assert ran.code == 0, ran.output
    assert "Toolgate is ready" in ran.output


@needs_network
def test_no_command_looks_anything_up(folder: Path, database_settings: DatabaseSettings) -> None:
    """Each command is loaded, and those that need no service run (mending 2)."""
    (folder / "pets.json").write_text(json.dumps(pets()))
    running = (
        "config check",
        "migrate",
        "import openapi pets.json --name pets --base-url http://127.0.0.1:9",
        "tools list",
        "tools search animals",
        "embed status",
        "sources list",
        "skills list",
        "keys list",
        "policy list",
        "models list",
        "audit verify",
        "search try animals",
        "doctor",
    )
    lines = [*running, *(" ".join(path) + " --help" for path in commands(cli))]
    file = folder / "lines"
    file.write_text("\n".join(lines))
    ran = run_isolated(
        ["sh", "-c", f"exec {sys.executable} -c '{EACH}' < {file}"],
        environment(folder, database_settings),
    )
    assert ran.contacts == []
    assert not (folder / "cache").exists()  # where onnxruntime keeps its device id
    assert ran.code == 0, ran.output
    assert len(ran.output.splitlines()) >= len(lines), ran.output
    wrong = [line for line in ran.output.splitlines() if line.endswith(" 2")]
    assert wrong == []
