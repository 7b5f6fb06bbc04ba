"""Sources: the documents and servers that tools come from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, reduce
from operator import or_
from typing import Any, Literal

from msgspec import Struct
from msgspec.json import Decoder

from schemas.binding import (
    Binding,
    FunctionBinding,
    GatewayBinding,
    GraphQLBinding,
    HybridBinding,
    McpBinding,
    OpenAPIBinding,
    PythonBinding,
    ScriptBinding,
)
from schemas.hybrid import Side
from schemas.mcp.snapshot import ServerFacts

Origin = Literal["settings", "example", "cli", "admin"]
"""Who had a source imported last; "example": the settings of one of the product's examples."""

OutcomeStatus = Literal["imported", "degraded", "held", "skipped", "excluded"]


Prefix = Literal["always", "conditional", "never"]


class ImportOptions(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the options of every kind say; a kind that has more to say has a field of that name."""

    guarded: bool = False  # named by who is no operator: only public addresses are asked and called

    @property
    def side(self) -> Side | None:
        """The portal path that its actions answer on; None: both."""
        return None

    @property
    def command(self) -> tuple[str, ...]:
        """What starts the process that it is, and its arguments; none: it has an address."""
        return ()

    @property
    def prefix(self) -> Prefix:
        """When names of its tools carry its own in front."""
        return "conditional"

    @property
    def own_sessions(self) -> bool:
        """Whether each session of a client has one of its own there."""
        return False

    @property
    def pin(self) -> bool:
        """Whether what changes is held back until somebody approves it."""
        return False


class HybridOptions(ImportOptions, frozen=True, omit_defaults=True):
    """How a hybrid service behind the gateway is called; stored in `api_t.options`."""

    side: Side | None = None  # which portal path it answers on, here and there
    dialect: Literal["jsonrpc", "legacy"] = "jsonrpc"  # what its calls go out as
    batch: int = 1  # most calls in one JSON-RPC batch; 1: each goes alone


class McpOptions(ImportOptions, frozen=True, omit_defaults=True):
    """How another MCP server is reached and shown; stored in `api_t.options`."""

    command: tuple[str, ...] = ()  # of a stdio server, and its arguments; else it has an address
    era: Literal["auto", "handshake", "stateless"] = "auto"  # auto: whatever it speaks
    prefix: Prefix = "conditional"  # when names carry the source's name in front
    own_sessions: bool = False  # each session of a client gets one of its own at the server
    pin: bool = False  # definitions that change are held back until somebody approves them


class OpenAPIOptions(ImportOptions, frozen=True, omit_defaults=True):
    """How an OpenAPI description is read; stored in `api_t.options`."""

    entry: str | None = None  # the file to begin with, of a directory or an archive
    overlay: str | None = None  # path or URL of a file with our own marks
    only_marked: bool = False  # what is not marked as enabled is left out
    media_types: tuple[str, ...] = ()  # of request bodies, the ones to prefer first


class GraphQLOptions(ImportOptions, frozen=True, omit_defaults=True):
    """How the fields of a GraphQL service become tools; stored in `api_t.options`."""

    overlay: str | None = None
    only_marked: bool = False
    depth: int = 3  # levels of objects in a selection
    cost: int = 60  # most fields in a selection


MANUAL = "manual"  # the kind of a source that nobody imported: tools made by hand call it
Options = ImportOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """What the gateway does otherwise for the sources of one kind; the defaults ask for nothing."""

    options: type[Options] = HybridOptions
    server: bool = False  # an MCP server: asked what it has, watched, and called where it is found
    loaded: bool = False  # code inside the gateway: without an address, served where it is loaded
    keeps_answers: bool = False  # answers of its tools can be kept: see `schemas.binding.Facts`
    schemes: bool = False  # its tools name the credentials that they need; else headers are sent
    final: str = ""  # why there is no rollback, as it follows the name of a source

    @property
    def described(self) -> bool:
        """Whether it is read from a description, which is somewhere and may move."""
        return not (self.server or self.loaded)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of tool. Its name is the tag of its bindings, and the kind of its sources."""

    binding: type[Binding]
    source: SourceFacts | None = None  # None: nothing of that kind is imported


# What another server has is its own affair (`pin` holds back what it changed), and what is written
# in Python is in the code.
_SERVER = "is another MCP server: only that can bring back what it had. --pin holds back changes"
_CODE = "is written in Python: bring back its code"

KINDS: dict[str, Kind] = {
    "openapi": Kind(
        OpenAPIBinding, SourceFacts(options=OpenAPIOptions, keeps_answers=True, schemes=True)
    ),
    "graphql": Kind(GraphQLBinding, SourceFacts(options=GraphQLOptions, keeps_answers=True)),
    "hybrid": Kind(HybridBinding, SourceFacts()),
    "python": Kind(PythonBinding, SourceFacts(loaded=True, final=_CODE)),
    "mcp": Kind(McpBinding, SourceFacts(options=McpOptions, server=True, final=_SERVER)),
    "function": Kind(FunctionBinding),
    "script": Kind(ScriptBinding),
    "gateway": Kind(GatewayBinding),
}
"""The kinds of tools by name. Another one is a row here, one in `registry.sources.source_reader`
where it is imported, and one in `gateway.app.upstreams`, which says what executes its bindings."""

BY_HAND = SourceFacts(keeps_answers=True)
_UNKNOWN = SourceFacts()


def facts_of(kind: str) -> SourceFacts:
    """Those of a kind of source; of one that only a newer release knows, the usual ones."""
    if kind == MANUAL:
        return BY_HAND
    known = KINDS.get(kind)
    return (known and known.source) or _UNKNOWN


def is_importable(kind: object) -> bool:
    """Whether a source can be of this kind; `kind` may be what another release has stored."""
    return isinstance(kind, str) and kind in KINDS and KINDS[kind].source is not None


def binding_decoder() -> Decoder[Binding]:
    """Reads stored bindings of every kind that is known by now."""
    return _decoder(tuple(one.binding for one in KINDS.values()))


@cache
def _decoder(bindings: tuple[type[Binding], ...]) -> Decoder[Binding]:
    return Decoder(reduce(or_, bindings))


class RolledBack(Struct, frozen=True):
    """What a source was rolled back from. The same found again is not imported."""

    version: int  # its number
    document: str | None  # SHA-256 of its bytes
    asked: dict[str, Any]  # as in `Version`


@dataclass(frozen=True, slots=True)
class Version:
    """One row of `api_version_t`: what a source was once imported from."""

    number: int  # from 1, in the order of the imports
    imported: str  # ISO 8601
    title: str | None
    version: str | None  # info.version of the document
    digest: str | None  # SHA-256 of the document
    outcomes: Mapping[str, int]  # operations by what became of them; empty: nobody counted
    current: bool
    kept: bool  # its document is there: tools can be made of it again
    # kind, location, base_url, base_url_trusted, include, exclude and options
    asked: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source:
    """One row of `api_t`: where tools came from and where their calls go."""

    id: str  # UUID
    name: str  # unique in its tenant; [a-z0-9][a-z0-9_-]{0,62}
    kind: str  # a name in KINDS, or MANUAL
    location: str  # path or URL of the description
    base_url: str | None  # where calls go; None while nobody said and the document does not
    base_url_trusted: bool  # False: it stands in the document only, so SSRF guards apply to it
    title: str | None = None
    version: str | None = None  # info.version of the document
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    tool_count: int = 0
    updated: str = ""  # ISO 8601
    digest: str | None = None  # of the document, as the importer names it
    options: Options = field(default_factory=HybridOptions)  # those of its kind
    server: ServerFacts | None = None  # kind "mcp" only
    number: int | None = None  # of its version
    rolled_back: RolledBack | None = None
    origin: Origin | None = None  # None: made for tools by hand, or it was not kept
    foreign: str = ""  # its tenant, where that is not the gateway's own

    @property
    def facts(self) -> SourceFacts:
        return facts_of(self.kind)

    @property
    def place(self) -> str:
        """Tells it apart from all that a gateway serves. Settings and stored credentials are about
        sources of the gateway's own tenant: no name there is the place of another's."""
        return f"{self.foreign}/{self.name}" if self.foreign else self.name


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one operation on import."""

    key: str  # /pets/{id}@get
    operation: str  # operationId, or "GET /pets/{id}"
    name: str | None  # name of the tool; None when there is none
    status: OutcomeStatus
    reason: str | None = None  # why degraded, held back, skipped or excluded
