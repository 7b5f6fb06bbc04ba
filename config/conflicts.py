"""What is wrong with settings that are right one by one."""

from collections.abc import Callable, Iterator
from itertools import combinations
from urllib.parse import urlsplit

from jsonschema_rs import Draft202012Validator, ValidationError

from config.problem import KeyPath, Problem, dotted
from config.settings import SchemeSettings, Settings, SourceSettings

OWN_PATHS = ("/health", "/ready", "/metrics")
SOURCE_KINDS = ("openapi", "graphql", "hybrid", "python", "mcp", "command")
OF_MCP = ("era", "prefix", "own_sessions", "pin")
OF_OPENAPI = (
    *("entry", "overlay", "only_marked", "media_types"),
    *("credentials", "require_credentials"),
)
OF_GRAPHQL = ("depth", "cost")
OF_HYBRID = ("side", "dialect", "batch", "forward_token")
# What means nothing beside a kind. An entry without one adjusts a source that is of any kind.
IDLE = {
    "openapi": (*OF_GRAPHQL, *OF_HYBRID, *OF_MCP, "env"),
    "graphql": (
        *("entry", "media_types", "credentials", "require_credentials"),
        *(*OF_HYBRID, *OF_MCP, "env"),
    ),
    "hybrid": (*OF_OPENAPI, *OF_GRAPHQL, *OF_MCP, "env"),
    "python": (
        *("base_url", "headers", "dialect", "batch", "forward_token"),
        *(*OF_OPENAPI, *OF_GRAPHQL, *OF_MCP, "env"),
    ),
    "mcp": ("base_url", "retries", *OF_OPENAPI, *OF_GRAPHQL, *OF_HYBRID, "env"),
    "command": ("base_url", "headers", "retries", *OF_OPENAPI, *OF_GRAPHQL, *OF_HYBRID, "era"),
}

# Those that are built in (registry/profiles.py).
PROFILES = ("plain", "claude", "openai", "codex", "gemini", "bedrock", "cursor")
UNSAID = SourceSettings()  # all its defaults
UNGIVEN = SchemeSettings()
# The ways to satisfy a security scheme, and what belongs to each.
CREDENTIALS = {
    "value": (),
    "token": (),
    "username": ("password",),
    "client_id": ("client_secret", "token_url", "scopes", "client_auth"),
}
EMBEDDING_NEEDS = {
    "sentence-transformers": {"model": "the name of a model or a directory"},
    "openai-compatible": {"model": "the name of a model", "url": "the URL of a service"},
    "local-http": {"url": "the URL of a service"},
}

Where = Callable[..., str]  # where the first of these key paths stands that is no default


def conflicts(settings: Settings, where: Where) -> list[Problem]:
    """`where` says where the first of some key paths stands that is no default."""
    return [
        *_path_clashes(settings, where),
        *_pool_excess(settings, where),
        *_unclear_sources(settings, where),
        *_impossible_sources(settings, where),
        *_unclear_credentials(settings, where),
        *_unknown_profile(settings, where),
        *_illegible_arguments(settings, where),
        *_missing_key(settings, where),
        *_forbidden_commands(settings, where),
        *_unclear_redis(settings, where),
        *_unset_embedding(settings, where),
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
    return [
        Problem(
            where(key, owner),
            dotted(key),
            f"expected a path of its own, found {path} (taken by {dotted(owner) or 'Toolgate'})",
        )
        for (other, owner), (path, key) in combinations(taken, 2)
        if path == other and key
    ]


def _pool_excess(settings: Settings, where: Where) -> list[Problem]:
    database = settings.database
    if database.url != "embedded" or database.pool_max < database.max_connections:
        return []
    key, bound = ("database", "pool_max"), ("database", "max_connections")
    text = f"expected less than database.max_connections ({database.max_connections})"
    return [Problem(where(key, bound), dotted(key), f"{text}, found {database.pool_max}")]


def _unset_embedding(settings: Settings, where: Where) -> list[Problem]:
    """What the embedding provider cannot do without."""
    found = settings.embedding
    at = where(("embedding", "provider"))
    return [
        Problem(at, dotted(("embedding", key)), f"expected {text}: {found.provider} needs it")
        for key, text in EMBEDDING_NEEDS.get(found.provider, {}).items()
        if not getattr(found, key)
    ]


def _kinds(source: SourceSettings) -> list[str]:
    return [kind for kind in SOURCE_KINDS if getattr(source, kind)]


def _unclear_sources(settings: Settings, where: Where) -> list[Problem]:
    problems = []
    for name, source in settings.sources.items():
        given = _kinds(source)
        if len(given) > 1:
            key = ("sources", name, given[1])
            text = f"expected one of {', '.join(SOURCE_KINDS)}, found {' and '.join(given)}"
            problems.append(Problem(where(key), dotted(key), text))
    return problems


def _impossible_sources(settings: Settings, where: Where) -> Iterator[Problem]:
    for name, source in settings.sources.items():
        given = _kinds(source)
        for key, text in _impossible(source, given[0] if len(given) == 1 else None):
            path = ("sources", name, key)
            yield Problem(where(path), dotted(path), text)


def _impossible(source: SourceSettings, kind: str | None) -> Iterator[tuple[str, str]]:
    """Keys of an entry that cannot work, and why."""
    if kind == "hybrid" and source.base_url is None:
        yield "hybrid", "expected base_url beside it: a description does not say where calls go"
    speaks = kind not in ("openapi", "graphql", "python")
    if source.dialect == "legacy" and source.batch > 1 and speaks:
        yield (
            "batch",
            f"expected 1 with dialect: legacy, which has no batches, found {source.batch}",
        )
    for key in IDLE.get(kind or "", ()):
        if getattr(source, key) != getattr(UNSAID, key):
            yield key, f"expected no such key beside {kind}, where it means nothing"


def _unclear_credentials(settings: Settings, where: Where) -> Iterator[Problem]:
    for name, source in settings.sources.items():
        for scheme, given in source.credentials.items():
            if text := _unclear(given):
                path = ("sources", name, "credentials", scheme)
                yield Problem(where(path), dotted(path), text)


def _unclear(given: SchemeSettings) -> str | None:
    """What is expected instead, without a word of what is there."""
    ways = [way for way in CREDENTIALS if getattr(given, way) is not None]
    if len(ways) > 1:
        return f"expected one of {', '.join(CREDENTIALS)}, found {' and '.join(ways)}"
    for way, companions in CREDENTIALS.items():
        others = [key for key in companions if getattr(given, key) != getattr(UNGIVEN, key)]
        if way not in ways and others:
            return f"expected {way} beside {others[0]}"
    if given.client_id is not None and not (given.client_secret is not None and given.token_url):
        return "expected client_secret and token_url beside client_id"
    return None


def _illegible_arguments(settings: Settings, where: Where) -> Iterator[Problem]:
    for name, profile in settings.profiles.own.items():
        try:
            Draft202012Validator({"pattern": profile.arguments})
        except ValidationError:
            path = ("profiles", "own", name, "arguments")
            yield Problem(where(path), dotted(path), "expected a regular expression")


def _unknown_profile(settings: Settings, where: Where) -> list[Problem]:
    profiles = settings.profiles
    known = ("auto", *PROFILES, *(name for name in profiles.own if name not in PROFILES))
    if profiles.default in known:
        return []
    path = ("profiles", "default")
    return [Problem(where(path), dotted(path), f"expected one of {', '.join(known)}")]


def _missing_key(settings: Settings, where: Where) -> list[Problem]:
    auth = settings.auth
    if auth.mode == "none" or bool(auth.key_file) != bool(auth.jwks_file):
        return []
    key = ("auth", "mode")
    found = "both" if auth.key_file else "neither"
    text = f"expected auth.key_file or auth.jwks_file with it, found {found}"
    return [Problem(where(key), dotted(key), text)]


def _forbidden_commands(settings: Settings, where: Where) -> Iterator[Problem]:
    if settings.upstream.stdio:
        return
    for name, source in settings.sources.items():
        if source.command:
            key = ("sources", name, "command")
            text = "expected no command while upstream.stdio is false, which allows none to be run"
            yield Problem(where(key), dotted(key), text)


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
