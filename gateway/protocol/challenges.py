"""WWW-Authenticate headers (RFC 6750, section 3) of refused callers, on every front."""

import base64
import re

from schemas.errors import ClaimsRequired, Fault
from schemas.hybrid import MISSING_AUTH_TOKEN, ScopeMismatch, StatusFault

REALM = 'Bearer realm="toolgate"'
UNQUOTABLE = re.compile(r"[^\x20\x21\x23-\x5b\x5d-\x7e]")
OFFLINE = "offline_access"  # not about the resource (MCP 2026-07-28, authorization)


def challenge(fault: Fault) -> str | None:
    """The WWW-Authenticate header of `fault` (RFC 6750, 3): with an error only if a token was
    sent."""
    if isinstance(fault, ClaimsRequired):
        claims = base64.b64encode(fault.claims.encode()).decode()
        return f'{REALM}, error="insufficient_claims", claims="{claims}"'
    if not isinstance(fault, StatusFault):
        return REALM if fault.status == 401 else None
    match fault.status, fault.as_status.code:
        case 401, MISSING_AUTH_TOKEN.code:
            return REALM
        case 401, _:
            text = UNQUOTABLE.sub("'", fault.as_status.description)
            return f'{REALM}, error="invalid_token", error_description="{text}"'
        case 403, _:  # the description names the caller's scopes: body only
            return f'{REALM}, error="insufficient_scope"{_wanted_scopes(fault)}'
    return None


def _wanted_scopes(fault: Fault) -> str:
    """The parameter with the missing scopes; without invalid ones (RFC 6749, 3.3), and those not
    needed for access."""
    scopes = fault.scopes if isinstance(fault, ScopeMismatch) else ()
    text = " ".join(scope for scope in scopes if not UNQUOTABLE.search(scope) and scope != OFFLINE)
    return f', scope="{text}"' if text else ""
