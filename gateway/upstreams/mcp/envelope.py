"""What every request of 2026-07-28 carries beside its own params, in its body and its headers.
Pure.

A request without capabilities of its own says that its client can be asked nothing.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from gateway.upstreams.mcp.link import Facts
from gateway.upstreams.mcp.wire import Garbage
from schemas.mcp.headers import NAMED_BY, encode_header
from schemas.mcp.messages import META_CAPABILITIES, META_CLIENT, META_SERVER, META_VERSION
from schemas.mcp.revisions import V2026_07_28

DISCOVER = "server/discover"


class _Discovered(Struct, rename="camel"):
    supported_versions: tuple[str, ...]
    capabilities: dict[str, Any] = {}
    instructions: str | None = None
    meta: dict[str, Any] = field(name="_meta", default_factory=dict)


def with_envelope(params: Mapping[str, Any], client: Mapping[str, Any]) -> dict[str, Any]:
    """`params` with the `_meta` that they must have; what stands there already stays."""
    meta = params.get("_meta")
    own = {META_CAPABILITIES: {}, META_CLIENT: dict(client)}
    said = meta if isinstance(meta, Mapping) else {}
    return {**params, "_meta": {**own, **said, META_VERSION: V2026_07_28.name}}


def routing_headers(method: str, params: Mapping[str, Any]) -> dict[str, str]:
    """The headers that repeat the body."""
    headers = {"MCP-Protocol-Version": V2026_07_28.name, "Mcp-Method": encode_header(method)}
    name = params.get(NAMED_BY.get(method, ""))
    if isinstance(name, str):
        headers["Mcp-Name"] = encode_header(name)
    return headers


def read_discovered(members: Mapping[str, Raw]) -> tuple[tuple[str, ...], Facts]:
    """The revisions that a server has, and what it says of itself. Raises Garbage."""
    try:
        said = msgspec.json.decode(msgspec.json.encode(members), type=_Discovered)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Garbage("answered server/discover with what is no DiscoverResult") from error
    info = said.meta.get(META_SERVER)
    server_info = info if isinstance(info, dict) else {}
    facts = Facts(V2026_07_28, said.capabilities, server_info, said.instructions or "")
    return said.supported_versions, facts
