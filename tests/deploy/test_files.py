"""The files that deploy the gateway: their settings exist, and their hardening is there."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.load import NESTING, PREFIX, load
from gateway.methods.results_by_revision import SERVER
from tests.documentation.test_names import is_setting

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
FILES = ("Containerfile", "compose.yaml", "systemd/toolgate.service")
UNIT = DEPLOY / "systemd" / "toolgate.service"
WORST = 25  # tenths of the exposure that systemd computes: 0 to 100


@pytest.mark.parametrize("name", FILES)
def test_variables_are_settings(name: str) -> None:
    found = set(re.findall(rf"{PREFIX}[A-Z_]+(?==|: )", (DEPLOY / name).read_text()))
    assert found
    for variable in found:
        assert is_setting(variable.removeprefix(PREFIX).lower().split(NESTING)), variable


@pytest.fixture
def gateway() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert services.keys() == {"gateway", "database", "redis"}
    return services["gateway"]  # type: ignore[no-any-return]


def test_the_settings_of_the_composition_fit_together(
    gateway: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {
        name: re.sub(r"\$\{\w+:\?[^}]*\}", "a-long-enough-secret", value)
        for name, value in gateway["environment"].items()
    }
    settings = load(None, {**given, "TOOLGATE_SERVER__HOST": "0.0.0.0"})
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


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((DEPLOY / "helm" / "toolgate" / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == SERVER.version


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_unit_is_hardened(tmp_path: Path) -> None:
    unit = tmp_path / "toolgate.service"  # without the program, which is not installed here
    unit.write_text(re.sub("^ExecStart=.*$", "ExecStart=/bin/true", UNIT.read_text(), flags=re.M))
    command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={WORST}", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
