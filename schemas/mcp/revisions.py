"""Feature table of the protocol: one row per revision; code reads a fact, never compares dates.

Source: https://modelcontextprotocol.io/specification, revisions 2024-11-05 to 2026-07-28.
"""

from msgspec import Struct
from msgspec.structs import replace


class Revision(Struct, frozen=True, kw_only=True):
    name: str
    mcp: bool = True  # False: plain JSON-RPC, which has no revision
    handshake: bool = True  # begins with `initialize`; else every request carries its `_meta`
    streamable: bool = True  # streamable HTTP; else HTTP+SSE with two endpoints
    batches: bool = False  # arrays of messages are legal
    routing_headers: bool = False  # Mcp-Method and Mcp-Name must mirror the body
    result_type: bool = False  # every result has `resultType`, and lists a TTL
    annotations: bool = True  # tools have hints, and content may be audio
    titles: bool = True  # tools have a title and an output schema, results structured content
    any_structure: bool = False  # structured content may be any JSON value, not only an object
    checks_errors: bool = True  # clients check structured content of errors by the output schema
    links: bool = True  # content may be a `resource_link`
    icons: bool = False  # definitions and implementations may have icons
    tasks: bool = False  # the experimental `tasks` of 2025-11-25
    priming: bool = False  # a stream begins with an event id, and may be closed and resumed
    elicits: bool = True  # `elicitation/create` may be sent to the client
    elicits_urls: bool = False  # also URL mode, multi-select and titled enums
    not_found: int = -32002  # code for a resource that does not exist
    asks_people: bool = True  # False: the caller is a part of the gateway, which handles faults
    argument_results: bool = False  # invalid arguments give a tool result (SEP-1303), else an error
    unknown_method_status: int = 200
    scope_challenges: bool = False  # a missing scope is a 403 that names it
    tools_are_methods: bool = False  # a tool's name is a method
    services_are_methods: bool = False  # a hybrid service's id is a method
    text_results: bool = False  # a service's answer is returned as it is, without an envelope


V2024_11_05 = Revision(
    name="2024-11-05",
    streamable=False,
    annotations=False,
    titles=False,
    links=False,
    elicits=False,
)
V2025_03_26 = Revision(name="2025-03-26", batches=True, titles=False, links=False, elicits=False)
V2025_06_18 = Revision(name="2025-06-18")
V2025_11_25 = Revision(
    name="2025-11-25",
    icons=True,
    tasks=True,
    priming=True,
    elicits_urls=True,
    argument_results=True,
    scope_challenges=True,
)
V2026_07_28 = Revision(
    name="2026-07-28",
    handshake=False,
    icons=True,
    elicits_urls=True,
    not_found=-32602,
    routing_headers=True,
    result_type=True,
    any_structure=True,
    argument_results=True,
    unknown_method_status=404,
    scope_challenges=True,
)
JSON_RPC = Revision(
    name="jsonrpc",
    mcp=False,
    handshake=False,
    batches=True,
    any_structure=True,
    tools_are_methods=True,
    services_are_methods=True,
)
PORTAL = Revision(  # JSON-RPC on the portal paths of light-hybrid-4j
    name="portal",
    mcp=False,
    handshake=False,
    batches=True,
    services_are_methods=True,
)
HYBRID = Revision(  # the legacy payload {host, service, action, version, data}
    name="hybrid",
    mcp=False,
    handshake=False,
    services_are_methods=True,
    text_results=True,
)
# calls by wings and the console
IN_PROCESS = replace(V2025_11_25, any_structure=True, checks_errors=False, asks_people=False)

HANDSHAKE = {r.name: r for r in (V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25)}
STATELESS = {r.name: r for r in (V2026_07_28,)}
STREAMABLE = {r.name: r for r in HANDSHAKE.values() if r.streamable}
SUPPORTED = (*reversed(STATELESS), *reversed(HANDSHAKE))  # newest first, as we advertise them


def negotiate(version: str) -> Revision:
    """Version negotiation of `initialize`: the requested revision, else our latest that has one."""
    return HANDSHAKE.get(version, V2025_11_25)
