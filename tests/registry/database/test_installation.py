"""The PostgreSQL of the wheel, and the account that runs it."""

import importlib.util
import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

from registry.database.embedded_server import (
    INSTALL,
    PACKAGE,
    DatabaseError,
    SystemAccount,
    find_account,
    find_installation,
)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become or make another user")
NOBODY = SystemAccount("nobody", 65534, 65534)


def test_the_wheel_is_used_in_place(tmp_path: Path) -> None:
    installation = find_installation(tmp_path, None)
    assert "PostgreSQL) 18" in installation.run("postgres", "--version", timeout_s=10).stdout
    assert list(tmp_path.iterdir()) == []


@as_root
def test_a_wheel_that_the_account_cannot_reach_is_copied_once(
    scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    site = Path(spec.origin).parents[1]
    for part in (f"{PACKAGE}/__init__.py", f"{PACKAGE}/{INSTALL}", f"{PACKAGE}.libs"):
        copy = shutil.copytree if (site / part).is_dir() else shutil.copy
        (tmp_path / part).parent.mkdir(exist_ok=True)
        copy(site / part, tmp_path / part)
    monkeypatch.syspath_prepend(tmp_path)  # which no other user may enter

    keep = scratch / "programs"
    keep.mkdir()
    first = find_installation(keep, NOBODY)
    assert first.programs.is_relative_to(keep)
    assert first.run("initdb", "--version", timeout_s=10).returncode == 0
    made = first.programs.stat().st_ctime_ns
    assert find_installation(keep, NOBODY).programs.stat().st_ctime_ns == made


def test_a_missing_wheel_names_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DatabaseError, match=r"set database\.url"):
        find_installation(tmp_path, None)


@as_root
def test_a_missing_account_is_made_without_home_or_shell() -> None:
    name = f"toolgate-test-{os.getpid()}"
    try:
        made = find_account(name)
        assert made is not None
        assert made == find_account(name)
        entry = pwd.getpwnam(name)
        assert entry.pw_uid == made.uid != 0
        assert entry.pw_shell == "/usr/sbin/nologin"
        assert not Path(entry.pw_dir).exists()
    finally:
        subprocess.run(["userdel", name], check=True)


@as_root
def test_the_server_may_not_run_as_root() -> None:
    with pytest.raises(DatabaseError, match=r"database\.system_user"):
        find_account("root")


@as_root
def test_an_impossible_account_name_is_an_error_that_says_so() -> None:
    with pytest.raises(DatabaseError, match="cannot create the system user '-r'"):
        find_account("-r")


def test_a_program_that_hangs_is_an_error(tmp_path: Path) -> None:
    installation = find_installation(tmp_path, None)
    with pytest.raises(DatabaseError, match="did not end within"):
        installation.run("postgres", "--single", "-D", "/dev/null/x", timeout_s=0.000001)
