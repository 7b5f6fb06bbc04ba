"""The params that we read and the results that we build. What we do not read is not here."""

from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from schemas.errors import InvalidParams
from schemas.jsonrpc import Params
from schemas.tool import Content

META_VERSION = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META_SERVER = "io.modelcontextprotocol/serverInfo"
META_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"

TOOLS_CHANGED = "notifications/tools/list_changed"


class Implementation(Struct, frozen=True):
    name: str
    version: str


class InitializeParams(Struct, frozen=True, rename="camel"):
    protocol_version: str
    capabilities: dict[str, Any]
    client_info: dict[str, Any]


class ListParams(Struct, frozen=True):
    cursor: str | None = None


class CallToolParams(Struct, frozen=True):
    name: str
    arguments: dict[str, Any] | None = None


class CancelledParams(Struct, frozen=True, rename="camel"):
    request_id: int | str
    reason: str | None = None


class ListenFilter(Struct, frozen=True, rename="camel"):
    tools_list_changed: bool = False


class ListenParams(Struct, frozen=True):
    notifications: ListenFilter


class InitializeResult(Struct, frozen=True, rename="camel", omit_defaults=True):
    protocol_version: str
    capabilities: dict[str, Any]
    server_info: Implementation
    instructions: str = ""


class DiscoverResult(Struct, frozen=True, rename="camel", omit_defaults=True):
    """2026-07-28 only."""

    supported_versions: tuple[str, ...]
    capabilities: dict[str, Any]
    result_type: str
    ttl_ms: int
    cache_scope: str
    meta: dict[str, Any] = field(name="_meta")
    instructions: str = ""


class ListToolsResult(Struct, frozen=True, rename="camel", omit_defaults=True):
    tools: Raw  # a JSON array
    next_cursor: str | UnsetType = UNSET
    result_type: str | UnsetType = UNSET
    ttl_ms: int | UnsetType = UNSET
    cache_scope: str | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")


class CallToolResult(Struct, frozen=True, rename="camel", omit_defaults=True):
    content: tuple[Content, ...]
    structured_content: Raw | UnsetType = UNSET
    is_error: bool = False
    result_type: str | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")


P = TypeVar("P", bound=Struct)


def read(params: Params | UnsetType, as_type: type[P]) -> P:
    """Read `params` as `as_type`. Raises InvalidParams that names the member and its type."""
    if isinstance(params, list):
        raise InvalidParams("params must be an object, not an array")
    try:
        return msgspec.convert({} if params is UNSET else params, as_type)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"params: {error}") from error
