"""Directories of skills: read within limits, written whole, never a step outside."""

import os
from pathlib import Path

import msgspec
import pytest

from config.load import load
from config.settings import SkillsSettings as Limits
from gateway.cli.skills.directories import SkillDirectory, read_directories, write_directory
from registry.skills.folders import SkillFolder, check_names, folder_from, media_type_of
from schemas.errors import ImportRejected
from schemas.skill_files import checked_path

LIMITS = load(None, {}).skills


def limits(**changes: int) -> Limits:
    return msgspec.structs.replace(LIMITS, **changes)


def folder_of(source: SkillDirectory, settings: Limits) -> SkillFolder:
    return folder_from(source.place, source.document.encode(), source.files.items(), settings)


def read_folders(directory: Path, settings: Limits) -> list[SkillFolder]:
    """The skills of a directory as an import checks them."""
    folders = [folder_of(source, settings) for source in read_directories(directory, settings)]
    check_names(folders)
    return folders


def read_folder(directory: Path, settings: Limits) -> SkillFolder:
    (folder,) = read_folders(directory, settings)
    return folder


def write(place: Path, name: str = "a", body: bytes = b"X", **files: bytes) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    head = f"---\nname: {name}\ndescription: A.\n---\n".encode()
    (place / "SKILL.md").write_bytes(head + body)
    for path, content in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(content)
    return place


def test_a_skill_has_its_files_in_order(tmp_path: Path) -> None:
    place = write(tmp_path / "a", **{"z.txt": b"z", "scripts/b.py": b"b", "scripts/a/c": b"\xff"})
    write(place / "inner", "inner")
    for hidden in (".git/config", ".DS_Store", "scripts/__pycache__/b.pyc"):
        (place / hidden).parent.mkdir(parents=True, exist_ok=True)
        (place / hidden).write_bytes(b"no")
    (folder,) = read_folders(tmp_path, LIMITS)
    assert [(one.path, one.media_type) for one in folder.files] == [
        ("inner/SKILL.md", "text/markdown"),
        ("scripts/a/c", "application/octet-stream"),
        ("scripts/b.py", "text/x-python"),
        ("z.txt", "text/plain"),
    ]
    assert read_directories(tmp_path, LIMITS)[0].inner == ["inner/SKILL.md"]


def test_a_misspelled_key_is_refused_with_its_file(tmp_path: Path) -> None:
    write(tmp_path / "a")
    head = "---\nname: a\ndescription: A.\nmetadata: {toolgate-require: b}\n---\n"
    (tmp_path / "a/SKILL.md").write_text(head)
    with pytest.raises(ImportRejected, match=r"a/SKILL\.md: metadata\.toolgate-require is unknown"):
        read_folders(tmp_path, LIMITS)


def test_a_file_is_no_directory_and_names_its_own(tmp_path: Path) -> None:
    place = write(tmp_path / "a")
    with pytest.raises(ImportRejected, match=rf"it is a file; name its directory, {place}\.$"):
        read_folders(place / "SKILL.md", LIMITS)


def test_scripts_that_are_written_can_be_run(tmp_path: Path) -> None:
    files = {"run.sh": b"#!/bin/sh\n", "notes.md": b"# Notes\n"}
    place = write_directory(tmp_path, "a", "text", files)
    assert (place / "run.sh").stat().st_mode & 0o777 == 0o755
    assert not (place / "notes.md").stat().st_mode & 0o111


def test_all_skills_below_a_directory_are_found(tmp_path: Path) -> None:
    write(tmp_path / "team/b", "b")
    write(tmp_path / "a", "a")
    write(tmp_path / ".hidden", "no")
    assert [one.document.name for one in read_folders(tmp_path, LIMITS)] == ["a", "b"]


def test_two_of_one_name_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "x", "same")
    write(tmp_path / "y", "same")
    with pytest.raises(ImportRejected, match=r"y/SKILL\.md: .*x/SKILL\.md is called same, too"):
        read_folders(tmp_path, LIMITS)


def test_ten_megabytes_of_instructions_are_refused(tmp_path: Path) -> None:
    place = write(tmp_path / "a", body=b"x" * 10_000_000)
    with pytest.raises(ImportRejected, match=r"1,048,576 bytes are left \(skills.document_bytes\)"):
        read_folder(place, LIMITS)


def test_files_are_limited_in_number_and_bytes(tmp_path: Path) -> None:
    place = write(tmp_path / "a", **{f"{n}.txt": b"x" * 100 for n in range(5)})
    assert len(read_folder(place, limits(files=6)).files) == 5
    with pytest.raises(ImportRejected, match=r"more than 5 files \(skills.files\)"):
        read_folder(place, limits(files=5))
    with pytest.raises(ImportRejected, match=r"skills\.files_bytes"):
        read_folder(place, limits(files_bytes=400))


@pytest.mark.parametrize("target", ["/etc/passwd", "SKILL.md", "nowhere", ".."], ids=str)
def test_links_are_refused(tmp_path: Path, target: str) -> None:
    place = write(tmp_path / "a")
    (place / "link.md").symlink_to(target)
    with pytest.raises(ImportRejected, match=r"link\.md: it is a link"):
        read_folder(place, LIMITS)


def test_a_skill_that_is_a_link_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/SKILL.md").symlink_to("/etc/passwd")
    with pytest.raises(ImportRejected, match="it cannot be read: a link"):
        read_folders(tmp_path, LIMITS)


def test_special_files_are_refused_without_blocking(tmp_path: Path) -> None:
    place = write(tmp_path / "a")
    os.mkfifo(place / "pipe")
    with pytest.raises(ImportRejected, match="pipe: it is no file"):
        read_folder(place, LIMITS)
    (tmp_path / "b/SKILL.md").mkdir(parents=True)
    with pytest.raises(ImportRejected, match=r"SKILL\.md: it is no file"):
        read_folders(tmp_path / "b", LIMITS)


def test_names_that_are_no_utf_8_are_refused(tmp_path: Path) -> None:
    place = write(tmp_path / "a")
    try:
        (place / os.fsdecode(b"\xff.txt")).touch()
    except OSError:
        pytest.skip("this file system has no such names")
    with pytest.raises(ImportRejected, match="is no path for a file of a skill"):
        read_folder(place, LIMITS)


def test_names_that_differ_in_case_only_are_refused(tmp_path: Path) -> None:
    """Another system keeps one of the two, and nobody knows which."""
    place = write(tmp_path / "a", **{"Notes.md": b"one", "notes.md": b"two"})
    if len(list(place.iterdir())) == 2:
        pytest.skip("this file system has no such names")
    with pytest.raises(ImportRejected, match="the same name where case does not count"):
        read_folder(place, LIMITS)


def test_invisible_characters_in_other_files_are_refused(tmp_path: Path) -> None:
    place = write(tmp_path / "a", **{"more.md": "Look\U000e0041here.".encode()})
    with pytest.raises(ImportRejected, match=r"more.md: line 1 has invisible characters"):
        read_folder(place, LIMITS)


HOSTILE = [
    "../x", "/etc/x", "a/../../x", "a//b", "./a", "a/.", "", "SKILL.md", "a\\b", "c:x", "a\nb",
    "a\x00b", "x" * 256, "con|x", "a/", "a\udcff", "skill.md", "con", "a/NUL.txt", "a.", "a /b",
    "a\u202efdp.md", "a\u200b",
]  # fmt: skip


@pytest.mark.parametrize("path", HOSTILE, ids=ascii)
def test_paths_that_lead_elsewhere_are_neither_read_nor_written(tmp_path: Path, path: str) -> None:
    with pytest.raises(ImportRejected, match="is no path for a file of a skill"):
        checked_path(path, "here")
    with pytest.raises(ImportRejected):
        write_directory(tmp_path / "out", "a", "text", {"ok.md": b"", path: b"evil"})
    assert [*(tmp_path / "out").iterdir()] == []
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out"]


def test_an_existing_directory_is_kept_unless_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/old").write_text("old")
    with pytest.raises(ImportRejected, match="it exists already"):
        write_directory(tmp_path, "a", "text", {})
    assert (tmp_path / "a/old").exists()
    write_directory(tmp_path, "a", "text", {}, replace=True)
    assert [one.name for one in (tmp_path / "a").iterdir()] == ["SKILL.md"]


def test_a_link_is_never_written_through(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ImportRejected):
        write_directory(tmp_path, "a", "text", {}, replace=True)
    assert [*(tmp_path / "elsewhere").iterdir()] == []


@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        ("a.MD", b"\xff", "text/markdown"),
        ("a.json", b"", "application/json"),
        ("a.yaml", b"", "application/yaml"),
        ("Makefile", b"all:", "text/plain"),
        ("data", b"\x00\xff", "application/octet-stream"),
    ],
    ids=str,
)
def test_types_are_told_by_the_name_then_by_the_bytes(path: str, content: bytes, kind: str) -> None:
    assert media_type_of(path, content) == kind


@pytest.mark.parametrize(
    "paths", [("a", "a/b"), ("A/b/c", "x", "a/B"), ("SKILL.md/x",)], ids=" ".join
)
def test_a_file_of_a_skill_is_no_directory_of_another(paths: tuple[str, ...]) -> None:
    """Files that no file system holds beside each other are refused at the import, and not when
    the skill is written (mending 10)."""
    text = b"---\nname: a\ndescription: A.\n---\nX"
    files = [(path, b"x") for path in paths]
    with pytest.raises(ImportRejected, match="a file cannot be the directory of"):
        folder_from(Path("a"), text, files, LIMITS)
