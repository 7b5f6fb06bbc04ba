"""Settings of authentication, policy, audit, secrets and limits."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from config.value_types import (
    Algorithm,
    Amount,
    Bytes,
    CelText,
    ClaimName,
    Count,
    DevelopmentSecret,
    Directory,
    File,
    HostId,
    HttpPath,
    HttpUrl,
    IssuerName,
    JsonDepth,
    Leeway,
    OptionalUrl,
    RuleName,
    ScopeName,
    Seconds,
    Secret,
    SecretKey,
    Share,
    SourceName,
    Text,
    TierName,
)

# Variables of `when`.
RULE_VARIABLES = ("principal", "tool", "source", "arguments", "context", "connection")
VARIABLE_MEMBERS = {  # of those with fixed members
    "principal": ("id", "tenant", "roles", "scopes", "claims"),
    "tool": ("name", "source", "kind", "tags", "tier", "readOnly", "destructive"),
    "context": ("tainted", "code", "sources", "calls"),
    "connection": ("shared",),
}
GUARDRAIL_VARIABLES = ("principal", "tool", "value")

DEVELOPMENT_ISSUER = "toolgate:development"
"""The `iss` of tokens that are signed with `auth.development_secret`."""

RESERVED_ISSUER = "key"
"""Prefix of the principals of API keys ("key:NAME"), which no issuer may have as its name."""

CLIENT_PROVIDER = "client"
"""Prefix of the principals of clients of the login that act for themselves ("client:ID")."""

USERS_PROVIDER = "user"
"""Prefix of the principals of users of the login ("user:NAME"), whom no provider knows."""

ADMIN_TOOLSET = "admin"  # the toolset of the admin API's operations, and the end of its paths


class SecretsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    key: SecretKey
    old_keys: tuple[SecretKey, ...]


class Audit(Struct, frozen=True, forbid_unknown_fields=True):
    mode: Literal["authenticated", "always", "never"]
    arguments: Literal["digest", "masked"]
    arguments_bytes: Bytes
    lists: bool
    refusals_s: Seconds
    key: Secret
    batch: Count
    flush_s: Seconds
    queue: Count
    spool_dir: Directory
    spool_bytes: Bytes
    retention_days: Count
    when_full: Literal["refuse", "drop"]


class Rate(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `limits.tools` or `limits.sources`; 0 is no limit."""

    calls: Amount = 0  # in `per_s`
    per_s: Seconds = 60.0
    concurrent: Amount = 0
    per: Literal["caller", "tenant", "all"] = "tenant"  # who shares it


class BreakerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    window_s: Seconds
    calls: Count  # in the window, below which the failure rate is ignored
    failures: Share
    open_s: Seconds
    longest_s: Seconds
    probes: Count


class LimitsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    principal_calls: Amount
    tenant_calls: Amount
    per_s: Seconds
    principal_daily: Amount
    tenant_daily: Amount
    when_down: Literal["local", "refuse"]
    principal_concurrent: Amount
    concurrent: Amount
    principal_sessions: Amount
    principal_streams: Amount
    principal_subscriptions: Amount
    tools: Mapping[str, Rate]
    sources: Mapping[SourceName, Rate]
    json_depth: JsonDepth
    headers: Count
    header_bytes: Bytes
    pipelined: Count
    header_timeout_s: Seconds
    body_timeout_s: Seconds
    send_timeout_s: Seconds
    connections: Amount
    unauthenticated_body_bytes: Bytes
    buffered_body_bytes: Amount
    client_buffered_body_bytes: Amount
    memory_bytes: Amount
    loop_lag_s: Seconds


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `policy.rules`. It applies to a call that matches all its members: one of
    `roles`, one of `scopes`, one of `principals`, and so on; an omitted member matches any call."""

    effect: Literal["allow", "deny", "approve"]
    tools: tuple[str, ...] = ()  # patterns of names
    sources: tuple[SourceName, ...] = ()
    toolsets: tuple[str, ...] = ()  # at whose endpoint the call arrives
    tiers: tuple[TierName, ...] = ()
    destructive: bool | None = None  # hint of the tool
    roles: tuple[str, ...] = ()
    scopes: tuple[ScopeName, ...] = ()
    principals: tuple[str, ...] = ()
    when: CelText = ""  # CEL over RULE_VARIABLES; "" is true
    reason: Text = ""  # shown as explanation of the decision


class Policy(Struct, frozen=True, forbid_unknown_fields=True):
    default: Literal["allow", "deny"]
    rules: Mapping[RuleName, Rule]
    tiers: tuple[TierName, ...]  # least sensitive first
    clearances: Mapping[str, TierName]  # role -> highest tier
    default_clearance: TierName
    default_tier: TierName
    approve_destructive: bool
    approval_s: Seconds
    approvals: Count  # pending at a time, per principal
    stored_rules: Count  # of one tenant
    views: Count  # of catalogs that are cached
    argument_values: Count  # that expressions may process
    argument_bytes: Bytes
    expression_steps: Count  # that `when` may take


class Guardrail(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `guardrails.rules`: inspects arguments or results."""

    looks_at: Literal["arguments", "result"]
    effect: Literal["deny", "redact"]
    tools: tuple[str, ...] = ()
    sources: tuple[SourceName, ...] = ()
    roles_exempt: tuple[str, ...] = ()
    fields: tuple[Text, ...] = ()  # dotted paths, "*" for any member or item
    pattern: Text = ""  # regular expression, linear time
    when: CelText = ""
    reason: Text = ""


class GuardrailsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    mask: bool  # what schemas mark with x-mask
    rules: Mapping[RuleName, Guardrail]
    inspect_bytes: Count
    when_larger: Literal["deny", "pass"]
    expression_steps: Count  # that `when` may take


class IssuerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `auth.issuers`: a trusted issuer, with one of `key_file`, `jwks_file` and
    `jwks_url`. Empty members default to those of `auth`, except for the tenant."""

    issuer: str  # `iss`
    key_file: File = ""
    jwks_file: File = ""
    jwks_url: OptionalUrl = ""
    algorithms: tuple[Algorithm, ...] = ()
    audience: str = ""
    required_claims: tuple[ClaimName, ...] = ()
    tenant_claim: ClaimName = ""
    tenants: Mapping[str, HostId] = field(default_factory=dict)  # value of the claim -> host_id
    tenant: HostId | None = None  # of all its tokens
    roles_claim: ClaimName = ""


class Auth(Struct, frozen=True, forbid_unknown_fields=True):
    mode: Literal["none", "jwt", "keys"]
    allow_public: bool
    key_file: File
    jwks_file: File
    jwks_url: OptionalUrl
    algorithms: tuple[Algorithm, ...]
    issuer: str
    audience: str
    bind_audience: Literal["off", "server", "endpoint"]
    required_claims: tuple[ClaimName, ...]
    tenant_claim: ClaimName
    tenants: Mapping[str, HostId]
    roles_claim: ClaimName
    issuers: Mapping[IssuerName, IssuerSettings]
    development_secret: DevelopmentSecret
    api_keys: bool
    revocation_s: Seconds
    jwks_ttl_s: Seconds
    jwks_stale_s: Seconds
    jwks_cooldown_s: Seconds
    jwks_timeout_s: Seconds
    jwks_bytes: Bytes
    leeway_s: Leeway
    verify_scope: bool
    cached_tokens: Count
    token_limit_bytes: Bytes


class OAuth(Struct, frozen=True, forbid_unknown_fields=True):
    """Metadata of the gateway as a protected resource (RFC 9728)."""

    authorization_servers: tuple[HttpUrl, ...]
    scopes_supported: tuple[ScopeName, ...]
    required_scopes: tuple[ScopeName, ...]
    documentation: OptionalUrl
    legacy_metadata: bool
    metadata_ttl_s: Amount
    metadata_timeout_s: Seconds
    metadata_bytes: Bytes


class Admin(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    tools: bool
    path: HttpPath
    page_size: Count
    page_limit: Count
    body_limit_bytes: Count
    idempotency_ttl_s: Seconds
    requests: Amount
    per_s: Seconds
    stored_toolsets: Count  # of one tenant
    operator_role: ScopeName


class ConsoleSettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    path: HttpPath
    session_idle_s: Seconds
    session_s: Seconds
    sample_s: Seconds
    live_s: Seconds
    live_views_per_tenant: Count
    live_views_per_person: Count
