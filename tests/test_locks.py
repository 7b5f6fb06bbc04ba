"""The lock files, what `make check` says of them, and the hooks that call the same checks."""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
LOCKS = sorted((ROOT / "deploy" / "locks").glob("*.txt"))
PIN = re.compile(
    r"^[a-z0-9.-]+==[\w.]+( ; [^\\]+)? \\\n( +--hash=sha256:[0-9a-f]{64}( \\)?\n)+", re.M
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what the check reads."""
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    shutil.copytree(ROOT / "deploy" / "locks", tmp_path / "deploy" / "locks")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def check(tree: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, tree / ".ci" / "lock.py", "--check"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def change(file: Path, replacements: Mapping[str, str]) -> None:
    text = file.read_text()
    for old, new in replacements.items():
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)


def test_the_lock_files_match_pyproject(tree: Path) -> None:
    done = check(tree)
    assert (done.returncode, done.stderr) == (0, "")


def test_another_bound_in_pyproject_fails_the_check(tree: Path) -> None:
    change(tree / "pyproject.toml", {"aiohttp>=3.14,<4": "aiohttp>=3.15,<4"})
    done = check(tree)
    assert done.returncode == 1
    assert done.stderr == (
        "lock: deploy/locks/run.txt: pyproject.toml asks for 'aiohttp>=3.15,<4', the lock file"
        " was made without it\n"
        "deploy/locks/run.txt: made from 'aiohttp>=3.14,<4', which pyproject.toml does not ask"
        " for\n"
        "Run `make lock` and commit deploy/locks.\n"
    )


def test_a_package_that_pyproject_no_longer_names_fails_the_check(tree: Path) -> None:
    change(tree / "pyproject.toml", {'    "yarl>=1.20,<2",\n': ""})
    done = check(tree)
    assert done.returncode == 1
    assert "made from 'yarl>=1.20,<2', which pyproject.toml does not ask for" in done.stderr


def test_a_lost_lock_file_fails_the_check(tree: Path) -> None:
    (tree / "deploy" / "locks" / "test.txt").unlink()
    assert "deploy/locks/test.txt: pyproject.toml asks for 'pytest" in check(tree).stderr


@pytest.mark.parametrize("file", LOCKS, ids=lambda file: file.stem)
def test_a_lock_file_holds_versions_and_hashes_and_nothing_else(file: Path) -> None:
    """No index, address or path of the machine that made it, and nothing that pip may choose."""
    entries = re.sub(r"^#.*\n", "", file.read_text(), flags=re.M)
    assert PIN.search(entries)
    assert PIN.sub("", entries) == ""


def test_torch_is_not_locked() -> None:
    assert not [file.name for file in LOCKS if re.search("^torch==", file.read_text(), re.M)]


def test_the_hooks_call_the_checks_of_make_check() -> None:
    checks = re.search(r"^CHECKS := (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert checks
    [local] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    commands = [hook["entry"] for hook in local["hooks"] if "stages" not in hook]
    assert commands == [f"make {name}" for name in checks[1].split()]
