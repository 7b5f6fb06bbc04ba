"""What is wrong with settings that are right one by one."""

from collections.abc import Iterator
from itertools import combinations
from urllib.parse import urlsplit

from config.conflicts_auth import auth_conflicts
from config.conflicts_embedding import embedding_conflicts
from config.conflicts_guardrails import guardrail_conflicts
from config.conflicts_limits import limit_conflicts
from config.conflicts_oauth import oauth_conflicts
from config.conflicts_policy import policy_conflicts
from config.conflicts_sources import source_conflicts
from config.problem import KeyPath, Problem, Where, dotted
from config.settings import Settings
from schemas.validators import ValidationError, compiled

OWN_PATHS = ("/health", "/ready", "/metrics")
# Those that are built in (registry/display/profiles.py).
PROFILES = ("plain", "claude", "openai", "codex", "gemini", "bedrock", "cursor")


def conflicts(settings: Settings, where: Where) -> list[Problem]:
    """`where` says where the first of some key paths stands that is no default."""
    return [
        *_path_clashes(settings, where),
        *_pool_excess(settings, where),
        *source_conflicts(settings, where),
        *_keyless_secrets(settings, where),
        *_unknown_profile(settings, where),
        *_illegible_arguments(settings, where),
        *auth_conflicts(settings, where),
        *_unclear_redis(settings, where),
        *embedding_conflicts(settings, where),
        *oauth_conflicts(settings, where),
        *policy_conflicts(settings, where),
        *guardrail_conflicts(settings, where),
        *limit_conflicts(settings, where),
    ]


def _path_clashes(settings: Settings, where: Where) -> list[Problem]:
    mcp = settings.mcp.path
    taken: list[tuple[str, KeyPath]] = [
        *((path, ()) for path in OWN_PATHS),
        *((path, ("mcp", "path")) for path in (mcp, f"{mcp}/sse", f"{mcp}/message")),
        (settings.rpc.path, ("rpc", "path")),
    ]
    if settings.portal.enabled:
        taken.append((settings.portal.query_path, ("portal", "query_path")))
        taken.append((settings.portal.command_path, ("portal", "command_path")))
    for name in settings.toolsets:
        below = f"{mcp}/{name}"
        paths = (below, f"{below}/sse", f"{below}/message")
        taken.extend((path, ("toolsets", name)) for path in paths)
    clashes = [
        (other, owner, path, key)
        for (other, owner), (path, key) in combinations(taken, 2)
        if path == other and key
    ]
    if settings.admin.enabled:  # everything below its path is its own
        admin = settings.admin.path
        inside = [one for one in taken if f"{one[0]}/".startswith(f"{admin}/")]
        clashes += [(other, owner, admin, ("admin", "path")) for other, owner in inside[:1]]
    return [
        Problem(
            where(key, owner),
            dotted(key),
            f"expected a path of its own, found {path} (taken by {dotted(owner) or 'Toolgate'})",
        )
        for _, owner, path, key in clashes
    ]


def _pool_excess(settings: Settings, where: Where) -> list[Problem]:
    database = settings.database
    if database.url != "embedded" or database.pool_max < database.max_connections:
        return []
    key, bound = ("database", "pool_max"), ("database", "max_connections")
    text = f"expected less than database.max_connections ({database.max_connections})"
    return [Problem(where(key, bound), dotted(key), f"{text}, found {database.pool_max}")]


def _keyless_secrets(settings: Settings, where: Where) -> list[Problem]:
    if settings.secrets.key or not any(settings.secrets.old_keys):
        return []
    path = ("secrets", "old_keys")
    return [Problem(where(path), dotted(path), "expected secrets.key beside it")]


def _illegible_arguments(settings: Settings, where: Where) -> Iterator[Problem]:
    for name, profile in settings.profiles.own.items():
        try:
            compiled({"pattern": profile.arguments})
        except ValidationError:
            path = ("profiles", "own", name, "arguments")
            yield Problem(where(path), dotted(path), "expected a regular expression")


def _unknown_profile(settings: Settings, where: Where) -> Iterator[Problem]:
    profiles = settings.profiles
    known = (*PROFILES, *(name for name in profiles.own if name not in PROFILES))
    if profiles.default not in ("auto", *known):
        path: KeyPath = ("profiles", "default")
        yield Problem(where(path), dotted(path), f"expected one of auto, {', '.join(known)}")
    for name in profiles.tool_tokens:
        if name not in known:
            path = ("profiles", "tool_tokens", name)
            yield Problem(where(path), dotted(path), f"expected one of {', '.join(known)}")


def _unclear_redis(settings: Settings, where: Where) -> Iterator[Problem]:
    url, backend = ("state", "redis_url"), ("state", "backend")
    used, given = settings.state.backend == "redis", settings.state.redis_url
    if used and not given:
        text = "expected state.redis_url with it, as in redis://redis.example:6379/0"
        yield Problem(where(backend), dotted(backend), text)
    elif given and not used:
        text = f"expected state.backend: redis with it, found {settings.state.backend}"
        yield Problem(where(url), dotted(url), text)
    elif not _has_address(given):
        text = (
            "expected redis://[user:password@]host[:port][/database], with %-escapes for special "
            "characters of a password; found a value that is not shown"
        )
        yield Problem(where(url), dotted(url), text)


def _has_address(redis_url: str) -> bool:
    try:
        parts = urlsplit(redis_url)
        database = parts.path.strip("/")
        served = bool(parts.hostname) and parts.port != 0
        return parts.scheme in ("", "unix") or (served and (database or "0").isdecimal())
    except ValueError:  # what stands in place of the port may be half a password
        return False
