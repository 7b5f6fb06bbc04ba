"""The caller on whose behalf a source is called: the client's verified token, if it may be passed
on.

MCP forbids passing on tokens that were issued for another party (2025-06-18 and later,
basic/security_best_practices, token passthrough). So one whose audience is the gateway itself is
not passed on, unless the operator declares that both are one trust domain.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct

from config.access import Auth
from gateway.context import KEY_MARK, Context, Principal
from gateway.upstreams.auth.personal_accounts import LoginTokens, SourceAccount
from schemas.urls import is_below


@dataclass(frozen=True, slots=True)
class Caller:
    token: str = field(repr=False)
    digest: str  # SHA-256 of the token, or the key of the account
    ends: float | None = None  # s since the epoch; None: no `exp` claim
    audiences: frozenset[str] = frozenset()
    scope_token: str | None = field(default=None, repr=False)  # X-Scope-Token, as received
    account: SourceAccount | None = None  # at the source: authenticates the caller there instead
    person: "LoggedIn | None" = None  # whose own token no other party knows


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """A person who logged in at the gateway, and where tokens of their provider are had."""

    principal: Principal
    tokens: LoginTokens


@dataclass(slots=True)
class CallerHolder:
    """Owner of a session at a source: the last caller, if several share the session."""

    caller: Caller | None = None  # None: the gateway itself


class NoCaller(Exception):
    """The caller has no verified token of its own; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class OwnAudiences:
    """Audiences that identify the gateway itself in tokens."""

    names: frozenset[str] = frozenset()
    url: str = ""  # and all URLs below it
    always: bool = False  # only tokens for the gateway are accepted

    @classmethod
    def of(cls, auth: Auth, public_url: str) -> "OwnAudiences":
        audiences = (auth.audience, *(issuer.audience for issuer in auth.issuers.values()))
        return cls(
            frozenset(filter(None, audiences)), public_url.rstrip("/"), auth.bind_audience != "off"
        )

    def among(self, audiences: Iterable[str]) -> bool:
        return self.always or any(self._has(audience) for audience in audiences)

    def has_url(self, address: str) -> bool:
        """Whether an address is below the gateway's own."""
        return is_below(address, self.url)

    def _has(self, audience: str) -> bool:
        return audience in self.names or self.has_url(audience)


def logged_in_caller(context: Context, tokens: LoginTokens) -> Caller:
    """The caller of a request who logged in at the gateway. Raises NoCaller."""
    if context.absent:
        raise NoCaller("the caller is absent")
    person = LoggedIn(context.principal, tokens)
    whose = f"login {context.principal.tenant} {context.principal.id}"
    return Caller("", hashlib.sha256(whose.encode()).hexdigest(), person=person)


def caller_of(context: Context) -> Caller:
    """The caller of a request. Raises NoCaller."""
    identity, authorization = context.identity, context.headers.authorization
    principal = identity.principal
    if not identity.verified:
        raise NoCaller("the caller is not known")
    if authorization is None or principal.mark.startswith(KEY_MARK):
        raise NoCaller("the caller has an API key")
    token = bare(authorization)
    verified = isinstance(identity.scope_token, frozenset)  # verified as well
    return Caller(
        token,
        hashlib.sha256(token.encode()).hexdigest(),
        ends=_ends(principal),
        audiences=_audiences(principal.claims),
        scope_token=context.headers.scope_token if verified else None,
    )


def bare(authorization: str) -> str:
    """The token of the header, without "Bearer", which some clients omit."""
    scheme, _, token = authorization.strip().partition(" ")
    return token.strip() if token and scheme.lower() == "bearer" else authorization.strip()


class _Claims(Struct):
    aud: Any = None


def audiences_of(token: str) -> frozenset[str]:
    """Audiences of a token that is verified already."""
    try:
        payload = token.split(".")[1]
        padded = payload + "=" * (-len(payload) % 4)
        claims = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Claims)
    except (IndexError, ValueError, RecursionError):
        return frozenset()
    return _audiences({"aud": claims.aud})


def _audiences(claims: Mapping[str, Any]) -> frozenset[str]:
    """The audiences in `aud` (RFC 7519, section 4.1.3): one, or a list."""
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list | tuple) else [audience]
    return frozenset(audience for audience in audiences if isinstance(audience, str))


def _ends(principal: Principal) -> float | None:
    expiry = principal.claims.get("exp")
    return float(expiry) if isinstance(expiry, int | float) else None
