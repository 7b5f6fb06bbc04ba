"""Chunks as one text for a prompt or a reader: passages by source, with numbered references.
Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.wings.document_library import Passage

TOKEN = 4  # characters


@dataclass(frozen=True, slots=True)
class PackedPassages:
    text: str  # "": no chunks
    chunks: Sequence[tuple[int, Passage]]  # those that fit, with the number of their reference
    references: Sequence[tuple[int, Passage]]  # the first chunk of each document


def pack_chunks(chunks: Sequence[Passage], tokens: int) -> PackedPassages:
    """The best chunks that fit into so many tokens, at least one, grouped by document in the order
    of the best of each."""
    room = tokens * TOKEN
    packed: list[Passage] = []
    for chunk in chunks:
        room -= len(chunk.text) + len(_head(1, chunk)) + 2
        if room < 0 and packed:
            break
        packed.append(chunk)
    numbers: dict[str, int] = {}
    for chunk in packed:
        numbers.setdefault(chunk.document, len(numbers) + 1)
    references = [(numbers[chunk.document], chunk) for chunk in _firsts(packed)]
    placed = sorted(
        ((numbers[chunk.document], chunk) for chunk in packed),
        key=lambda item: (item[0], item[1].ordinal),
    )
    text = "\n\n".join(f"{_head(number, chunk)}\n{chunk.text}" for number, chunk in placed)
    ranked = [(numbers[chunk.document], chunk) for chunk in packed]
    return PackedPassages(text, ranked, references)


def _firsts(chunks: Sequence[Passage]) -> list[Passage]:
    """The best chunk of each document."""
    by_document: dict[str, Passage] = {}
    for chunk in chunks:
        by_document.setdefault(chunk.document, chunk)
    return list(by_document.values())


def _head(number: int, passage: Passage) -> str:
    lines = "{}-{}".format(*passage.lines)
    header = f" {passage.header}" if passage.header else ""
    return f"[{number}] {passage.path}:{lines}{header}"
