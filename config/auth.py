"""Settings of who may come in: tokens and their issuers, keys, what OAuth clients are told."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from config.types import (
    Algorithm,
    Amount,
    Bytes,
    ClaimName,
    Count,
    DevelopmentSecret,
    File,
    HostId,
    HttpPath,
    HttpUrl,
    IssuerName,
    Leeway,
    OptionalUrl,
    ScopeName,
    Seconds,
)

DEVELOPMENT_ISSUER = "toolgate:development"
"""The `iss` of tokens that are signed with `auth.development_secret`."""

RESERVED_ISSUER = "key"
"""Who has an API key is "key:NAME", so that no issuer can have this name."""


class IssuerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `auth.issuers`: whose tokens are good, with one of `key_file`, `jwks_file` and
    `jwks_url`. What is empty is as in `auth`, but for the tenant."""

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
    """What the gateway says as a protected resource (RFC 9728)."""

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
    path: HttpPath
    page_size: Count
    page_limit: Count
    body_limit_bytes: Count
    idempotency_ttl_s: Seconds
    requests: Amount
    per_s: Seconds
    operator_role: ScopeName
