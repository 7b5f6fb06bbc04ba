"""Bearer tokens: JWTs (RFC 7519) signed by a trusted issuer.

Only `exp` is required. Times are checked here and not by the library, because its clock cannot be
set, and because a cached token has to be checked against them again. What depends on the called
endpoint is checked every time.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec
from jwt.api_jws import PyJWS
from jwt.exceptions import (
    DecodeError,
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidAudienceError,
    InvalidIssuerError,
    InvalidSignatureError,
    InvalidTokenError,
)

from config.access import Auth
from gateway.context import Identity, Principal
from gateway.guards import token_claims as token_claims
from gateway.guards.token_claims import Claims
from gateway.guards.token_issuers import Issuer, plain
from gateway.guards.verification_keys import Key, KeyRing, KeysMissing
from registry.access.revocations import RevocationCache

CACHE_BYTES = 32 << 20  # of cached tokens; their decoded claims take some times as much
MARK_LENGTH = 16  # of 64 hexadecimal digits: enough to distinguish the tokens of a day

_jws = PyJWS()


@dataclass(slots=True, eq=False, kw_only=True)
class Token:
    """Claims and metadata of a verified token."""

    issuer: Issuer
    key: Key
    ring: KeyRing  # that contained the key
    tenant: str
    claims: Mapping[str, Any]
    scopes: frozenset[str]
    audiences: frozenset[str]
    ends: float  # s since the epoch; `auth.leeway_s` after its `exp`
    size: int  # bytes of its text
    bound: Callable[[str], frozenset[str]] | None  # accepted audiences for a path
    principal: Principal | None = None  # None: without a usable subject
    identity: Identity | None = field(default=None, repr=False)  # likewise


class TokenVerifier:
    """Verifies tokens, and caches valid ones until they expire."""

    def __init__(
        self,
        auth: Auth,
        issuers: Sequence[Issuer],
        clock: Callable[[], float],
        bound: Callable[[str], frozenset[str]] | None = None,
    ) -> None:
        """A verifier of the tokens of `issuers`. `clock`: seconds since the epoch. `bound`:
        accepted audiences of tokens for a path, one of which has to be in `aud`; None: independent
        of the path."""
        self._auth = auth
        self._clock = clock
        self._bound = bound
        self._issuers = issuers
        self._by_iss = {issuer.iss: issuer for issuer in issuers}
        self._known: dict[bytes, Token] = {}  # by digest, so that no token stays in memory
        self._known_bytes = 0
        self._revoked = RevocationCache()

    def find_known(self, text: bytes, path: str) -> Token | None:
        """The token, if it was verified before and is still valid for `path`; else None, and
        `read` says why."""
        token = self._known.get(hashlib.sha256(text).digest())
        if token is None or token.ring is not token.issuer.keys.ring:
            return None
        if token.ends <= self._clock():
            return None
        bound = token.bound
        if bound is not None and bound(path).isdisjoint(token.audiences):
            return None
        return token

    async def read(self, text: bytes, path: str = "") -> Token:
        """The verified token. Raises ExpiredSignatureError, another InvalidTokenError, or
        KeysMissing."""
        if len(text) > self._auth.token_limit_bytes:
            raise InvalidTokenError("longer than auth.token_limit_bytes")
        digest = hashlib.sha256(text).digest()
        cached = self._known.get(digest)
        if cached is not None and cached.ring is not cached.issuer.keys.ring:
            self._forget(digest)  # verified with keys that have been replaced since
            cached = None
        token = cached or await self._verify(text, digest)
        if token.ends <= self._clock():
            self._forget(digest)
            raise ExpiredSignatureError("expired")
        if cached is None:
            self._remember(digest, token)
        if token.bound is not None and token.bound(path).isdisjoint(token.audiences):
            raise InvalidAudienceError("its `aud` names another endpoint")
        return token

    async def made_for(self, text: bytes, *audiences: str) -> Claims:
        """The claims of a token that a trusted issuer made for one of `audiences`, and not for the
        endpoints of this gateway, such as an ID token (OpenID Connect Core 1.0, 3.1.3.7). Raises
        as `read` does."""
        if len(text) > self._auth.token_limit_bytes:
            raise InvalidTokenError("longer than auth.token_limit_bytes")
        issuer, _, _, claims = await self._claims(text)
        only = replace(issuer, audiences=frozenset(map(plain, audiences)))
        only.check(claims, token_claims.audiences(claims))
        if token_claims.timestamp(claims["exp"]) + self._auth.leeway_s <= self._clock():
            raise ExpiredSignatureError("expired")
        return claims

    def revoke(self, revoked: RevocationCache) -> None:
        """Replace the set of revoked tokens."""
        self._revoked = revoked
        for digest in [digest for digest, token in self._known.items() if self._is_revoked(token)]:
            self._forget(digest)

    def still_good(self, token: Token) -> bool:
        """Whether a token is still valid; checked for streams that outlive the request."""
        ring = token.issuer.keys.ring
        has_key = ring is token.ring or (ring is not None and token.key in ring.keys)
        return has_key and token.ends > self._clock() and not self._is_revoked(token)

    def _remember(self, digest: bytes, token: Token) -> None:
        self._forget(digest)  # another request may have cached it meanwhile
        self._known[digest] = token
        self._known_bytes += token.size
        while len(self._known) > self._auth.cached_tokens or self._known_bytes > CACHE_BYTES:
            self._forget(next(iter(self._known)))

    def _forget(self, digest: bytes) -> None:
        token = self._known.pop(digest, None)
        if token is not None:
            self._known_bytes -= token.size

    async def _verify(self, text: bytes, digest: bytes) -> Token:
        """The verified token, which may have expired."""
        issuer, key, ring, claims = await self._claims(text)
        audiences = token_claims.audiences(claims)
        issuer.check(claims, audiences)
        token = Token(
            issuer=issuer,
            key=key,
            ring=ring,
            tenant=issuer.tenants.of(claims),
            claims=claims,
            scopes=token_claims.scopes(claims),
            audiences=frozenset(plain(audience) for audience in audiences),
            ends=token_claims.timestamp(claims["exp"]) + self._auth.leeway_s,
            size=len(text),
            bound=issuer.bound or self._bound,
        )
        self._name(token, digest.hex()[:MARK_LENGTH])
        if self._is_revoked(token):
            raise InvalidTokenError("revoked")
        return token

    async def _claims(self, text: bytes) -> tuple[Issuer, Key, KeyRing, dict[str, Any]]:
        """The claims of a token with a good signature, whomever it was made for."""
        issuer = self._issuer(text)
        header = _jws.get_unverified_header(text)
        key, ring = await _key(issuer, header)
        try:
            claims = _check_signature(text, key)
        except InvalidSignatureError:
            # without a `kid`, a key that has been replaced looks like the one before
            if header.get("kid") is not None or not await issuer.keys.reload():
                raise
            key, ring = await _key(issuer, header)
            claims = _check_signature(text, key)
        if (
            "nbf" in claims
            and token_claims.timestamp(claims["nbf"]) > self._clock() + self._auth.leeway_s
        ):
            raise ImmatureSignatureError("not valid yet")
        if "exp" not in claims:
            raise InvalidTokenError("it has no `exp`")
        return issuer, key, ring, claims

    def _name(self, token: Token, mark: str) -> None:
        """Set the principal, if the token has a usable subject."""
        name = token.issuer.name(token.claims)
        if name is None:
            return
        roles = token.issuer.roles(token.claims)
        token.principal = Principal(
            name, token.tenant, token.scopes, token.claims, roles=roles, mark=mark
        )
        still = partial(self.still_good, token)
        token.identity = Identity(token.principal, verified=True, still=still)

    def _issuer(self, text: bytes) -> Issuer:
        """The issuer that the token claims. Raises InvalidIssuerError."""
        if len(self._issuers) == 1:
            return self._issuers[0]  # which checks `iss` later
        claimed = _claimed_issuer(text)
        issuer = self._by_iss.get(claimed) if claimed else None
        issuer = issuer or self._by_iss.get("")
        if issuer is None:
            raise InvalidIssuerError("its `iss` is none that is trusted")
        return issuer

    def _is_revoked(self, token: Token) -> bool:
        subject = None if token.principal is None else token.principal.id
        return self._revoked.has(token.tenant, subject, token.claims)


async def _key(issuer: Issuer, header: Mapping[str, Any]) -> tuple[Key, KeyRing]:
    """The key of a token and its ring. Raises InvalidTokenError, and KeysMissing."""
    ring = issuer.keys.ring
    key = None if ring is None else ring.find(header)
    if key is None:
        await issuer.keys.reload()  # by this request, or by one beside it
        ring = issuer.keys.ring
        key = None if ring is None else ring.find(header)
    if ring is None:
        raise KeysMissing
    if key is None:
        raise InvalidTokenError("no key has its `kid` and `alg`")
    return key, ring


def _check_signature(text: bytes, key: Key) -> dict[str, Any]:
    """The claims of a token that `key` has signed. Raises InvalidTokenError."""
    # the key's algorithms, never those of the token's header (RFC 8725, 3.1)
    return _object(_jws.decode(text, key.material, algorithms=list(key.algorithms)))


def _object(payload: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(payload, type=dict[str, Any])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DecodeError("its claims are no JSON object") from error


def _claimed_issuer(text: bytes) -> str | None:
    """The `iss` of an unverified token."""
    parts = text.split(b".")
    if len(parts) != 3:
        raise DecodeError("it is no JWT: expected three parts with dots between them")
    try:
        payload = base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4))
    except ValueError as error:
        raise DecodeError("its claims are no base64url") from error
    claimed = _object(payload).get("iss")
    return claimed if isinstance(claimed, str) else None
