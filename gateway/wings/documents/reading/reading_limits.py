"""Limits of what is read, and why something is not."""

from msgspec import Struct

from schemas.errors import ToolgateError

GUARD = "knowledge.private_networks"  # the setting that lets wings read from private addresses
_FRAME = 2**20  # bytes of an answer beside what it is about


class ReadingRefused(ToolgateError):
    """A file or a source that is not read; `str()` is the reason, for the caller."""


class ReadingLimits(Struct, frozen=True):
    """Limits of one source and of each file in it."""

    file_bytes: int = 10 * 2**20  # of a text
    container_bytes: int = 100 * 2**20  # of a document that is parsed, and of an archive
    files: int = 50_000
    listings: int = 1000  # pages of the listing of a bucket
    source_bytes: int = 2 * 2**30
    entries: int = 10_000  # of an archive or an office document
    ratio: int = 100  # of unpacked to packed bytes
    pages: int = 2000
    parse_s: float = 60.0
    fetch_s: float = 600.0  # of a repository, and of an archive that is unpacked
    cut_s: float = 5.0  # for text and code
    memory_bytes: int = 2**30
    name_bytes: int = 1024  # of a path
    depth: int = 64  # directories of a path

    def frame_bytes(self, data: int | None = None) -> int:
        """Most bytes of one answer of a reading process: about a file of so many bytes, or with a
        file of an archive or a repository. Chunks and mentions of dense texts take 30 times the
        text."""
        if data is None:
            return self.container_bytes + _FRAME
        return min(64 * data, 16 * self.file_bytes) + _FRAME


DEFAULT_LIMITS = ReadingLimits()
