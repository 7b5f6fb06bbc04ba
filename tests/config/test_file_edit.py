"""A setting written into a settings file, whose other text stays."""

import os
from pathlib import Path

import pytest
import yaml

from config.file_edit import UneditableFile, edit_file, edit_text

URL = "${MANAGED_URL}"
WRITTEN = 'url: "${MANAGED_URL}"'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"database:\n  {WRITTEN}\n"),
        ("# mine\nmcp: {path: /x}", f"# mine\nmcp: {{path: /x}}\ndatabase:\n  {WRITTEN}\n"),
        ("database:\n  # nothing yet\nmcp: {}\n",
         f"database:\n  {WRITTEN}\n  # nothing yet\nmcp: {{}}\n"),
        ("database:\n    pool_max: 3  # few\n",
         f"database:\n    {WRITTEN}\n    pool_max: 3  # few\n"),
        ("database:\n  url: embedded # old\n  pool_max: 3\n",
         f"database:\n  {WRITTEN} # old\n  pool_max: 3\n"),
        ("database: {pool_max: 3}\n", f"database: {{{WRITTEN}, pool_max: 3}}\n"),
        ("database: {}\n", f"database: {{{WRITTEN}}}\n"),
        ("database: {url: embedded}\n", f"database: {{{WRITTEN}}}\n"),
        ("ä: 1\ndatabase: {url: 'x'}\n", f"ä: 1\ndatabase: {{{WRITTEN}}}\n"),
    ],
)  # fmt: skip
def test_other_text_stays(before: str, after: str) -> None:
    assert edit_text(before, "database", "url", URL) == after
    assert edit_text(after, "database", "url", URL) == after
    assert yaml.safe_load(after)["database"]["url"] == URL


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{mcp: {}}", "not a mapping with a line"),
        ("- a", "not a mapping with a line"),
        ("a: [", "not YAML"),
        ("other: &d {pool_max: 3}\ndatabase: *d\n", "not written as usual"),
        ("database: 3\n", "not written as usual"),
    ],
)
def test_an_unusual_file_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UneditableFile, match=reason):
        edit_text(text, "database", "url", URL)


def test_a_file_keeps_its_mode_and_owner_behind_its_link(tmp_path: Path) -> None:
    file = tmp_path / "toolgate.yaml"
    file.write_text("database:\n  url: embedded\n")
    file.chmod(0o640)
    owner = (65534, 65534) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(file, *owner)  # a gateway of its own user has to read it
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    edit_file(link, "database", "url", URL)
    assert link.is_symlink()
    assert file.read_text() == f"database:\n  {WRITTEN}\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert (file.stat().st_uid, file.stat().st_gid) == owner
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.yaml", "toolgate.yaml"]
