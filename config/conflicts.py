"""Conflicts between settings that are each valid on their own."""

from collections.abc import Iterator
from datetime import date
from ipaddress import ip_network
from itertools import combinations
from urllib.parse import urlsplit

from msgspec.structs import replace

from config.access import ADMIN_TOOLSET
from config.access_conflicts import (
    auth_conflicts,
    exposure_conflicts,
    guardrail_conflicts,
    hook_conflicts,
    login_conflicts,
    oauth_conflicts,
    policy_conflicts,
)
from config.models import AUTO, Strategy
from config.networks import is_unencrypted, split_hosts
from config.settings import EmbeddingSettings, PurposeModel, Settings, Toolset
from config.source_conflicts import source_conflicts
from config.yaml_document import KeyPath, Problem, Where, dotted_path
from schemas.errors import Fault
from schemas.json_schema.validators import ValidationError, compile_validator
from schemas.jsonrpc import decode_strict
from schemas.schedules import Schedule
from schemas.wing_tools import WING_TOOLS

LISTENERS = 4  # connections of one process outside its pool, which wait for notifications
LEAST_POOL = 2  # connections in the pool of one worker
SPARE = 6  # connections of the embedded server for commands and for the server itself

PROVIDER_KEYS = {
    "sentence-transformers": {"model": "the name of a model or a directory"},
    "openai-compatible": {"model": "the name of a model", "url": "the URL of a service"},
    "local-http": {"url": "the URL of a service"},
}
WITHOUT_KEYS = ("bundled", "multilingual")  # providers of one model each, in this process
OTHER_PROVIDERS_KEYS = ("model", "endpoint", "url", "api_key")  # keys that those do not use

MINIMUM_BYTES = 128 << 20  # used by the gateway itself

DEFAULT_SCHEDULES = tuple(map(Schedule, ("17 3 * * *", "41 2 * * *", "* * * * *")))

LOGIN_PATHS = ("/authorize", "/token", "/register", "/revoke", "/login", "/connect", "/oauth")

OWN_PATHS = ("/health", "/ready", "/metrics")
# The built-in profiles (registry/display/profiles.py).
PROFILES = (
    "plain",
    "claude",
    "openai",
    "codex",
    "gemini",
    "bedrock",
    "cursor",
    "frameworks",
    "sdk",
)


def _model_conflicts(
    path: KeyPath, model: EmbeddingSettings | PurposeModel, where: Where
) -> Iterator[Problem]:
    """Conflicts among the settings of one embedding model, which are at `path`."""
    provider = (*path, "provider")
    for key, text in PROVIDER_KEYS.get(model.provider, {}).items():
        if not getattr(model, key):
            reason = f"expected {text}: {model.provider} needs it"
            yield Problem(where(provider), dotted_path((*path, key)), reason)
    for key in OTHER_PROVIDERS_KEYS if model.provider in WITHOUT_KEYS else ():
        if getattr(model, key):
            text = f"expected nothing, the {model.provider} model has none; for another set"
            yield Problem(
                where((*path, key)), dotted_path((*path, key)), f"{text} {dotted_path(provider)}"
            )


def embedding_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """Conflicts among the settings of embeddings. `where` returns the location of the first of some
    key paths that is not at its default."""
    embedding, provider = settings.embedding, ("embedding", "provider")
    yield from _model_conflicts(("embedding",), embedding, where)
    for purpose, model in embedding.purposes.items():
        yield from _model_conflicts(("embedding", "purposes", purpose), model, where)
    if (
        embedding.of("tools").provider == "disabled"
        and settings.disclosure.when_down == "fail_closed"
    ):
        path = ("disclosure", "when_down")
        text = "expected lexical: with embedding.provider disabled every search would fail"
        yield Problem(where(path, provider), dotted_path(path), text)


def search_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """Conflicts among the settings of searches."""
    path = ("search", "rerank_model")
    if settings.search.rerank != "off" and not settings.search.rerank_model:
        text = f"expected the folder of a cross-encoder: search.rerank is {settings.search.rerank}"
        yield Problem(where(("search", "rerank")), dotted_path(path), text)


def model_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """Conflicts among the settings of chat models."""
    models, chosen = settings.models, ("models", "strategy")
    if models.default not in models.strategies:
        text = f"expected auto or one of {', '.join(models.strategies)}, found {models.default}"
        yield Problem(where(chosen), dotted_path(chosen), text)
    knowledge = settings.knowledge
    if knowledge.enabled and knowledge.model and knowledge.strategy not in {"", *models.strategies}:
        place = ("knowledge", "model")
        text = f"expected auto or one of {', '.join(models.strategies)}, found {knowledge.model}"
        yield Problem(where(place), dotted_path(place), text)
    embedding = settings.embedding
    users: list[tuple[KeyPath, str]] = [
        (("embedding",), embedding.endpoint),
        *(
            (("embedding", "purposes", k), endpoint.endpoint)
            for k, endpoint in embedding.purposes.items()
        ),
        *(
            (("models", "strategies", k), endpoint.endpoint)
            for k, endpoint in models.strategies.items()
        ),
    ]
    for user, endpoint in users:
        if endpoint and endpoint not in models.endpoints:
            path: KeyPath = (*user, "endpoint")
            endpoints = ", ".join(models.endpoints) or "there is none"
            text = f"expected an entry of models.endpoints ({endpoints}), found {endpoint}"
            yield Problem(where(path), dotted_path(path), text)
    profiles = _profile_names(settings)
    for name, strategy in models.strategies.items():
        path = ("models", "strategies", name)
        if strategy.profile not in (AUTO, *profiles):
            profile, text = (*path, "profile"), f"expected one of auto, {', '.join(profiles)}"
            yield Problem(where(profile), dotted_path(profile), text)
        for key, text in _strategy_problems(strategy):
            yield Problem(where((*path, key)), dotted_path((*path, key)), text)


def _strategy_problems(strategy: Strategy) -> Iterator[tuple[str, str]]:
    try:
        decode_strict(strategy.options.encode())
    except Fault as error:
        yield "options", f"expected a JSON object as text: {error}"
    key = strategy.api_key.strip()
    if not (key.isascii() and key.isprintable()):
        yield "api_key", "expected characters that an HTTP header may hold"
    if key and strategy.url and is_unencrypted(strategy.url):
        yield "url", "expected an https:// URL where a key is sent, but for a server on loopback"


def limit_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """Conflicts among the limits. `where` returns the location of the first of some key paths that
    is not at its default."""

    def problem(text: str, *key: str) -> Problem:
        return Problem(where(key), dotted_path(key), text)

    for network in settings.server.trusted_proxies:
        if not _is_network(network):
            text = f"expected an address or a network without host bits, found {network}"
            yield problem(text, "server", "trusted_proxies")
    limits, breaker = settings.limits, settings.breaker
    for group, rates in (("tools", limits.tools), ("sources", limits.sources)):
        for name, rate in rates.items():
            if not rate.calls and not rate.concurrent:
                yield problem("expected calls or concurrent above 0", "limits", group, name)
    if breaker.longest_s < breaker.open_s:
        text = f"expected at least breaker.open_s, {breaker.open_s:g}, found {breaker.longest_s:g}"
        yield problem(text, "breaker", "longest_s")
    if 0 < limits.memory_bytes < MINIMUM_BYTES:
        text = f"expected 0, or at least the {MINIMUM_BYTES} that the gateway takes by itself"
        yield problem(f"{text}, found {limits.memory_bytes}", "limits", "memory_bytes")


def _is_network(text: str) -> bool:
    try:
        ip_network(text)
    except ValueError:
        return False
    return True


def conflicts(settings: Settings, where: Where) -> list[Problem]:
    """All conflicts of the settings. `where` returns the location of the first of some key paths
    that is not at its default."""
    return [
        *_path_clashes(settings, where),
        *_pool_excess(settings, where),
        *_too_many_workers(settings, where),
        *_separate_workers(settings, where),
        *source_conflicts(settings, where),
        *_keyless_secrets(settings, where),
        *_unencrypted_registries(settings, where),
        *_unknown_profile(settings, where),
        *_illegible_arguments(settings, where),
        *exposure_conflicts(settings, where),
        *auth_conflicts(settings, where),
        *_unclear_redis(settings, where),
        *_two_engines(settings, where),
        *embedding_conflicts(settings, where),
        *search_conflicts(settings, where),
        *model_conflicts(settings, where),
        *oauth_conflicts(settings, where),
        *policy_conflicts(settings, where),
        *guardrail_conflicts(settings, where),
        *hook_conflicts(settings, where),
        *limit_conflicts(settings, where),
        *_unreachable_admin_tools(settings, where),
        *_legacy_dates(settings, where),
        *_half_a_certificate(settings, where),
        *_console_conflicts(settings, where),
        *login_conflicts(settings, where),
        *_connection_conflicts(settings, where),
        *_agent_conflicts(settings, where),
        *_a2a_conflicts(settings, where),
        *_subregistry_conflicts(settings, where),
        *_librarian_conflicts(settings, where),
        *_backup_conflicts(settings, where),
        *_schedule_conflicts(settings, where),
        *_event_conflicts(settings, where),
    ]


def _connection_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """Requests that outlast the time after which another gateway repeats them."""
    limits, key = settings.connections, ("connections", "request_s")
    if limits.request_s >= limits.renew_timeout_s:
        text = f"expected less than connections.renew_timeout_s, which is {limits.renew_timeout_s}"
        yield Problem(where(key), dotted_path(key), text)


def _backup_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """Backups without a place, or without the jobs that make them."""
    if not settings.backups.enabled:
        return
    key = ("backups", "to")
    if not settings.backups.to:
        text = "expected a folder, or s3://BUCKET/PREFIX, as backups.enabled is true"
        yield Problem(where(("backups", "enabled")), dotted_path(key), text)
    needed = {
        "auth.mode (jwt or keys)": settings.auth.mode != "none",
        "admin.enabled": settings.admin.enabled,
        "jobs.enabled": settings.jobs.enabled,
    }
    if missing := [name for name, is_set in needed.items() if not is_set]:
        text = f"backups are jobs: set {' and '.join(missing)}"
        yield Problem(where(("backups", "enabled")), "backups.enabled", text)


def _schedule_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """Crons that fit the pattern of one and never come, and unknown time zones."""
    schedules: list[tuple[KeyPath, Schedule]] = [
        (("backups", "schedule"), Schedule(settings.backups.schedule)),
        (("jobs", "removal_schedule"), Schedule(settings.jobs.removal_schedule)),
        (("memory", "purge_schedule"), Schedule(settings.memory.purge_schedule)),
        (
            ("knowledge", "extraction", "schedule"),
            Schedule(settings.knowledge.extraction.schedule),
        ),
        (("librarian", "refresh_schedule"), Schedule(settings.librarian.refresh_schedule)),
        *(
            (("events", "schedules", name), Schedule(entry.cron, entry.timezone))
            for name, entry in settings.events.schedules.items()
        ),
    ]
    for key, schedule in schedules:
        if schedule in DEFAULT_SCHEDULES:
            continue  # without loading croniter in each command
        if mistake := schedule.mistake:
            yield Problem(where(key), dotted_path(key), mistake)


def toolset_path_problem(settings: Settings, name: str) -> str | None:
    """The clash of paths of a stored toolset of this name; None: it has paths of its own."""
    tools = replace(settings.admin, tools=True)  # its name stays reserved while they are off
    with_it = replace(settings, toolsets={name: Toolset()}, admin=tools)
    problems = _path_clashes(with_it, lambda *_: "")
    return problems[0].text if problems else None


def _path_clashes(settings: Settings, where: Where) -> list[Problem]:
    mcp = settings.mcp.path
    claimed_paths: list[tuple[str, KeyPath]] = [
        *((path, ()) for path in OWN_PATHS),
        *((path, ("mcp", "path")) for path in (mcp, f"{mcp}/sse", f"{mcp}/message")),
        (settings.rpc.path, ("rpc", "path")),
    ]
    if settings.portal.enabled:
        claimed_paths.append((settings.portal.query_path, ("portal", "query_path")))
        claimed_paths.append((settings.portal.command_path, ("portal", "command_path")))
    for name in settings.toolsets:
        subpath = f"{mcp}/{name}"
        paths = (subpath, f"{subpath}/sse", f"{subpath}/message")
        claimed_paths.extend((path, ("toolsets", name)) for path in paths)
    if settings.login.enabled:
        claimed_paths.extend((path, ("login", "enabled")) for path in LOGIN_PATHS)
    if settings.admin.tools:
        claimed_paths.append((f"{mcp}/{ADMIN_TOOLSET}", ("admin", "tools")))
        claimed_paths.append((f"{settings.rpc.path}/{ADMIN_TOOLSET}", ("admin", "tools")))
    clashes = [
        (peer, owner, path, key)
        for (peer, owner), (path, key) in combinations(claimed_paths, 2)
        if path == peer and key
    ]
    if settings.admin.enabled:  # everything below its path is its own
        admin = settings.admin.path
        inside = [path for path in claimed_paths if f"{path[0]}/".startswith(f"{admin}/")]
        clashes += [(peer, owner, admin, ("admin", "path")) for peer, owner in inside[:1]]
    if settings.console.enabled:
        console, also = settings.console.path, (settings.admin.path, ("admin", "path"))
        inside = [
            path for path in [*claimed_paths, also] if f"{path[0]}/".startswith(f"{console}/")
        ]
        clashes += [(peer, owner, console, ("console", "path")) for peer, owner in inside[:1]]
    return [
        Problem(
            where(key, owner),
            dotted_path(key),
            f"expected a path of its own, found {path} "
            f"(taken by {dotted_path(owner) or 'Toolgate'})",
        )
        for _, owner, path, key in clashes
    ]


def _unreachable_admin_tools(settings: Settings, where: Where) -> list[Problem]:
    """Operations as tools without the admin API, whose callers are authenticated."""
    admin, key = settings.admin, ("admin", "tools")
    if not admin.tools or (admin.enabled and settings.auth.mode != "none"):
        return []
    text = "expected false while admin.enabled is false or auth.mode is none, found true"
    return [Problem(where(key, ("auth", "mode")), dotted_path(key), text)]


def _legacy_dates(settings: Settings, where: Where) -> Iterator[Problem]:
    """Dates that no calendar has, and a sunset before the deprecation (RFC 9745, 4)."""
    names = ("legacy_deprecated", "legacy_sunset")
    days: list[date] = []
    for name in names:
        text, key = getattr(settings.portal, name), ("portal", name)
        try:
            days += [date.fromisoformat(text)] if text else []
        except ValueError:
            yield Problem(
                where(key), dotted_path(key), f"expected a date of the calendar, found {text}"
            )
    if len(days) == len(names) and days[1] < days[0]:
        key = ("portal", "legacy_sunset")
        text = f"expected no day before portal.legacy_deprecated ({days[0]}), found {days[1]}"
        yield Problem(where(key, ("portal", "legacy_deprecated")), dotted_path(key), text)


def _half_a_certificate(settings: Settings, where: Where) -> Iterator[Problem]:
    files = {name: getattr(settings.server.tls, name) for name in ("cert", "key")}
    for name, pair in (("cert", "key"), ("key", "cert")):
        if files[pair] and not files[name]:
            key = ("server", "tls", name)
            text = f"expected a file beside server.tls.{pair}"
            yield Problem(where(("server", "tls", pair)), dotted_path(key), text)


def _console_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """A console without the operations that it calls."""
    console = settings.console
    if not console.enabled:
        return
    if not settings.admin.enabled:
        key, text = ("console", "enabled"), "expected admin.enabled with it, whose operations it is"
        yield Problem(where(key, ("admin", "enabled")), dotted_path(key), text)


def _agent_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """Tools that get the messages of users without a model, named without their owner."""
    for setting, names in (
        ("context_tools", settings.agent.context_tools),
        ("observer_tools", settings.agent.observer_tools),
    ):
        for name in filter(_lacks_source, names):
            key = ("agent", setting)
            text = f"expected SOURCE.{name}, or an operation of a wing; found {name}"
            yield Problem(where(key), dotted_path(key), text)


def _a2a_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """Served agents whose toolset or strategy does not exist, and settings of signed cards without
    a key to sign with, or with addresses that the signed form would change."""
    strategies = settings.models.strategies
    if settings.a2a.enabled and settings.a2a.sign:
        yield from _unsignable_texts(settings, where)
    if settings.a2a.enabled and settings.a2a.sign and not settings.login.enabled:
        text = "expected login.enabled with it, whose key signs cards"
        yield Problem(where(("a2a", "sign")), "a2a.sign", text)
    for name, agent in settings.a2a.agents.items() if settings.a2a.enabled else ():
        key = ("a2a", "agents", name)
        if agent.toolset and agent.toolset not in settings.toolsets:
            toolset_names = ", ".join(settings.toolsets) or "there is none"
            text = f"expected one of toolsets ({toolset_names}), found {agent.toolset}"
            yield Problem(where((*key, "toolset")), dotted_path((*key, "toolset")), text)
        if agent.strategy and agent.strategy not in strategies:
            text = f"expected an entry of models.strategies, found {agent.strategy}"
            yield Problem(where((*key, "strategy")), dotted_path((*key, "strategy")), text)


def _unsignable_texts(settings: Settings, where: Where) -> Iterator[Problem]:
    """Addresses that are no ASCII: signed cards are, as their letters lose their accents."""
    agents = settings.a2a.agents.items()
    texts: dict[KeyPath, str] = {
        ("server", "public_url"): settings.server.public_url,
        ("a2a", "url"): settings.a2a.url,
        ("oauth", "authorization_servers"): " ".join(settings.oauth.authorization_servers),
        **{("a2a", "agents", name, "tenant"): agent.tenant for name, agent in agents},
    }
    for key, text in texts.items():
        if not text.isascii():
            expected = f"expected ASCII with a2a.sign (xn--... in hosts), found {text}"
            yield Problem(where(key), dotted_path(key), expected)


def _subregistry_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """A registry that has no name or address to list, or no callers that it could know."""
    wing, enabled = settings.subregistry, ("subregistry", "enabled")
    if not wing.enabled:
        return
    if not settings.server.public_url:
        key: KeyPath = ("server", "public_url")
        text = "expected the URL that clients use: subregistry.enabled lists endpoints below it"
        yield Problem(where(key, enabled), dotted_path(key), text)
    if not wing.namespace:
        key = ("subregistry", "namespace")
        text = "expected a reversed domain such as com.example: toolsets are listed below it"
        yield Problem(where(key, enabled), dotted_path(key), text)
    if wing.access == "token" and settings.auth.mode == "none":
        key = ("subregistry", "access")
        text = "expected open: with auth.mode none, callers have no tokens"
        yield Problem(where(key), dotted_path(key), text)


def _event_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """Tools that schedules and hooks call, named without their owner."""
    events = settings.events
    for section, entries in (("schedules", events.schedules), ("inbound", events.inbound)):
        for entry_name, entry in entries.items():
            name = entry.skill
            if name not in events.skills and _lacks_source(name):
                key = ("events", section, entry_name, "skill")
                owners = "a key of events.skills, or an operation of a wing"
                text = f"expected SOURCE.{name}, {owners}; found {name}"
                yield Problem(where(key), dotted_path(key), text)


def _lacks_source(name: str) -> bool:
    """Whether a name alone leaves open whose tool it is: any server may list it."""
    return "." not in name and name not in WING_TOOLS


def _librarian_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """A librarian without the documents that it reads, or with models that are not there."""
    strategies = settings.models.strategies
    for path, name in settings.librarian.strategies.items():
        if settings.librarian.enabled and name not in strategies:
            at = ("librarian", *path)
            message = f"expected auto or one of {', '.join(strategies)}, found {name}"
            yield Problem(where(at), dotted_path(at), message)
    if settings.librarian.enabled and not settings.knowledge.enabled:
        key, text = ("librarian", "enabled"), "expected knowledge.enabled with it, whose documents"
        yield Problem(where(key, ("knowledge", "enabled")), dotted_path(key), f"{text} it reads")


def _pool_excess(settings: Settings, where: Where) -> list[Problem]:
    database = settings.database
    if database.url != "embedded" or database.pool_max < database.max_connections:
        return []
    key, bound = ("database", "pool_max"), ("database", "max_connections")
    text = f"expected less than database.max_connections ({database.max_connections})"
    return [Problem(where(key, bound), dotted_path(key), f"{text}, found {database.pool_max}")]


def _too_many_workers(settings: Settings, where: Where) -> list[Problem]:
    """Too many workers: each needs a few connections of the embedded server, which has a fixed
    number."""
    workers, database = settings.server.processes, settings.database
    if workers == 1 or database.url != "embedded" or pool_of_worker(settings) >= LEAST_POOL:
        return []
    key, bound = ("server", "workers"), ("database", "max_connections")
    needed = workers * (LEAST_POOL + LISTENERS) + SPARE
    text = f"expected database.max_connections of at least {needed} for {workers} workers"
    return [
        Problem(where(key, bound), dotted_path(key), f"{text}, found {database.max_connections}")
    ]


def _separate_workers(settings: Settings, where: Where) -> list[Problem]:
    if settings.server.processes == 1 or settings.state.backend != "memory":
        return []
    key, workers = ("state", "backend"), ("server", "workers")
    text = "expected auto, postgres or redis with several workers (server.workers), found memory"
    return [Problem(where(key, workers), dotted_path(key), text)]


def pool_of_worker(settings: Settings) -> int:
    """Connection pool size of each worker: database.pool_max, and of the embedded server at most
    its share."""
    database = settings.database
    if database.url != "embedded" or settings.server.processes == 1:
        return database.pool_max
    share = (database.max_connections - SPARE) // settings.server.processes - LISTENERS
    return min(database.pool_max, share)


def _keyless_secrets(settings: Settings, where: Where) -> list[Problem]:
    if settings.secrets.key or not any(settings.secrets.old_keys):
        return []
    path = ("secrets", "old_keys")
    return [Problem(where(path), dotted_path(path), "expected secrets.key beside it")]


def _unencrypted_registries(settings: Settings, where: Where) -> Iterator[Problem]:
    for name, entry in settings.registries.items():
        if is_unencrypted(entry.url):
            path = ("registries", name, "url")
            text = "expected an https:// URL, but for a server on loopback"
            yield Problem(where(path), dotted_path(path), text)


def _illegible_arguments(settings: Settings, where: Where) -> Iterator[Problem]:
    for name, profile in settings.profiles.custom.items():
        try:
            compile_validator({"pattern": profile.arguments})
        except ValidationError:
            path = ("profiles", "custom", name, "arguments")
            yield Problem(where(path), dotted_path(path), "expected a regular expression")


def _profile_names(settings: Settings) -> tuple[str, ...]:
    return (*PROFILES, *(name for name in settings.profiles.custom if name not in PROFILES))


def _unknown_profile(settings: Settings, where: Where) -> Iterator[Problem]:
    profiles, names = settings.profiles, _profile_names(settings)
    if profiles.default not in (AUTO, *names):
        path: KeyPath = ("profiles", "default")
        yield Problem(where(path), dotted_path(path), f"expected one of auto, {', '.join(names)}")
    for name in profiles.tool_tokens:
        if name not in names:
            path = ("profiles", "tool_tokens", name)
            yield Problem(where(path), dotted_path(path), f"expected one of {', '.join(names)}")


def _unclear_redis(settings: Settings, where: Where) -> Iterator[Problem]:
    url, backend = ("state", "redis_url"), ("state", "backend")
    used, redis_url = settings.state.backend == "redis", settings.state.redis_url
    if used and not redis_url:
        text = "expected state.redis_url with it, as in redis://redis.example:6379/0"
        yield Problem(where(backend), dotted_path(backend), text)
    elif redis_url and not used:
        text = f"expected state.backend: redis with it, found {settings.state.backend}"
        yield Problem(where(url), dotted_path(url), text)
    elif not _has_address(redis_url):
        text = (
            "expected redis://[user:password@]host[:port][/database], or "
            "redis+cluster://[user:password@]host[:port],host[:port], with %-escapes for special "
            "characters of a password; found a value that is not shown"
        )
        yield Problem(where(url), dotted_path(url), text)


def _two_engines(settings: Settings, where: Where) -> Iterator[Problem]:
    if settings.events.redis_url and settings.events.kafka.servers:
        path = ("events", "kafka", "servers")
        text = "expected none while events.redis_url is set: one of them wakes workers"
        yield Problem(where(path), dotted_path(path), text)


def _has_address(redis_url: str) -> bool:
    try:
        if redis_url.partition("://")[0].endswith("+cluster"):
            parts, hosts = split_hosts(redis_url)
            named = all(host.hostname and host.port != 0 for host in hosts)
            return named and parts.path in ("", "/")
        parts = urlsplit(redis_url)
        database = parts.path.strip("/")
        served = bool(parts.hostname) and parts.port != 0
        return parts.scheme in ("", "unix") or (served and (database or "0").isdecimal())
    except ValueError:  # the text in place of the port may be half a password
        return False
