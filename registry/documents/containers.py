"""Containers of a description's files: a directory or a zip archive.

Files outside it, or reached by a link that leads out of it, are not read: the author of a
description must not choose what a gateway reads from its disk.

A bundle has the files of one description as stored, enough to read it again without the network or
the file system.
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

import msgspec
from msgspec import Struct

from schemas.errors import ImportRejected

ZIP = b"PK\x03\x04"  # magic number of a zip archive
_ENTRY = b"PK\x01\x02"  # magic number of a central directory entry
_SEEN_LIMIT = 5  # directory entries visited per file that may be read
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# what `zipfile` raises for bytes that are no archive; NotImplementedError is the last one
_CONTAINER_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, struct.error),
    *(EOFError, OSError, ValueError, RuntimeError),
)
_SKIPPED_FOLDERS = {"node_modules", "__MACOSX"}


class Unreadable(Exception):
    """A file that is missing or must not be read; `str()` is the reason."""


class Container(Protocol):
    """Files by their path below the container, separated by `/`."""

    def names(self) -> list[str]:
        """Paths of all files, sorted. Raises ImportRejected when there are too many."""

    def read(self, name: str, limit: int) -> bytes:
        """Read a file of at most `limit` bytes. Raises Unreadable, also for a larger one."""


class FolderContainer:
    """A directory and its subdirectories."""

    def __init__(self, root: Path, files_limit: int) -> None:
        self._root = root
        self._real = root.resolve()
        self._seen_limit = files_limit * _SEEN_LIMIT

    def names(self) -> list[str]:
        return sorted(self._walk())

    def _walk(self) -> Iterator[str]:
        entries = 0
        for directory, below, files in os.walk(self._root):
            below[:] = sorted(name for name in below if not _is_hidden(name))
            entries += 1 + len(files)
            if entries > self._seen_limit:
                raise ImportRejected(
                    f"{self._root} holds more than {self._seen_limit:,} files; name the one to "
                    "begin with (--entry, or `entry` in the settings)."
                )
            above = Path(directory).relative_to(self._root).as_posix()
            for name in files:
                if not _is_hidden(name):
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
        """Open the archive. Raises ImportRejected."""
        if data.count(_ENTRY) > files_limit * _SEEN_LIMIT:
            count = files_limit * _SEEN_LIMIT
            raise ImportRejected(f"{location} holds more than {count:,} files.")
        try:
            self._zip = zipfile.ZipFile(BytesIO(data))
        except _CONTAINER_ERRORS as error:
            raise ImportRejected(f"{location} is a broken archive: {error}.") from error
        self._members: dict[str, zipfile.ZipInfo] = {}
        for member in self._zip.infolist():
            name = posixpath.normpath(member.filename)
            if member.is_dir() or name.startswith(("/", "../")):
                continue
            if name in self._members:  # duplicates: readers differ on which one counts
                raise ImportRejected(f"{location} holds {name[:100]!r} twice.")
            self._members[name] = member

    def names(self) -> list[str]:
        visible = (n for n in self._members if not any(_is_hidden(p) for p in n.split("/")))
        return sorted(visible)

    @property
    def members(self) -> list[str]:
        """All files, those too that `names` leaves out as no parts of a description."""
        return sorted(self._members)

    def is_executable(self, name: str) -> bool:
        return bool(self._members[name].external_attr >> 16 & stat.S_IXUSR)

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
                data = file.read(limit + 1)  # the stated size may be false
        except _CONTAINER_ERRORS as error:
            raise Unreadable(f"broken in the archive: {error}") from error
        return _within(data, limit)


def read_regular(path: Path, limit: int) -> bytes:
    """The content of a regular file, not a device or a pipe. Raises Unreadable and OSError."""
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


def _check_inside(name: str, kind: str) -> None:
    if name.startswith(("/", "../")) or name == "..":
        raise Unreadable(
            f"it lies outside the {kind} of the description; import one that holds both, with the "
            "file to begin with as its entry"
        )
    if ":" in name.partition("/")[0]:
        raise Unreadable("expected a path or an http(s) URL")


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED_FOLDERS


# magic prefix of a packed bundle; no JSON, YAML or archive begins with it
_MARK = b"\0toolgate bundle 1\n"


class Bundle(Struct, frozen=True, omit_defaults=True):
    entry: str  # name of the root file
    files: dict[str, bytes]  # by path below a common directory, or by URL
    unread: dict[str, str] = {}  # referenced files that are missing: name -> reason
    overlay: bytes | None = None  # the gateway owner's overlay file
    overlay_location: str = ""  # for messages

    def pack(self, location: str) -> bytes:
        """Serialize. A single file, at `location`, is stored unchanged."""
        alone = self.files.keys() == {self.entry} and not self.unread and self.overlay is None
        if alone and file_location(location, self.entry) == location:
            return self.files[self.entry]
        return _MARK + msgspec.msgpack.encode(self, order="sorted")


def unpack(data: bytes, location: str) -> Bundle:
    """Parse a stored bundle; `location` is its origin. Raises ImportRejected for a newer release's
    format."""
    if not data.startswith(_MARK):
        return Bundle(location, {location: data})
    try:
        return msgspec.msgpack.decode(data[len(_MARK) :], type=Bundle)
    except msgspec.MsgspecError as error:
        raise ImportRejected(f"{location} was kept by a newer release: {error}.") from error


def file_location(location: str, name: str) -> str:
    """Path or URL of the file `name`, for messages; `location` is that of the description."""
    return location if location.endswith(name) else f"{location}/{name}"
