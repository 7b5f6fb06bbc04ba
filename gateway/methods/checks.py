"""Checks before a call: its arguments; for hybrid actions also idempotency key and scopes."""

from collections.abc import Iterable
from typing import Any

from gateway.context import Identity
from schemas.binding import ServiceBinding
from schemas.errors import InvalidParams
from schemas.hybrid import (
    AUTH_TOKEN_SCOPE_MISMATCH,
    BAD_IDEMPOTENCY_KEY,
    SCOPE_TOKEN_SCOPE_MISMATCH,
    ScopeMismatch,
    StatusFault,
)
from schemas.jsonschema import ArgumentProblem, Checker
from schemas.validators import SchemaTooCostly

IDEMPOTENCY_KEY_LIMIT = 128  # characters, as the portal's database has it


def problems_of(checker: Checker, arguments: dict[str, Any]) -> list[ArgumentProblem]:
    """Schema violations of `arguments`; empty if valid. Raises InvalidParams if uncheckable."""
    try:
        return [] if checker.accepts(arguments) else checker.explain(arguments)
    except SchemaTooCostly as error:
        raise InvalidParams(f"The arguments cannot be checked: {error}") from error
    except ValueError as error:
        raise InvalidParams("The arguments are nested too deeply") from error


def told(problems: Iterable[ArgumentProblem]) -> str:
    return "; ".join(f"{p.argument}: {p.message}" if p.argument else p.message for p in problems)


def check_key(binding: ServiceBinding, key: str | None) -> None:
    """Check the idempotency key before execution; queries need none. Raises StatusFault."""
    if key is not None and binding.side != "query" and not 1 <= len(key) <= IDEMPOTENCY_KEY_LIMIT:
        raise StatusFault(BAD_IDEMPOTENCY_KEY, len(key))


def check_scope(binding: ServiceBinding, identity: Identity) -> None:
    """Require one of the action's scopes (light-4j's `enableVerifyScope`). Raises StatusFault."""
    wanted = set((binding.scope or "").split())
    if binding.skip_auth or not wanted or not identity.verified:
        return
    scopes = identity.scopes
    if wanted.isdisjoint(scopes):
        own = identity.scope_token is None
        kind = AUTH_TOKEN_SCOPE_MISMATCH if own else SCOPE_TOKEN_SCOPE_MISMATCH
        raise ScopeMismatch(kind, scopes, wanted)
