"""Filters of chunks as conditions in SQL. Pure."""

import re
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct
from psycopg import sql
from psycopg.types.json import Jsonb

from config.value_types import HostId
from gateway.operations.problems import invalid
from registry.database.sql_fragments import Fragment

Glob = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        description="a pattern of paths: * within a folder, ** across folders, ? one character",
    ),
]
Short = Annotated[str, Meta(min_length=1, max_length=255)]
STARS = 40  # in patterns: the work of the database grows with them
_GLOB = re.compile(r"\*\*/|\*\*|\*|\?|[^*?]+")
_GLOBS = {"**/": "(.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class ChunkFilter(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Conditions on what is found, all of which hold; empty: none."""

    paths: Annotated[tuple[Glob, ...], Meta(max_length=20)] = ()
    documents: Annotated[
        tuple[HostId, ...], Meta(max_length=1000, description="ids of documents")
    ] = ()
    kinds: Annotated[tuple[Short, ...], Meta(max_length=20, description="of chunks")] = ()
    languages: Annotated[tuple[Short, ...], Meta(max_length=20)] = ()
    metadata: Annotated[
        dict[str, Any], Meta(description="members that the metadata of the document has")
    ] = {}
    heading: Annotated[
        str, Meta(max_length=255, description="a part of the headings or scopes of the chunk")
    ] = ""
    since: Annotated[datetime, Meta(tz=True)] | None = None
    until: Annotated[datetime, Meta(tz=True)] | None = None


def pattern(glob: str) -> str:
    """A regular expression of PostgreSQL for a pattern of paths."""
    pieces = (_GLOBS.get(piece) or _escape_text(piece) for piece in _GLOB.findall(glob))
    return "".join(pieces)


def _escape_text(text: str) -> str:
    return re.sub(r"([^\w\s/-])", r"\\\1", text)


def narrowing(filters: ChunkFilter) -> tuple[Fragment | None, dict[str, Any]]:
    """The condition on `chunk` and `document`, and its parameters; None: there is none. Raises
    ProblemDetails."""
    conditions: list[tuple[sql.Composable, str, Any]] = []
    if filters.paths:
        if sum(path.count("*") for path in filters.paths) > STARS:
            raise invalid(f"filter.paths: expected at most {STARS} asterisks in all patterns")
        alternatives = "|".join(map(pattern, filters.paths))
        text = sql.SQL("document.path ~ %(paths)s")
        conditions.append((text, "paths", f"^(?:{alternatives})$"))
    if filters.documents:
        text = sql.SQL("document.document_id = ANY (%(documents)s::uuid[])")
        conditions.append((text, "documents", list(filters.documents)))
    if filters.metadata:
        text = sql.SQL("document.metadata @> %(metadata)s")
        conditions.append((text, "metadata", Jsonb(filters.metadata)))
    if filters.heading:
        text = sql.SQL("strpos(lower(chunk.header), lower(%(heading)s)) > 0")
        conditions.append((text, "heading", filters.heading))
    if filters.kinds:
        conditions.append((sql.SQL("chunk.kind = ANY (%(kind)s)"), "kind", list(filters.kinds)))
    if filters.languages:
        text = sql.SQL("document.language = ANY (%(language)s)")
        conditions.append((text, "language", list(filters.languages)))
    if filters.since is not None:
        text = sql.SQL("coalesce(document.dated_ts, document.changed_ts) >= %(since)s")
        conditions.append((text, "since", filters.since))
    if filters.until is not None:
        text = sql.SQL("coalesce(document.dated_ts, document.changed_ts) < %(until)s")
        conditions.append((text, "until", filters.until))
    if not conditions:
        return None, {}
    all_ = sql.SQL(" AND ").join(condition for condition, _, _ in conditions)
    return Fragment.of(all_), {name: value for _, name, value in conditions}
