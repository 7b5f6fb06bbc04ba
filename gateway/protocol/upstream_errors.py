"""Errors of upstream MCP servers, translated to the revision of a client.

Code, message and data are passed through, except for the few codes that have another meaning, or
none, in the client's revision. Pure.
"""

from msgspec import Raw

from gateway.protocol.revision_adapter import Members
from schemas.errors import Fault, InternalError, MissingClientCapability, RelayedFault
from schemas.jsonrpc import encode
from schemas.mcp.revisions import Revision
from schemas.tool import TextContent
from schemas.untrusted_json import mapping

RESOURCE_NOT_FOUND = -32002
INVALID_PARAMS = -32602
URL_ELICITATION_REQUIRED = -32042
MISSING_CAPABILITY = -32021
OURS = {-32020, -32021, -32022}  # errors of the gateway's envelope, not of the client's request

_REFUSAL_TEXT = "The server behind the gateway did not accept the request that the gateway made"


def fault_for_client(fault: RelayedFault, revision: Revision) -> Fault:
    """The error that a client of `revision` gets."""
    if fault.code == URL_ELICITATION_REQUIRED and not _knows_addresses(revision):
        return InternalError(_addresses(fault))
    if fault.code == MISSING_CAPABILITY and revision.result_type:
        capabilities = {"requiredCapabilities": {}, **mapping(fault.data)}
        return MissingClientCapability(fault.message, capabilities)
    if fault.code == MISSING_CAPABILITY:
        missed = mapping(mapping(fault.data).get("requiredCapabilities"))
        named = ", ".join(sorted(missed)) or "more than it says"
        return InternalError(f"The server behind the gateway needs a client that can do {named}")
    if fault.code in OURS:
        return InternalError(_REFUSAL_TEXT)
    if fault.code == RESOURCE_NOT_FOUND != revision.not_found:
        return RelayedFault(revision.not_found, fault.message, fault.data)
    return fault


def missing(uri: str, revision: Revision) -> Fault:
    """The error for a missing resource; `uri` as the client uses it."""
    return RelayedFault(revision.not_found, "Resource not found", {"uri": uri})


def read_fault(fault: RelayedFault, revision: Revision, uri: str) -> Fault:
    """The error of reading `uri`: among invalid params, data with a `uri` mark a missing
    resource."""
    named = isinstance(fault.data, dict) and "uri" in fault.data
    if fault.code == RESOURCE_NOT_FOUND or (fault.code == INVALID_PARAMS and named):
        return RelayedFault(revision.not_found, fault.message, {**mapping(fault.data), "uri": uri})
    if fault.code == INVALID_PARAMS == revision.not_found and fault.data is None:
        return RelayedFault(fault.code, fault.message, {"uri": uri})
    return fault_for_client(fault, revision)


def as_result(fault: RelayedFault, revision: Revision) -> Members:
    """The result of tools/call that a model can act on, where the client's revision lacks the
    error. Raises the client's Fault where it has it."""
    if fault.code == URL_ELICITATION_REQUIRED and not _knows_addresses(revision):
        text = TextContent(_addresses(fault))
        return {"content": Raw(encode([text])), "isError": Raw(b"true")}
    raise fault_for_client(fault, revision) from fault


def _knows_addresses(revision: Revision) -> bool:
    """2025-11-25 alone has the error; 2026-07-28 must not see it."""
    return revision.handshake and revision.elicits_urls


def _addresses(fault: RelayedFault) -> str:
    """The URLs that the server asks the user to open, with their messages."""
    elicitations = mapping(fault.data).get("elicitations")
    lines = [
        f"{item['message']}: {item['url']}" if isinstance(item.get("message"), str) else item["url"]
        for item in (elicitations if isinstance(elicitations, list) else [])
        if isinstance(item, dict) and isinstance(item.get("url"), str)
    ]
    return "\n".join([fault.message, *lines])
