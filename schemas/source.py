"""Sources: the documents and servers that tools come from."""

from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from schemas.hybrid import Side
from schemas.mcp.snapshot import ServerFacts

OutcomeStatus = Literal["imported", "degraded", "held", "skipped", "excluded"]


class HybridOptions(Struct, frozen=True, omit_defaults=True):
    """How a hybrid service behind the gateway is called; stored in `api_t.options`."""

    side: Side | None = None  # which portal path it answers on, here and there
    dialect: Literal["jsonrpc", "legacy"] = "jsonrpc"  # what its calls go out as
    batch: int = 1  # most calls in one JSON-RPC batch; 1: each goes alone


Prefix = Literal["always", "conditional", "never"]


class McpOptions(Struct, frozen=True, omit_defaults=True):
    """How another MCP server is reached and shown; stored in `api_t.options`."""

    command: tuple[str, ...] = ()  # of a stdio server, and its arguments; else it has an address
    era: Literal["auto", "handshake", "stateless"] = "auto"  # auto: whatever it speaks
    prefix: Prefix = "conditional"  # when names carry the source's name in front
    own_sessions: bool = False  # each session of a client gets one of its own at the server
    pin: bool = False  # definitions that change are held back until somebody approves them


Options = HybridOptions | McpOptions


@dataclass(frozen=True, slots=True)
class Source:
    """One row of `api_t`: where tools came from and where their calls go."""

    id: str  # UUID
    name: str  # unique in its tenant; [a-z0-9][a-z0-9_-]{0,62}
    kind: str  # "openapi", "hybrid", "python" or "mcp"
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
    options: Options = field(default_factory=HybridOptions)  # kinds "hybrid" and "mcp" only
    server: ServerFacts | None = None  # kind "mcp" only


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one operation on import."""

    key: str  # /pets/{id}@get
    operation: str  # operationId, or "GET /pets/{id}"
    name: str | None  # name of the tool; None when there is none
    status: OutcomeStatus
    reason: str | None = None  # why degraded, held back, skipped or excluded
