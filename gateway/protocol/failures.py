"""Errors of other MCP servers, as the revision of a client has them.

Code, message and data go through as they came, but for the few codes that mean something else, or
nothing, to the client. Pure.
"""

from typing import Any

from msgspec import Raw

from gateway.protocol.shapes import Members
from schemas.errors import Fault, InternalError, MissingClientCapability, RelayedFault
from schemas.jsonrpc import encode
from schemas.mcp.revisions import Revision
from schemas.tool import TextContent

RESOURCE_NOT_FOUND = -32002
INVALID_PARAMS = -32602
URL_ELICITATION_REQUIRED = -32042
MISSING_CAPABILITY = -32021
OURS = {-32020, -32021, -32022}  # the server refused how the gateway asked, not what it was asked

_REFUSED = "The server behind the gateway did not accept the request that the gateway made"


def shown(fault: RelayedFault, revision: Revision) -> Fault:
    """The error that a client of `revision` gets."""
    if fault.code == URL_ELICITATION_REQUIRED and not _knows_addresses(revision):
        return InternalError(_addresses(fault))
    if fault.code == MISSING_CAPABILITY and revision.result_type:
        wanted = {"requiredCapabilities": {}, **_object(fault.data)}
        return MissingClientCapability(fault.message, wanted)
    if fault.code == MISSING_CAPABILITY:
        missed = _object(_object(fault.data).get("requiredCapabilities"))
        named = ", ".join(sorted(missed)) or "more than it says"
        return InternalError(f"The server behind the gateway needs a client that can do {named}")
    if fault.code in OURS:
        return InternalError(_REFUSED)
    if fault.code == RESOURCE_NOT_FOUND != revision.not_found:
        return RelayedFault(revision.not_found, fault.message, fault.data)
    return fault


def missing(uri: str, revision: Revision) -> Fault:
    """The error for a resource that is not there; `uri` as the client has it."""
    return RelayedFault(revision.not_found, "Resource not found", {"uri": uri})


def of_reading(fault: RelayedFault, revision: Revision, uri: str) -> Fault:
    """The error that a client gets who reads `uri`: of all bad params, that the resource is not
    there is told by data that name it."""
    named = isinstance(fault.data, dict) and "uri" in fault.data
    if fault.code == RESOURCE_NOT_FOUND or (fault.code == INVALID_PARAMS and named):
        return RelayedFault(revision.not_found, fault.message, {**_object(fault.data), "uri": uri})
    if fault.code == INVALID_PARAMS == revision.not_found and fault.data is None:
        return RelayedFault(fault.code, fault.message, {"uri": uri})
    return shown(fault, revision)


def as_result(fault: RelayedFault, revision: Revision) -> Members:
    """The result of tools/call that a model can act on, where the client has no such error.
    Raises the Fault that the client gets, where it is one."""
    if fault.code == URL_ELICITATION_REQUIRED and not _knows_addresses(revision):
        text = TextContent(_addresses(fault))
        return {"content": Raw(encode([text])), "isError": Raw(b"true")}
    raise shown(fault, revision) from fault


def _knows_addresses(revision: Revision) -> bool:
    """2025-11-25 alone has the error; 2026-07-28 must not see it."""
    return revision.handshake and revision.elicits_urls


def _addresses(fault: RelayedFault) -> str:
    """What the server wants a person to open before it goes on."""
    asked = _object(fault.data).get("elicitations")
    lines = [
        f"{one['message']}: {one['url']}" if isinstance(one.get("message"), str) else one["url"]
        for one in (asked if isinstance(asked, list) else [])
        if isinstance(one, dict) and isinstance(one.get("url"), str)
    ]
    return "\n".join([fault.message, *lines])


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
