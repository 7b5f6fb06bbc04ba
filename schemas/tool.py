"""Tools and their results, as the gateway holds them.

Schemas and structured results are `Raw`: JSON text that is passed through, not re-encoded.
"""

from dataclasses import dataclass
from dataclasses import field as default
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType, field

from schemas.binding import Binding

# Reserved arguments of imported tools; a tool's own argument of the same name takes precedence.
FIELDS = "_fields"  # the members of the answer that are wanted, as dotted paths
CONTINUE = "_continue"  # the handle of a truncated answer
READ_FIELDS = frozenset(  # of drafts, and of changes by hand, that models and people read
    ("title", "description", "input_schema", "output_schema", "annotations", "tags", "definition")
) | {"examples"}
META_NEXT = "toolgate/next"  # in `_meta` of a result: the arguments that get the next page


class Annotations(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Hints about a tool, MCP `ToolAnnotations` (2025-03-26); never promises."""

    title: str | UnsetType = UNSET
    read_only_hint: bool | UnsetType = UNSET
    destructive_hint: bool | UnsetType = UNSET
    idempotent_hint: bool | UnsetType = UNSET
    open_world_hint: bool | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class ToolDraft:
    """Draft of a tool as proposed by an importer, without an identity yet.

    `key` identifies the operation inside its source across imports (`/pets/{id}@get`), also when
    it is renamed. `input_schema` is a self-contained JSON Schema 2020-12 object.
    """

    key: str
    name: str
    description: str
    input_schema: dict[str, Any]
    binding: Binding
    title: str | None = None
    output_schema: dict[str, Any] | None = None
    annotations: Annotations = default(default_factory=Annotations)
    tags: tuple[str, ...] = ()
    definition: dict[str, Any] | None = None  # see `Tool.definition`
    toolsets: tuple[str, ...] = ()  # that its description puts it into
    operation: str | None = None  # its id in the description: may stay when its key changes


@dataclass(frozen=True, slots=True)
class Tool:
    """A stored tool: one row of `tool_t`."""

    id: str  # UUID
    name: str  # unique in its tenant; [A-Za-z0-9_-]{1,128}
    title: str | None
    description: str
    input_schema: Raw
    output_schema: Raw | None
    annotations: Annotations
    binding: Binding
    source: str  # name of the source that it came from
    digest: str  # SHA-256 over name, title, description, schemas and annotations
    definition: Raw | None = None  # of another MCP server's tool: members without a field above
    toolsets: tuple[str, ...] = ()  # that its description puts it into, besides the settings
    aliases: tuple[str, ...] = ()  # previous names: callable, not listed
    tier: str | None = None  # sensitivity tier; None: not set
    tags: tuple[str, ...] = ()
    domain: str | None = None  # routing domain


class TextContent(Struct, frozen=True, tag="text"):
    text: str


class ImageContent(Struct, frozen=True, tag="image", rename="camel"):
    data: str  # base64
    mime_type: str


class AudioContent(Struct, frozen=True, tag="audio", rename="camel"):
    data: str  # base64
    mime_type: str


class BlobResource(Struct, frozen=True, rename="camel"):
    uri: str
    mime_type: str
    blob: str  # base64


class EmbeddedResource(Struct, frozen=True, tag="resource"):
    resource: BlobResource


class ResourceLink(Struct, frozen=True, tag="resource_link", rename="camel", omit_defaults=True):
    """A resource to be read with `resources/read` (2025-06-18)."""

    uri: str
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    size: int | UnsetType = UNSET  # bytes


Content = TextContent | ImageContent | AudioContent | EmbeddedResource | ResourceLink


class ToolResult(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Result of a call. A tool that failed is `is_error=True`: a model can react to it."""

    content: tuple[Content, ...]
    structured_content: Raw | UnsetType = UNSET
    is_error: bool = False
    meta: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")

    @property
    def texts(self) -> list[str]:
        """The contents that are text."""
        return [content.text for content in self.content if isinstance(content, TextContent)]

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


class Outage(ToolResult, frozen=True):
    """Outage: a failed result because the whole source is down, for every caller and request. The
    distinction is internal to the gateway: on the wire it is an ordinary result."""


class AskingResult(ToolResult, frozen=True, kw_only=True):
    """A result for a client of 2026-07-28 that is asked something, and then calls again (MRTR);
    any other gets it as an ordinary one."""

    requests: dict[str, Any]  # of MCP to the client, by key
    state: str  # that it sends with its answers


class RelayedResult(Struct, frozen=True):
    """A result of another MCP server with its members unchanged, so that unknown ones are kept."""

    members: dict[str, Raw]
