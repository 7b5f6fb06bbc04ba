"""Import specs: from the settings of a source, and from the stored options of a known one."""

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from config.sources import SourceSettings
from registry.sources.source_reader import ImportSpec
from schemas.errors import ImportRejected
from schemas.source import (
    MANUAL,
    GraphQLOptions,
    HybridOptions,
    McpOptions,
    OpenAPIOptions,
    Options,
    Origin,
    Source,
    facts_of,
    is_importable,
)

UPLOAD = "upload:"  # prefix of the location of an uploaded description; the name follows
OF_SETTINGS: frozenset[Origin | None] = frozenset({"settings", "example"})
STDIO = "stdio:"  # prefix of the location of a local MCP server; the command follows


def configured(name: str, wanted: SourceSettings) -> ImportSpec | None:
    """The import that the settings specify for `name`; None when they only adjust how it is
    called."""
    for kind, of_kind in _WANTED.items():
        location = of_kind.location(wanted)
        if location is not None:
            patterns = (wanted.include, wanted.exclude)
            base_url = None if facts_of(kind).server else wanted.base_url
            origin: Origin = "example" if wanted.example else "settings"
            options = of_kind.options(wanted)
            return ImportSpec(name, location, base_url, *patterns, kind, options, origin)
    return None


def stdio(command: tuple[str, ...]) -> str:
    """The location of an MCP server that is started by `command`."""
    return STDIO + shlex.join(command)


def _openapi(wanted: SourceSettings) -> Options:
    return OpenAPIOptions(wanted.entry, wanted.overlay, wanted.only_marked, wanted.media_types)


def _graphql(wanted: SourceSettings) -> Options:
    return GraphQLOptions(wanted.overlay, wanted.only_marked, wanted.depth, wanted.cost)


def _hybrid(wanted: SourceSettings) -> Options:
    return HybridOptions(wanted.side, wanted.dialect, wanted.batch)


def _mcp(wanted: SourceSettings) -> Options:
    return McpOptions(wanted.command, wanted.era, wanted.prefix, wanted.own_sessions, wanted.pin)


def _server(wanted: SourceSettings) -> str | None:
    return wanted.mcp or (stdio(wanted.command) if wanted.command else None)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """How the settings specify a source of one kind."""

    location: Callable[[SourceSettings], str | None]
    options: Callable[[SourceSettings], Options]


_WANTED: Mapping[str, _Wanted] = {
    "openapi": _Wanted(lambda wanted: wanted.openapi, _openapi),
    "graphql": _Wanted(lambda wanted: wanted.graphql, _graphql),
    "hybrid": _Wanted(lambda wanted: wanted.hybrid, _hybrid),
    "python": _Wanted(lambda wanted: wanted.python, _hybrid),
    "mcp": _Wanted(_server, _mcp),
}


def spec_of(source: Source) -> ImportSpec:
    """The spec of a source's last import. Raises ImportRejected for a source that was not imported,
    or whose kind only a newer release knows."""
    if source.kind == MANUAL:
        raise ImportRejected(f"{source.name} was made for tools by hand: there is no description.")
    if source.location.startswith(UPLOAD):
        raise ImportRejected(
            f"{source.name} was uploaded: there is no place where its description could be read "
            "again. Upload it again, by the admin API."
        )
    if not is_importable(source.kind):
        raise ImportRejected(f"{source.name} is of a kind that is not known here: {source.kind}.")
    return as_imported(source)


def as_imported(source: Source) -> ImportSpec:
    """Like `spec_of`, but uploaded sources too."""
    return ImportSpec(
        source.name,
        source.location,
        source.base_url if _said(source) else None,
        source.include,
        source.exclude,
        source.kind,
        source.options,
        source.origin,
    )


def left_over(sources: Iterable[Source], wanted: Mapping[str, SourceSettings]) -> list[str]:
    """Names of sources imported because of settings and missing from `wanted`, the current ones:
    they are still served, without the headers and credentials that the settings had."""
    return [one.name for one in sources if one.origin in OF_SETTINGS and one.name not in wanted]


def _said(source: Source) -> bool:
    """Whether its address is fixed, independent of the description."""
    return not source.facts.server and (source.base_url_trusted or source.options.guarded)
