"""Directories of skills as they are uploaded: SKILL.md, and files beside it that its instructions
refer to. Reads no files."""

import hashlib
import mimetypes
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NoReturn

from config.settings import SkillsSettings
from registry.skills.skill_md import (
    SkillDocument,
    check_imported_document,
    check_invisible,
    read_document,
)
from schemas.errors import ImportRejected
from schemas.skill_files import SKILL_FILE, checked_path

SKILLS_LIMIT = 1000  # skills in one directory
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
    def digest(self) -> str:
        """A digest, equal for equal contents."""
        return folder_digest(self.document.text, self.files)


def folder_digest(text: str, files: Sequence[FolderFile]) -> str:
    parts = [(SKILL_FILE, hashlib.sha256(text.encode()).hexdigest())]
    parts += [(file.path, file.digest) for file in files]
    return hashlib.sha256("\n".join(f"{d} {p}" for p, d in sorted(parts)).encode()).hexdigest()


def check_names(folders: Iterable[SkillFolder]) -> None:
    """Raises ImportRejected for duplicate names."""
    by_name: dict[str, SkillFolder] = {}
    for folder in folders:
        first = by_name.setdefault(folder.document.name, folder)
        if first is not folder:
            name = folder.document.name
            raise ImportRejected(f"{folder.where}: {first.where} is called {name}, too.")


def folder_from(
    directory: Path, text: bytes, contents: Iterable[tuple[str, bytes]], limits: SkillsSettings
) -> SkillFolder:
    """The skill with this SKILL.md and these files, by their paths; `directory` is its name in
    errors. Raises ImportRejected."""
    where = directory / SKILL_FILE
    if len(text) > limits.document_bytes:
        _reject(where, f"it has more than {limits.document_bytes:,} bytes (skills.document_bytes)")
    document = read_document(text, str(where))
    check_imported_document(document, str(where))
    files: list[FolderFile] = []
    seen = {SKILL_FILE.casefold(): SKILL_FILE}
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
    return SkillFolder(str(where), document, tuple(sorted(files, key=lambda file: file.path)))


def _file(where: Path, path: str, content: bytes) -> FolderFile:
    file = FolderFile(path, media_type_of(path, content), content)
    if file.media_type == "text/markdown":  # which a model reads like the instructions
        check_invisible(content.decode(errors="replace").removeprefix("\ufeff"), str(where))
    return file


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


def _reject(path: Path, problem: str) -> NoReturn:
    raise ImportRejected(f"{path}: {problem}.")
