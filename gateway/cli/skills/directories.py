"""Directories of skills: read without following any link, within limits; and written atomically.

One directory is one skill: SKILL.md, and files beside it that its instructions refer to.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NoReturn

from config.settings import SkillsSettings
from schemas.errors import ImportRejected
from schemas.skill_files import SKILL_FILE, checked_path

LEVELS = 8  # of directories, in a skill and above skills


@dataclass(frozen=True, slots=True)
class SkillDirectory:
    """A skill as it is on disk. `files`: those beside its SKILL.md, by their paths."""

    place: Path
    document: str
    files: Mapping[str, bytes]

    @property
    def inner(self) -> list[str]:
        """Files in subdirectories named like skills themselves (SKILL.md)."""
        return [path for path in self.files if PurePosixPath(path).name == SKILL_FILE]


def read_directories(directory: Path, limits: SkillsSettings) -> list[SkillDirectory]:
    """The skill in `directory`, or all skills below it, in the order of their paths.

    Raises ImportRejected, before any write, if one of them cannot be read.
    """
    if directory.is_file():
        _reject(directory, f"it is a file; name its directory, {directory.parent}")
    if not directory.is_dir():
        raise ImportRejected(f"{directory}: there is no such directory.")
    places = sorted(_places(directory, LEVELS))
    if not places:
        _reject(directory, f"there is no {SKILL_FILE} in it, nor in a directory below it")
    return [read_directory(place, limits) for place in places]


def read_directory(directory: Path, limits: SkillsSettings) -> SkillDirectory:
    """Read one skill. Raises ImportRejected."""
    where = directory / SKILL_FILE
    text = _read(where, limits.document_bytes, "skills.document_bytes")
    size, files = len(text), dict[str, bytes]()
    for path in _files(directory, directory, LEVELS):
        files[path] = _read(
            directory / path, limits.files_bytes - size, "skills.files_bytes, of all"
        )
        size += len(files[path])
    try:
        return SkillDirectory(directory, text.decode(), files)
    except UnicodeDecodeError as error:
        _reject(where, "it is not UTF-8 text", error)


def write_directory(
    parent: Path, name: str, text: str, files: Mapping[str, bytes], *, replace: bool = False
) -> Path:
    """Write the skill to the directory `name`, atomically. Raises ImportRejected where one exists
    that is not to be replaced."""
    target = parent / name
    if target.is_symlink() or (target.exists() and not replace):
        _reject(target, "it exists already; remove it, or use --force")
    parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=parent))
    try:
        (temporary / SKILL_FILE).write_bytes(text.encode())
        for place, content in files.items():
            path = temporary / checked_path(place, str(target))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            if content.startswith(b"#!"):  # modes are not kept
                path.chmod(0o755)
        temporary.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return target


def _places(directory: Path, levels: int) -> Iterator[Path]:
    """Directories with a SKILL.md; their subdirectories belong to that skill."""
    if (directory / SKILL_FILE).exists():
        yield directory
        return
    for entry in _entries(directory):
        if levels and entry.is_dir(follow_symlinks=False):
            yield from _places(directory / entry.name, levels - 1)


def _files(root: Path, directory: Path, levels: int) -> Iterator[str]:
    """Paths below `root` of the files in `directory`, except the skill's own SKILL.md."""
    for entry in _entries(directory):
        place = directory / entry.name
        path = place.relative_to(root).as_posix()
        if entry.is_symlink():
            _reject(place, "it is a link; a skill has files of its own only")
        if entry.is_dir(follow_symlinks=False):
            if not levels:
                _reject(place, f"directories of a skill go {LEVELS} levels deep")
            yield from _files(root, place, levels - 1)
        elif path != SKILL_FILE:
            yield checked_path(path, str(root))


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    """Entries ordered by name, without hidden files and Python's caches."""
    try:
        with os.scandir(directory) as entries:
            visible = [
                entry for entry in entries if entry.name[0] != "." and entry.name != "__pycache__"
            ]
    except OSError as error:
        raise ImportRejected(f"{directory}: {(error.strerror or str(error)).lower()}.") from error
    return sorted(visible, key=lambda entry: entry.name)


def _read(path: Path, limit: int, setting: str) -> bytes:
    """At most `limit` bytes of a regular file; links are refused."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
    except OSError as error:
        reason = "a link" if path.is_symlink() else (error.strerror or str(error)).lower()
        _reject(path, f"it cannot be read: {reason}", error)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        _reject(path, "it is no file")
    with os.fdopen(handle, "rb") as file:
        content = file.read(max(limit, 0) + 1)
    if len(content) > limit:
        _reject(path, f"it is too large: {max(limit, 0):,} bytes are left ({setting})")
    return content


def _reject(path: Path, problem: str, cause: Exception | None = None) -> NoReturn:
    raise ImportRejected(f"{path}: {problem}.") from cause
