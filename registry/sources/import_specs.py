"""Import specs: from the settings of a source, and from the stored options of a known one."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from config.sources import SourceSettings
from schemas.errors import ImportRejected
from schemas.source import (
    MANUAL,
    A2aOptions,
    CredentialName,
    GraphQLOptions,
    HybridOptions,
    McpOptions,
    OpenAPIOptions,
    Options,
    Origin,
    Source,
    SourceFacts,
    facts_of,
    is_importable,
    stdio_location,
)

UPLOAD = "upload:"  # prefix of the location of an uploaded description; the name follows
SETTINGS_ORIGINS: frozenset[Origin | None] = frozenset({"settings", "example"})


@dataclass(frozen=True, slots=True)
class ImportSpec:
    """An import as the operator specified it."""

    name: str
    location: str  # path or URL; a module or .py file; `stdio:` and the command of an MCP server
    base_url: str | None = None  # None: the description's own server
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    kind: str = "openapi"
    options: Options = field(default_factory=OpenAPIOptions)
    origin: Origin | None = "cli"

    @property
    def facts(self) -> SourceFacts:
        """The spec's fields of its kind."""
        return facts_of(self.kind)


def configured_import(name: str, settings: SourceSettings) -> ImportSpec | None:
    """The import that the settings specify for `name`; None when they only adjust how it is
    called."""
    for kind, reader in _KIND_READERS.items():
        location = reader.location(settings)
        if location is not None:
            base_url = None if facts_of(kind).server else settings.base_url
            origin: Origin = "example" if settings.example else "settings"
            return ImportSpec(
                name,
                location,
                base_url,
                include=settings.include,
                exclude=settings.exclude,
                kind=kind,
                options=reader.options(settings),
                origin=origin,
            )
    return None


def _openapi(settings: SourceSettings) -> Options:
    return OpenAPIOptions(
        settings.entry,
        settings.overlay,
        settings.only_marked,
        settings.media_types,
        credential_names(settings),
    )


def credential_names(settings: SourceSettings) -> tuple[CredentialName, ...] | None:
    """The credentials that can fill parameters: secrets that are sent as they stand, to all calls
    alike. None where callers authenticate, or where calls may go without credentials."""
    if settings.forward_token or settings.exchange or not settings.require_credentials:
        return None
    names = [
        CredentialName("token" if entry.token else "value", name)
        for name, entry in settings.credentials.items()
        if entry.token or (entry.value and " " not in entry.value)  # "Bearer x" is for a header
    ]
    names += [CredentialName("header", name) for name, value in settings.headers.items() if value]
    return tuple(names)


def _graphql(settings: SourceSettings) -> Options:
    return GraphQLOptions(settings.overlay, settings.only_marked, settings.depth, settings.cost)


def _hybrid(settings: SourceSettings) -> Options:
    return HybridOptions(settings.side, settings.dialect, settings.batch)


def _mcp(settings: SourceSettings) -> Options:
    return McpOptions(
        settings.command, settings.era, settings.prefix, settings.own_sessions, pin=settings.pin
    )


def _a2a(settings: SourceSettings) -> Options:
    return A2aOptions(settings.allowed_hosts, settings.signed, per_skill=settings.per_skill)


def _server(settings: SourceSettings) -> str | None:
    return settings.mcp or (stdio_location(settings.command) if settings.command else None)


@dataclass(frozen=True, slots=True)
class _KindReader:
    """Reader of the settings of one kind of source."""

    location: Callable[[SourceSettings], str | None]
    options: Callable[[SourceSettings], Options]


_KIND_READERS: Mapping[str, _KindReader] = {
    "openapi": _KindReader(lambda settings: settings.openapi, _openapi),
    "graphql": _KindReader(lambda settings: settings.graphql, _graphql),
    "hybrid": _KindReader(lambda settings: settings.hybrid, _hybrid),
    "python": _KindReader(lambda settings: settings.python, _hybrid),
    "mcp": _KindReader(_server, _mcp),
    "a2a": _KindReader(lambda settings: settings.a2a, _a2a),
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
        base_url=source.base_url if _has_fixed_address(source) else None,
        include=source.include,
        exclude=source.exclude,
        kind=source.kind,
        options=source.options,
        origin=source.origin,
    )


def removed_from_settings(
    sources: Iterable[Source], settings: Mapping[str, SourceSettings]
) -> list[str]:
    """Names of sources imported because of settings and missing from `settings`, the current ones:
    they are still served, without the headers and credentials that the settings had."""
    return [
        source.name
        for source in sources
        if source.origin in SETTINGS_ORIGINS and source.name not in settings
    ]


def _has_fixed_address(source: Source) -> bool:
    """Whether the source has a fixed address, independent of the description."""
    return not source.facts.server and (source.base_url_trusted or source.options.guarded)
