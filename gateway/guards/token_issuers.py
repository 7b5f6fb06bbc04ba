"""Trusted token issuers: their keys, audiences, tenants and claim mappings.

The `iss` of a token selects the issuer before any key is tried: what one issuer has signed is never
verified with a key of another.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from jwt.exceptions import (
    InvalidAudienceError,
    InvalidIssuerError,
    InvalidTokenError,
    MissingRequiredClaimError,
)

from config.access import DEVELOPMENT_ISSUER, RESERVED_ISSUER, Auth, IssuerSettings
from gateway.guards import token_claims as token_claims
from gateway.guards.token_claims import Claims
from gateway.guards.verification_keys import KeyRing, RemoteKeys, file_keys, secret_keys


class KeySource(Protocol):
    """Keys of an issuer as they are now; None: there are none yet."""

    @property
    def ring(self) -> KeyRing | None: ...

    async def reload(self) -> bool:
        """Whether the keys may have changed since a token with an unknown one came."""
        ...


_HOST_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Tenants:
    """Maps a token's claims to its tenant."""

    default: str  # where no claim names a tenant
    claim: str = ""
    ids: Mapping[str, str] | None = None  # by the value of the claim; None: the value is the id

    def of(self, claims: Claims) -> str:
        """The tenant id. Raises InvalidTokenError."""
        if not self.claim:
            return self.default
        value = token_claims.claim(claims, self.claim)
        if not isinstance(value, str):
            raise MissingRequiredClaimError(self.claim)
        tenant = self.ids.get(value) if self.ids else value.lower()
        if tenant is None or not _HOST_ID.fullmatch(tenant):
            raise InvalidTokenError("it names no tenant that there is")
        return tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    iss: str  # "" for any
    keys: KeySource
    tenants: Tenants
    audiences: frozenset[str] = frozenset()  # accepted values of `aud`; empty: any
    required: tuple[str, ...] = ()
    roles_claim: str = ""
    prefix: str = ""  # of its principals: two issuers may use one name for different people
    reserved: frozenset[str] = frozenset()  # prefixes of other issuers
    bound: Callable[[str], frozenset[str]] | None = None  # audiences by path: see TokenVerifier
    knows: Callable[[Claims], bool] | None = None  # whom a token is of; None: everybody

    def check(self, claims: Claims, audiences: frozenset[str]) -> None:
        """Raises InvalidTokenError for a wrong issuer or audience, a missing claim, or a subject
        that is gone."""
        if self.iss and claims.get("iss") != self.iss:
            raise InvalidIssuerError("its `iss` is another one")
        if self.audiences and not any(plain(audience) in self.audiences for audience in audiences):
            raise InvalidAudienceError("its `aud` names something else")
        for path in self.required:
            if token_claims.claim(claims, path) is None:
                raise MissingRequiredClaimError(path)
        if self.knows is not None and not self.knows(claims):
            raise InvalidTokenError("its subject is gone")

    def name(self, claims: Claims) -> str | None:
        """The id of the principal; None without a usable one."""
        name = token_claims.name(claims)
        if name is None or len(name) + len(self.prefix) > token_claims.NAME_LIMIT:
            return None
        if name.partition(":")[0] in self.reserved and ":" in name:
            return None
        return self.prefix + name

    def roles(self, claims: Claims) -> frozenset[str]:
        value = token_claims.claim(claims, self.roles_claim) if self.roles_claim else None
        return token_claims.strings(value)


def plain(audience: str) -> str:
    """Normal form of an audience: a URL with and without a final "/" is the same."""
    return audience.rstrip("/") if "://" in audience else audience


def issuers_of(
    auth: Auth, host_id: str, public_url: str, login: Collection[str] = ()
) -> list[Issuer]:
    """Issuers of the settings, with keys as far as they are in files. `host_id` is the default
    tenant; `login` has prefixes of the principals of the gateway's login. Raises ToolgateError
    for unusable keys."""
    public = frozenset({plain(public_url)} if auth.bind_audience == "server" else ())
    reserved = frozenset({*auth.issuers, RESERVED_ISSUER, *login})
    tenants = Tenants(host_id, auth.tenant_claim, auth.tenants or None)
    issuers = []
    if auth.key_file or auth.jwks_file or auth.jwks_url:
        issuers.append(
            Issuer(
                iss=auth.issuer,
                keys=_keys("auth", auth, auth),
                tenants=tenants,
                audiences=public | _one(auth.audience),
                required=auth.required_claims,
                roles_claim=auth.roles_claim,
                reserved=reserved,
            )
        )
    for name, entry in auth.issuers.items():
        issuers.append(
            Issuer(
                iss=entry.issuer,
                keys=_keys(f"auth.issuers.{name}", entry, auth),
                tenants=Tenants(entry.tenant or host_id, entry.tenant_claim, entry.tenants or None),
                audiences=public | _one(entry.audience or auth.audience),
                required=entry.required_claims or auth.required_claims,
                roles_claim=entry.roles_claim or auth.roles_claim,
                prefix=f"{name}:",
            )
        )
    if auth.development_secret:
        issuers.append(
            Issuer(
                iss=DEVELOPMENT_ISSUER,
                keys=secret_keys(auth.development_secret),
                tenants=tenants,
                audiences=public | _one(auth.audience),
                required=auth.required_claims,
                roles_claim=auth.roles_claim,
            )
        )
    return issuers


def _keys(setting: str, entry: Auth | IssuerSettings, auth: Auth) -> KeySource:
    accepted = entry.algorithms or auth.algorithms
    if entry.jwks_url:
        return RemoteKeys(entry.jwks_url, accepted, auth)
    kind = "jwks_file" if entry.jwks_file else "key_file"
    return file_keys(f"{setting}.{kind}", entry.jwks_file or entry.key_file, accepted)


def _one(audience: str) -> frozenset[str]:
    return frozenset({plain(audience)} if audience else ())
