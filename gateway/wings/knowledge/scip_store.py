"""Definitions and references as compilers resolved them, from an index of code that was uploaded.

They stand beside what was parsed, and are used in its place until the text of their document
changes. An index tells no version: it is taken for a document if its definitions stand in the text.
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from anyio import to_thread

from gateway.wings.document_library import IndexedCode, IndexedFile, IndexedName
from gateway.wings.knowledge.caller_access import READABLE, KnowledgeReader
from gateway.wings.knowledge.chunk_rows import NORM_BYTES
from gateway.wings.knowledge.collections import CollectionStore
from registry.database.postgres import Pool, borrow
from registry.database.sql_fragments import compose

FITTING = 0.8  # share of definitions whose names stand at their places
WIDEST = 1000  # units of a name in a line
LINE_CHARACTERS = 500  # characters of a line
NEAR = 20  # parsed definitions of a name, before a line, that may be meant
OMISSIONS_LISTED = 100  # files that were left out
BATCH = 1000  # rows that one statement stores

Row = dict[str, Any]


class ResolvedCode:
    def __init__(self, pool: Pool, collections: CollectionStore) -> None:
        self._pool = pool
        self._collections = collections

    async def store(
        self, reader: KnowledgeReader, name: str, files: Iterator[IndexedFile], folder: str
    ) -> IndexedCode:
        """Raises ProblemDetails, and what `files` raises: then the files before it are stored."""
        collection = await self._collections.get(reader, name, "write")
        counts = {"files": 0, "define": 0, "refer": 0}
        left_out: list[tuple[str, str]] = []
        paths: set[str] = set()
        while (file := await to_thread.run_sync(next, files, None)) is not None:
            path = f"{folder}/{file.path}" if folder else file.path
            if path in paths:
                reason = "the index has it twice"
            else:
                paths.add(path)
                reason = await self._store_file(
                    reader, collection.id, path, file=file, counts=counts
                )
            if reason and len(left_out) < OMISSIONS_LISTED:
                left_out.append((path, reason))
        return IndexedCode(
            files=counts["files"],
            definitions=counts["define"],
            references=counts["refer"],
            left_out=left_out,
        )

    async def _store_file(
        self,
        reader: KnowledgeReader,
        collection: str,
        path: str,
        *,
        file: IndexedFile,
        counts: dict[str, int],
    ) -> str:
        """Why a file was left out; "": it was not."""
        values: Row = {**reader.values("write"), "collection": collection, "path": path}
        async with borrow(self._pool) as connection:
            row = await (await connection.execute(_DOCUMENT, values)).fetchone()
            if row is None:
                return "the collection has no such document"
            values["document"], content = row
            parsed = await (await connection.execute(_PARSED_FILES, values)).fetchall()
            rows = await to_thread.run_sync(_encode_file, bytes(content), file, parsed)
            if rows is None:
                return "the index is of another version of its text"
            await connection.execute(_FORGET, values)
            await connection.execute(_KNOW, values)
            for batch in rows.batches:
                await connection.execute(_KEEP, {**values, "rows": batch})
        counts["files"] += 1
        counts["define"] += rows.definitions
        counts["refer"] += rows.references
        return ""


@dataclass(frozen=True, slots=True)
class _Encoded:
    """The rows of a file as JSON, some at a time."""

    batches: list[str]
    definitions: int
    references: int


class _Line:
    """A line of a text, with the places in it as an index counts them."""

    def __init__(self, start: int, line: bytes, unit: str) -> None:
        text = line.decode()
        self.start = start
        self.quote = text.strip()[:LINE_CHARACTERS]
        self.end = start + len(text[:LINE_CHARACTERS].encode())
        self.at = start + len(text) - len(text.lstrip())
        self._width = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[unit]
        self._codec = {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}[unit]
        self._units = text.encode(self._codec)

    def text_at(self, name: IndexedName) -> str:
        """The characters of the line at the place of a name; "" for a place that is no name's."""
        if not 0 <= name.start <= name.end <= name.start + WIDEST:
            return ""
        units = self._units[name.start * self._width : name.end * self._width]
        return units.decode(self._codec, errors="replace").strip("`")


def _encode_file(
    content: bytes, file: IndexedFile, syntax: Sequence[Sequence[Any]]
) -> _Encoded | None:
    rows = _rows(content, file, syntax)
    if rows is None:
        return None
    places = range(0, len(rows), BATCH)
    batches = [msgspec.json.encode(rows[at : at + BATCH]).decode() for at in places]
    defined = sum(row["role"] == "define" for row in rows)
    return _Encoded(batches, defined, len(rows) - defined)


def _rows(content: bytes, file: IndexedFile, syntax: Sequence[Sequence[Any]]) -> list[Row] | None:
    """The rows of a file; None: its names do not stand in the text."""
    lines = content.split(b"\n")
    starts, at = [], 0
    for line in lines:
        starts.append(at)
        at += len(line) + 1
    near = _Parsed(syntax)
    rows: list[Row] = []
    placed = defined = 0
    places: set[tuple[int, int, str, str]] = set()
    written: set[Hashable] = set()
    number, text_line = -1, _Line(0, b"", "utf-8")
    for indexed in sorted(file.names, key=lambda name: (name.line, name.start, name.role)):
        if indexed.line >= len(lines):
            return None
        if indexed.line != number:
            number = indexed.line
            text_line = _Line(starts[number], lines[number].rstrip(b"\r"), file.unit)
        if indexed.role == "define":
            defined += 1
            placed += text_line.text_at(indexed) == indexed.name
        place = (indexed.line, indexed.start, indexed.role, indexed.whole)
        if place not in places and len(indexed.whole.encode()) <= NORM_BYTES:
            places.add(place)
            definition = near.definition(indexed) if indexed.role == "define" else {}
            row = _row(indexed, text_line, len(lines)) | definition
            rows.append(
                {**row, "bases": _bases(indexed, definition, written), "ordinal": len(rows)}
            )
    return rows if placed >= defined * FITTING else None


def _bases(name: IndexedName, definition: Row, written: set[Hashable]) -> list[str]:
    """Bases of a definition by an index and by the parser: both once, as lists may be long
    and definitions be repeated."""
    lists: list[tuple[Hashable, Sequence[str]]] = [(name.whole, name.bases)]
    if definition:
        lists.append(((name.name, definition["start_byte"]), definition["bases"]))
    new = [bases for key, bases in lists if bases and key not in written]
    written.update(key for key, bases in lists if bases)
    return [base for bases in new for base in bases if len(base.encode()) <= NORM_BYTES]


def _row(name: IndexedName, line: _Line, lines: int) -> Row:
    return {
        "role": name.role,
        "symbol": name.symbol,
        "whole": name.whole,
        "name": name.name,
        "scope": name.symbol.rpartition(".")[0],
        "kind": name.kind or "variable",
        "visibility": "private" if name.name.startswith("_") else "public",
        "signature": line.quote,
        "start_byte": line.at,
        "end_byte": max(line.end, line.at + 1),
        "start_line": name.line + 1,
        "end_line": min(name.last + 1, lines) if name.role == "define" else name.line + 1,
        "line_byte": line.start,
        "line_end": line.end,
    }


class _Parsed:
    """Definitions that were parsed, by their names."""

    _MEMBERS = ("kind", "visibility", "signature", "start_byte", "end_byte", "start_line",
                "end_line", "bases")  # fmt: skip

    def __init__(self, rows: Sequence[Sequence[Any]]) -> None:
        self._by_name: dict[str, list[Row]] = {}
        for name, *members in rows:
            row = dict(zip(self._MEMBERS, members, strict=True))
            self._by_name.setdefault(name, []).append(row)

    def definition(self, name: IndexedName) -> Row:
        """The innermost one that has the line of a name; empty: there is none."""
        rows = self._by_name.get(name.name, [])
        end = bisect_right(rows, name.line + 1, key=lambda row: row["start_line"])
        near = reversed(rows[max(end - NEAR, 0) : end])
        return next((row for row in near if row["end_line"] > name.line), {})


_DOCUMENT = compose(
    """
    SELECT document.document_id::text, blob.content
    FROM knowledge_collection_t AS collection JOIN knowledge_document_t AS document
        ON (document.host_id, document.collection_id) = (%(host)s, collection.collection_id)
    JOIN knowledge_blob_t AS blob ON (blob.host_id, blob.sha256) = (%(host)s, document.sha256)
    WHERE {allowed} AND collection.collection_id = %(collection)s AND document.path = %(path)s
        AND document.live > 0
    FOR UPDATE OF document
""",
    allowed=READABLE,
)
_PARSED_FILES = b"""
    SELECT name, kind, visibility, signature, start_byte, end_byte, start_line, end_line, ARRAY(
        SELECT base FROM knowledge_base_t AS base WHERE (base.host_id, base.document_id,
            base.ordinal) = (%(host)s, symbol.document_id, symbol.ordinal) ORDER BY base)
    FROM knowledge_symbol_t AS symbol WHERE (host_id, document_id) = (%(host)s, %(document)s)
    ORDER BY start_line
"""
_FORGET = b"""
    DELETE FROM knowledge_index_t WHERE (host_id, document_id) = (%(host)s, %(document)s)
"""
_KNOW = b"""
    INSERT INTO knowledge_index_t (host_id, document_id) VALUES (%(host)s, %(document)s)
"""
_KEEP = b"""
    INSERT INTO knowledge_resolved_t (host_id, document_id, ordinal, collection_id, role, symbol,
        whole, name, scope, kind, visibility, signature, bases, start_byte, end_byte, start_line,
        end_line, line_byte, line_end)
    SELECT %(host)s, %(document)s, ordinal, %(collection)s, role, symbol, whole, name, scope, kind,
        visibility, signature, bases, start_byte, end_byte, start_line, end_line, line_byte,
        line_end
    FROM jsonb_to_recordset(%(rows)s::jsonb) AS given (ordinal integer, role text, symbol text,
        whole text, name text, scope text, kind text, visibility text, signature text,
        bases text[], start_byte integer, end_byte integer, start_line integer, end_line integer,
        line_byte integer, line_end integer)
"""
