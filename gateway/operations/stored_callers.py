"""Callers of requests that are carried out later, with what their credentials still permit."""

from dataclasses import replace

import msgspec
from msgspec import Struct

from gateway.context import KEY_MARK, Asker, CallHeaders, Context, Identity, Principal, RunMark
from gateway.operations.problems import ProblemDetails
from registry.access.api_keys import ApiKeys
from registry.access.revocations import load_revocations
from registry.database.postgres import Pool
from schemas.errors import Fault, Forbidden
from schemas.mcp.revisions import V2025_11_25


class StoredCaller(Struct, frozen=True, omit_defaults=True):
    """The caller of a request that is stored: facts, and no token."""

    principal: Principal
    verified: bool = False
    toolset: str | None = None
    run: RunMark | None = None  # that the request comes from
    refused: bool = False  # authentication failed: it is anonymous where that is not the default
    agent_hops: int = 0
    shows_forms: bool = False  # its client answers questions of servers while the request is open


_callers = msgspec.json.Decoder(StoredCaller)


def caller_of(context: Context, *, shows_forms: bool = False) -> bytes:
    """The caller of a context, as JSON. Scopes are those of the call, which X-Scope-Token may
    replace."""
    identity = context.identity
    principal = replace(identity.principal, scopes=frozenset(identity.scopes))
    refused = identity.refusal is not None
    stored = StoredCaller(
        principal,
        identity.verified,
        context.toolset,
        context.run,
        refused,
        context.agent_hops,
        shows_forms,
    )
    return msgspec.json.encode(stored)


def read_caller(data: str | bytes) -> StoredCaller:
    return _callers.decode(data)


def later_context(
    caller: StoredCaller,
    principal: Principal,
    *,
    request_id: str,
    headers: CallHeaders,
    attempt: int = 1,
    asker: Asker | None = None,
) -> Context:
    """The context of a call that is made for the caller later; `principal` has what its credential
    still permits."""
    identity = Identity(principal, refusal_of(caller.refused), caller.verified)
    return Context(
        identity,
        V2025_11_25,
        request_id,
        headers=headers,
        asker=asker,
        toolset=caller.toolset,
        run=caller.run,
        absent=True,
        attempt=attempt,
        agent_hops=caller.agent_hops,
    )


def refusal_of(refused: bool) -> Fault | None:
    """The refusal of a stored caller."""
    return Forbidden("The caller was not authenticated") if refused else None


async def current_caller(pool: Pool, caller: Principal) -> Principal:
    """The caller with what its credential still permits. Raises ProblemDetails if that was revoked;
    one that has only expired meanwhile is good. Without a mark there was none."""
    if caller.mark.startswith(KEY_MARK):
        key = await ApiKeys(pool, caller.tenant).get(caller.mark.removeprefix(KEY_MARK))
        if key is None or key.revoked is not None:
            raise withdrawn()
        scopes, roles = caller.scopes.intersection(key.scopes), caller.roles.intersection(key.roles)
        return replace(caller, scopes=scopes, roles=roles)
    if caller.mark and (await load_revocations(pool)).has(caller.tenant, caller.id, caller.claims):
        raise withdrawn()
    return caller


def withdrawn() -> ProblemDetails:
    text = "The credential of its caller was revoked meanwhile."
    return ProblemDetails(403, "revoked", text)
