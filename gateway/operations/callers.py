"""Callers of requests that are carried out later, with what their credentials still permit."""

from dataclasses import replace

from gateway.context import KEY_MARK, Principal
from gateway.operations.operation import ProblemDetails
from registry.access.keys import ApiKeys
from registry.access.revocations import revoked
from registry.database.postgres import Pool


async def current_caller(pool: Pool, caller: Principal) -> Principal:
    """The caller with what its credential still permits. Raises ProblemDetails if that was revoked;
    one that has only expired meanwhile is good. Without a mark there was none."""
    if caller.mark.startswith(KEY_MARK):
        key = await ApiKeys(pool, caller.tenant).get(caller.mark.removeprefix(KEY_MARK))
        if key is None or key.revoked is not None:
            raise withdrawn()
        scopes, roles = caller.scopes.intersection(key.scopes), caller.roles.intersection(key.roles)
        return replace(caller, scopes=scopes, roles=roles)
    if caller.mark and (await revoked(pool)).has(caller.tenant, caller.id, caller.claims):
        raise withdrawn()
    return caller


def withdrawn() -> ProblemDetails:
    text = "The credential of its caller was revoked meanwhile."
    return ProblemDetails(403, "revoked", text)
