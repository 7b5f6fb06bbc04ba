"""Negotiation with a server: `initialize`, the envelope of stateless requests, translation between
eras, and the probe of the revisions that a server speaks (2026-07-28, basic/versioning).

    answer to server/discover                                it is stateless
    result that lists 2026-07-28                             yes
    another result; another JSON-RPC error; another 4xx      no
    -32020, -32021; -32022 that lists 2026-07-28;
      -32601 with HTTP 404                                   yes, of unknown capabilities
    401, 403, 429, 5xx, 3xx; timeout                         unknown: the probe fails

`initialize` is sent in any case, since a server may have both eras; a server that is stateless and
refuses it, in whatever transport, has one. HTTP+SSE is tried last.

A request without capabilities of its own declares that its client can be asked for no input.
"""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct, field

from gateway.context import Context
from gateway.upstreams.http.source_pools import UpstreamFailed
from gateway.upstreams.mcp.http_requests_and_responses import HttpFault, HttpStatusError
from gateway.upstreams.mcp.link_and_handlers import (
    ClientProfile,
    Link,
    MessageHandler,
    ServerDescription,
    SessionLost,
)
from gateway.upstreams.mcp.message_parsers import MalformedMessage
from schemas.errors import (
    HeaderMismatch,
    MethodNotFound,
    MissingClientCapability,
    RelayedFault,
    UnsupportedProtocolVersion,
)
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
from schemas.source import McpOptions, Source
from schemas.untrusted_json import mapping

DISCOVER = "server/discover"

INITIALIZED = "notifications/initialized"
LISTS = {
    "tools": TOOLS_CHANGED,
    "prompts": PROMPTS_CHANGED,
    "resources": RESOURCES_CHANGED,
}

OWN_META = frozenset({META_VERSION, META_CAPABILITIES, META_CLIENT, META_LOG_LEVEL})
RETRY_MEMBERS = ("inputResponses", "requestState")  # members of an MRTR retry that carries answers
BAGGAGE = "baggage"  # SEP-414; what a client says of itself there is not for services
OF_ONE_ERA = frozenset((*RETRY_MEMBERS, "task", "_meta"))  # members that differ between eras
ASKABLE: Mapping[
    str, frozenset[str]
] = {  # client capabilities that a server may use, and their kinds
    "sampling": frozenset({"context", "tools"}),
    "elicitation": frozenset({"form", "url"}),
    "roots": frozenset(),
}

ALL_ASKABLE: Mapping[str, Mapping[str, Any]] = {
    name: {kind: {} for kind in sorted(kinds)} for name, kinds in ASKABLE.items()
}

UNKNOWN = ServerDescription(
    V2026_07_28, {"tools": {}, "prompts": {}, "resources": {}}
)  # its lists decide


class _Discovered(Struct, rename="camel"):
    supported_versions: tuple[str, ...]
    capabilities: dict[str, Any] = {}
    instructions: str | None = None
    meta: dict[str, Any] = field(name="_meta", default_factory=dict)


def with_envelope(params: Mapping[str, Any], client: Mapping[str, Any]) -> dict[str, Any]:
    """`params` with the required `_meta` members; values already there take precedence."""
    meta = params.get("_meta")
    client_members = {META_CAPABILITIES: {}, META_CLIENT: dict(client)}
    members = meta if isinstance(meta, Mapping) else {}
    return {**params, "_meta": {**client_members, **members, META_VERSION: V2026_07_28.name}}


def routing_headers(method: str, params: Mapping[str, Any]) -> dict[str, str]:
    """HTTP headers that repeat members of the body, for routing."""
    headers = {"MCP-Protocol-Version": V2026_07_28.name, "Mcp-Method": encode_header(method)}
    name = params.get(NAMED_BY.get(method, ""))
    if isinstance(name, str):
        headers["Mcp-Name"] = encode_header(name)
    return headers


def read_discovered(members: Mapping[str, Raw]) -> tuple[tuple[str, ...], ServerDescription]:
    """Supported revisions and self-description from a DiscoverResult. Raises MalformedMessage."""
    try:
        result = msgspec.json.decode(msgspec.json.encode(members), type=_Discovered)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedMessage("did not answer server/discover with a DiscoverResult") from error
    info = result.meta.get(META_SERVER)
    server_info = info if isinstance(info, dict) else {}
    facts = ServerDescription(
        V2026_07_28, result.capabilities, server_info, result.instructions or ""
    )
    return result.supported_versions, facts


class _Initialized(Struct, rename="camel"):
    protocol_version: str
    capabilities: dict[str, Any] = {}
    server_info: dict[str, Any] = {}
    instructions: str | None = None


def initialize(profile: ClientProfile, revision: Revision) -> dict[str, Any]:
    return {
        "protocolVersion": revision.name,
        "capabilities": dict(profile.capabilities),
        "clientInfo": dict(profile.client),
    }


def read_facts(members: Mapping[str, Raw]) -> ServerDescription:
    """Facts of an InitializeResult. Raises MalformedMessage for an invalid or unknown revision."""
    try:
        result = msgspec.json.decode(msgspec.json.encode(members), type=_Initialized)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedMessage("did not answer initialize with an InitializeResult") from error
    revision = HANDSHAKE.get(result.protocol_version)
    if revision is None:
        raise MalformedMessage(
            f"wants the revision {result.protocol_version[:40]!r}, which is not known"
        )
    return ServerDescription(
        revision, result.capabilities, result.server_info, result.instructions or ""
    )


async def notify_missed_changes(facts: ServerDescription, handler: MessageHandler) -> None:
    """Notify `handler` that lists may have changed: the stream was interrupted for a while."""
    for capability, method in LISTS.items():
        declared = facts.capabilities.get(capability)
        if isinstance(declared, Mapping) and declared.get("listChanged"):
            await handler.on_notification(method, {})


def era_for(supported: Mapping[str, bool], eras: Eras, handshake_client: bool) -> str | None:
    """The era to ask a server in: the client's own where the server lists the item in it.

    `supported` maps "handshake" and "stateless" to whether the server speaks it. None: neither
    fits.
    """
    own, second = ("handshake", "stateless") if handshake_client else ("stateless", "handshake")
    for era in (own, second):
        if supported[era] and eras in ("both", era):
            return era
    return None


def declared_capabilities(context: Context) -> dict[str, Any]:
    """Capabilities that the gateway declares to a server: those of the client, in known kinds
    only."""
    is_alone = context.revision.handshake and context.session is None
    if context.asker is None and (context.peer is None or is_alone):
        return {}
    declared = context.capabilities
    if not declared:
        return {}
    return {
        name: {kind: {} for kind in sorted(kinds) if kind in mapping(declared[name])}
        for name, kinds in ASKABLE.items()
        if isinstance(declared.get(name), dict)
        and (name != "elicitation" or context.revision.elicits)
    }


def stateless_params(
    params: Mapping[str, Any], context: Context, capabilities: Mapping[str, Any]
) -> dict[str, Any]:
    """`params` for a 2026-07-28 server; `capabilities` are those declared for the client.

    A client of that revision has everything in its `_meta` already, and all of it is passed on,
    including the extensions that it declares.
    """
    forwarded = {name: value for name, value in params.items() if name != "task"}
    meta = {**mapping(params.get("_meta"))}
    meta.pop(BAGGAGE, None)
    session = context.session
    if session is None and isinstance(meta.get(META_CAPABILITIES), dict):
        return {**forwarded, "_meta": meta}
    meta[META_CAPABILITIES] = capabilities
    if session is not None:
        if session.client:
            meta[META_CLIENT] = session.client
        if session.log_level is not None:
            meta[META_LOG_LEVEL] = session.log_level
    return {**forwarded, "_meta": meta}


def handshake_params(params: Mapping[str, Any], tasks: bool) -> dict[str, Any]:
    """`params` for a server that has the `_meta` of a 2026-07-28 request in its session instead."""
    if params.keys().isdisjoint(OF_ONE_ERA):
        return {**params}
    forwarded = {
        name: value
        for name, value in params.items()
        if name not in RETRY_MEMBERS and (name != "task" or tasks)
    }
    meta = {name: declared for name, declared in mapping(forwarded.pop("_meta", None)).items()
            if name not in OWN_META and name != BAGGAGE}  # fmt: skip
    return {**forwarded, "_meta": meta} if meta else forwarded


def canonical(value: Any) -> str:
    """JSON of `value` that is the same for equal values."""
    return msgspec.json.encode(value, order="deterministic").decode()


TransportName = Literal["streamable", "sse", "stdio"]


@dataclass(frozen=True, slots=True)
class SupportedEras:
    """The eras that a server supports; None for one that it does not."""

    stateless: ServerDescription | None
    handshake: ServerDescription | None
    transport: TransportName = "streamable"  # of its sessions

    @property
    def eras(self) -> Mapping[str, bool]:
        return {
            "stateless": self.stateless is not None,
            "handshake": self.handshake is not None,
        }


async def stateless_facts(
    name: str, discover: Awaitable[dict[str, Raw]], *, silent: bool = True
) -> ServerDescription | None:
    """Facts from the answer to `server/discover`, None if not stateless. Raises UpstreamFailed when
    it is inconclusive, unless `silent` is False: processes of older eras may not answer at all."""
    try:
        versions, facts = read_discovered(await discover)
    except MalformedMessage:
        return None
    except RelayedFault as fault:
        return _facts_of_fault(name, fault)
    except UpstreamFailed as error:
        if silent and _is_silent(error):
            raise
        return None
    return facts if V2026_07_28.name in versions else None


async def handshake_facts(
    opening: Awaitable[Link], stateless: ServerDescription | None
) -> ServerDescription | UpstreamFailed | None:
    """Facts of a session, which is closed at once; None or a reason for a server that has none.

    Raises UpstreamFailed when the probe is inconclusive; `stateless` is the result of that era.
    """
    try:
        link = await opening
    except RelayedFault as fault:
        return UpstreamFailed(f"it answered initialize with the error {fault.code}")
    except UpstreamFailed as error:
        refused = isinstance(error, HttpStatusError) and stateless is not None
        if _is_silent(error) and not refused:
            raise
        return error
    facts = link.facts
    await link.close()
    return facts


def _facts_of_fault(name: str, fault: RelayedFault) -> ServerDescription | None:
    status = fault.http_status if isinstance(fault, HttpFault) else 200
    if fault.code in (HeaderMismatch.code, MissingClientCapability.code):
        return UNKNOWN
    if fault.code == UnsupportedProtocolVersion.code:
        return UNKNOWN if V2026_07_28.name in _supported_versions(fault.data) else None
    if fault.code == MethodNotFound.code and status == 404:
        return UNKNOWN
    if status >= 500 or status == 429:
        raise UpstreamFailed(f"{name} answered HTTP {status}") from fault
    return None


def _supported_versions(data: Any) -> list[Any]:
    named = data.get("supported") if isinstance(data, dict) else None
    return named if isinstance(named, list) else []


def _is_silent(error: UpstreamFailed) -> bool:
    """Whether a failure is inconclusive about the revisions that the server speaks."""
    if isinstance(error, HttpStatusError):
        status = error.http_status
        return status in (401, 403, 429) or status >= 500 or 300 <= status < 400
    return not isinstance(error, SessionLost) and not isinstance(error.__cause__, MalformedMessage)


def options_of(source: Source) -> McpOptions:
    return source.options if isinstance(source.options, McpOptions) else McpOptions()


def required_era(source: Source, facts: ServerDescription | None) -> ServerDescription:
    """The facts of the only era that the settings allow. Raises UpstreamFailed."""
    if facts is None:
        raise UpstreamFailed(f"{source.name} does not support 2026-07-28, which its `era` requires")
    return facts
