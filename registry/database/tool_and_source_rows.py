"""Rows of the registry as tools and sources.

A newer release may have stored values that this one does not understand: only the tool, or the
option, concerned is hidden.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar, cast, get_args

import msgspec
from msgspec import Raw
from msgspec.json import Decoder
from psycopg.abc import Buffer
from psycopg.adapt import Loader

from registry.names.tool_names import is_reserved
from schemas.binding import Binding
from schemas.mcp.snapshot import ServerFacts
from schemas.source import (
    DescribedLogin,
    Options,
    Origin,
    RolledBack,
    Source,
    binding_decoder,
    facts_of,
)
from schemas.tool import Annotations, Tool

log = logging.getLogger("toolgate.database")
T = TypeVar("T")

_annotations = msgspec.json.Decoder(Annotations)


class RawLoader(Loader):
    """Loads JSON columns as raw text."""

    def load(self, data: Buffer) -> Raw:
        return Raw(bytes(data))


def readable(rows: Sequence[tuple[Any, ...]]) -> Iterator[Tool]:
    """The tools of `rows`, without those of a newer release that this one cannot call."""
    bindings = binding_decoder()
    for row in rows:
        try:
            tool = _tool(bindings, StoredTool(*row))
        except msgspec.ValidationError as error:
            log.warning("tool_not_readable", extra={"tool": row[1], "reason": str(error)})
            continue
        if is_reserved(tool.name) and not tool.binding.wing:  # stored since the last start
            log.warning("tool_name_reserved", extra={"tool": tool.name, "source": tool.source})
            continue
        yield tool


class StoredTool(NamedTuple):
    """The columns of a tool, in the order in which `readable` expects them."""

    id: str
    name: str
    title: str | None
    description: str
    input_schema: Raw
    output_schema: Raw | None
    annotations: Raw
    binding: Raw
    source: str
    digest: str
    definition: Raw | None
    toolsets: list[str]
    aliases: list[str]
    tier: str | None
    tags: list[str]
    domain: str | None


def _tool(bindings: Decoder[Binding], row: StoredTool) -> Tool:
    return Tool(
        id=row.id,
        name=row.name,
        title=row.title,
        description=row.description,
        input_schema=row.input_schema,
        output_schema=row.output_schema,
        annotations=_annotations.decode(row.annotations),
        binding=bindings.decode(row.binding),
        source=row.source,
        digest=row.digest,
        definition=row.definition,
        toolsets=tuple(row.toolsets),
        aliases=tuple(alias for alias in row.aliases if not is_reserved(alias)),
        tier=row.tier,
        tags=tuple(row.tags),
        domain=row.domain,
    )


class StoredSource(NamedTuple):
    """The columns of a source and its current version."""

    id: str
    name: str
    kind: str
    location: str
    base_url: str | None
    base_url_trusted: bool
    title: str | None
    version: str | None
    digest: str | None
    include: list[str]
    exclude: list[str]
    options: dict[str, Any]
    server: dict[str, Any] | None
    logins: dict[str, Any] | None
    updated: datetime
    tool_count: int
    number: int | None
    rolled_back: dict[str, Any] | None
    origin: str | None


def source_of(row: StoredSource) -> Source:
    return Source(
        id=row.id,
        name=row.name,
        kind=row.kind,
        location=row.location,
        base_url=row.base_url,
        base_url_trusted=row.base_url_trusted,
        title=row.title,
        version=row.version,
        include=tuple(row.include),
        exclude=tuple(row.exclude),
        tool_count=row.tool_count,
        updated=row.updated.isoformat(),
        digest=row.digest,
        server=_readable("server", row.name, row.server, ServerFacts),
        logins=_readable("logins", row.name, row.logins, dict[str, DescribedLogin]) or {},
        number=row.number,
        rolled_back=_readable("rolled_back", row.name, row.rolled_back, RolledBack),
        origin=cast("Origin", row.origin) if row.origin in get_args(Origin) else None,
        options=options_of(row.name, row.kind, row.options),
    )


def options_of(source: str, kind: str, column: Mapping[str, Any]) -> Options:
    """Source options, without unknown ones of a newer release, as in `readable`."""
    options_type = facts_of(kind).options
    try:
        return msgspec.convert(column, options_type)
    except msgspec.ValidationError as error:
        log.warning("options_not_readable", extra={"source": source, "reason": str(error)})
        return options_type()


def _readable(
    column: str, source: str, value: dict[str, Any] | None, value_type: type[T]
) -> T | None:
    """The value of a column, without what only a newer release can read."""
    try:
        return None if value is None else msgspec.convert(value, value_type)
    except msgspec.ValidationError as error:
        facts = {"source": source, "column": column, "reason": str(error)}
        log.warning("source_not_readable", extra=facts)
        return None
