"""The command line as a whole: help, mistakes, output that nobody takes, interruption."""

import gc
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from gateway.cli import main
from gateway.cli.common.lazy import Commands, LazyGroup, import_later
from gateway.cli.imports import shared as importing
from gateway.cli.main import cli
from tests.gateway.cli.conftest import Toolgate

TABLES = [main.COMMANDS]
ENTRIES = [(table, name) for table in TABLES for name in table]
HEAVY = ("psycopg", "aiohttp", "rich", "starlette", "jsonschema_rs", "yaml", "msgspec")


def every_command(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [path]
    for name, command in group.commands.items():
        real = group.load(name) if isinstance(group, LazyGroup) else command
        if isinstance(real, click.Group):
            found += every_command(real, (*path, name))
        else:
            found.append((*path, name))
    return found


@pytest.mark.parametrize(("table", "name"), ENTRIES)
def test_every_command_in_a_table_exists_under_its_name(table: Commands, name: str) -> None:
    assert LazyGroup(lazy=table).load(name).name == name


@pytest.mark.parametrize("path", every_command(cli), ids=" ".join)
def test_help_explains_and_fits_a_terminal_of_80_columns(
    bare: Toolgate, path: tuple[str, ...]
) -> None:
    ran = bare(*path, "--help")
    assert ran.code == 0
    assert not [line for line in ran.out.splitlines() if len(line) > 80]
    _usage, _, rest = ran.out.partition("\n")
    assert "..." not in rest.replace("]...", ""), "a summary was cut off"
    assert re.search(r"\n\n  [A-Z].*\.", ran.out)


def test_only_the_first_call_of_a_late_import_exempts_objects_from_collection() -> None:
    now = import_later("time:monotonic")
    now()
    first = gc.get_freeze_count()
    garbage = [[] for _ in range(1000)]
    now()
    assert gc.get_freeze_count() <= first
    assert garbage


def test_the_help_states_the_exit_codes(bare: Toolgate) -> None:
    said = bare("--help").out
    assert "0 done, 1 failed, 2 wrong usage or settings, 3 no database" in said
    assert said == bare("-h").out


def test_help_loads_nothing_that_only_commands_need() -> None:
    """`toolgate --help` would take a second otherwise."""
    code = f"""
import sys
from gateway.cli.main import cli
cli(["--help"], standalone_mode=False)
sys.exit(", ".join(name for name in {HEAVY} if name in sys.modules) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, f"loaded: {done.stderr}"


def test_commands_on_the_registry_load_no_gateway() -> None:
    """A command that lists keys would start in the time of a server otherwise."""
    code = """
import sys
from gateway.cli.main import cli
cli(["tools", "list", "--help"], standalone_mode=False)
heavy = ("gateway.app.gateway", "starlette", "aiohttp", "registry.importers.openapi")
sys.exit(", ".join(name for name in heavy if name in sys.modules) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, f"loaded: {done.stderr}"


def test_a_list_of_tools_loads_no_unused_part() -> None:
    """They would be a seventh of its time."""
    code = """
import sys
import gateway.admin.resources.tools, gateway.cli.local, gateway.cli.tools.command
unused = ("registry.catalog.catalogs", "registry.display.tool_shaper", "registry.skills.rows",
    "registry.sources.import_writer", "registry.jobs.store", "rich.progress",
    "gateway.operations.rest_api")
sys.exit(", ".join(name for name in unused if name in sys.modules) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, f"loaded: {done.stderr}"


def test_a_gateway_loads_no_library_of_parts_that_are_off() -> None:
    """They would take a quarter of its start, and 40 MB of each worker."""
    code = """
import sys
import gateway.cli.serve.command
optional = ("numpy", "graphql", "redis", "opentelemetry", "onnxruntime", "jinja2", "procrastinate",
    "registry.importers.openapi", "registry.importers.graphql", "registry.importers.a2a",
    "jwt", "cryptography")
sys.exit(", ".join(name for name in optional if name in sys.modules) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, f"loaded: {done.stderr}"


def test_a_gateway_with_all_wings_loads_no_reader_of_documents_and_no_engine() -> None:
    """They took 0.6 s and 60 MB of each worker; processes that read files have them."""
    code = """
import sys
import gateway.cli.serve.command
from gateway.cli.common.lazy import load
from gateway.wings.table import WINGS
for row in WINGS.values():
    load(row.target)
unused = ("numpy", "docx", "openpyxl", "pptx", "pypdfium2", "charset_normalizer", "botocore",
    "dulwich.client", "redis", "aiokafka", "ray", "jwt", "cryptography", "wasmtime")
sys.exit(", ".join(name for name in unused if name in sys.modules) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, f"loaded: {done.stderr}"


def test_completion_of_commands_loads_nothing_either() -> None:
    code = f"""
import sys
from click.shell_completion import BashComplete
from gateway.cli.main import cli
found = BashComplete(cli, {{}}, "toolgate", "_TOOLGATE_COMPLETE").get_completions([], "")
print(*(item.value for item in found))
sys.exit(", ".join(name for name in {HEAVY} if name in sys.modules) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, f"loaded: {done.stderr}"
    assert done.stdout.split() == list(main.COMMANDS)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["impot"], "There is no command 'impot'. Did you mean 'import'?"),
        (["TOOLS"], "Did you mean 'tools'?"),
        (["tools", "lst"], "There is no command 'lst'. Did you mean 'list'?"),
        (["sources", "zzz"], "There is no command 'zzz'. Commands: list, "),
        (["--nope"], "No such option '--nope'."),
        (["serve", "--prot", "1"], "'--port'"),
        (["tools", "show"], "Missing argument 'NAME'."),
        (["serve", "--port", "99999"], "99999 is not in the range"),
    ],
)
def test_a_mistyped_command_is_refused_with_a_suggestion(
    bare: Toolgate, args: list[str], expected: str
) -> None:
    ran = bare(*args)
    assert ran.code == 2
    assert expected in ran.err
    assert "--help' for help" in ran.err


def test_a_settings_file_can_be_named_before_the_command_too(bare: Toolgate, folder: Path) -> None:
    (folder / "other.yaml").write_text("server: {port: 1234}")
    assert bare("-c", "other.yaml", "config", "show", "--json").json["server"]["port"] == 1234
    assert bare("config", "show", "--json", "-c", "other.yaml").json["server"]["port"] == 1234


def run_toolgate(*args: str, stdout: int | None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", *args]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("args", [["--help"], ["config", "show"], ["config", "schema"]])
def test_a_reader_that_has_enough_is_no_error(args: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        assert run_toolgate(*args, stdout=gone.fileno()).stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk for tests")
@pytest.mark.parametrize("args", [["--help"], ["config", "show"], ["config", "check"]])
def test_output_that_cannot_be_written_is_an_error_in_one_line(args: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = run_toolgate(*args, stdout=full.fileno())
    assert done.returncode == 1
    assert done.stderr == "toolgate: no space left on device\n"


def test_the_version_is_that_of_the_distribution(bare: Toolgate) -> None:
    assert re.fullmatch(r"toolgate, version \d+\.\d+\.\d+\S*\n", bare("--version").out)


def test_names_that_the_settings_would_refuse_are_refused_alike() -> None:
    kind = importing.SettingType("name", importing.SourceName)
    assert kind.convert("pets-2", None, None) == "pets-2"
    with pytest.raises(click.BadParameter, match=r"expected a name of at most 63.*found 'X Y'"):
        kind.convert("X Y", None, None)
