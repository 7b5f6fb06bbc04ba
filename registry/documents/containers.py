"""Where the files of a description lie together: a directory, or an archive.

What lies outside, or is reached by a link that leads out of it, is not read: whoever wrote a
description must not choose what a gateway reads from its disk.
"""

import os
import posixpath
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Protocol

from schemas.errors import ImportRejected

ZIP = b"PK\x03\x04"  # how an archive begins
_ENTRY = b"PK\x01\x02"  # in front of each member of its directory
_SEEN_LIMIT = 5  # directory entries looked at, for each file that may be read
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# whatever `zipfile` lets out about bytes that are no archive; NotImplementedError is the last one
_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, struct.error),
    *(EOFError, OSError, ValueError, RuntimeError),
)
_SKIPPED = {"node_modules", "__MACOSX"}


class Unreadable(Exception):
    """A file that is not there, or not to be read; `str()` is the reason."""


class Container(Protocol):
    """Files by their path below it, with `/` between its parts."""

    def names(self) -> list[str]:
        """Of all files, sorted. Raises ImportRejected when there are too many."""

    def read(self, name: str, limit: int) -> bytes:
        """Up to `limit` bytes. Raises Unreadable, also when there are more."""


class FolderContainer:
    """A directory and what is below it."""

    def __init__(self, root: Path, files_limit: int) -> None:
        self._root = root
        self._real = root.resolve()
        self._seen_limit = files_limit * _SEEN_LIMIT

    def names(self) -> list[str]:
        return sorted(self._walk())

    def _walk(self) -> Iterator[str]:
        seen = 0
        for directory, below, files in os.walk(self._root):
            below[:] = sorted(name for name in below if not _hidden(name))
            seen += 1 + len(files)
            if seen > self._seen_limit:
                raise ImportRejected(
                    f"{self._root} holds more than {self._seen_limit:,} files; name the one to "
                    "begin with (--entry, or `entry` in the settings)."
                )
            above = Path(directory).relative_to(self._root).as_posix()
            for name in files:
                if not _hidden(name):
                    yield posixpath.normpath(posixpath.join(above, name))

    def read(self, name: str, limit: int) -> bytes:
        _check_inside(name, "directory")
        try:
            path = (self._root / name).resolve(strict=True)
            if not path.is_relative_to(self._real):
                raise Unreadable("a link that leads out of the directory")
            return read_regular(path, limit)
        except FileNotFoundError as error:
            raise Unreadable("it does not exist") from error
        except (OSError, ValueError, RuntimeError) as error:
            raise Unreadable(str(getattr(error, "strerror", None) or error)) from error


class Archive:
    """A zip file, held in memory."""

    def __init__(self, data: bytes, location: str, files_limit: int) -> None:
        """Raises ImportRejected."""
        if data.count(_ENTRY) > files_limit * _SEEN_LIMIT:
            count = files_limit * _SEEN_LIMIT
            raise ImportRejected(f"{location} holds more than {count:,} files.")
        try:
            self._zip = zipfile.ZipFile(BytesIO(data))
        except _BROKEN as error:
            raise ImportRejected(f"{location} is a broken archive: {error}.") from error
        self._members: dict[str, zipfile.ZipInfo] = {}
        for member in self._zip.infolist():
            name = posixpath.normpath(member.filename)
            if member.is_dir() or name.startswith(("/", "../")):
                continue
            if name in self._members:  # readers differ on which of them counts
                raise ImportRejected(f"{location} holds {name[:100]!r} twice.")
            self._members[name] = member

    def names(self) -> list[str]:
        visible = (n for n in self._members if not any(_hidden(p) for p in n.split("/")))
        return sorted(visible)

    def read(self, name: str, limit: int) -> bytes:
        _check_inside(name, "archive")
        member = self._members.get(name)
        if member is None:
            raise Unreadable("it does not exist")
        if stat.S_ISLNK(member.external_attr >> 16):
            raise Unreadable("a link, which is not followed in an archive")
        if member.compress_type not in _METHODS or member.flag_bits & 1:
            raise Unreadable("encrypted, or compressed in a way that is not read")
        try:
            with self._zip.open(member) as file:
                data = file.read(limit + 1)  # the size that is stated may be a lie
        except _BROKEN as error:
            raise Unreadable(f"broken in the archive: {error}") from error
        return _within(data, limit)


def read_regular(path: Path, limit: int) -> bytes:
    """The content of a file that is one, not a device or a pipe. Raises Unreadable and OSError."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise Unreadable("not a regular file")
    with path.open("rb") as file:
        return _within(file.read(limit + 1), limit)


def _within(data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise Unreadable(
            "with it the description is larger than imports.document_limit_bytes allows"
        )
    return data


def _check_inside(name: str, what: str) -> None:
    if name.startswith(("/", "../")) or name == "..":
        raise Unreadable(
            f"it lies outside the {what} of the description; import one that holds both, with the "
            "file to begin with as its entry"
        )
    if ":" in name.partition("/")[0]:
        raise Unreadable("expected a path or an http(s) URL")


def _hidden(name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED
