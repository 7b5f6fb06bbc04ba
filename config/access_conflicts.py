"""Conflicts between settings of access: exposure, callers, logins, policies, guardrails."""

from collections.abc import Collection, Iterator
from urllib.parse import urlsplit

from config.access import (
    ADMIN_TOOLSET,
    DEVELOPMENT_ISSUER,
    GUARDRAIL_VARIABLES,
    RESERVED_ISSUER,
    RULE_VARIABLES,
    VARIABLE_MEMBERS,
    Auth,
    Guardrail,
    IssuerSettings,
    OAuth,
    Policy,
    Rule,
)
from config.hooks import HOOK_VARIABLES, OF_CALLS, HookSettings
from config.login import LONGEST_TOKEN_S, TOO_LONG, client_problems, provider_problems, shared_names
from config.networks import is_loopback, is_unencrypted
from config.settings import Settings
from config.yaml_document import KeyPath, Problem, Where, dotted_path
from schemas.cel_expressions import InvalidExpression, check_members, compile_expression
from schemas.globs import wildcards_problem
from schemas.rule_patterns import InvalidPattern, Pattern

KEYS = ("key_file", "jwks_file", "jwks_url")

Conflicts = Iterator[tuple[KeyPath, str]]

OFFLINE = "offline_access"


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
    key_sources = [f"auth.{key}" for key in KEYS if getattr(auth, key)]
    all_key_sources = ", ".join(f"auth.{key}" for key in KEYS)
    if len(key_sources) > 1:
        yield (
            ("mode",),
            f"expected one of {all_key_sources} with it, found {' and '.join(key_sources)}",
        )
    elif not key_sources and not auth.issuers and not auth.development_secret and not login:
        others = "auth.issuers, login.enabled or auth.development_secret"
        yield ("mode",), f"expected {all_key_sources}, {others} with it, found none of them"
    elif not key_sources and auth.issuer:
        yield ("issuer",), f"expected one of {all_key_sources} beside it: the key of its tokens"
    for name, issuer in auth.issuers.items():
        key_sources = [key for key in KEYS if getattr(issuer, key)]
        if len(key_sources) != 1:
            found_keys = " and ".join(key_sources) or "none of them"
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


def hook_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    for name, hook in settings.hooks.items():
        for key, text in _hook_problems(hook, settings.guardrails.expression_steps):
            path: KeyPath = ("hooks", name, key)
            yield Problem(where(path), dotted_path(path), text)


def _hook_problems(hook: HookSettings, steps: int) -> Iterator[tuple[str, str]]:
    if bool(hook.use) == bool(hook.url):
        yield "at", "expected one of use (a function of Python) and url (an endpoint)"
    if hook.url and not hook.secret:
        yield "url", "expected a secret beside it, by which the endpoint knows the gateway"
    if hook.at not in OF_CALLS and (hook.tools or hook.when):
        key = "tools" if hook.tools else "when"
        yield key, f"expected none at {hook.at}, where no tool is called"
    if hook.at in ("list", "credential") and not hook.changes:
        yield "at", f"expected changes: true beside {hook.at}, which does nothing else"
    if hook.when:
        try:
            compile_expression(hook.when, HOOK_VARIABLES, steps)
        except InvalidExpression as error:
            yield "when", f"expected a CEL expression: {error}"


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
    if problem := wildcards_problem(rule.tools):
        yield "tools", problem
    if rule.when:
        try:
            compile_expression(rule.when, RULE_VARIABLES, policy.expression_steps)
            check_members(rule.when, VARIABLE_MEMBERS)
        except InvalidExpression as error:
            yield "when", f"expected a CEL expression: {error}"
    for tier in rule.tiers:
        if tier not in policy.tiers:
            yield "tiers", _no_tier(policy, tier)
    for toolset in rule.toolsets:
        if toolset not in toolsets:
            toolset_names = ", ".join(toolsets) or "none"
            yield "toolsets", f"expected names of toolsets ({toolset_names}), found {toolset}"


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


def login_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
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
