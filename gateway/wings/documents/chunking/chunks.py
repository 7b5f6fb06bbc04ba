"""Chunks of a text: the passages that are stored, searched and cited. Pure.

Chunkers give offsets in characters and no lines; `located` turns them into bytes and lines. Chunks
are in order, and between two of them is nothing but white space, so that chunks and gaps together
are the text, byte for byte. Chunks of running text may begin with the end of the one before
(`ChunkingOptions.overlap`).
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

_LINE_END = re.compile(r"\r\n|\n|\r")


class ChunkingOptions(Struct, frozen=True):
    """How documents are cut."""

    size: int = 2000  # characters of a chunk, without white space
    overlap: int = 200  # characters of the chunk before, in running text only
    split_on_headings: bool = True
    min_heading_level: int = 2  # headings to this level begin a chunk, lower ones if it is full


class Mention(Struct, frozen=True):
    """A name in the text of a chunk, with its span in bytes of the document."""

    name: str
    type: str  # name | acronym | identifier | email | url | version | id | term | path
    role: str  # mention | link | import | inherit | call
    start: int
    end: int


class CodeSymbol(Struct, frozen=True):
    """A symbol that code defines, with its whole span in the document. A definition that does not
    fit into a chunk has several, and is listed at the first of them."""

    symbol: str  # with its scopes: Flask.run
    kind: str  # function | method | class | interface | struct | enum | trait | type | module ...
    start: int
    end: int
    start_line: int = 0
    end_line: int = 0
    signature: str = ""
    visibility: str = ""  # public | private | protected; empty: the grammar does not say
    bases: tuple[str, ...] = ()  # the names of what it inherits


class Chunk(Struct, frozen=True):
    """A passage of a document, with its span in bytes. Lines count from 1, both inclusive."""

    start: int
    end: int
    start_line: int = 0
    end_line: int = 0
    kind: str = "text"  # section | text | code | record | row, or the kind of its definition
    header: str = ""  # headings or scopes it stands in: "Guide > Install", "class Flask(App):"
    symbol: str = ""  # what it defines, or the path of its record
    subjects: tuple[str, ...] = ()  # what it is about: title, headings, file name, definitions
    mentions: tuple[Mention, ...] = ()
    definitions: tuple[CodeSymbol, ...] = ()
    parent: int | None = None  # index of the chunk with the heading or the definition above
    weight: float | None = None  # of its score in searches; None: that of its kind
    page: int | None = None


class Offsets:
    """Places in a text: characters, bytes in UTF-8, lines."""

    def __init__(self, text: str) -> None:
        import numpy  # a tenth of a second and 12 MB at the start of a gateway

        self.data = text.encode()
        leading = (numpy.frombuffer(self.data, numpy.uint8) & 0xC0) != 0x80
        self._bytes = numpy.append(numpy.flatnonzero(leading), len(self.data))
        self._lines = line_starts(text)

    def byte(self, character: int) -> int:
        return int(self._bytes[character])

    def character(self, byte: int) -> int:
        """The character that a byte belongs to."""
        return int(self._bytes.searchsorted(byte, "right")) - 1

    def line(self, character: int) -> int:
        """The line of a character, from 1."""
        return bisect_right(self._lines, character)


def line_starts(text: str) -> list[int]:
    """Offsets of the first characters of lines, which end with LF, CR LF or CR."""
    return [0, *(match.end() for match in _LINE_END.finditer(text))]


def locate(text: str, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Chunks with offsets in bytes and with lines, of those with offsets in characters."""
    offsets = Offsets(text)
    for chunk in chunks:
        yield replace(
            chunk,
            **_span(offsets, chunk),
            mentions=tuple(_mention(offsets, definition) for definition in chunk.mentions),
            definitions=tuple(
                replace(definition, **_span(offsets, definition))
                for definition in chunk.definitions
            ),
        )


def _span(offsets: Offsets, of: Chunk | CodeSymbol) -> dict[str, int]:
    return {
        "start": offsets.byte(of.start),
        "end": offsets.byte(of.end),
        "start_line": offsets.line(of.start),
        "end_line": offsets.line(max(of.end - 1, of.start)),
    }


def _mention(offsets: Offsets, mention: Mention) -> Mention:
    return replace(mention, start=offsets.byte(mention.start), end=offsets.byte(mention.end))
