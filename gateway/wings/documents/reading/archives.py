"""Files of zip and tar archives, which are not trusted. Nothing is written to disk.

The stated sizes may be false, so what is unpacked is counted. Links and devices are left out, as
are names that lead elsewhere; of names that are equal, also but for case, the first counts.
"""

import bz2
import gzip
import io
import lzma
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections import deque
from collections.abc import Iterator
from typing import IO, cast

from gateway.wings.documents.reading.reading_limits import ReadingLimits, ReadingRefused
from gateway.wings.documents.reading.source_files import Entry, LeftOut, SourceFile

_ARCHIVE_ERRORS = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OSError, ValueError, RuntimeError),
)
_SMALL = 2**20  # bytes that may be unpacked whatever the ratio
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENTRY = b"PK\x01\x02"  # magic number of an entry in the directory of a zip archive
_BOMB = "the archive unpacks to more than is allowed: it may be a zip bomb"
_TARS = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0")


def archive_files(data: bytes, limits: ReadingLimits) -> Iterator[Entry]:
    """The files of an archive, in its order, and why others are left out. Raises ReadingRefused
    before the first one: nothing is told of an archive that is not read to its end."""
    deque(_read_members(data, limits), maxlen=0)
    yield from _read_members(data, limits)


def _read_members(data: bytes, limits: ReadingLimits) -> Iterator[Entry]:
    if len(data) > limits.container_bytes:
        raise ReadingRefused(f"the archive is larger than {limits.container_bytes:,} bytes")
    names: set[str] = set()
    budget = _Budget(len(data), limits)
    try:
        for member_name, file in _members(data, limits):
            name = safe_name(member_name, limits)
            key = unicodedata.normalize("NFC", name).casefold()
            if not name or key in names:
                reason = "there is another file of this name" if name else "its name is not safe"
                yield LeftOut(member_name[:100].encode("utf-8", "replace").decode(), reason)
                continue
            names.add(key)
            yield SourceFile.of(name, budget.read(file))
    except _ARCHIVE_ERRORS as error:
        raise ReadingRefused(f"the archive is broken: {str(error)[:200]}") from error


class _Budget:
    """Remaining budget of an archive's unpacking."""

    def __init__(self, packed_bytes: int, limits: ReadingLimits) -> None:
        self._left = unpacked_limit(packed_bytes, limits)
        self._file = limits.container_bytes

    def read(self, file: IO[bytes]) -> bytes:
        data = file.read(min(self._left, self._file) + 1)
        self._left -= len(data)
        if self._left < 0:
            raise ReadingRefused(_BOMB)
        if len(data) > self._file:
            raise ReadingRefused(f"a file in the archive is larger than {self._file:,} bytes")
        return data


def unpacked_limit(packed_bytes: int, limits: ReadingLimits) -> int:
    """Bytes that an archive may unpack to."""
    return min(max(packed_bytes * limits.ratio, _SMALL), limits.source_bytes)


def safe_name(name: str, limits: ReadingLimits) -> str:
    """A relative path without "..", drives and control characters; empty: the name is none."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    drive = len(parts) > 0 and ":" in parts[0]
    absolute = name.startswith(("/", "\\"))
    hostile = any(part == ".." for part in parts) or any(ord(sign) < 32 for sign in name)
    long = len(name.encode("utf-8", "replace")) > limits.name_bytes or len(parts) > limits.depth
    if not parts or drive or absolute or hostile or long:
        return ""
    return "/".join(parts).encode("utf-8", "replace").decode()


def _members(data: bytes, limits: ReadingLimits) -> Iterator[tuple[str, IO[bytes]]]:
    if data.startswith(b"PK"):
        yield from _zip_members(data, limits)
    elif data.startswith(_TARS) or data[257:262] == b"ustar":
        yield from _tar_members(data, limits)
    else:
        raise ReadingRefused("expected a zip or tar archive")


def _zip_members(data: bytes, limits: ReadingLimits) -> Iterator[tuple[str, IO[bytes]]]:
    archive = checked_zip(data, limits)
    for member in archive.infolist():
        if member.is_dir() or stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
            continue
        if member.compress_type not in _METHODS or member.flag_bits & 1:
            continue  # encrypted, or packed in a way that is not read
        with archive.open(member) as file:
            yield member.filename, file


def checked_zip(data: bytes, limits: ReadingLimits) -> zipfile.ZipFile:
    """A zip archive that states no more entries and bytes than are allowed, and no entries that
    overlap. Raises ReadingRefused, and BadZipFile."""
    if data.count(_ENTRY) > limits.entries:
        raise ReadingRefused(f"the archive has more than {limits.entries:,} entries")
    archive = zipfile.ZipFile(io.BytesIO(data))
    members = sorted(archive.infolist(), key=lambda member: member.header_offset)
    if len(members) > limits.entries:
        raise ReadingRefused(f"the archive has more than {limits.entries:,} entries")
    end = 0
    for member in members:
        if member.header_offset < end:
            raise ReadingRefused("entries of the archive overlap: it may be a zip bomb")
        end = member.header_offset + member.compress_size
    stated = sum(member.file_size for member in members)
    if stated > unpacked_limit(len(data), limits):
        raise ReadingRefused(_BOMB)
    return archive


def _tar_members(data: bytes, limits: ReadingLimits) -> Iterator[tuple[str, IO[bytes]]]:
    reader = _Counted(_unpack(data), len(data), limits)
    with tarfile.open(fileobj=cast("IO[bytes]", reader), mode="r|") as archive:
        for count, member in enumerate(archive):
            if count >= limits.entries:
                raise ReadingRefused(f"the archive has more than {limits.entries:,} entries")
            reader.since = 0
            file = archive.extractfile(member) if member.isreg() else None
            if file is not None:
                yield member.name, file


def _unpack(data: bytes) -> IO[bytes]:
    packed = io.BytesIO(data)
    if data.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=packed))
    if data.startswith(b"BZh"):
        return cast("IO[bytes]", bz2.BZ2File(packed))
    return cast("IO[bytes]", lzma.LZMAFile(packed)) if data.startswith(b"\xfd7zXZ\0") else packed


class _Counted:
    """A tar archive that is read in order. Headers, like files, are limited."""

    def __init__(self, file: IO[bytes], packed_bytes: int, limits: ReadingLimits) -> None:
        self._file = file
        self._left = unpacked_limit(packed_bytes, limits)
        self._member = limits.container_bytes + _SMALL
        self.since = 0  # bytes since the last header

    def read(self, count: int) -> bytes:
        data = self._file.read(count)
        self.since += len(data)
        self._left -= len(data)
        if self._left < 0 or self.since > self._member:
            raise ReadingRefused(_BOMB)
        return data
