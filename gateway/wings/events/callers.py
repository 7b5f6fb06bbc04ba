"""Callers of invocations, as the journal keeps them: facts, and no token."""

from dataclasses import replace

import msgspec
from msgspec import Struct

from gateway.context import CallHeaders, Context, Identity, Principal
from schemas.mcp.revisions import V2025_11_25


class StoredCaller(Struct, frozen=True, omit_defaults=True):
    principal: Principal
    verified: bool = False
    toolset: str | None = None


_callers = msgspec.json.Decoder(StoredCaller)


def caller_of(context: Context) -> bytes:
    """The caller of a context, as JSON. Scopes are those of the call, which X-Scope-Token may
    replace."""
    identity = context.identity
    principal = replace(identity.principal, scopes=frozenset(identity.scopes))
    return msgspec.json.encode(StoredCaller(principal, identity.verified, context.toolset))


def read_caller(stored: str) -> StoredCaller:
    return _callers.decode(stored)


def later_context(
    caller: StoredCaller, principal: Principal, *, request_id: str, headers: CallHeaders
) -> Context:
    """The context of a call that is made for the caller later; `principal` has what its credential
    still permits."""
    identity = Identity(principal, verified=caller.verified)
    return Context(identity, V2025_11_25, request_id, headers=headers, toolset=caller.toolset)
