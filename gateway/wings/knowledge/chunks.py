"""Chunks as rows, and a plain cut into paragraphs. Pure."""

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct


class Chunk(Struct, frozen=True):
    start: int
    end: int
    start_line: int
    end_line: int
    kind: str = "text"
    header: str = ""
    symbol: str = ""
    page: int | None = None


def paragraphs(text: str, size: int = 2000) -> Iterator[Chunk]:
    data = text.encode()
    at = 0
    while at < len(data):
        end = min(at + size, len(data))
        if end < len(data):
            cut = data.rfind(b"\n\n", at + 1, end)
            end = cut if cut > at else end
            while end < len(data) and data[end] & 0xC0 == 0x80:
                end += 1
        piece = data[at:end]
        begin = at + len(piece) - len(piece.lstrip())
        last = at + len(piece.rstrip())
        if begin < last:
            first = data.count(b"\n", 0, begin) + 1
            yield Chunk(begin, last, first, first + data.count(b"\n", begin, last))
        at = end


def rows(document_id: str, content: bytes, chunks: Sequence[Chunk]) -> list[dict[str, Any]]:
    """The chunks as rows of a document. The id of a chunk is made of what it says: it stays where
    others change."""
    seen: Counter[str] = Counter()
    found = []
    for ordinal, one in enumerate(chunks):
        text = content[one.start : one.end].decode()
        name = "\0".join((one.kind, one.header, one.symbol, text))
        seen[name] += 1
        found.append(
            {
                "id": str(uuid.uuid5(uuid.UUID(document_id), f"{name}\0{seen[name]}")),
                "ordinal": ordinal,
                "kind": one.kind,
                "start_byte": one.start,
                "end_byte": one.end,
                "start_line": one.start_line,
                "end_line": one.end_line,
                "page": one.page,
                "header": one.header,
                "symbol": one.symbol,
            }
        )
    return found
