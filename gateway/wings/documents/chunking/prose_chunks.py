"""Chunks of running text, cut at its headings: Markdown, reStructuredText, plain text. Pure.

A heading down to `ChunkingOptions.min_heading_level` begins a chunk. Lower sections stay with the
one above as long as the chunk has room. A heading without text of its own goes with what follows.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gateway.wings.documents.chunking.chunks import Chunk, ChunkingOptions
from gateway.wings.documents.chunking.text_splitting import Range, overlapping, pieces, size, trim

_FENCE = re.compile(r"[ ]{0,3}(`{3,}|~{3,})(.*)")
_ATX = re.compile(r"[ ]{0,3}(#{1,6})(?=[ \t]|\Z)")
_SETEXT = re.compile(r"[ ]{0,3}(=+|-+)[ \t]*\Z")
_RST_RULE = re.compile(r"([=\-~^\"'`#*+:.<>_])\1{2,}[ \t]*\Z")
_TABLE = re.compile(r"\[{1,2}([^\[\]\n]{1,200})\]{1,2}\s*(?:#.*)?\Z")
_MARKUP = re.compile(r"[*`]|!?\[([^\[\]]*)\]\([^()\s]*\)|\[\^?\]|<[^<>]{0,200}>")
_HEADING = 200  # characters of a heading that is shown


@dataclass(frozen=True, slots=True)
class Heading:
    start: int
    end: int  # of its line, or the line below it
    level: int  # from 1
    title: str


@dataclass(frozen=True, slots=True)
class _Section:
    """From a heading to the next one, of whatever level."""

    start: int
    body: int  # after the heading
    end: int
    level: int
    path: tuple[str, ...]


Headings: TypeAlias = Callable[[str], Iterator[Heading]]


def prose(text: str, chunking: ChunkingOptions, headings: Headings) -> Iterator[Chunk]:
    """The chunks of a text. `Chunk.parent` is the one with the heading above."""
    sections = headings(text) if chunking.split_on_headings else iter(())
    homes: dict[tuple[str, ...], int] = {}
    count = 0
    for group in _groups(text, list(_sections(text, sections)), chunking):
        for chunk in _chunks(text, group, chunking, homes):
            for section in group:
                homes.setdefault(section.path, count)
            count += 1
            yield chunk


def _sections(text: str, headings: Iterable[Heading]) -> Iterator[_Section]:
    start, body, level = 0, 0, 0
    path: tuple[str, ...] = ()
    above: list[Heading] = []
    for heading in headings:
        if heading.start > start:
            yield _Section(start, body, heading.start, level, path)
        above = [section for section in above if section.level < heading.level]
        above.append(heading)
        start, body, level = heading.start, heading.end, heading.level
        path = tuple(section.title for section in above)
    yield _Section(start, body, len(text), level, path)


def _groups(
    text: str, sections: Sequence[_Section], chunking: ChunkingOptions
) -> Iterator[list[_Section]]:
    """Sections that stand in one chunk, or in several if one of them is too long."""
    group: list[_Section] = []
    group_size, bare = (
        0,
        True,
    )  # bare: the group is headings alone, which go with what is below them
    for section in sections:
        more = size(text, section.start, section.end)
        if group and not (
            (bare and section.level > group[-1].level)
            or (_lower(section, group[0], chunking) and group_size + more <= chunking.size)
        ):
            yield group
            group, group_size, bare = [], 0, True
        group.append(section)
        group_size += more
        bare = bare and not text[section.body : section.end].strip()
    yield group


def _lower(section: _Section, first: _Section, chunking: ChunkingOptions) -> bool:
    return section.level > chunking.min_heading_level and section.level >= max(first.level, 1)


def _chunks(
    text: str,
    group: Sequence[_Section],
    chunking: ChunkingOptions,
    homes: Mapping[tuple[str, ...], int],
) -> Iterator[Chunk]:
    path = _common([section.path for section in group])
    ranges = _ranges(text, group, chunking)
    parent = next(
        (homes[path[:n]] for n in range(len(path) - 1, -1, -1) if path[:n] in homes), None
    )
    subjects = tuple(
        dict.fromkeys(section.path[-1] for section in group if section.path and section.path[-1])
    )
    for start, end in ranges:
        yield Chunk(
            start,
            end,
            kind="section" if path else "text",
            header=" > ".join(filter(None, path)),
            subjects=subjects,
            parent=homes.get(path, parent),
        )


def _ranges(text: str, group: Sequence[_Section], chunking: ChunkingOptions) -> list[Range]:
    start, end = group[0].start, group[-1].end
    cut = pieces(text, start, end, limit=chunking.size)
    ranges = [span for span in (trim(text, *part) for part in cut) if span[0] < span[1]]
    return [trim(text, *span) for span in overlapping(text, ranges, chunking.overlap)]


def _common(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The headings above all; of a heading without text, those of the section that follows it."""
    shared = [names[0] for names in zip(*paths, strict=False) if len(set(names)) == 1]
    nested = all(path == paths[-1][: len(path)] for path in paths)
    return paths[-1] if nested else tuple(shared)


def lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, end with its line break, and content of each line."""
    at = 0
    for line in text.splitlines(keepends=True):
        yield at, at + len(line), line.rstrip("\r\n")
        at += len(line)


def no_headings(_text: str) -> Iterator[Heading]:
    return iter(())


def markdown_headings(text: str) -> Iterator[Heading]:
    """Headings of CommonMark, underlined ones included; none in fenced code or front matter."""
    fence, before = "", (0, 0, "")
    for start, end, line in _after_front_matter(text):
        if (match := _FENCE.match(line)) and (not fence or match[1].startswith(fence)):
            fence = "" if fence else match[1]
        elif not fence and (match := _ATX.match(line)):
            yield Heading(start, end, len(match[1]), plain(_title(line[match.end() :])))
        elif not fence and (match := _SETEXT.match(line)) and _is_text(before[2]):
            yield Heading(before[0], end, 1 if match[1][0] == "=" else 2, plain(before[2]))
        before = (start, end, "" if fence else line)


def _title(line: str) -> str:
    """A heading without the number signs that close it."""
    line = line.rstrip(" \t")
    title = line.rstrip("#")
    return title if title.endswith((" ", "\t")) else line


def _after_front_matter(text: str) -> Iterator[tuple[int, int, str]]:
    all_lines = list(lines(text))
    if all_lines and all_lines[0][2] == "---":
        close = next((at for at, line in enumerate(all_lines[1:200], 1) if line[2] == "---"), 0)
        all_lines = all_lines[close + 1 :] if close else all_lines
    return iter(all_lines)


def _is_text(line: str) -> bool:
    return bool(line.strip()) and not re.match(r"[ ]{4}|\t|[ ]{0,3}(?:[-*+>|#]|\d+[.)])", line)


def rst_headings(text: str) -> Iterator[Heading]:
    """Headings of reStructuredText: underlined, perhaps overlined. Levels are in the order in which
    the adornments appear."""
    seen: list[str] = []
    all_lines = list(lines(text))
    for at, (_, end, line) in enumerate(all_lines):
        title = all_lines[at - 1][2] if at else ""
        if not (_RST_RULE.match(line) and title.strip() and len(line.rstrip()) >= _width(title)):
            continue
        if _RST_RULE.match(title):
            continue
        over = at >= 2 and all_lines[at - 2][2].rstrip() == line.rstrip()
        if title[0].isspace() and not over:
            continue
        adornment = line[0] * (2 if over else 1)
        if adornment not in seen:
            seen.append(adornment)
        above = all_lines[at - 2][0] if over else all_lines[at - 1][0]
        yield Heading(above, end, seen.index(adornment) + 1, plain(title))


def toml_headings(text: str) -> Iterator[Heading]:
    """The tables of TOML and the sections of INI files."""
    for start, end, line in lines(text):
        if match := _TABLE.match(line):
            yield Heading(start, end, 1, plain(match[1]))


def _width(title: str) -> int:
    return max(len(title.rstrip()) - 2, 3)  # rulers that are a little short are common


def plain(title: str) -> str:
    """A heading without markup."""
    return " ".join(_MARKUP.sub(lambda match: match[1] or "", title).split())[:_HEADING]
