"""MCP params that the gateway reads and results that it builds; members it ignores are omitted."""

from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from schemas.errors import InvalidParams
from schemas.jsonrpc import Params
from schemas.mismatch import mismatch_text
from schemas.tool import Content

META_VERSION = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META_LOG_LEVEL = "io.modelcontextprotocol/logLevel"
META_CLIENT = "io.modelcontextprotocol/clientInfo"
META_RELATED_TASK = "io.modelcontextprotocol/related-task"
META_SERVER = "io.modelcontextprotocol/serverInfo"
META_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"

PROGRESS = "notifications/progress"
CANCELLED = "notifications/cancelled"
TOOLS_CHANGED = "notifications/tools/list_changed"
PROMPTS_CHANGED = "notifications/prompts/list_changed"
RESOURCES_CHANGED = "notifications/resources/list_changed"
RESOURCE_UPDATED = "notifications/resources/updated"
TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
ListKind = Literal["tools", "prompts", "resources"]  # what `list_changed` notifications distinguish

LOG_LEVELS = (  # least severe first (RFC 5424, 6.2.1)
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency",
)  # fmt: skip

P = TypeVar("P", bound=Struct)


class Implementation(Struct, frozen=True):
    name: str
    version: str


class InitializeParams(Struct, frozen=True, rename="camel"):
    protocol_version: str
    capabilities: dict[str, Any]
    client_info: dict[str, Any]


class ListParams(Struct, frozen=True):
    cursor: str | None = None


class ToolListParams(ListParams, frozen=True):
    """Params of tools/list. `query` and `intent` are light-4j's: texts that a tool has to contain.
    Where no tool contains `intent`, semantic search is used."""

    query: str | None = None
    intent: str | None = None

    @property
    def texts(self) -> list[str]:
        return [text.strip() for text in (self.query, self.intent) if text and text.strip()]


class CallToolParams(Struct, frozen=True):
    name: str
    arguments: dict[str, Any] | None = None
    task: Any = None  # 2025-11-25: the call is to run as a task


class ResourceParams(Struct, frozen=True):
    uri: str


class PromptParams(Struct, frozen=True):
    name: str
    arguments: dict[str, Any] | None = None


class LevelParams(Struct, frozen=True):
    level: str


class PromptReference(Struct, frozen=True, tag_field="type", tag="ref/prompt"):
    name: str


class ResourceReference(Struct, frozen=True, tag_field="type", tag="ref/resource"):
    uri: str  # of a resource, or its URI template


class CompletedArgument(Struct, frozen=True):
    name: str
    value: str


class CompleteParams(Struct, frozen=True):
    ref: PromptReference | ResourceReference
    argument: CompletedArgument


class TaskParams(Struct, frozen=True, rename="camel"):
    task_id: str


class CancelledParams(Struct, frozen=True, rename="camel"):
    request_id: int | str
    reason: str | None = None


class ListenFilter(Struct, frozen=True, rename="camel"):
    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: tuple[str, ...] | None = None  # URIs


class ListenParams(Struct, frozen=True):
    notifications: ListenFilter


class InitializeResult(Struct, frozen=True, rename="camel", omit_defaults=True):
    protocol_version: str
    capabilities: dict[str, Any]
    server_info: Implementation
    instructions: str = ""


class DiscoverResult(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Result of server/discover (2026-07-28 only)."""

    supported_versions: tuple[str, ...]
    capabilities: dict[str, Any]
    result_type: str
    ttl_ms: int
    cache_scope: str
    meta: dict[str, Any] = field(name="_meta")
    instructions: str = ""


class CallToolResult(Struct, frozen=True, rename="camel", omit_defaults=True):
    content: tuple[Content, ...]
    structured_content: Raw | UnsetType = UNSET
    is_error: bool = False
    result_type: str | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")


class InputRequiredResult(CallToolResult, frozen=True, kw_only=True):
    """Questions to the client, which calls again with its answers (MRTR: 2026-07-28)."""

    input_requests: dict[str, Any]  # by key
    request_state: str


def read(params: Params | UnsetType, as_type: type[P]) -> P:
    """Read `params` as `as_type`. Raises InvalidParams that names the member and its type."""
    if isinstance(params, list):
        raise InvalidParams("params must be an object, not an array")
    members = {} if params is UNSET else params
    try:
        return msgspec.convert(members, as_type)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"params: {mismatch_text(members, as_type, error)}") from error
