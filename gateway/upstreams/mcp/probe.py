"""Probe of the revisions that a server speaks (2026-07-28, basic/versioning).

    answer to server/discover                                it is stateless
    result that lists 2026-07-28                             yes
    another result; another JSON-RPC error; another 4xx      no
    -32020, -32021; -32022 that lists 2026-07-28;
      -32601 with HTTP 404                                   yes, of unknown capabilities
    401, 403, 429, 5xx, 3xx; timeout                         unknown: the probe fails

`initialize` is sent in any case, since a server may have both eras; a server that is stateless and
refuses it, in whatever way, has one. HTTP+SSE is tried last.
"""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Raw

from gateway.upstreams.http.connections import UpstreamFailed
from gateway.upstreams.mcp.endpoint import HttpFault, HttpRefused
from gateway.upstreams.mcp.handshake import read_discovered
from gateway.upstreams.mcp.link import Link, LinkFacts, SessionLost
from gateway.upstreams.mcp.wire import Garbage
from schemas.errors import (
    HeaderMismatch,
    MethodNotFound,
    MissingClientCapability,
    RelayedFault,
    UnsupportedProtocolVersion,
)
from schemas.mcp.revisions import V2026_07_28
from schemas.source import McpOptions, Source

Transport = Literal["streamable", "sse", "stdio"]
UNKNOWN = LinkFacts(V2026_07_28, {"tools": {}, "prompts": {}, "resources": {}})  # its lists decide


@dataclass(frozen=True, slots=True)
class Spoken:
    """The eras that a server speaks; None for one that it does not."""

    stateless: LinkFacts | None
    handshake: LinkFacts | None
    transport: Transport = "streamable"  # of its sessions

    @property
    def eras(self) -> Mapping[str, bool]:
        return {
            "stateless": self.stateless is not None,
            "handshake": self.handshake is not None,
        }


async def stateless_facts(
    name: str, discover: Awaitable[dict[str, Raw]], *, silent: bool = True
) -> LinkFacts | None:
    """Facts from the answer to `server/discover`, None if not stateless. Raises UpstreamFailed when
    it is inconclusive, unless `silent` is False: processes of older eras may not answer at all."""
    try:
        versions, facts = read_discovered(await discover)
    except Garbage:
        return None
    except RelayedFault as fault:
        return _facts_of_fault(name, fault)
    except UpstreamFailed as error:
        if silent and _is_silent(error):
            raise
        return None
    return facts if V2026_07_28.name in versions else None


async def handshake_facts(
    opening: Awaitable[Link], other: LinkFacts | None
) -> LinkFacts | UpstreamFailed | None:
    """Facts of a session, which is closed at once; None or a reason for a server that has none.

    Raises UpstreamFailed when the probe is inconclusive; `other` is the result for the other era.
    """
    try:
        link = await opening
    except RelayedFault as fault:
        return UpstreamFailed(f"it answered initialize with the error {fault.code}")
    except UpstreamFailed as error:
        refused = isinstance(error, HttpRefused) and other is not None
        if _is_silent(error) and not refused:
            raise
        return error
    facts = link.facts
    await link.close()
    return facts


def _facts_of_fault(name: str, fault: RelayedFault) -> LinkFacts | None:
    status = fault.http_status if isinstance(fault, HttpFault) else 200
    if fault.code in (HeaderMismatch.code, MissingClientCapability.code):
        return UNKNOWN
    if fault.code == UnsupportedProtocolVersion.code:
        return UNKNOWN if V2026_07_28.name in _supported(fault.data) else None
    if fault.code == MethodNotFound.code and status == 404:
        return UNKNOWN
    if status >= 500 or status == 429:
        raise UpstreamFailed(f"{name} answered HTTP {status}") from fault
    return None


def _supported(data: Any) -> list[Any]:
    named = data.get("supported") if isinstance(data, dict) else None
    return named if isinstance(named, list) else []


def _is_silent(error: UpstreamFailed) -> bool:
    """Whether a failure is inconclusive about the revisions that the server speaks."""
    if isinstance(error, HttpRefused):
        status = error.http_status
        return status in (401, 403, 429) or status >= 500 or 300 <= status < 400
    return not isinstance(error, SessionLost) and not isinstance(error.__cause__, Garbage)


def options_of(source: Source) -> McpOptions:
    return source.options if isinstance(source.options, McpOptions) else McpOptions()


def demanded(source: Source, facts: LinkFacts | None) -> LinkFacts:
    """Facts of the only era that is wanted. Raises UpstreamFailed."""
    if facts is None:
        raise UpstreamFailed(f"{source.name} does not speak 2026-07-28, as its `era` says it does")
    return facts
