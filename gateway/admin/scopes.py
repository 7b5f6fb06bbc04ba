"""Scopes that something asks for: a key with another one is of no use."""

from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches

from config.settings import Settings
from gateway.operations.problems import Mistake, invalid
from registry.access.policies import Policies
from registry.database.postgres import Pool
from registry.sources.tool_store import ToolStore
from schemas.similar_names import SIMILARITY, did_you_mean

SCOPES_LISTED = 30

OF_ADMIN = (
    *(
        "audit",
        "backups",
        "connections",
        "erasures",
        "jobs",
        "keys",
        "logins",
        "notifications",
        "policy",
        "registry",
    ),
    *("secrets", "sessions"),
)
OWN = (
    "admin",
    "admin:read",
    *(f"admin:{part}:{access}" for part in OF_ADMIN for access in ("read", "write")),
    *("admin:memory", "admin:memory:erase"),
    *("a2a:read", "a2a:write"),
    *("code:read", "code:write"),
    *("agent:approve", "agent:read", "agent:reasoning", "agent:write"),
    *("events:admin", "events:invoke", "events:read", "events:work"),
    *("knowledge:read", "knowledge:write"),
    *("librarian:audit", "librarian:read", "librarian:write"),
    *("memory:erase", "memory:on_behalf", "memory:org:write", "memory:read", "memory:write"),
)
"""Scopes of the gateway's own operations, of wings that are off, too."""


def scopes_of_settings(settings: Settings) -> frozenset[str]:
    """The scopes that rules of the settings and OAuth ask for."""
    rules, oauth = settings.policy.rules.values(), settings.oauth
    scopes = (scope for rule in rules for scope in rule.scopes)
    return frozenset({*scopes, *oauth.required_scopes, *oauth.scopes_supported})


async def known_scopes(pool: Pool, tenant: str, of_settings: Collection[str]) -> set[str]:
    """The scopes that operations, tools and rules of a tenant ask for."""
    tools = await ToolStore(pool).tools(tenant)
    rules = await Policies(pool, tenant).all()
    of_tools = (scope for tool in tools for scope in tool.binding.scopes)
    return {*OWN, *of_settings, *of_tools, *(scope for row in rules for scope in row.rule.scopes)}


def check_scopes(scopes: Sequence[str], scope_names: Collection[str]) -> None:
    """Raises ProblemDetails for a scope that nothing asks for."""
    if mistakes := tuple(_mistakes(scopes, scope_names)):
        raise invalid("A scope is not known; `any_scope` permits it.", *mistakes)


def _mistakes(scopes: Sequence[str], scope_names: Collection[str]) -> Iterator[Mistake]:
    """One for each unknown scope; the first has a hint, which takes milliseconds to find."""
    unknown = [at for at, scope in enumerate(scopes) if scope not in scope_names]
    for at in unknown:
        text = f"nothing asks for the scope {scopes[at][:100]!r}"
        yield Mistake(
            f"{text}. {_hint(scopes[at], scope_names)}" if at == unknown[0] else text,
            f"/scopes/{at}",
        )


def _hint(scope: str, scope_names: Collection[str]) -> str:
    return did_you_mean(scope, scope_names) or _of_last_part(scope, scope_names)


def _of_last_part(scope: str, scope_names: Collection[str]) -> str:
    """The scopes whose last part is similar; without any, the known ones."""
    parts = {name.rpartition(":")[2] for name in scope_names}
    near = get_close_matches(scope.rpartition(":")[2], parts, n=1, cutoff=SIMILARITY)
    names = [name for name in sorted(scope_names) if not near or name.rpartition(":")[2] == near[0]]
    return f"Known: {', '.join(names[:SCOPES_LISTED])}."
