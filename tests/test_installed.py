"""The wheel: what it holds, and how it behaves in a project that has modules of the same names."""

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"config", "gateway", "registry", "schemas"}
THEIRS = "raise SystemExit('this module of the project was imported')\n"


def run(command: Sequence[str | Path], cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, env=os.environ | env, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from this tree, with the build backend of deploy/locks/build.txt."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    done = run([*build, "-w", folder, ROOT], folder)
    assert done.returncode == 0, done.stderr
    [wheel] = folder.glob("toolgate-*.whl")
    return wheel


@pytest.fixture(scope="session")
def installed_folder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the installed wheel alone; its dependencies are those of the tests."""
    target = tmp_path_factory.mktemp("installed")
    arguments = ["--quiet", "--no-deps", "--no-index", "--target", target, wheel]
    done = run([sys.executable, "-m", "pip", "install", *arguments], target)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of somebody else, with modules that have our names."""
    (tmp_path / "config.py").write_text(THEIRS)
    for name in ("schemas", "registry"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(THEIRS)
    return tmp_path


def test_the_wheel_holds_the_packages_with_their_data_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES
    assert names >= {f"{package}/py.typed" for package in PACKAGES}
    assert names >= {"config/defaults.yaml", "schemas/json/config.schema.json"}
    model = {"model.onnx", "tokenizer.json", "provenance.json", "LICENSE"}
    assert names >= {f"registry/embedding/model/{name}" for name in model}
    migrations = {path.name for path in (ROOT / "registry" / "migrations").glob("*.sql")}
    assert migrations
    assert names >= {f"registry/migrations/{name}" for name in migrations}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert not [name for name in names if "test" in name or name.endswith(".pyc")]


def test_the_wheel_has_every_module_of_the_tree(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.endswith(".py")}
    assert packed == {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }


@pytest.mark.parametrize("how", ["script", "module"])
def test_the_package_works_beside_modules_of_the_same_names(
    installed_folder: Path, project: Path, how: str
) -> None:
    script = installed_folder / "bin" / "toolgate"
    start = [sys.executable, script] if how == "script" else [sys.executable, "-m", "gateway"]
    # The project comes first on the path, as under `python -m` and many a tool of development.
    path = os.pathsep.join([str(project), str(installed_folder)])
    done = run([*start, "--version"], project, PYTHONPATH=path)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"toolgate, version \S+\n", done.stdout)
    done = run([*start, "config", "show", "--json"], project, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["server"]["port"] == 8765


def test_the_parity_vectors_come_along_without_a_key(
    installed_folder: Path, tmp_path: Path
) -> None:
    vectors = {path.name for path in (ROOT / "tests" / "vectors" / "hybrid").glob("*.json")}
    assert {
        path.name for path in (installed_folder / "gateway" / "parity" / "shipped").iterdir()
    } == vectors
    done = run(
        [
            sys.executable,
            installed_folder / "bin" / "toolgate",
            "parity",
            "--target",
            "http://127.0.0.1:9",
        ],
        tmp_path,
        PYTHONPATH=str(installed_folder),
    )
    assert done.returncode == 1
    assert "Name the private key that the target trusts: --key FILE" in done.stderr


def test_doctor_names_modules_of_the_same_name(installed_folder: Path, project: Path) -> None:
    done = run(
        [sys.executable, installed_folder / "bin" / "toolgate", "doctor", "--json"],
        project,
        PYTHONPATH=os.pathsep.join([str(project), str(installed_folder)]),
        TOOLGATE_DATABASE__URL="postgresql://127.0.0.1:9/none",
    )
    checks = json.loads(done.stdout)
    named = [one["detail"].split()[0] for one in checks if one["name"] == "shadowing"]
    assert set(named) >= {
        str(project / "config.py"),
        str(project / "registry" / "__init__.py"),
        str(project / "schemas" / "__init__.py"),
    }


def test_the_command_does_not_put_the_working_directory_on_the_path(
    installed_folder: Path, tmp_path: Path
) -> None:
    for name in ("yaml", "click", "psycopg"):
        (tmp_path / f"{name}.py").write_text(THEIRS)
    script = installed_folder / "bin" / "toolgate"
    done = run(
        [sys.executable, script, "config", "check"], tmp_path, PYTHONPATH=str(installed_folder)
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_wheel_is_the_same_in_every_build(wheel: Path, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    done = run([*build, "-w", tmp_path, ROOT], tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def test_the_wheel_includes_a_bill_of_materials_of_its_dependencies(wheel: Path) -> None:
    """PEP 770: a bill of materials, of what deploy/locks/run.txt installs."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [one for one in archive.namelist() if ".dist-info/sboms/" in one]
        found = json.loads(archive.read(name))
    lock = (ROOT / "deploy" / "locks" / "run.txt").read_text()
    locked = set(re.findall(r"^([a-z0-9.-]+)==([^\s;]+)", lock, re.M))
    named = {(one["name"], one["version"]) for one in found["components"]}
    assert named == locked, "run `make sbom`"
    assert found["specVersion"] == "1.6"


def test_the_registry_of_mcp_servers_is_told_the_same() -> None:
    """The rules of the registry: https://github.com/modelcontextprotocol/registry."""
    server = json.loads((ROOT / "deploy" / "server.json").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert re.fullmatch(r"[A-Za-z0-9.-]+/[A-Za-z0-9._-]+", server["name"])
    assert f"mcp-name: {server['name']}" in (ROOT / "README.md").read_text()
    assert server["description"] == project["description"]
    assert len(server["description"]) <= 100
    for package in server["packages"]:
        versions = {package["version"], server["version"], project["version"]}
        assert (package["identifier"], len(versions)) == (project["name"], 1)
        words = [one.get("value", one.get("name")) for one in package["packageArguments"]]
        done = run([sys.executable, "-m", "gateway", *words, "--help"], ROOT)
        assert done.returncode == 0, done.stderr
