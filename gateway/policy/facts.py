"""What the expressions of rules see of a caller. Pure.

Made for one caller at a time, and to be kept for no other: those whom the rules treat alike are
still not the same.
"""

from typing import Any

from gateway.context import Principal
from schemas.expressions import too_large

CLAIMS = (1000, 65_536, 16)  # values, bytes of text and levels of a token that are looked at


def facts_of(principal: Principal) -> dict[str, Any] | None:
    """None: the claims are larger, so that no rule that looks at the caller can be applied. Those
    without claims could pass for somebody who has none."""
    claims = dict(principal.claims)
    if too_large(claims, *CLAIMS) is not None:
        return None
    return {
        "id": principal.id,
        "tenant": principal.tenant,
        "scopes": sorted(principal.scopes),
        "roles": sorted(principal.roles),
        "claims": claims,
    }
