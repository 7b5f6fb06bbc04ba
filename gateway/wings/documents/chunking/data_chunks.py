"""Chunks of structured data: JSON, YAML, XML, tables. Pure.

Scanners find where the parts of a document begin, how deep, and what they are called. They neither
build values nor resolve references, so entities and anchors are text, and broken documents are cut
as well. A document is cut between the outermost parts that fit.
"""

import csv
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

from gateway.wings.documents.chunking.chunks import Chunk, ChunkingOptions
from gateway.wings.documents.chunking.text_splitting import Cuts, lines, pieces, trim, words

_DEPTHS = 16  # parts below are cut between lines
_NAME = 100  # characters of a part's name
_HEADER = 500  # characters of the first row of a table
ITEM = "-"  # name of the items of YAML
# What is not closed is one sign to its end: texts would else be read again from each of its signs.
_JSON = re.compile(r'"(?:[^"\\\n]|\\.)*"?|[{}\[\],]|[^\s{}\[\],":]+')
_XML = re.compile(
    r"<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|<[?!][^>]*>?"
    r"|<(/?)([^\s/<>]{1,100}+)[^<>]*?(/?)>",
    re.DOTALL,
)
_YAML = re.compile(
    r"^( *)((?:- +)*)(?:([^\s#'\"\[{&*!|>%@`-][^:\n]{0,99}|\"[^\"\n]{1,99}\"):(?=\s))?", re.M
)


class DataPart(NamedTuple):
    """Where a part of a document begins, how deep it is, and its name in the part around it."""

    start: int
    depth: int
    name: str


class DataRecord(NamedTuple):
    """A part of a document, and the names that lead to it, its own last."""

    start: int
    end: int
    path: tuple[str, ...]


Scanner: TypeAlias = Callable[[str], Iterator[DataPart]]


def data(text: str, chunking: ChunkingOptions, *, scanner: Scanner) -> Iterator[Chunk]:
    """The chunks of a document. `Chunk.symbol` is the path of the first part that begins in it."""
    parts = sorted(part for part in scanner(text) if part.depth < _DEPTHS)
    paths = _Paths(parts)
    for piece in pieces(text, 0, len(text), limit=chunking.size, cuts=_cuts(parts)):
        start, end = trim(text, *piece)
        if start < end:
            above, path = paths.at(start, end)
            yield Chunk(
                start,
                end,
                kind="record",
                header=" > ".join(above),
                symbol=".".join(path),
                subjects=path[-1:],
            )


class _Paths:
    """Names around the places of a document."""

    def __init__(self, parts: Sequence[DataPart]) -> None:
        self._starts = [part.start for part in parts]
        self._paths: list[tuple[str, ...]] = []
        path: tuple[str, ...] = ()
        for part in parts:
            path = (*path[: part.depth], *[""] * (part.depth - len(path)), part.name)
            self._paths.append(path)

    def at(self, start: int, end: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names around a range, and the path of the first part that begins in it."""
        first = bisect_left(self._starts, start)
        if first < bisect_left(self._starts, end):
            path = self._paths[bisect_right(self._starts, self._starts[first]) - 1]
            return tuple(filter(None, path[:-1])), tuple(filter(None, path))
        before = self._paths[first - 1] if first else ()
        return tuple(filter(None, before)), tuple(filter(None, before))


def _cuts(parts: Sequence[DataPart]) -> Sequence[Cuts]:
    depths = sorted({part.depth for part in parts})
    return (*(_to_depth(parts, depth) for depth in depths), lines, words)


def _to_depth(parts: Sequence[DataPart], depth: int) -> Cuts:
    places = [part.start for part in parts if part.depth <= depth]

    def cuts(_text: str, start: int, end: int) -> Iterator[int]:
        return iter(places[bisect_right(places, start) : bisect_left(places, end)])

    return cuts


def json_parts(text: str) -> Iterator[DataPart]:
    """Members and elements of JSON, or of a sequence of JSON documents, one a line."""
    depth, fresh, counts = 0, True, [0]
    for match in _JSON.finditer(text):
        sign = match[0]
        if sign in "}]":
            depth, fresh = max(depth - 1, 0), False
            del counts[depth + 1 :]
        elif sign == ",":
            counts[-1] += 1
            fresh = True
        else:
            if fresh or depth == 0:
                name = _json_name(text, match, counts[-1]) if depth else ""
                yield DataPart(match.start(), depth, name)
            fresh = sign in "{["
            if fresh:
                depth += 1
                counts.append(0)


def _json_name(text: str, match: re.Match[str], count: int) -> str:
    is_key = text[match.end() : match.end() + 20].lstrip()[:1] == ":"
    return match[0][1:-1][:_NAME] if is_key else str(count)


def xml_parts(text: str) -> Iterator[DataPart]:
    """Elements of XML."""
    depth = 0
    for match in _XML.finditer(text):
        if match[2] is None:
            continue
        if match[1]:
            depth = max(depth - 1, 0)
        else:
            yield DataPart(match.start(), depth, match[2])
            depth += not match[3]


def yaml_parts(text: str) -> Iterator[DataPart]:
    """Keys and list items of YAML in block style; documents are the outermost parts."""
    indents: list[float] = []
    for match in _YAML.finditer(text):
        headers = [(len(match[1]) + 0.5, ITEM)] if match[2] else []  # may stand below its key
        if match[3]:
            headers.append((len(match[1]) + len(match[2]), match[3].strip("\"' ")[:_NAME]))
        for indent, name in headers:
            while indents and indents[-1] >= indent:
                indents.pop()
            yield DataPart(match.start(), len(indents), name)
            indents.append(indent)


SCANNERS: Mapping[str, Scanner] = {
    "application/json": json_parts,
    "application/yaml": yaml_parts,
    "application/xml": xml_parts,
}


def records(text: str, media_type: str, parts: Iterable[DataPart]) -> Iterator[DataRecord]:
    """The parts of a document that a scanner has found, with their ends and paths, those within
    others before these."""
    opened: list[tuple[int, int]] = []  # their starts and depths
    path: tuple[str, ...] = ()
    for part in chain(parts, [DataPart(len(text), 0, "")]):
        while opened and opened[-1][1] >= part.depth:
            start, depth = opened.pop()
            end = _end(text, start, part.start, media_type)
            if media_type == "application/yaml":
                start += len(_indent(text, start, is_item=path[depth] == ITEM))
            yield DataRecord(start, end, path[: depth + 1])
        if part.depth < _DEPTHS and part.start < len(text):
            path = (*path[: part.depth], *[""] * (part.depth - len(path)), part.name)
            opened.append((part.start, part.depth))


def _end(text: str, start: int, end: int, media_type: str) -> int:
    """Where a part ends that begins at `start`: before `end`, without the signs that close those
    around it."""
    if media_type == "application/yaml":
        return start + len(text[start:end].rstrip())
    depth, last = 0, start
    for match in (_JSON if media_type == "application/json" else _XML).finditer(text, start, end):
        closes, opens = _turns(match, media_type)
        depth += opens - closes
        if depth < 0:
            return last
        if match[0] != ",":
            last = match.end()
        if depth == 0 and (closes or media_type == "application/xml"):
            return last
    return last


def _indent(text: str, start: int, *, is_item: bool) -> str:
    """The blanks and dashes before a key of YAML, or the blanks before an item."""
    match = _YAML.match(text, start)
    return "" if match is None else match[1] if is_item else match[1] + match[2]


def _turns(match: re.Match[str], media_type: str) -> tuple[bool, bool]:
    """Whether a sign closes a part, and whether it opens one."""
    if media_type == "application/json":
        return match[0] in "}]", match[0] in "{["
    return bool(match[1]), match[2] is not None and not match[1] and not match[3]


def table(text: str, chunking: ChunkingOptions, *, delimiter: str) -> Iterator[Chunk]:
    """Rows of a table, with its first row as the header of each chunk."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    header = " | ".join(_cells(first[: 4 * _HEADER], delimiter))[:_HEADER]
    for piece in pieces(text, 0, len(text), limit=chunking.size, cuts=(lines, words)):
        start, end = trim(text, *piece)
        if start < end:
            yield Chunk(start, end, kind="row", header=header)


def _cells(line: str, delimiter: str) -> Iterator[str]:
    try:
        yield from (cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), []))
    except csv.Error:
        yield line
