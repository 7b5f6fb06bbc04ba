"""`initialize`, the envelope of stateless requests, and translation between eras.

A request without capabilities of its own declares that its client can be asked for no input.
Pure, except that `missed` notifies a hearer.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from gateway.context import Context
from gateway.upstreams.mcp.link import Hearer, Hello, LinkFacts
from gateway.upstreams.mcp.wire import Garbage
from schemas.mcp.headers import NAMED_BY, encode_header
from schemas.mcp.messages import (
    META_CAPABILITIES,
    META_CLIENT,
    META_LOG_LEVEL,
    META_SERVER,
    META_VERSION,
    PROMPTS_CHANGED,
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
)
from schemas.mcp.revisions import HANDSHAKE, V2026_07_28, Revision
from schemas.mcp.snapshot import Eras

DISCOVER = "server/discover"


class _Discovered(Struct, rename="camel"):
    supported_versions: tuple[str, ...]
    capabilities: dict[str, Any] = {}
    instructions: str | None = None
    meta: dict[str, Any] = field(name="_meta", default_factory=dict)


def with_envelope(params: Mapping[str, Any], client: Mapping[str, Any]) -> dict[str, Any]:
    """`params` with the required `_meta` members; values already there take precedence."""
    meta = params.get("_meta")
    own = {META_CAPABILITIES: {}, META_CLIENT: dict(client)}
    said = meta if isinstance(meta, Mapping) else {}
    return {**params, "_meta": {**own, **said, META_VERSION: V2026_07_28.name}}


def routing_headers(method: str, params: Mapping[str, Any]) -> dict[str, str]:
    """HTTP headers that repeat members of the body, for routing."""
    headers = {"MCP-Protocol-Version": V2026_07_28.name, "Mcp-Method": encode_header(method)}
    name = params.get(NAMED_BY.get(method, ""))
    if isinstance(name, str):
        headers["Mcp-Name"] = encode_header(name)
    return headers


def read_discovered(members: Mapping[str, Raw]) -> tuple[tuple[str, ...], LinkFacts]:
    """Supported revisions and self-description from a DiscoverResult. Raises Garbage."""
    try:
        said = msgspec.json.decode(msgspec.json.encode(members), type=_Discovered)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Garbage("answered server/discover with what is no DiscoverResult") from error
    info = said.meta.get(META_SERVER)
    server_info = info if isinstance(info, dict) else {}
    facts = LinkFacts(V2026_07_28, said.capabilities, server_info, said.instructions or "")
    return said.supported_versions, facts


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


def read_facts(members: Mapping[str, Raw]) -> LinkFacts:
    """Facts of an InitializeResult. Raises Garbage for an invalid one or an unknown revision."""
    try:
        said = msgspec.json.decode(msgspec.json.encode(members), type=_Initialized)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Garbage("answered initialize with what is no InitializeResult") from error
    revision = HANDSHAKE.get(said.protocol_version)
    if revision is None:
        raise Garbage(f"wants the revision {said.protocol_version[:40]!r}, which is not known")
    return LinkFacts(revision, said.capabilities, said.server_info, said.instructions or "")


async def missed(facts: LinkFacts, hearer: Hearer) -> None:
    """Notify `hearer` that lists may have changed: the stream was interrupted for a while."""
    for capability, method in LISTS.items():
        said = facts.capabilities.get(capability)
        if isinstance(said, Mapping) and said.get("listChanged"):
            await hearer.notified(method, {})


OWN_META = frozenset({META_VERSION, META_CAPABILITIES, META_CLIENT, META_LOG_LEVEL})
ROUNDS = ("inputResponses", "requestState")  # members of an MRTR retry that carries answers
ASKS: Mapping[str, frozenset[str]] = {  # client capabilities that a server may use, and their kinds
    "sampling": frozenset({"context", "tools"}),
    "elicitation": frozenset({"form", "url"}),
    "roots": frozenset(),
}


def era_for(spoken: Mapping[str, bool], eras: Eras, handshake_client: bool) -> str | None:
    """The era to ask a server in: the client's own where the server lists the item in it.

    `spoken` maps "handshake" and "stateless" to whether the server speaks it. None: neither fits.
    """
    own, other = ("handshake", "stateless") if handshake_client else ("stateless", "handshake")
    usable = [era for era in (own, other) if spoken[era] and eras in {"both", era}]
    return usable[0] if usable else None


def askable(context: Context) -> dict[str, Any]:
    """What the client can be asked, as the gateway's capabilities at a server: known kinds only."""
    if context.peer is None or (context.revision.handshake and context.session is None):
        return {}
    said = context.capabilities
    return {
        name: {kind: {} for kind in sorted(kinds) if kind in _object(said[name])}
        for name, kinds in ASKS.items()
        if isinstance(said.get(name), dict) and (name != "elicitation" or context.revision.elicits)
    }


def stateless_params(
    params: Mapping[str, Any], context: Context, capabilities: Mapping[str, Any]
) -> dict[str, Any]:
    """`params` for a 2026-07-28 server; `capabilities` are what the client can be asked.

    A client of that revision has everything in its `_meta` already, and all of it is passed on,
    including the extensions that it declares.
    """
    kept = {name: value for name, value in params.items() if name != "task"}
    meta = {**_object(params.get("_meta"))}
    session = context.session
    if session is None and isinstance(meta.get(META_CAPABILITIES), dict):
        return {**kept, "_meta": meta}
    meta[META_CAPABILITIES] = capabilities
    if session is not None:
        if session.client:
            meta[META_CLIENT] = session.client
        if session.log_level is not None:
            meta[META_LOG_LEVEL] = session.log_level
    return {**kept, "_meta": meta}


def handshake_params(params: Mapping[str, Any], tasks: bool) -> dict[str, Any]:
    """`params` for a server that has the `_meta` of a 2026-07-28 request in its session instead."""
    kept = {
        name: value
        for name, value in params.items()
        if name not in ROUNDS and (name != "task" or tasks)
    }
    meta = {name: said for name, said in _object(kept.pop("_meta", None)).items()
            if name not in OWN_META}  # fmt: skip
    return {**kept, "_meta": meta} if meta else kept


def canonical(value: Any) -> str:
    """JSON of `value` that is the same for equal values."""
    return msgspec.json.encode(value, order="deterministic").decode()


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
