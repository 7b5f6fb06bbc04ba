"""The headers that say in HTTP what a fault says in its body."""

import re

from schemas.errors import Fault, MethodNotAllowed, TooManyRequests, Unavailable
from schemas.hybrid import MISSING_AUTH_TOKEN, ScopeMismatch, StatusFault

REALM = 'Bearer realm="toolgate"'
UNQUOTABLE = re.compile(r"[^\x20\x21\x23-\x5b\x5d-\x7e]")
OFFLINE = "offline_access"  # not about the resource (MCP 2026-07-28, authorization)


def fault_headers(fault: Fault) -> list[tuple[bytes, bytes]]:
    """The headers that belong to the status of `fault`."""
    headers = []
    if isinstance(fault, MethodNotAllowed):
        headers.append((b"allow", fault.allow.encode()))
    if isinstance(fault, TooManyRequests | Unavailable):
        headers.append((b"retry-after", b"%d" % fault.retry_after))
    elif fault.status == 503:
        headers.append((b"retry-after", b"1"))
    said = challenge(fault)
    if said is not None:
        headers.append((b"www-authenticate", said.encode()))
    return headers


def challenge(fault: Fault) -> str | None:
    """The WWW-Authenticate header of `fault` (RFC 6750, 3): an error only where a token came."""
    if not isinstance(fault, StatusFault):
        return REALM if fault.status == 401 else None
    match fault.status, fault.as_status.code:
        case 401, MISSING_AUTH_TOKEN.code:
            return REALM
        case 401, _:
            text = UNQUOTABLE.sub("'", fault.as_status.description)
            return f'{REALM}, error="invalid_token", error_description="{text}"'
        case 403, _:  # the description names scopes of the caller's, so the body alone has it
            return f'{REALM}, error="insufficient_scope"{_wanted(fault)}'
    return None


def _wanted(fault: Fault) -> str:
    """The parameter that names the scopes which are missing, but none that is no scope at all
    (RFC 6749, 3.3), or that asks for more than to come in."""
    scopes = fault.scopes if isinstance(fault, ScopeMismatch) else ()
    told = " ".join(one for one in scopes if not UNQUOTABLE.search(one) and one != OFFLINE)
    return f', scope="{told}"' if told else ""
