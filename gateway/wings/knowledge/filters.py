"""Filters of chunks as conditions in SQL. Pure."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct
from psycopg.types.json import Jsonb

from config.types import HostId
from gateway.operations.operation import invalid

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


def narrowing(wanted: ChunkFilter) -> tuple[str, dict[str, Any]]:
    """The condition on `chunk` and `document`, and its parameters; "": there is none. Raises
    ProblemDetails."""
    conditions: list[tuple[str, str, Any]] = []
    if wanted.paths:
        if sum(path.count("*") for path in wanted.paths) > STARS:
            raise invalid(f"filter.paths: expected at most {STARS} asterisks in all patterns")
        whole = "|".join(map(pattern, wanted.paths))
        conditions.append(("document.path ~ %(paths)s", "paths", f"^(?:{whole})$"))
    if wanted.documents:
        text = "document.document_id = ANY (%(documents)s::uuid[])"
        conditions.append((text, "documents", list(wanted.documents)))
    if wanted.metadata:
        conditions.append(("document.metadata @> %(metadata)s", "metadata", Jsonb(wanted.metadata)))
    if wanted.heading:
        text = "strpos(lower(chunk.header), lower(%(heading)s)) > 0"
        conditions.append((text, "heading", wanted.heading))
    for column, values in (("chunk.kind", wanted.kinds), ("document.language", wanted.languages)):
        name = column.partition(".")[2]
        if values:
            conditions.append((f"{column} = ANY (%({name})s)", name, _texts(values)))
    for name, operator, time in (("since", ">=", wanted.since), ("until", "<", wanted.until)):
        if time is not None:
            column = "coalesce(document.dated_ts, document.changed_ts)"
            conditions.append((f"{column} {operator} %({name})s", name, time))
    return " AND ".join(condition for condition, _, _ in conditions), {
        name: value for _, name, value in conditions
    }


def _texts(values: Sequence[str]) -> list[str]:
    return list(values)
