"""Ranges of text of a limited size: cut between paragraphs, then lines, sentences and words. Pure.

Sizes are characters without white space.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]  # offsets of characters
Cuts: TypeAlias = Callable[[str, int, int], Iterator[int]]  # offsets where a range may be cut

_LITTLE = 4  # quarter of the limit: less is no chunk of its own, if it can be avoided
_FENCE = re.compile(r"^[ \t]{0,3}(`{3,}|~{3,})[^\n]*$", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\r?\n[ \t]*)+")
_LINES = re.compile(r"\r\n|\n|\r")
_SENTENCES = re.compile(r"(?<=[.!?;])[\"')\]]{0,3}\s+(?=\S)|(?<=[\u3002\uff01\uff1f\uff1b])")
_WORDS = re.compile(r"(?<!\s)\s+(?=\S)")


def size(text: str, start: int, end: int) -> int:
    """Characters without white space."""
    return sum(map(len, text[start:end].split()))


def trim(text: str, start: int, end: int) -> Range:
    """The range without blank lines before, and without white space after."""
    inner = text[start:end]
    begin = start + len(inner) - len(inner.lstrip())
    if begin == end:
        return start, start
    indent = max(text.rfind("\n", start, begin), text.rfind("\r", start, begin)) + 1
    return max(indent, start), start + len(inner.rstrip())


def paragraphs(text: str, start: int, end: int) -> Iterator[int]:
    """Ends of paragraphs; fenced code is one, whatever it has inside."""
    fences = list(_fences(text, start, end))
    for match in _BLANK_LINES.finditer(text, start, end):
        while fences and fences[0][1] <= match.start():
            fences.pop(0)
        if not (fences and fences[0][0] <= match.start()):
            yield match.end() - _indent(text, match.end())


def _indent(text: str, at: int) -> int:
    return at - 1 - text.rfind("\n", 0, at)


def _fences(text: str, start: int, end: int) -> Iterator[Range]:
    opened: re.Match[str] | None = None
    for match in _FENCE.finditer(text, start, end):
        if opened is None:
            opened = match
        elif match[1].startswith(opened[1]):
            yield opened.start(), match.end()
            opened = None
    if opened is not None:
        yield opened.start(), end


def _at(pattern: re.Pattern[str]) -> Cuts:
    def cuts(text: str, start: int, end: int) -> Iterator[int]:
        return (match.end() for match in pattern.finditer(text, start, end))

    return cuts


lines = _at(_LINES)
sentences = _at(_SENTENCES)
words = _at(_WORDS)
RUNNING_TEXT: Sequence[Cuts] = (paragraphs, sentences, lines, words)
LINES: Sequence[Cuts] = (paragraphs, lines, words)


def pieces(
    text: str, start: int, end: int, *, limit: int, cuts: Sequence[Cuts] = RUNNING_TEXT
) -> Iterator[Range]:
    """Ranges of at most `limit` that are the range together, cut at the first of `cuts` that
    suffices."""
    if size(text, start, end) <= limit:
        yield start, end
    elif cuts:
        atoms = _atoms(start, end, cuts[0](text, start, end))
        yield from pack(text, atoms, limit=limit, cuts=cuts[1:])
    else:
        yield from _atoms(start, end, iter(range(start + limit, end, limit)))


def pack(text: str, atoms: Iterator[Range], *, limit: int, cuts: Sequence[Cuts]) -> Iterator[Range]:
    """Neighbouring atoms joined as far as they fit. One that does not fit alone is cut, with what
    is before it if that is little."""
    begin, length, last = -1, 0, -1
    for start, end in atoms:
        more = size(text, start, end)
        if begin >= 0 and length + more > limit:
            if more > limit and length < limit // _LITTLE:
                start = begin
            else:
                yield begin, start
            begin, length = -1, 0
        if more > limit:
            yield from pieces(text, start, end, limit=limit, cuts=cuts)
            continue
        begin, length, last = (start, more, end) if begin < 0 else (begin, length + more, end)
    if begin >= 0:
        yield begin, last


def _atoms(start: int, end: int, cuts: Iterator[int]) -> Iterator[Range]:
    for cut in cuts:
        if start < cut < end:
            yield start, cut
            start = cut
    yield start, end


def overlapping(text: str, ranges: Sequence[Range], overlap: int) -> Iterator[Range]:
    """Ranges that begin with the last sentences of the one before, of at most `overlap`
    characters."""
    before = 0
    for at, (start, end) in enumerate(ranges):
        earliest = max(before, start - overlap) if at else start
        begin = next((cut for cut in sentences(text, earliest, start) if cut > earliest), start)
        yield begin, end
        before = start
