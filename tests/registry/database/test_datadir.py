"""The data directory: where it may be, whose it is."""

import os
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from config.load import SettingsError, load
from registry.database import embedded_server as datadir
from registry.database.embedded_server import (
    DatabaseError,
    DataDirectory,
    SystemAccount,
    directory_of,
)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has another account to care for")
NOBODY = SystemAccount("nobody", 65534, 65534)


def test_the_data_directory_is_private_and_its_parents_unchanged(tmp_path: Path) -> None:
    before = tmp_path.stat().st_mode
    directory = DataDirectory(tmp_path / "new" / "data", None)
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
    assert tmp_path.stat().st_mode == before


def test_the_data_directory_may_exist_empty(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    assert DataDirectory(tmp_path, None).path == tmp_path


def test_its_own_content_is_no_obstacle(tmp_path: Path) -> None:
    with DataDirectory(tmp_path, None).serialise():
        pass
    (tmp_path / "server.log").touch()
    assert DataDirectory(tmp_path, None).path == tmp_path


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters").touch()
    with pytest.raises(DatabaseError, match=r"has something else in it; set database\.data_dir"):
        DataDirectory(tmp_path, None)


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DatabaseError, match=r"cannot be created \(Not a directory\)"):
        DataDirectory(tmp_path / "file", None)


@pytest.mark.parametrize("character", list('"$`\\,\n'))
def test_characters_that_a_shell_or_libpq_would_read_are_refused(
    tmp_path: Path, character: str
) -> None:
    with pytest.raises(DatabaseError, match="must not contain"):
        DataDirectory(tmp_path / f"a{character}b", None)


@as_root
def test_a_directory_that_the_account_cannot_reach_is_refused_by_name(scratch: Path) -> None:
    closed = scratch / "home"
    closed.mkdir(mode=0o700)
    with pytest.raises(DatabaseError, match=f"lies below {closed}, which the user nobody"):
        DataDirectory(closed / "deep" / "data", NOBODY)
    assert list(closed.iterdir()) == []


@as_root
def test_only_server_files_belong_to_the_server_account(scratch: Path) -> None:
    directory = DataDirectory(scratch / "owned" / "data", NOBODY)
    sockets = directory.socket_directory()
    assert directory.path.stat().st_uid == 0
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o711
    assert (sockets.stat().st_uid, stat.S_IMODE(sockets.stat().st_mode)) == (65534, 0o700)


@as_root
def test_a_directory_of_another_user_is_refused(scratch: Path) -> None:
    theirs = scratch / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    with pytest.raises(DatabaseError, match="belongs to another user"):
        DataDirectory(theirs, NOBODY)


@as_root
def test_a_link_does_not_lead_us_astray(scratch: Path) -> None:
    directory = DataDirectory(scratch / "linked", NOBODY)
    (directory.path / "run").symlink_to("/etc")
    with pytest.raises(OSError, match="run"):
        directory.socket_directory()
    assert Path("/etc").stat().st_uid == 0


def test_a_socket_directory_that_somebody_prepared_is_refused(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / ("long" * 30), None)
    short = directory.socket_directory()
    assert short.parent == Path("/tmp")
    short.rmdir()
    short.symlink_to(tmp_path)
    try:
        with pytest.raises(DatabaseError, match="belongs to another user"):
            directory.socket_directory()
    finally:
        short.unlink()


@pytest.mark.parametrize(
    ("uid", "platform", "xdg", "expected"),
    [
        (0, "linux", None, "/var/lib/toolgate"),
        (1000, "linux", None, "/home/me/.local/share/toolgate"),
        (1000, "linux", "/data", "/data/toolgate"),
        (1000, "linux", "relative", "/home/me/.local/share/toolgate"),
        (1000, "darwin", None, "/home/me/Library/Application Support/toolgate"),
    ],
)
def test_usual_places(
    monkeypatch: pytest.MonkeyPatch, uid: int, platform: str, xdg: str | None, expected: str
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: uid)
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_DATA_HOME", xdg or "")
    assert datadir._default() == Path(expected)


def test_an_instance_has_a_directory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands with the settings of an installation use its database (mending 42)."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    database = load(None, {"TOOLGATE_DATABASE__INSTANCE": "shop"}).database
    assert directory_of(database) == Path("/data/toolgate-shop")
    assert directory_of(replace(database, data_dir="/elsewhere")) == Path("/elsewhere")
    with pytest.raises(SettingsError, match="at most 31 characters"):
        load(None, {"TOOLGATE_DATABASE__INSTANCE": "../shop"})
