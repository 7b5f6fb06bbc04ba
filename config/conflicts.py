"""Conflicts between settings that are each valid on their own."""

from collections.abc import Collection, Iterator
from datetime import date
from ipaddress import ip_network
from itertools import combinations
from urllib.parse import urlsplit

from config.access import (
    ADMIN_TOOLSET,
    DEVELOPMENT_ISSUER,
    GUARDRAIL_VARIABLES,
    RESERVED_ISSUER,
    RULE_VARIABLES,
    Auth,
    Guardrail,
    IssuerSettings,
    OAuth,
    Policy,
    Rule,
)
from config.login import (
    LONGEST_TOKEN_S,
    TOO_LONG,
    client_problems,
    provider_problems,
    shared_names,
)
from config.models import AUTO, Strategy
from config.networks import is_loopback, is_unencrypted
from config.settings import EmbeddingSettings, PurposeModel, Settings
from config.sources import Connect, SchemeSettings, SourceSettings, TokenExchange
from config.yaml_document import KeyPath, Problem, Where, dotted_path
from schemas.cel_expressions import InvalidExpression, compile_expression
from schemas.errors import Fault
from schemas.json_schema.validators import ValidationError, compile_validator
from schemas.jsonrpc import decode_strict
from schemas.rule_patterns import InvalidPattern, Pattern
from schemas.schedules import Schedule
from schemas.wing_tools import WING_TOOLS

KEYS = ("key_file", "jwks_file", "jwks_url")

LISTENERS = 4  # connections of one process outside its pool, which wait for notifications
LEAST_POOL = 2  # connections in the pool of one worker
SPARE = 6  # connections of the embedded server for commands and for the server itself

Conflicts = Iterator[tuple[KeyPath, str]]

PROVIDER_KEYS = {
    "sentence-transformers": {"model": "the name of a model or a directory"},
    "openai-compatible": {"model": "the name of a model", "url": "the URL of a service"},
    "local-http": {"url": "the URL of a service"},
}
WITHOUT_KEYS = ("bundled", "multilingual")  # providers of one model each, in this process
OTHER_PROVIDERS_KEYS = ("model", "endpoint", "url", "api_key")  # keys that those do not use

MINIMUM_BYTES = 128 << 20  # used by the gateway itself

OFFLINE = "offline_access"

DEFAULT_SCHEDULES = (Schedule("17 3 * * *"), Schedule("* * * * *"))

LOGIN_PATHS = ("/authorize", "/token", "/register", "/revoke", "/login", "/connect", "/oauth")

SOURCE_KINDS = ("openapi", "graphql", "hybrid", "python", "mcp", "command")
MCP_KEYS = ("era", "prefix", "own_sessions", "pin")
OPENAPI_KEYS = (
    *("entry", "overlay", "only_marked", "media_types"),
    *("credentials", "require_credentials"),
)
GRAPHQL_KEYS = ("depth", "cost")
HYBRID_KEYS = ("side", "dialect", "batch")
# Keys of sources that are called over HTTP.
HTTP_KEYS = ("forward_token", "same_trust_domain", "exchange", "connect", "tls")

# Headers that each request sets itself (RFC 9110 and 9112); settings must not.
FRAMING = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer"}
    | {"upgrade", "expect", "proxy-connection"}
)

DEFAULT_SOURCE = SourceSettings()  # all its defaults
DEFAULT_SCHEME = SchemeSettings()
# The ways to satisfy a security scheme, and the companion keys of each.
CREDENTIALS = {
    "value": (),
    "token": (),
    "username": ("password",),
    "client_id": ("client_secret", "token_url", "scopes", "client_auth"),
}

OWN_PATHS = ("/health", "/ready", "/metrics")
# The built-in profiles (registry/display/profiles.py).
PROFILES = ("plain", "claude", "openai", "codex", "gemini", "bedrock", "cursor")


def exposure_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """Settings that open the gateway to others than this machine, without authentication."""
    auth, openings = settings.auth, _openings(settings)
    if auth.mode == "none" and not auth.allow_public:
        expected = (
            "expected auth.mode: keys or auth.mode: jwt with it, because without authentication "
            "whoever reaches the gateway may call everything; or auth.allow_public: true, where "
            "all that reaches it asks for credentials itself"
        )
    elif auth.mode == "jwt" and auth.development_secret:
        openings.discard("public_url")  # also the audience of tokens
        expected = (
            "expected no auth.development_secret with it, which is for loopback only: whoever "
            "knows it can make tokens for everything"
        )
    else:
        return
    for key in sorted(openings):
        yield Problem(where(("server", key)), f"server.{key}", expected)


def _openings(settings: Settings) -> set[str]:
    """The keys of `server` by which others than this machine reach the gateway."""
    server = settings.server
    public = urlsplit(server.public_url).hostname or "localhost"
    openings = {
        "public_url": not is_loopback(public),
        "allowed_hosts": not all(is_loopback(host.strip("[]")) for host in server.allowed_hosts),
        "trusted_proxies": bool(server.trusted_proxies),
    }
    return {key for key, is_open in openings.items() if is_open}


def auth_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """Conflicts within `auth`; none while `auth.mode` is none, which leaves it unused."""
    auth = settings.auth
    conflicts: list[tuple[KeyPath, str]] = []
    if auth.mode == "keys":
        conflicts += _missing_api_keys(auth)
    elif auth.mode == "jwt":
        conflicts += [
            *_key_sources(auth, settings.login.enabled),
            *_issuer_names(auth),
            *_tenants(auth),
            *_cache_times(auth),
        ]
        conflicts += _audiences(settings)
    for subpath, text in conflicts:
        key = ("auth", *subpath)
        yield Problem(where(key, ("auth", "mode")), dotted_path(key), text)


def _missing_api_keys(auth: Auth) -> Conflicts:
    if not auth.api_keys:
        yield ("mode",), "expected auth.api_keys with it, or no caller could authenticate"


def _key_sources(auth: Auth, login: bool) -> Conflicts:
    """Issuers without exactly one key source. `login`: whether the gateway is an issuer itself."""
    given = [f"auth.{key}" for key in KEYS if getattr(auth, key)]
    wanted = ", ".join(f"auth.{key}" for key in KEYS)
    if len(given) > 1:
        yield ("mode",), f"expected one of {wanted} with it, found {' and '.join(given)}"
    elif not given and not auth.issuers and not auth.development_secret and not login:
        others = "auth.issuers, login.enabled or auth.development_secret"
        yield ("mode",), f"expected {wanted}, {others} with it, found none of them"
    elif not given and auth.issuer:
        yield ("issuer",), f"expected one of {wanted} beside it: the key of its tokens"
    for name, issuer in auth.issuers.items():
        given = [key for key in KEYS if getattr(issuer, key)]
        if len(given) != 1:
            found_keys = " and ".join(given) or "none of them"
            yield ("issuers", name), f"expected one of {', '.join(KEYS)}, found {found_keys}"
    for path, url in _jwks_urls(auth):
        if is_unencrypted(url):
            yield path, f"expected an https:// URL, but for a server on loopback, found {url}"


def _jwks_urls(auth: Auth) -> Iterator[tuple[KeyPath, str]]:
    for path, issuer in _keyed_issuers(auth):
        if issuer.jwks_url:
            yield (*path, "jwks_url"), issuer.jwks_url


def _issuer_names(auth: Auth) -> Conflicts:
    """Issuers that share an `iss`, which has to identify the issuer before any key is tried."""
    seen: dict[str, str] = {DEVELOPMENT_ISSUER: "`toolgate token mint`"}
    for path, issuer in _keyed_issuers(auth):
        if not issuer.issuer:
            if path or auth.issuers:
                text = "expected the `iss` of its tokens: there are several issuers"
                yield (*path, "issuer"), text
        elif issuer.issuer in seen:
            yield (*path, "issuer"), f"expected one that is not that of {seen[issuer.issuer]}"
        else:
            seen[issuer.issuer] = dotted_path(("auth", *path))
    if RESERVED_ISSUER in auth.issuers:
        text = f"expected another name: {RESERVED_ISSUER}:NAME is the principal of an API key"
        yield ("issuers", RESERVED_ISSUER), text


def _tenants(auth: Auth) -> Conflicts:
    for path, issuer in _keyed_issuers(auth):
        if issuer.tenants and not issuer.tenant_claim:
            yield (*path, "tenants"), "expected tenant_claim beside it, whose values these are"
        if isinstance(issuer, IssuerSettings) and issuer.tenant and issuer.tenant_claim:
            yield (*path, "tenant"), "expected tenant or tenant_claim, found both"


def _audiences(settings: Settings) -> Conflicts:
    auth = settings.auth
    if auth.bind_audience == "off":
        return
    if not settings.server.public_url:
        yield ("bind_audience",), "expected server.public_url with it, which tokens have to name"
    if auth.bind_audience == "endpoint":
        for path, issuer in (((), auth), *_keyed_issuers(auth)):
            if issuer.audience:
                text = "expected none with auth.bind_audience: endpoint, which determines `aud`"
                yield (*path, "audience"), text
                return


def _cache_times(auth: Auth) -> Conflicts:
    if auth.jwks_stale_s < auth.jwks_ttl_s:
        text = f"expected at least auth.jwks_ttl_s ({auth.jwks_ttl_s:g}), after which keys are"
        yield ("jwks_stale_s",), f"{text} fetched again, found {auth.jwks_stale_s:g}"


def _keyed_issuers(auth: Auth) -> Iterator[tuple[KeyPath, Auth | IssuerSettings]]:
    """Every issuer with a key, and its key path below `auth`."""
    if any(getattr(auth, key) for key in KEYS):
        yield (), auth
    for name, issuer in auth.issuers.items():
        yield ("issuers", name), issuer


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
        asked = ("knowledge", "model")
        text = f"expected auto or one of {', '.join(models.strategies)}, found {knowledge.model}"
        yield Problem(where(asked), dotted_path(asked), text)
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
            known = ", ".join(models.endpoints) or "there is none"
            text = f"expected an entry of models.endpoints ({known}), found {endpoint}"
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


def guardrail_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    guardrails = settings.guardrails
    for name, rule in guardrails.rules.items():
        for key, text in _guardrail_problems(rule, guardrails.expression_steps):
            path: KeyPath = ("guardrails", "rules", name, key)
            yield Problem(where(path), dotted_path(path), text)


def _guardrail_problems(rule: Guardrail, steps: int) -> Iterator[tuple[str, str]]:
    if not (rule.fields or rule.pattern or rule.when):
        yield "effect", "expected fields, pattern or when beside it: the rule looks for nothing"
    elif rule.effect == "redact" and not (rule.fields or rule.pattern):
        yield "effect", "expected fields or pattern beside redact, which define what to mask"
    if rule.pattern:
        try:
            Pattern(rule.pattern)
        except InvalidPattern as error:
            yield "pattern", f"expected a regular expression (RE2): {error}"
    if rule.when:
        try:
            compile_expression(rule.when, GUARDRAIL_VARIABLES, steps)
        except InvalidExpression as error:
            yield "when", f"expected a CEL expression: {error}"
    for path in rule.fields:
        if not all(path.split(".")):
            yield "fields", f"expected dotted paths such as customer.email, found {path!r}"


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


def oauth_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    for name, text in (*_open_servers(settings.oauth), *_foreign_scopes(settings.oauth)):
        key: KeyPath = ("oauth", name)
        yield Problem(where(key), dotted_path(key), text)


def _open_servers(oauth: OAuth) -> Iterator[tuple[str, str]]:
    """Servers without https, which carry logins (RFC 8414, section 2; RFC 9728, section 2)."""
    for url in filter(is_unencrypted, oauth.authorization_servers):
        yield (
            "authorization_servers",
            f"expected https:// URLs, but for servers on loopback, found {url}",
        )


def _foreign_scopes(oauth: OAuth) -> Iterator[tuple[str, str]]:
    for name in ("scopes_supported", "required_scopes"):
        if OFFLINE in getattr(oauth, name):
            yield name, f"expected no {OFFLINE}, which is about clients; they add it themselves"


def policy_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    policy = settings.policy
    conflicts = list(_tiers(policy))
    for name, rule in policy.rules.items():
        problems = rule_problems(rule, policy, _toolsets(settings))
        conflicts += [(("rules", name, member), text) for member, text in problems]
    for subpath, text in conflicts:
        key = ("policy", *subpath)
        yield Problem(where(key), dotted_path(key), text)


def _toolsets(settings: Settings) -> Collection[str]:
    """The toolsets that a rule can refer to."""
    return [*settings.toolsets, *([ADMIN_TOOLSET] if settings.admin.tools else [])]


def rule_problems(
    rule: Rule, policy: Policy, toolsets: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Problems of one rule: (member, problem) pairs."""
    if rule.when:
        try:
            compile_expression(rule.when, RULE_VARIABLES, policy.expression_steps)
        except InvalidExpression as error:
            yield "when", f"expected a CEL expression: {error}"
    for tier in rule.tiers:
        if tier not in policy.tiers:
            yield "tiers", _no_tier(policy, tier)
    for toolset in rule.toolsets:
        if toolset not in toolsets:
            known = ", ".join(toolsets) or "none"
            yield "toolsets", f"expected names of toolsets ({known}), found {toolset}"


def _tiers(policy: Policy) -> Conflicts:
    named: list[tuple[KeyPath, str]] = [
        (("default_tier",), policy.default_tier),
        (("default_clearance",), policy.default_clearance),
        *((("clearances", role), tier) for role, tier in policy.clearances.items()),
    ]
    for path, tier in named:
        if tier not in policy.tiers:
            yield path, _no_tier(policy, tier)
    if len(set(policy.tiers)) < len(policy.tiers):
        yield ("tiers",), "expected each tier once"


def _no_tier(policy: Policy, tier: str) -> str:
    return f"expected one of policy.tiers ({', '.join(policy.tiers)}), found {tier}"


# Keys without effect for a kind. An entry without a kind adjusts a source of any kind.
KEYS_WITHOUT_EFFECT = {
    "openapi": (*GRAPHQL_KEYS, *HYBRID_KEYS, *MCP_KEYS, "env"),
    "graphql": (
        *("entry", "media_types", "credentials", "require_credentials"),
        *(*HYBRID_KEYS, *MCP_KEYS, "env"),
    ),
    "hybrid": (*OPENAPI_KEYS, *GRAPHQL_KEYS, *MCP_KEYS, "env"),
    "python": (
        *("base_url", "headers", "dialect", "batch", *HTTP_KEYS),
        *(*OPENAPI_KEYS, *GRAPHQL_KEYS, *MCP_KEYS, "env"),
    ),
    "mcp": ("base_url", "retries", *OPENAPI_KEYS, *GRAPHQL_KEYS, *HYBRID_KEYS, "env"),
    "command": (
        *("base_url", "headers", "retries", *HTTP_KEYS),
        *(*OPENAPI_KEYS, *GRAPHQL_KEYS, *HYBRID_KEYS, "era"),
    ),
}


def source_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """Conflicts among the sources. `where` returns the location of the first of some key paths that
    is not at its default."""
    yield from _ambiguous_sources(settings, where)
    yield from _unclear_credentials(settings, where)
    yield from _forbidden_commands(settings, where)
    for name, source in settings.sources.items():
        kinds = _kinds(source)
        kind = kinds[0] if len(kinds) == 1 else None
        conflicts = [
            *_unusable_keys(source, kind),
            *_several_authentications(source, kind),
            *_unusable_exchange(source),
            *(_keys_without_token(source, kind) if settings.auth.mode != "jwt" else ()),
            *_unusable_connect(source, kind, login=settings.login.enabled),
            *_framing_headers(source),
            *_incomplete_tls(source),
        ]
        for key, text in conflicts:
            path = ("sources", name, *key.split("."))
            yield Problem(where(path), dotted_path(path), text)


def _kinds(source: SourceSettings) -> list[str]:
    return [kind for kind in SOURCE_KINDS if getattr(source, kind)]


def _ambiguous_sources(settings: Settings, where: Where) -> list[Problem]:
    problems = []
    for name, source in settings.sources.items():
        given = _kinds(source)
        if len(given) > 1:
            key = ("sources", name, given[1])
            text = f"expected one of {', '.join(SOURCE_KINDS)}, found {' and '.join(given)}"
            problems.append(Problem(where(key), dotted_path(key), text))
    return problems


def _unusable_keys(source: SourceSettings, kind: str | None) -> Iterator[tuple[str, str]]:
    """Keys of an entry that cannot work, and why."""
    if kind == "hybrid" and source.base_url is None:
        yield "hybrid", "expected base_url beside it: a description has no address of calls"
    calls_hybrid = kind not in ("openapi", "graphql", "python")
    if source.dialect == "legacy" and source.batch > 1 and calls_hybrid:
        yield (
            "batch",
            f"expected 1 with dialect: legacy, which has no batches, found {source.batch}",
        )
    for key in KEYS_WITHOUT_EFFECT.get(kind or "", ()):
        if getattr(source, key) != getattr(DEFAULT_SOURCE, key):
            yield key, f"expected no such key beside {kind}, where it means nothing"


def _unclear_credentials(settings: Settings, where: Where) -> Iterator[Problem]:
    for name, source in settings.sources.items():
        for scheme, given in source.credentials.items():
            if text := credential_problem(given):
                path = ("sources", name, "credentials", scheme)
                yield Problem(where(path), dotted_path(path), text)


def credential_kind(entry: SchemeSettings) -> str | None:
    """The key that determines how a scheme is satisfied; None where none is usable."""
    return next((scheme_key for scheme_key in CREDENTIALS if getattr(entry, scheme_key)), None)


def credential_problem(entry: SchemeSettings) -> str | None:
    """Problem of the credentials: a message with what is expected instead, without the values given
    (secrets); None: valid."""
    schemes = [scheme_key for scheme_key in CREDENTIALS if getattr(entry, scheme_key) is not None]
    if len(schemes) > 1:
        return f"expected one of {', '.join(CREDENTIALS)}, found {' and '.join(schemes)}"
    for scheme_key, companions in CREDENTIALS.items():
        others = [key for key in companions if getattr(entry, key) != getattr(DEFAULT_SCHEME, key)]
        if scheme_key not in schemes and others:
            return f"expected {scheme_key} beside {others[0]}"
    if entry.client_id is not None and not (entry.client_secret is not None and entry.token_url):
        return "expected client_secret and token_url beside client_id"
    return None


def _forbidden_commands(settings: Settings, where: Where) -> Iterator[Problem]:
    if settings.upstream.stdio:
        return
    for name, source in settings.sources.items():
        if source.command:
            key = ("sources", name, "command")
            text = "expected no command while upstream.stdio is false, which allows none to be run"
            yield Problem(where(key), dotted_path(key), text)


def _several_authentications(source: SourceSettings, kind: str | None) -> Iterator[tuple[str, str]]:
    """Sources with several ways of authenticating the caller: only one is possible."""
    methods = []
    if source.exchange is not None:
        methods.append("exchange")
    if source.forward_token:
        methods.append("forward_token")
    if source.connect.mode != "off":
        methods.append("connect")
    if any(given != DEFAULT_SCHEME for given in source.credentials.values()):
        methods.append("credentials")
    # An MCP server also gets requests without a caller.
    if kind != "mcp" and any(name.lower() == "authorization" for name in source.headers):
        methods.append("headers.Authorization")
    fetched = any(given.client_id for given in source.credentials.values())
    if source.connect.mode != "off":  # the operator's serve imports, and schemes of its own
        methods = [way for way in methods if way not in ("credentials", "headers.Authorization")]
    static = not (source.exchange or source.forward_token)
    if len(methods) < 2 or (static and not fetched):
        return
    yield methods[0], f"expected one way to authenticate the caller, found {' and '.join(methods)}"


def _unusable_exchange(source: SourceSettings) -> Iterator[tuple[str, str]]:
    exchange = source.exchange
    if exchange is not None and exchange.actor == "client" and not exchange.client_secret:
        yield "exchange", "expected client_secret beside actor: client"
    if exchange is not None and is_unencrypted(exchange.token_url):
        yield "exchange.token_url", "expected an https:// URL, but for a server on loopback"
    if exchange is not None and exchange.profile == "entra_obo":
        yield from _unusable_on_behalf_of(exchange)
    elif exchange is not None and exchange.certificate:
        yield "exchange.certificate", "expected profile: entra_obo with it"


def _unusable_on_behalf_of(exchange: TokenExchange) -> Iterator[tuple[str, str]]:
    if bool(exchange.client_secret) == bool(exchange.certificate):
        yield "exchange", "expected client_secret or certificate beside profile: entra_obo"
    if exchange.certificate and not (
        "PRIVATE KEY-----" in exchange.certificate and "CERTIFICATE-----" in exchange.certificate
    ):
        yield "exchange.certificate", "expected a certificate and its private key, in PEM"
    if not exchange.audience and not exchange.scopes:
        yield "exchange", "expected audience (the API's Application ID URI) or scopes"
    unused = ("actor", "resource", "subject_token_type", "requested_token_type")
    plain = TokenExchange(exchange.token_url, exchange.client_id)
    for key in unused:
        if getattr(exchange, key) != getattr(plain, key):
            yield f"exchange.{key}", "expected none with profile: entra_obo"


def _unusable_connect(
    source: SourceSettings, kind: str | None, *, login: bool
) -> Iterator[tuple[str, str]]:
    connect = source.connect
    if connect.mode == "off":
        if connect != DEFAULT_SOURCE.connect:
            yield "connect", "expected mode: user with its other keys, found off"
        return
    yield from _unusable_client(connect, kind)
    if not login:
        text = "expected login.enabled with it: a person connects in a browser, where they log in"
        yield "connect", text
    if connect.mode == "id_jag" and (kind != "mcp" or not (connect.issuer and connect.client)):
        text = "expected, with id_jag, mcp, and issuer and client of its authorization server"
        yield "connect", text
    if connect.header.lower() in FRAMING:
        yield "connect.header", f"expected another header than {connect.header}"
    if connect.tasks and connect.preset is None:
        yield "connect.tasks", "expected preset beside it"
    if bool(connect.authorization_url) != bool(connect.token_url):
        yield "connect", "expected authorization_url and token_url together"
    if connect.schemes and kind in ("graphql", "hybrid", "mcp"):
        yield "connect.schemes", f"expected none of {kind}, which declares no schemes: see header"
    for key in ("issuer", "authorization_url", "token_url", "revocation_url"):
        url = getattr(connect, key)
        if url and is_unencrypted(url):
            yield f"connect.{key}", "expected an https:// URL, but for a server on loopback"


def _unusable_client(connect: Connect, kind: str | None) -> Iterator[tuple[str, str]]:
    client = connect.client
    named = connect.issuer or connect.token_url or kind == "openapi"  # at addresses of the settings
    if client is not None and client.secret and not named:
        text = "expected connect.issuer, or authorization_url and token_url, to which it is sent"
        yield "connect.client.secret", text
    if client is not None and client.auth in ("basic", "post") and not client.secret:
        yield "connect.client", f"expected secret with auth: {client.auth}"


def _keys_without_token(source: SourceSettings, kind: str | None) -> Iterator[tuple[str, str]]:
    """Keys that need a verified token, where callers are anonymous or use an API key."""
    for key in ("exchange", "forward_token") if kind not in ("python", "command") else ():
        if getattr(source, key):
            yield key, "expected auth.mode: jwt with it, because only verified tokens are used"


def _framing_headers(source: SourceSettings) -> Iterator[tuple[str, str]]:
    for name in source.headers:
        if name.lower() in FRAMING:
            yield "headers", f"expected no {name} in it, which each request sets itself"


def _incomplete_tls(source: SourceSettings) -> Iterator[tuple[str, str]]:
    if source.tls is None:
        return
    if source.tls.key_file and not source.tls.cert_file:
        yield "tls.key_file", "expected cert_file beside it"
    address = source.base_url or source.mcp or ""
    if urlsplit(address).scheme == "http":
        yield "tls", "expected an https:// address beside it"


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
        *limit_conflicts(settings, where),
        *_unreachable_admin_tools(settings, where),
        *_legacy_dates(settings, where),
        *_half_a_certificate(settings, where),
        *_console_conflicts(settings, where),
        *_login_conflicts(settings, where),
        *_connection_conflicts(settings, where),
        *_agent_conflicts(settings, where),
        *_librarian_conflicts(settings, where),
        *_schedule_conflicts(settings, where),
        *_event_conflicts(settings, where),
    ]


def _login_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    login, public = settings.login, urlsplit(settings.server.public_url)
    if not login.enabled:
        return
    needed = ("login", "enabled")
    conflicts: list[tuple[KeyPath, str]] = []
    if settings.auth.mode != "jwt":
        text = f"expected auth.mode: jwt with login.enabled, found {settings.auth.mode}"
        conflicts.append((needed, text))
    if public.scheme != "https" and not is_loopback(public.hostname or ""):
        text = "expected server.public_url with it, an https:// URL unless it is on loopback"
        conflicts.append((needed, text))
    if not settings.secrets.key:
        text = (
            "expected secrets.key with it, which encrypts the keys that sign tokens: set "
            "TOOLGATE_SECRETS__KEY to 32 bytes in base64 (openssl rand -base64 32)"
        )
        conflicts.append((needed, text))
    if not login.providers and not login.clients and not login.users:
        text = "expected login.providers, where people log in, or login.users: true with it"
        conflicts.append((needed, text))
    if login.access_s > LONGEST_TOKEN_S:
        conflicts.append((("login", "access_s"), TOO_LONG))
    for name, provider in login.providers.items():
        problems = provider_problems(name, provider)
        conflicts += [(("login", "providers", name, *path), text) for path, text in problems]
    for name in shared_names(settings.auth, login.providers):
        text = f"expected another name: {name}:NAME is a person of another issuer"
        conflicts.append((("login", "providers", name), text))
    for name, client in login.clients.items():
        problems = client_problems(client)
        conflicts += [(("login", "clients", name, *path), text) for path, text in problems]
    for key, text in conflicts:
        yield Problem(where(key, needed), dotted_path(key), text)


def _connection_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """Requests that outlast the time after which another gateway repeats them."""
    limits, key = settings.connections, ("connections", "request_s")
    if limits.request_s >= limits.renew_timeout_s:
        text = f"expected less than connections.renew_timeout_s, which is {limits.renew_timeout_s}"
        yield Problem(where(key), dotted_path(key), text)


def _schedule_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """Crons that fit the pattern of one and never come, and unknown time zones."""
    schedules: list[tuple[KeyPath, Schedule]] = [
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
        subpath = f"{mcp}/{name}"
        paths = (subpath, f"{subpath}/sse", f"{subpath}/message")
        taken.extend((path, ("toolsets", name)) for path in paths)
    if settings.login.enabled:
        taken.extend((path, ("login", "enabled")) for path in LOGIN_PATHS)
    if settings.admin.tools:
        taken.append((f"{mcp}/{ADMIN_TOOLSET}", ("admin", "tools")))
        taken.append((f"{settings.rpc.path}/{ADMIN_TOOLSET}", ("admin", "tools")))
    clashes = [
        (peer, owner, path, key)
        for (peer, owner), (path, key) in combinations(taken, 2)
        if path == peer and key
    ]
    if settings.admin.enabled:  # everything below its path is its own
        admin = settings.admin.path
        inside = [path for path in taken if f"{path[0]}/".startswith(f"{admin}/")]
        clashes += [(peer, owner, admin, ("admin", "path")) for peer, owner in inside[:1]]
    if settings.console.enabled:
        console, also = settings.console.path, (settings.admin.path, ("admin", "path"))
        inside = [path for path in [*taken, also] if f"{path[0]}/".startswith(f"{console}/")]
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
    given = {name: getattr(settings.server.tls, name) for name in ("cert", "key")}
    for name, pair in (("cert", "key"), ("key", "cert")):
        if given[pair] and not given[name]:
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
            told = f"expected auto or one of {', '.join(strategies)}, found {name}"
            yield Problem(where(at), dotted_path(at), told)
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
    profiles, known = settings.profiles, _profile_names(settings)
    if profiles.default not in (AUTO, *known):
        path: KeyPath = ("profiles", "default")
        yield Problem(where(path), dotted_path(path), f"expected one of auto, {', '.join(known)}")
    for name in profiles.tool_tokens:
        if name not in known:
            path = ("profiles", "tool_tokens", name)
            yield Problem(where(path), dotted_path(path), f"expected one of {', '.join(known)}")


def _unclear_redis(settings: Settings, where: Where) -> Iterator[Problem]:
    url, backend = ("state", "redis_url"), ("state", "backend")
    used, given = settings.state.backend == "redis", settings.state.redis_url
    if used and not given:
        text = "expected state.redis_url with it, as in redis://redis.example:6379/0"
        yield Problem(where(backend), dotted_path(backend), text)
    elif given and not used:
        text = f"expected state.backend: redis with it, found {settings.state.backend}"
        yield Problem(where(url), dotted_path(url), text)
    elif not _has_address(given):
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
        parts = urlsplit(redis_url)
        if parts.scheme.endswith("+cluster"):
            hosts = [urlsplit(f"//{host}") for host in parts.netloc.rpartition("@")[2].split(",")]
            return all(host.hostname and host.port != 0 for host in hosts) and parts.path in (
                "",
                "/",
            )
        database = parts.path.strip("/")
        served = bool(parts.hostname) and parts.port != 0
        return parts.scheme in ("", "unix") or (served and (database or "0").isdecimal())
    except ValueError:  # the text in place of the port may be half a password
        return False
