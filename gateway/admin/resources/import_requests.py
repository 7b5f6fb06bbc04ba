"""Request bodies of imports."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from config.sources import SourceSettings
from config.value_types import HostAndPort, HttpUrl, Levels, McpUrl, SourceName
from gateway.operations.operation import Line
from registry.documents.ssrf_protection import check_host
from registry.sources.import_specs import ImportSpec, credential_names
from schemas.masking import QUERY
from schemas.source import (
    KINDS,
    A2aOptions,
    GraphQLOptions,
    HybridOptions,
    McpOptions,
    OpenAPIOptions,
    Options,
    Prefix,
    facts_of,
)


def _check_member(name: str, url: str | None) -> None:
    """Raises ValueError."""
    try:
        if url is not None:
            check_host(url)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


Url = Annotated[HttpUrl, Meta(extra_json_schema={QUERY: True})]  # some have a token there
McpServerUrl = Annotated[McpUrl, Meta(extra_json_schema={QUERY: True})]
Patterns = Annotated[tuple[Line, ...], Meta(max_length=1000)]
Document = Annotated[
    str, Meta(min_length=1, pattern=r"^[^\x00]", description="a description, as JSON, YAML or SDL")
]


KeySet = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=65_536,
        pattern=r"^[^\x00]",
        description="a JWK set, as JSON: a key of it must have signed the card",
    ),
]


class _Import(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", kw_only=True):
    name: SourceName
    include: Patterns = ()
    exclude: Patterns = ()

    def __post_init__(self) -> None:
        for member in ("url", "base_url"):
            _check_member(member, getattr(self, member, None))

    @property
    def options(self) -> Options:
        raise NotImplementedError

    @property
    def kind(self) -> Any:
        return self.__struct_config__.tag


class ImportRequest(_Import, frozen=True, tag=True, kw_only=True):
    url: Url | None = None  # of the description; alternative to `document`
    document: Document | None = None
    base_url: Url | None = None  # base URL of calls


class OpenAPIImport(ImportRequest, frozen=True, tag="openapi", kw_only=True):
    """An OpenAPI or Swagger description."""

    only_marked: bool = False
    media_types: Annotated[tuple[Line, ...], Meta(max_length=10)] = ()

    @property
    def options(self) -> Options:
        return OpenAPIOptions(only_marked=self.only_marked, media_types=self.media_types)


class GraphQLImport(ImportRequest, frozen=True, tag="graphql", kw_only=True):
    """A GraphQL endpoint, or a schema."""

    only_marked: bool = False
    depth: Levels = 3
    cost: Annotated[int, Meta(ge=1, le=10_000)] = 60

    @property
    def options(self) -> Options:
        return GraphQLOptions(only_marked=self.only_marked, depth=self.depth, cost=self.cost)


class HybridImport(ImportRequest, frozen=True, tag="hybrid", kw_only=True):
    """A spec.yaml or schema.json of a hybrid service."""

    side: Literal["query", "command"] | None = None
    dialect: Literal["jsonrpc", "legacy"] = "jsonrpc"
    batch: Annotated[int, Meta(ge=1, le=10_000)] = 1

    @property
    def options(self) -> Options:
        return HybridOptions(self.side, self.dialect, self.batch)


class McpImport(_Import, frozen=True, tag="mcp", kw_only=True):
    """Another MCP server."""

    url: McpServerUrl
    era: Literal["auto", "handshake", "stateless"] = "auto"
    prefix: Prefix = "conditional"
    pin: bool = True

    @property
    def options(self) -> Options:
        return McpOptions(era=self.era, prefix=self.prefix, pin=self.pin)


class A2aImport(_Import, frozen=True, tag="a2a", kw_only=True):
    """An agent that speaks Agent2Agent, or its card."""

    url: Url
    allowed_hosts: Annotated[tuple[HostAndPort, ...], Meta(max_length=10)] = ()
    keys: KeySet | None = None
    per_skill: bool = False

    @property
    def options(self) -> Options:
        return A2aOptions(self.allowed_hosts, keys=self.keys, per_skill=self.per_skill)


class MachineImport(_Import, frozen=True, tag="machine", kw_only=True):
    """An import by a command: its location may be a file or a process of the machine. It replaces
    an earlier import of this name."""

    importer: str
    location: str
    base_url: HttpUrl | None = None
    choices: Annotated[Mapping[str, Any], Meta(description="options of the importer")] = {}

    def __post_init__(self) -> None:
        if self.importer not in KINDS:
            raise ValueError(f"there is no importer {self.importer}; there are {', '.join(KINDS)}")

    def spec(self, settings: SourceSettings | None) -> ImportSpec:
        """`settings`: the settings of the source."""
        options = msgspec.convert(self.choices, facts_of(self.importer).options)
        if isinstance(options, OpenAPIOptions):
            names = credential_names(settings) if settings else ()
            options = msgspec.structs.replace(options, credentials=names)
        patterns = self.include, self.exclude
        return ImportSpec(
            self.name, self.location, self.base_url, *patterns, self.importer, options
        )


Import = OpenAPIImport | GraphQLImport | HybridImport | McpImport | A2aImport
AnyImport = Import | MachineImport
