"""`initialize`, as we send it and as servers answer it. Pure, but for telling a hearer."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from gateway.upstreams.mcp.link import Facts, Hearer, Hello
from gateway.upstreams.mcp.wire import Garbage
from schemas.mcp.messages import PROMPTS_CHANGED, RESOURCES_CHANGED, TOOLS_CHANGED
from schemas.mcp.revisions import HANDSHAKE, Revision

INITIALIZED = "notifications/initialized"
LISTS = {
    "tools": TOOLS_CHANGED,
    "prompts": PROMPTS_CHANGED,
    "resources": RESOURCES_CHANGED,
}


class _Initialized(Struct, rename="camel"):
    protocol_version: str
    capabilities: dict[str, Any] = {}
    server_info: dict[str, Any] = {}
    instructions: str | None = None


def initialize(hello: Hello, revision: Revision) -> dict[str, Any]:
    return {
        "protocolVersion": revision.name,
        "capabilities": dict(hello.capabilities),
        "clientInfo": dict(hello.client),
    }


def read_facts(members: Mapping[str, Raw]) -> Facts:
    """Raises Garbage for a result that is none, or that names a revision that we do not have."""
    try:
        said = msgspec.json.decode(msgspec.json.encode(members), type=_Initialized)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Garbage("answered initialize with what is no InitializeResult") from error
    revision = HANDSHAKE.get(said.protocol_version)
    if revision is None:
        raise Garbage(f"wants the revision {said.protocol_version[:40]!r}, which is not known")
    return Facts(revision, said.capabilities, said.server_info, said.instructions or "")


async def missed(facts: Facts, hearer: Hearer) -> None:
    """Tell `hearer` that lists may have changed: nobody listened for a while."""
    for capability, method in LISTS.items():
        said = facts.capabilities.get(capability)
        if isinstance(said, Mapping) and said.get("listChanged"):
            await hearer.notified(method, {})
