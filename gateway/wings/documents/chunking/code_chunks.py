"""Chunks of source code: each definition that fits is in one chunk. Pure.

A definition that does not fit is cut at those in it, then between statements. The signatures of the
scopes around are the header of each part.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from gateway.wings.documents.chunking.chunks import (
    Chunk,
    ChunkingOptions,
    CodeSymbol,
    Mention,
    Offsets,
)
from gateway.wings.documents.chunking.code_outline import Outline, Scope, outline
from gateway.wings.documents.chunking.text_splitting import LINES, Cuts, Range, pieces, size, trim

_DEPTHS = 24  # levels of the tree at which code is cut; below them between lines
_SCOPES = 12  # nested definitions that have chunks of their own
_SUBJECTS = 24  # of one chunk
_MENTIONS = 400  # of one chunk
# Weight of implementations of traits and of tests, which have the words of what they implement or
# test, without saying what that is: docs/decisions/0012-constants-as-definitions.md.
_SECONDARY = 0.8


def code(text: str, chunking: ChunkingOptions, *, language: str) -> Iterator[Chunk]:
    """The chunks of a text in a language of `GRAMMARS`."""
    offsets = Offsets(text)
    outline_ = outline(offsets.data, language)
    chunks = _Cutter(text, offsets, outline_, chunking).chunks()
    yield from _with_mentions(chunks, _in_characters(outline_.mentions, offsets))


def _in_characters(mentions: Sequence[Mention], offsets: Offsets) -> list[Mention]:
    converted = [
        replace(mention, start=offsets.character(mention.start), end=offsets.character(mention.end))
        for mention in mentions
    ]
    return sorted(converted, key=lambda mention: mention.start)


def _with_mentions(chunks: Sequence[Chunk], mentions: Sequence[Mention]) -> Iterator[Chunk]:
    starts = [mention.start for mention in mentions]
    for chunk in chunks:
        inside = mentions[bisect_left(starts, chunk.start) : bisect_left(starts, chunk.end)]
        complete = [mention for mention in inside if mention.end <= chunk.end][:_MENTIONS]
        yield replace(chunk, mentions=tuple(complete))


class _Cutter:
    """Cuts one text; offsets are characters, but in its outline."""

    def __init__(
        self, text: str, offsets: Offsets, outline: Outline, chunking: ChunkingOptions
    ) -> None:
        self._text = text
        self._place = offsets.character
        self._root = outline.root
        self._limit = chunking.size
        self._chunks: list[Chunk] = []
        starts = ((self._line(self._place(at)), depth) for at, depth in outline.beginnings.items())
        self._beginnings = sorted((at, depth) for at, depth in starts if at >= 0)

    def _line(self, at: int) -> int:
        """The start of the line that a node begins; -1: it begins none."""
        start = max(self._text.rfind("\n", 0, at), self._text.rfind("\r", 0, at)) + 1
        return -1 if self._text[start:at].strip() else start

    def chunks(self) -> list[Chunk]:
        self._region(self._root, (0, len(self._text)), (), None)
        return self._chunks

    def _region(
        self, scope: Scope, inside: Range, above: tuple[Scope, ...], parent: int | None
    ) -> None:
        """Chunks of the definitions in a scope, and of what is between them."""
        at = inside[0]
        for inner_scope in scope.inner:
            start, end = self._range(inner_scope)
            if start < at or end > inside[1]:
                continue
            start = max(self._line_of(start), at)
            self._loose((at, start), above, parent)
            self._definition(inner_scope, (start, end), above, parent)
            at = end
        self._loose((at, inside[1]), above, parent)

    def _range(self, scope: Scope) -> Range:
        return self._place(scope.start), self._place(scope.end)

    def _line_of(self, at: int) -> int:
        line = self._line(at)
        return at if line < 0 else line

    def _definition(
        self, scope: Scope, inside: Range, above: tuple[Scope, ...], parent: int | None
    ) -> None:
        here = len(self._chunks)
        if size(self._text, *inside) <= self._limit:
            self._add(inside, above, parent, defines=scope, listed=tuple(scope.all()))
        elif scope.inner and len(above) < _SCOPES:
            head = self._line_of(max(self._place(scope.inner[0].start), inside[0]))
            self._parts(scope, (inside[0], head), above, parent)
            chunk_number = here if len(self._chunks) > here else parent
            self._region(scope, (head, inside[1]), (*above, scope), chunk_number)
        else:
            self._parts(scope, inside, above, parent)

    def _parts(
        self, scope: Scope, inside: Range, above: tuple[Scope, ...], parent: int | None
    ) -> None:
        first = len(self._chunks)
        for part in self._cut(inside):
            if len(self._chunks) == first:
                self._add(part, above, parent, defines=scope, listed=(scope,))
            else:
                self._add(part, (*above, scope), first, part_of=scope)

    def _loose(self, inside: Range, above: tuple[Scope, ...], parent: int | None) -> None:
        """Statements between definitions. Brackets alone belong to the chunk before."""
        start, end = trim(self._text, *inside)
        bare = not any(map(str.isalnum, self._text[start:end]))
        if bare and self._chunks and start < end:
            self._chunks[-1] = replace(self._chunks[-1], end=end)
        else:
            for part in self._cut(inside):
                self._add(part, above, parent)

    def _cut(self, inside: Range) -> Iterator[Range]:
        for part in pieces(self._text, *inside, limit=self._limit, cuts=self._cuts(*inside)):
            start, end = trim(self._text, *part)
            if start < end:
                yield start, end

    def _cuts(self, start: int, end: int) -> Sequence[Cuts]:
        begin = bisect_right(self._beginnings, (start, len(self._text)))
        inside = self._beginnings[begin : bisect_left(self._beginnings, (end, -1))]
        depths = sorted({depth for _, depth in inside})[:_DEPTHS]
        return (*(_at_depth(inside, depth) for depth in depths), *LINES)

    def _add(
        self,
        inside: Range,
        above: tuple[Scope, ...],
        parent: int | None,
        *,
        defines: Scope | None = None,
        listed: tuple[Scope, ...] = (),
        part_of: Scope | None = None,
    ) -> None:
        start, end = trim(self._text, *inside)
        if start == end:
            return
        named = defines or part_of
        is_secondary = defines is not None and defines.is_secondary
        subjects = dict.fromkeys(name for scope in listed for name in _names(scope.symbol))
        chunk = Chunk(
            start,
            end,
            kind=defines.kind if defines and defines.symbol else "code",
            header="\n".join("    " * at + scope.signature for at, scope in enumerate(above)),
            symbol=named.symbol if named else "",
            subjects=tuple(subjects)[:_SUBJECTS],
            definitions=tuple(self._symbol(scope) for scope in listed),
            parent=parent,
            weight=_SECONDARY if is_secondary else None,
        )
        self._chunks.append(chunk)

    def _symbol(self, scope: Scope) -> CodeSymbol:
        start, end = self._range(scope)
        return CodeSymbol(
            scope.symbol,
            scope.kind,
            start,
            end,
            signature=scope.signature,
            visibility=scope.visibility,
            bases=scope.bases,
        )


def _names(symbol: str) -> tuple[str, str]:
    return symbol, symbol.rpartition(".")[2]


def _at_depth(beginnings: Sequence[tuple[int, int]], depth: int) -> Cuts:
    places = [at for at, beginning in beginnings if beginning <= depth]

    def cuts(_text: str, start: int, end: int) -> Iterator[int]:
        return iter(places[bisect_right(places, start) : bisect_left(places, end)])

    return cuts
