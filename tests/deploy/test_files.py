"""The files that deploy the gateway: their settings exist, and their hardening is there."""

import base64
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.load import FILE_VARIABLE, NESTING, PREFIX, load
from gateway.methods.results_by_revision import SERVER
from tests.documentation.test_names import is_setting

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
FILES = ("Containerfile", "compose.yaml", "systemd/toolgate.service", "systemd/toolgate")
UNITS = ("toolgate.service", "toolgate-worker.service")
WORST = 25  # tenths of the exposure that systemd computes: 0 to 100


@pytest.mark.parametrize("name", FILES)
def test_variables_are_settings(name: str) -> None:
    found = set(re.findall(rf"{PREFIX}[A-Z_]+(?==|: )", (DEPLOY / name).read_text()))
    found.discard(FILE_VARIABLE)
    assert found
    for variable in found:
        assert is_setting(variable.removeprefix(PREFIX).lower().split(NESTING)), variable


@pytest.fixture
def gateway() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert services.keys() == {"gateway", "database", "backup", "redis"}
    return services["gateway"]  # type: ignore[no-any-return]


def test_the_settings_of_the_composition_fit_together(
    gateway: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (mount,) = [one for one in gateway["volumes"] if one.endswith(":ro")]
    file, place, _ = mount.split(":")
    assert gateway["environment"].pop("TOOLGATE_CONFIG") == place
    key = base64.b64encode(bytes(32)).decode()
    given = {
        name: re.sub(r"\$\{\w+:\?[^}]*\}", key if "KEY" in name else "a-long-enough-secret", value)
        for name, value in gateway["environment"].items()
    }
    settings = load(str(DEPLOY / file), {**given, "TOOLGATE_SERVER__HOST": "0.0.0.0"})
    assert settings.secrets.key == key
    assert settings.auth.mode == "keys"
    assert settings.state.backend == "redis"


def test_the_composition_gives_the_gateway_no_rights(gateway: dict[str, Any]) -> None:
    assert gateway["read_only"] is True
    assert gateway["cap_drop"] == ["ALL"]
    assert gateway["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in gateway["ports"])


def test_the_image_runs_without_root_from_locked_packages() -> None:
    _, _, final = (DEPLOY / "Containerfile").read_text().rpartition("\nFROM ")
    assert "\nUSER 65532:65532\n" in final
    assert 'CMD ["toolgate", "health"]' in final
    assert "--require-hashes" in (DEPLOY / "Containerfile").read_text()


def test_the_image_keeps_the_bytecode_of_modules_that_exist() -> None:
    container_file = (DEPLOY / "Containerfile").read_text().replace("\\\n", "")
    [imports] = re.findall(r'-c "import ([^"]*)"', container_file)
    for module in re.split(r",\s*", imports):
        assert importlib.util.find_spec(module), module


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((DEPLOY / "helm" / "toolgate" / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == SERVER.version


def test_the_worker_has_the_user_the_places_and_the_limits_of_the_gateway() -> None:
    gateway, worker = (
        [line for line in (DEPLOY / "systemd" / name).read_text().splitlines() if "=" in line]
        for name in UNITS
    )
    own = {"Description", "ExecStart", "ExecReload"}
    for line in gateway:
        assert line in worker or line.split("=")[0] in own or line.startswith("#"), line
    assert "User=toolgate" in worker  # that of DynamicUser= in toolgate.service


@pytest.fixture
def backup_folder(gateway: dict[str, Any], tmp_path: Path) -> Path:
    """The folder of backups after the service of the composition has made three, with programs of
    PostgreSQL that only write, and a `sleep` that ends it."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    service, programs, backups = services["backup"], tmp_path / "bin", tmp_path / "backups"
    programs.mkdir()
    backups.mkdir()
    for name, script in (
        ("pg_dump", 'eval "file=\\${$#}"; echo dump > "${file#--file=}"'),
        ("pg_restore", "true"),
        ("date", "echo 20300101T000000Z"),
        ("sleep", "exit 9"),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    for day in range(1, 4):
        (backups / f"toolgate-2029010{day}T000000Z.backup").write_text("dump")
    (backups / "toolgate-20290101T000000Z.backup.part").write_text("half of a dump")
    [text] = service["command"]
    script = text.replace("$$", "$").replace("/backups", str(backups))
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "KEEP": "2", "EVERY_S": "1"}
    done = subprocess.run(["sh", "-euc", script], env=env, check=False, capture_output=True)
    assert done.returncode == 9, done.stderr
    return backups


def test_the_backup_of_the_composition_keeps_the_newest(backup_folder: Path) -> None:
    assert sorted(file.name for file in backup_folder.iterdir()) == [
        "toolgate-20290103T000000Z.backup",
        "toolgate-20300101T000000Z.backup",
    ]


def test_the_command_of_systemd_passes_references_on(tmp_path: Path) -> None:
    """systemd replaces ${NAME} in arguments of services, and $$ by one $."""
    program = tmp_path / "systemd-run"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["sh", DEPLOY / "systemd" / "toolgate", "database", "--to", "${URL}", "a  b", "'"]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-5:] == ["database", "--to", "$${URL}", "a  b", "'"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", UNITS)
def test_the_unit_is_hardened(tmp_path: Path, name: str) -> None:
    unit = tmp_path / name  # without the program, which is not installed here
    text = (DEPLOY / "systemd" / name).read_text()
    unit.write_text(re.sub("^ExecStart=.*$", "ExecStart=/bin/true", text, flags=re.M))
    command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={WORST}", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
