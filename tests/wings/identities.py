"""Callers of wings, without a gateway that authenticates them."""

from collections.abc import Iterable

from gateway.context import Identity, Principal
from schemas.errors import Forbidden
from tests.fixtures_database import HOST

REFUSAL = Forbidden("no token")


def identity_of(
    subject: str | None,
    scopes: Iterable[str],
    *,
    tenant: str = HOST,
    agent: str | None = None,
) -> Identity:
    """A verified caller; `subject` None: an anonymous one."""
    claims = {"agent": agent} if agent else {}
    principal = Principal(subject or "anonymous", tenant, frozenset(scopes), claims=claims)
    if subject is None:
        return Identity(principal, refusal=REFUSAL)
    return Identity(principal, verified=True)
