"""Search in the texts of documents, in slices that are short by the cost of the pattern.

A search is an iterator over matches with a None wherever it may be interrupted. Slices run in
threads, one after the other and each in a fair turn of its tenant and owner, so that the clock is
looked at between them, other callers get their share, and a search ends with its caller.
"""

import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import re2

from config.knowledge import KnowledgeSettings
from gateway.operations.problems import ProblemDetails, invalid
from gateway.wings.document_library import Passage
from gateway.wings.documents.chunking.chunks import line_starts
from gateway.wings.documents.chunking.data_chunks import SCANNERS, records
from gateway.wings.knowledge.chunk_filters import STARS, pattern
from registry.database.fair_limiter import FairLimiter
from schemas.json_schema.pattern_cost import schema_pattern

PATTERN = 1000  # characters
PATTERN_BYTES = 2**20  # of a compiled one
RECORD_NAME = 256  # characters
LINE = 500  # characters of a line that is quoted
RECORD = 20_000  # characters of a part of a document that is quoted
# Steps of one slice. RE2 takes 0.01 to 0.05 us for one; a pattern of 800 letters, whose automaton
# does not fit into memory, 35 us for a byte.
SLICE_STEPS = 4_000_000
SLICE_BYTES = 4096  # at least
SLICE_S = 0.02  # of several short steps

_NEWLINE = ord("\n")

Search = Iterator[Passage | None]  # None: may be interrupted here
Row = Sequence[Any]  # collection, path, version, content, media type


@dataclass(frozen=True, slots=True)
class LinePattern:
    """A compiled regular expression that matches within lines alone."""

    expression: Any
    slice_bytes: int

    def search(self, rows: Sequence[Row]) -> Search:
        for collection, path, version, content, _ in rows:
            text, number, counted = bytes(content), 1, 0
            for span in self._spans(text):
                if span is None:
                    yield None
                    continue
                start, end = span
                number += text.count(b"\n", counted, start)
                counted = start
                yield Passage(
                    collection=collection,
                    path=path,
                    version=version,
                    lines=(number, number),
                    text=text[start:end].decode(errors="replace").rstrip("\r")[:LINE],
                )

    def _spans(self, text: bytes) -> Iterator[tuple[int, int] | None]:
        """Spans of the lines that match, and a None behind each slice."""
        at = 0
        while at < len(text):
            end = self._slice_end(text, at)
            # without its last newline, behind which `$` would match an empty line
            match = self.expression.search(text, at, end - (text[end - 1] == _NEWLINE))
            if match is None:
                at = end
                yield None
                continue
            start = text.rfind(b"\n", 0, match.start()) + 1
            line_end = text.find(b"\n", match.start())
            line_end = len(text) if line_end < 0 else line_end
            at = line_end + 1
            yield start, line_end

    def _slice_end(self, text: bytes, at: int) -> int:
        """End of a slice of whole lines; a longer line is searched in pieces."""
        end = at + self.slice_bytes
        if end >= len(text):
            return len(text)
        return text.rfind(b"\n", at, end) + 1 or end


def line_pattern(text: str, settings: KnowledgeSettings) -> LinePattern:
    """Raises ProblemDetails for an expression that RE2 does not take, and a costly one."""
    options = re2.Options()
    options.log_errors, options.never_nl, options.max_mem = False, True, PATTERN_BYTES
    if not text or len(text) > PATTERN:
        raise invalid(f"pattern: expected 1 to {PATTERN} characters")
    steps = schema_pattern(text).letters
    if steps > settings.grep_pattern_steps:
        raise invalid(
            f"pattern: its repetitions make {steps:,} steps for each character, expected at most "
            f"{settings.grep_pattern_steps:,} (knowledge.grep_pattern_steps)"
        )
    try:
        expression = re2.compile(b"(?m)" + text.encode(), options)
    except (re2.error, UnicodeEncodeError) as error:
        raise invalid("pattern: expected a regular expression of RE2") from error
    return LinePattern(expression, max(SLICE_BYTES, SLICE_STEPS // steps))


@dataclass(frozen=True, slots=True)
class RecordPattern:
    """An expression for the names that lead to a part of a data file, each behind a slash."""

    expression: Any

    def search(self, rows: Sequence[Row]) -> Search:
        for collection, path, version, content, media_type in rows:
            text = bytes(content).decode()
            starts = line_starts(text)
            for record in records(text, media_type, SCANNERS[media_type](text)):
                name = "/".join(filter(None, record.path))
                if not self.expression.fullmatch(name):
                    yield None
                    continue
                yield Passage(
                    collection=collection,
                    path=path,
                    version=version,
                    lines=(
                        bisect_right(starts, record.start),
                        bisect_right(starts, record.end - 1),
                    ),
                    text=text[record.start : record.end][:RECORD],
                    kind="record",
                    symbol=name,
                )


def record_pattern(text: str) -> RecordPattern:
    """Raises ProblemDetails."""
    if not text.strip("/") or len(text) > RECORD_NAME or text.count("*") > STARS:
        raise invalid(
            f"record: expected 1 to {RECORD_NAME} characters with at most {STARS} asterisks"
        )
    return RecordPattern(re2.compile(pattern(text.strip("/"))))


class TextSearches:
    """Runs searches in threads of their own, in fair turns."""

    def __init__(self, settings: KnowledgeSettings) -> None:
        self._turns = FairLimiter(settings.grep_threads)
        self._threads = anyio.CapacityLimiter(settings.grep_threads)
        self._settings = settings

    def deadline(self) -> float:
        return time.monotonic() + self._settings.grep_timeout_s

    async def run(
        self, search: Search, limit: int, *, ends: float, tenant: str, owner: str
    ) -> list[Passage]:
        """The first `limit` matches. Raises ProblemDetails when the time is up."""
        passages: list[Passage] = []
        is_over = False
        while not is_over and len(passages) < limit:
            async with self._turns.turn(tenant, owner):
                if time.monotonic() > ends:
                    raise _timeout_problem()
                more, is_over = await anyio.to_thread.run_sync(
                    _advance, search, limit - len(passages), limiter=self._threads
                )
            passages += more
        return passages


def _advance(search: Search, limit: int) -> tuple[list[Passage], bool]:
    """The matches of one slice, and whether the search is over."""
    passages: list[Passage] = []
    ends = time.monotonic() + SLICE_S
    for passage in search:
        if passage is not None:
            passages.append(passage)
        if len(passages) >= limit or time.monotonic() > ends:
            return passages, False
    return passages, True


def _timeout_problem() -> ProblemDetails:
    return invalid("It took too long (knowledge.grep_timeout_s): narrow the path")
