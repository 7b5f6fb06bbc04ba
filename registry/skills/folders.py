"""Directories of skills: read without following any link, within limits; and written atomically.

One directory is one skill: SKILL.md, and files beside it that its instructions refer to.
"""

import hashlib
import mimetypes
import os
import re
import shutil
import stat
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NoReturn

from config.settings import SkillsSettings
from registry.skills.skill_md import (
    FILE,
    SkillDocument,
    check_imported_document,
    check_invisible,
    read_document,
)
from schemas.errors import ImportRejected
from schemas.invisible_characters import without_hidden

PATH_LIMIT = 255  # characters
LEVELS = 8  # of directories, in a skill and above skills
SKILLS_LIMIT = 1000  # skills in one directory
_UNWRITABLE = re.compile("[\ud800-\udfff]")  # Python's surrogates for names that are not UTF-8
_FORBIDDEN = frozenset('<>:"|?*\\') | {chr(code) for code in range(32)} | {"\x7f"}
# Windows opens a device for these names, with any extension. It also drops dots and blanks at the
# end of a name.
_DEVICE = re.compile(r"(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?")
_TEXTS = {".md": "text/markdown", ".yaml": "application/yaml", ".yml": "application/yaml"}
# Not the system's tables: a file has the same type on every system that imports it.
_types = mimetypes.MimeTypes()


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A file beside a SKILL.md."""

    path: str  # below the skill's directory, "/" between the parts
    media_type: str
    content: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class SkillFolder:
    """A skill as stored on disk."""

    where: str
    document: SkillDocument
    files: tuple[FolderFile, ...]  # in the order of their paths

    @property
    def inner(self) -> list[str]:
        """Files in subdirectories named like skills themselves (SKILL.md)."""
        return [file.path for file in self.files if PurePosixPath(file.path).name == FILE]

    @property
    def digest(self) -> str:
        """A digest, equal for equal contents."""
        return digest_of(self.document.text, self.files)


def digest_of(text: str, files: Sequence[FolderFile]) -> str:
    parts = [(FILE, hashlib.sha256(text.encode()).hexdigest())]
    parts += [(file.path, file.digest) for file in files]
    return hashlib.sha256("\n".join(f"{d} {p}" for p, d in sorted(parts)).encode()).hexdigest()


def read_folders(directory: Path, limits: SkillsSettings) -> list[SkillFolder]:
    """The skill in `directory`, or all skills below it, in the order of their paths.

    Raises ImportRejected, before any write, if one of them cannot be read.
    """
    if directory.is_file():
        _reject(directory, f"it is a file; name its directory, {directory.parent}")
    if not directory.is_dir():
        raise ImportRejected(f"{directory}: there is no such directory.")
    places = sorted(_places(directory, LEVELS))
    if not places:
        raise ImportRejected(f"{directory}: there is no {FILE} in it, nor in a directory below it.")
    if len(places) > SKILLS_LIMIT:
        raise ImportRejected(f"{directory}: it has more than {SKILLS_LIMIT:,} skills.")
    folders = [read_folder(place, limits) for place in places]
    check_names(folders)
    return folders


def check_names(folders: Iterable[SkillFolder]) -> None:
    """Raises ImportRejected for duplicate names."""
    by_name: dict[str, SkillFolder] = {}
    for folder in folders:
        first = by_name.setdefault(folder.document.name, folder)
        if first is not folder:
            name = folder.document.name
            raise ImportRejected(f"{folder.where}: {first.where} is called {name}, too.")


def read_folder(directory: Path, limits: SkillsSettings) -> SkillFolder:
    """Read one skill. Raises ImportRejected."""
    where = directory / FILE
    text = _read(where, limits.document_bytes, "skills.document_bytes")
    size = len(text)

    def files() -> Iterator[tuple[str, bytes]]:
        nonlocal size
        for path in _files(directory, directory, LEVELS):
            left = limits.files_bytes - size
            content = _read(directory / path, left, "skills.files_bytes, of all")
            size += len(content)
            yield path, content

    return folder_from(directory, text, files(), limits)


def folder_from(
    directory: Path, text: bytes, contents: Iterable[tuple[str, bytes]], limits: SkillsSettings
) -> SkillFolder:
    """The skill with this SKILL.md and these files, by their paths; `directory` is its name in
    errors. Raises ImportRejected."""
    where = directory / FILE
    if len(text) > limits.document_bytes:
        _reject(where, f"it has more than {limits.document_bytes:,} bytes (skills.document_bytes)")
    document = read_document(text, str(where))
    check_imported_document(document, str(where))
    files: list[FolderFile] = []
    seen = {FILE.casefold(): FILE}
    directories: dict[str, str] = {}  # to a file in each
    size = len(text)
    for path, content in contents:
        if len(files) + 2 > limits.files:
            _reject(directory, f"it has more than {limits.files} files (skills.files)")
        same = unicodedata.normalize("NFC", checked_path(path, str(directory))).casefold()
        if same in seen:
            _reject(directory / path, f"{seen[same]} is the same name where case does not count")
        seen[same] = path
        directories.update({str(parent): path for parent in PurePosixPath(same).parents})
        size += len(content)
        if size > limits.files_bytes:
            _reject(
                directory, f"it has more than {limits.files_bytes:,} bytes (skills.files_bytes)"
            )
        files.append(_file(directory / path, path, content))
    for same in seen.keys() & directories.keys():
        _reject(directory / seen[same], f"a file cannot be the directory of {directories[same]}")
    return SkillFolder(str(where), document, tuple(sorted(files, key=lambda one: one.path)))


def _file(where: Path, path: str, content: bytes) -> FolderFile:
    file = FolderFile(path, media_type_of(path, content), content)
    if file.media_type == "text/markdown":  # which a model reads like the instructions
        check_invisible(content.decode(errors="replace").removeprefix("\ufeff"), str(where))
    return file


def write_folder(
    parent: Path, name: str, text: str, files: Sequence[FolderFile], *, replace: bool = False
) -> Path:
    """Write the skill to the directory `name`, atomically. Raises ImportRejected where one exists
    that is not to be replaced."""
    target = parent / name
    if target.is_symlink() or (target.exists() and not replace):
        _reject(target, "it exists already; remove it, or use --force")
    parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=parent))
    try:
        (temporary / FILE).write_bytes(text.encode())
        for file in files:
            path = temporary / checked_path(file.path, str(target))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content)
            if file.content.startswith(b"#!"):  # modes are not kept
                path.chmod(0o755)
        temporary.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return target


def checked_path(path: str, where: str) -> str:
    """The path. Raises ImportRejected for one that could escape the directory, here or on another
    system."""
    parts = PurePosixPath(path).parts
    if (
        not parts
        or len(path) > PATH_LIMIT
        or "/".join(parts) != path
        or _UNWRITABLE.search(path)
        or without_hidden(path) != path
        or any(part in {".", "..", "/"} or _FORBIDDEN & set(part) for part in parts)
        or any(part[-1] in ". " or _DEVICE.fullmatch(part) for part in parts)
        or path.casefold() == FILE.casefold()
    ):
        raise ImportRejected(
            f"{where}: {path[:100]!r} is no path for a file of a skill: expected names with / "
            f"between them, at most {PATH_LIMIT} characters."
        )
    return path


def media_type_of(path: str, content: bytes) -> str:
    """The media type by extension, otherwise by whether the content is text."""
    suffix = PurePosixPath(path).suffix.lower()
    guessed = _TEXTS.get(suffix) or _types.guess_type(f"x{suffix}", strict=False)[0]
    if guessed is not None:
        return guessed
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"


def _places(directory: Path, levels: int) -> Iterator[Path]:
    """Directories with a SKILL.md; their subdirectories belong to that skill."""
    if (directory / FILE).exists():
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
        elif path != FILE:
            yield checked_path(path, str(root))


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    """Entries ordered by name, without hidden files and Python's caches."""
    try:
        with os.scandir(directory) as entries:
            kept = [
                entry for entry in entries if entry.name[0] != "." and entry.name != "__pycache__"
            ]
    except OSError as error:
        raise ImportRejected(f"{directory}: {(error.strerror or str(error)).lower()}.") from error
    return sorted(kept, key=lambda one: one.name)


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
