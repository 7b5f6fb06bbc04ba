"""Parts of a document that no chunk has."""

from collections.abc import Sequence

from gateway.wings.documents.chunking.chunks import Chunk


def gaps(chunks: Sequence[Chunk], size: int) -> list[tuple[int, int]]:
    """Byte ranges of a document of `size` bytes that are in none of its chunks."""
    ranges, at = [], 0
    for chunk in chunks:
        if chunk.start > at:
            ranges.append((at, chunk.start))
        at = max(at, chunk.end)
    return [*ranges, (at, size)] if at < size else ranges
