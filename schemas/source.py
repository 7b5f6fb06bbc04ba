"""Sources: the documents and servers that tools come from."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, reduce
from operator import or_
from typing import Any, Literal

from msgspec import Struct
from msgspec.json import Decoder

from schemas.binding import (
    A2aBinding,
    Binding,
    FunctionBinding,
    GatewayBinding,
    GraphQLBinding,
    HybridBinding,
    McpBinding,
    OpenAPIBinding,
    PythonBinding,
    ScriptBinding,
    WingBinding,
)
from schemas.hybrid import Side
from schemas.mcp.snapshot import ServerFacts

Origin = Literal["settings", "example", "cli", "admin", "wing"]
"""Who had a source imported last; "example": the settings of one of the product's examples; "wing":
the wing of the gateway that it belongs to."""

OutcomeStatus = Literal["imported", "degraded", "held", "skipped", "excluded"]


Prefix = Literal["always", "conditional", "never"]

STDIO = "stdio:"  # prefix of the location of a local MCP server; the command follows
MANUAL = "manual"  # the kind of a source without import, for tools made by hand

# Definitions of other servers cannot be restored here (`pin` holds back changes), and those of
# Python services are in the code.
_SERVER = "is another MCP server: only that can bring back what it had. --pin holds back changes"
_CODE = "is written in Python: bring back its code"
_PART = "is a part of this gateway: it has the tools of its release"


class ImportOptions(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Base of all import options: defaults, which a kind overrides by a field of the same name."""

    guarded: bool = False  # not named by an operator: SSRF guard, public addresses only

    @property
    def side(self) -> Side | None:
        """The portal path that serves the source's actions; None: both."""
        return None

    @property
    def command(self) -> tuple[str, ...]:
        """Command line of the source's process; empty: it is reached by URL."""
        return ()

    @property
    def prefix(self) -> Prefix:
        """Condition under which names of tools are prefixed with the source's name."""
        return "conditional"

    @property
    def own_sessions(self) -> bool:
        """Whether each client session gets its own upstream session."""
        return False

    @property
    def pin(self) -> bool:
        """Whether changed definitions are held back until accepted."""
        return False

    @property
    def is_reviewed(self) -> bool:
        """Whether its address, of which a stranger is the author, was accepted by its reader."""
        return False

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """Further hosts, some with a port, at which calls may go where the description says."""
        return ()


class HybridOptions(ImportOptions, frozen=True, omit_defaults=True):
    """How a hybrid service behind the gateway is called; stored in `api_t.options`."""

    side: Side | None = None  # portal path of its actions, at the service and here
    dialect: Literal["jsonrpc", "legacy"] = "jsonrpc"  # dialect of its calls
    batch: int = 1  # most calls in one JSON-RPC batch; 1: each goes alone


class PublishedServer(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Where a source came from: one version in a registry of MCP servers, and what pins it."""

    registry: str  # its name in the settings
    name: str
    version: str
    sha256: str  # of server.json, with its members sorted
    choice: str  # "remote", or the kind of its package
    pinned: bool = True
    digest: str = ""  # of the package, in the form of its kind
    inputs: tuple[tuple[str, str], ...] = ()  # that were given, without secrets
    allow: tuple[str, ...] = ()


class McpOptions(ImportOptions, frozen=True, omit_defaults=True):
    """How another MCP server is reached and shown; stored in `api_t.options`."""

    command: tuple[str, ...] = ()  # of a stdio server, and its arguments; else it has an address
    era: Literal["auto", "handshake", "stateless"] = "auto"  # auto: detected
    prefix: Prefix = "conditional"  # when names are prefixed with the source's name
    own_sessions: bool = False  # each client session gets its own session at the server
    pin: bool = False  # changed definitions are held back until accepted
    env: tuple[tuple[str, str], ...] = ()  # of the command, beside that of the settings
    published: PublishedServer | None = None  # None: an operator named location or command

    @property
    def is_reviewed(self) -> bool:
        return self.published is not None


class A2aOptions(ImportOptions, frozen=True, omit_defaults=True):
    """How an agent's card is read; stored in `api_t.options`. Its tools are pinned always."""

    allowed_hosts: tuple[str, ...] = ()
    signed: str | None = None  # path of a JWK set, of which a key must have signed the card
    keys: str | None = None  # such a set itself, as JSON
    per_skill: bool = False  # a tool for each skill, besides that of the agent

    @property
    def pin(self) -> bool:
        return True


class CredentialName(Struct, frozen=True):
    """Name of a credential of a source: what it holds stays in the settings, or encrypted."""

    kind: Literal["value", "token", "header"]
    name: str  # of its entry, or of the configured header
    stored: bool = False  # in the registry, at the time of the import


class DescribedLogin(Struct, frozen=True, omit_defaults=True):
    """Where a description has people log in for one of its security schemes: at the two URLs of its
    flow `authorizationCode`, or where an OpenID Connect document says."""

    authorization_url: str = ""
    token_url: str = ""
    document_url: str = ""  # `openIdConnectUrl`
    scopes: tuple[str, ...] = ()  # that the flow lists

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.authorization_url, self.token_url, self.document_url)))


class OpenAPIOptions(ImportOptions, frozen=True, omit_defaults=True):
    """How an OpenAPI description is read; stored in `api_t.options`."""

    entry: str | None = None  # the file to begin with, of a directory or an archive
    overlay: str | None = None  # path or URL of a file with `x-toolgate` marks
    only_marked: bool = False  # only operations marked as enabled are imported
    media_types: tuple[str, ...] = ()  # of request bodies, the ones to prefer first
    # that fill parameters described as secrets; None: callers have their own
    credentials: tuple[CredentialName, ...] | None = ()


class GraphQLOptions(ImportOptions, frozen=True, omit_defaults=True):
    """How the fields of a GraphQL service become tools; stored in `api_t.options`."""

    overlay: str | None = None
    only_marked: bool = False
    depth: int = 3  # levels of objects in a selection
    cost: int = 60  # most fields in a selection


Options = ImportOptions


class SourceFacts(Struct, frozen=True, kw_only=True):
    """Facts of a kind of source, on which the gateway's behaviour depends; by default none is
    special."""

    options: type[Options] = HybridOptions
    server: bool = False  # an MCP server: listed, watched for changes, and called at its location
    loaded: bool = False  # code inside the gateway: without an address, served where it is loaded
    own: bool = False  # a part of the gateway itself: there while that is switched on
    keeps_answers: bool = False  # answers of its tools can be kept: see `schemas.binding.KindFacts`
    schemes: bool = False  # its tools declare security schemes; else headers are sent
    polled: bool = False  # read again at intervals, while it is served
    logs: bool = False  # its calls send clients log messages
    final: str = ""  # reason why rollback is impossible, worded to follow the source's name

    @property
    def has_items(self) -> bool:
        """Whether it may have prompts and resources beside tools."""
        return self.server or self.own

    @property
    def has_description(self) -> bool:
        """Whether the source is read from a description, whose location may change."""
        return not (self.server or self.loaded)


class Kind(Struct, frozen=True):
    """A kind of tool. Its name is the tag of its bindings, and the kind of its sources."""

    binding: type[Binding]
    source: SourceFacts | None = None  # None: not importable


KINDS: dict[str, Kind] = {
    "openapi": Kind(
        OpenAPIBinding, SourceFacts(options=OpenAPIOptions, keeps_answers=True, schemes=True)
    ),
    "graphql": Kind(GraphQLBinding, SourceFacts(options=GraphQLOptions, keeps_answers=True)),
    "hybrid": Kind(HybridBinding, SourceFacts()),
    "python": Kind(PythonBinding, SourceFacts(loaded=True, final=_CODE)),
    "mcp": Kind(McpBinding, SourceFacts(options=McpOptions, server=True, final=_SERVER)),
    "a2a": Kind(
        A2aBinding, SourceFacts(options=A2aOptions, keeps_answers=True, polled=True, logs=True)
    ),
    "function": Kind(FunctionBinding),
    "script": Kind(ScriptBinding),
    "gateway": Kind(GatewayBinding),
    "wing": Kind(WingBinding, SourceFacts(loaded=True, own=True, final=_PART)),
}
"""The kinds of tools by name. Another one is a row here, one in `registry.sources.source_reader`
where it is imported, and one in `gateway.app.upstreams`, which says what executes its bindings."""

MANUAL_FACTS = SourceFacts(keeps_answers=True)
_UNKNOWN = SourceFacts()


def facts_of(kind: str) -> SourceFacts:
    """Facts of a kind of source; defaults for a kind that only a newer release knows."""
    if kind == MANUAL:
        return MANUAL_FACTS
    kind_facts = KINDS.get(kind)
    return (kind_facts and kind_facts.source) or _UNKNOWN


def stdio_location(command: tuple[str, ...]) -> str:
    """The location of an MCP server that is started by `command`."""
    return STDIO + shlex.join(command)


def is_importable(kind: object) -> bool:
    """Whether sources of this kind can be imported; `kind` may be stored by another release."""
    return isinstance(kind, str) and kind in KINDS and KINDS[kind].source is not None


def binding_decoder() -> Decoder[Binding]:
    """Decoder of stored bindings of every kind registered so far."""
    return _decoder(tuple(kind.binding for kind in KINDS.values()))


@cache
def _decoder(bindings: tuple[type[Binding], ...]) -> Decoder[Binding]:
    return Decoder(reduce(or_, bindings))


class RolledBack(Struct, frozen=True):
    """The version that a source was rolled back from; an identical one is not imported again."""

    version: int  # its number
    document: str | None  # SHA-256 of its bytes
    spec: dict[str, Any]  # as in `Version`


@dataclass(frozen=True, slots=True)
class Version:
    """One row of `api_version_t`: the document and options of one import of a source."""

    number: int  # from 1, in the order of the imports
    imported: str  # ISO 8601
    title: str | None
    version: str | None  # info.version of the document
    digest: str | None  # SHA-256 of the document
    outcomes: Mapping[str, int]  # operations per outcome; empty: not counted
    current: bool
    kept: bool  # its document is stored: tools can be made of it again
    # kind, location, base_url, base_url_trusted, include, exclude and options
    spec: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source:
    """One row of `api_t`: where tools came from and where their calls go."""

    id: str  # UUID
    name: str  # unique in its tenant; [a-z0-9][a-z0-9_-]{0,62}
    kind: str  # a name in KINDS, or MANUAL
    location: str  # path or URL of the description
    base_url: str | None  # where calls go; None while neither set nor in the document
    base_url_trusted: bool  # False: taken from the document, so SSRF guards apply to it
    title: str | None = None
    version: str | None = None  # info.version of the document
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    tool_count: int = 0
    updated: str = ""  # ISO 8601
    digest: str | None = None  # of the document, as the importer names it
    options: Options = field(default_factory=HybridOptions)  # those of its kind
    server: ServerFacts | None = None  # kind "mcp" only
    # by security scheme
    logins: Mapping[str, DescribedLogin] = field(default_factory=dict, hash=False)
    number: int | None = None  # of its version
    rolled_back: RolledBack | None = None
    origin: Origin | None = None  # None: made for tools by hand, or not stored
    foreign: str = ""  # its tenant, if not the gateway's own
    # Unique key among all sources of a gateway. Settings and stored credentials refer to sources of
    # the gateway's own tenant: no name there is the key of another tenant's source.
    place: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        place = f"{self.foreign}/{self.name}" if self.foreign else self.name
        object.__setattr__(self, "place", place)

    @property
    def facts(self) -> SourceFacts:
        return facts_of(self.kind)

    @property
    def is_described_outside(self) -> bool:
        """Whether others write what models read of its tools: the names, descriptions and schemas
        of another MCP server, unless it is pinned, or of a document at an address or one that no
        operator named."""
        if self.facts.own or self.kind == MANUAL:
            return False
        if self.facts.server:
            return not self.options.pin
        return self.options.guarded or self.location.startswith(("http://", "https://"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Import result of one operation."""

    key: str  # /pets/{id}@get
    operation: str  # operationId, or "GET /pets/{id}"
    name: str | None  # name of the tool; None when there is none
    status: OutcomeStatus
    reason: str | None = None  # why degraded, held back, skipped or excluded
