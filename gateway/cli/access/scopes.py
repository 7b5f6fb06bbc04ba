"""Scopes that something asks for: a key with another one is of no use."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches

from config.settings import Settings
from gateway.cli.common.database import Registry
from gateway.cli.common.failure import USAGE, fail
from registry.access.policies import Policies
from registry.names.similar_names import SIMILARITY, did_you_mean

SHOWN = 30

OF_ADMIN = ("audit", "jobs", "keys", "policy", "registry", "secrets", "sessions")
OWN = (
    "admin",
    "admin:read",
    *(f"admin:{part}:{what}" for part in OF_ADMIN for what in ("read", "write")),
    *("admin:memory", "admin:memory:erase"),
    *("agent:approve", "agent:read", "agent:reasoning", "agent:write"),
    *("events:admin", "events:invoke", "events:read", "events:work"),
    *("knowledge:read", "knowledge:write"),
    *("librarian:audit", "librarian:read", "librarian:write"),
    *("memory:erase", "memory:on_behalf", "memory:org:write", "memory:read", "memory:write"),
)
"""Scopes of the gateway's own operations, of wings that are off, too."""


async def known_scopes(settings: Settings, registry: Registry, host_id: str) -> set[str]:
    """The scopes that operations, tools and rules of a tenant ask for."""
    tools = await registry.store.tools(host_id)
    stored = await Policies(registry.database.pool, host_id).all()
    rules = (*settings.policy.rules.values(), *(row.rule for row in stored))
    oauth = settings.oauth
    return {
        *OWN,
        *(scope for tool in tools for scope in tool.binding.scopes),
        *(scope for rule in rules for scope in rule.scopes),
        *(*oauth.required_scopes, *oauth.scopes_supported),
    }


def check_scopes(given: Sequence[str], known: Collection[str]) -> None:
    """Fail for a scope that nothing asks for."""
    for scope in given:
        if scope not in known:
            hint = did_you_mean(scope, known) or _of_last_part(scope, known)
            fail(
                f"nothing asks for the scope {scope!r}. {hint} --any-scope makes the key anyway.",
                USAGE,
            )


def _of_last_part(scope: str, known: Collection[str]) -> str:
    """The scopes whose last part is similar; without any, the known ones."""
    parts = {name.rpartition(":")[2] for name in known}
    near = get_close_matches(scope.rpartition(":")[2], parts, n=1, cutoff=SIMILARITY)
    names = [name for name in sorted(known) if not near or name.rpartition(":")[2] == near[0]]
    return f"Known: {', '.join(names[:SHOWN])}."
