"""Bearer tokens: JWTs (RFC 7519) that somebody we trust has signed.

Only `exp` must be there. Times are checked here and not by the library, because its clock cannot
be set, and because a token that is remembered has to be checked against them again. What depends on
the endpoint that is called is checked every time.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
    InvalidTokenError,
)

from config.access import Auth
from gateway.context import Identity, Principal
from gateway.guards import claims as said
from gateway.guards.issuers import Issuer, plain
from gateway.guards.keys import Key, KeyRing
from registry.access.revocations import Revoked
from schemas.errors import ToolgateError

KNOWN_BYTES = 32 << 20  # of the tokens that are remembered; what they say takes some times as much
MARK_LENGTH = 16  # of 64 hexadecimal digits: enough to tell the tokens of a day apart

_jws = PyJWS()


class KeysMissing(ToolgateError):
    """Nobody can tell yet whether a token is good: the keys of its issuer are not there."""


@dataclass(slots=True, eq=False)
class Token:
    """What a verified token says."""

    issuer: Issuer
    key: Key
    ring: KeyRing  # that had the key
    tenant: str
    claims: Mapping[str, Any]
    scopes: frozenset[str]
    audiences: frozenset[str]
    ends: float  # s since the epoch; `auth.leeway_s` after its `exp`
    size: int  # bytes of its text
    principal: Principal | None = None  # None: it names nobody
    identity: Identity | None = field(default=None, repr=False)  # likewise


class Tokens:
    """Verifies tokens, and remembers those that were good until they end."""

    def __init__(
        self,
        auth: Auth,
        issuers: Sequence[Issuer],
        clock: Callable[[], float],
        bound: Callable[[str], frozenset[str]] | None = None,
    ) -> None:
        """`clock`: seconds since the epoch. `bound`: of which one has to be in the `aud` of whoever
        calls a path; None: that does not depend on it."""
        self._auth = auth
        self._clock = clock
        self._bound = bound
        self._issuers = issuers
        self._by_iss = {issuer.iss: issuer for issuer in issuers}
        self._known: dict[bytes, Token] = {}  # by digest, so that no token stays in memory
        self._known_bytes = 0
        self._revoked = Revoked()

    async def read(self, text: bytes, path: str = "") -> Token:
        """Raises ExpiredSignatureError, another InvalidTokenError, or KeysMissing."""
        if len(text) > self._auth.token_limit_bytes:
            raise InvalidTokenError("longer than auth.token_limit_bytes")
        digest = hashlib.sha256(text).digest()
        known = self._known.get(digest)
        if known is not None and known.ring is not known.issuer.keys.ring:
            self._forget(digest)  # other keys than it was verified with
            known = None
        token = known or await self._verified(text, digest)
        if token.ends <= self._clock():
            self._forget(digest)
            raise ExpiredSignatureError("expired")
        if known is None:
            self._remember(digest, token)
        if self._bound is not None and self._bound(path).isdisjoint(token.audiences):
            raise InvalidAudienceError("its `aud` names another endpoint")
        return token

    def revoke(self, revoked: Revoked) -> None:
        """From now on these are good no longer, and no others."""
        self._revoked = revoked
        for digest in [one for one, token in self._known.items() if self._is_revoked(token)]:
            self._forget(digest)

    def still_good(self, token: Token) -> bool:
        """Whether a token that was good still is, for what began with it and goes on."""
        ring = token.issuer.keys.ring
        has_key = ring is token.ring or (ring is not None and token.key in ring.keys)
        return has_key and token.ends > self._clock() and not self._is_revoked(token)

    def _remember(self, digest: bytes, token: Token) -> None:
        self._forget(digest)  # somebody else may have come with it meanwhile
        self._known[digest] = token
        self._known_bytes += token.size
        while len(self._known) > self._auth.cached_tokens or self._known_bytes > KNOWN_BYTES:
            self._forget(next(iter(self._known)))

    def _forget(self, digest: bytes) -> None:
        token = self._known.pop(digest, None)
        if token is not None:
            self._known_bytes -= token.size

    async def _verified(self, text: bytes, digest: bytes) -> Token:
        """The token, which may have ended."""
        issuer = self._issuer(text)
        key, ring = await _key(issuer, _jws.get_unverified_header(text))
        # the key's algorithms, never what the token asks for (RFC 8725, 3.1)
        claims = _object(_jws.decode(text, key.material, algorithms=list(key.algorithms)))
        audiences = said.audiences(claims)
        issuer.check(claims, audiences)
        if "nbf" in claims and said.moment(claims["nbf"]) > self._clock() + self._auth.leeway_s:
            raise ImmatureSignatureError("not valid yet")
        if "exp" not in claims:
            raise InvalidTokenError("it has no `exp`")
        token = Token(
            issuer,
            key,
            ring,
            issuer.tenants.of(claims),
            claims,
            said.scopes(claims),
            frozenset(plain(one) for one in audiences),
            said.moment(claims["exp"]) + self._auth.leeway_s,
            len(text),
        )
        self._name(token, digest.hex()[:MARK_LENGTH])
        if self._is_revoked(token):
            raise InvalidTokenError("revoked")
        return token

    def _name(self, token: Token, mark: str) -> None:
        """Say whose it is, if it says so itself."""
        name = token.issuer.name(token.claims)
        if name is None:
            return
        roles = token.issuer.roles(token.claims)
        token.principal = Principal(name, token.tenant, token.scopes, token.claims, roles, mark)
        still = partial(self.still_good, token)
        token.identity = Identity(token.principal, verified=True, still=still)

    def _issuer(self, text: bytes) -> Issuer:
        """The one whose token it claims to be. Raises InvalidIssuerError."""
        if len(self._issuers) == 1:
            return self._issuers[0]  # which looks at `iss` later
        claimed = _claimed_issuer(text)
        found = self._by_iss.get(claimed) if claimed else None
        found = found or self._by_iss.get("")
        if found is None:
            raise InvalidIssuerError("its `iss` is none that is trusted")
        return found

    def _is_revoked(self, token: Token) -> bool:
        revoked = self._revoked
        jti = token.claims.get("jti")
        if isinstance(jti, str) and (token.tenant, jti) in revoked.tokens:
            return True
        if not revoked.subjects or token.principal is None:
            return False
        before = revoked.subjects.get(token.principal.key)
        return before is not None and _issued(token.claims) <= before


async def _key(issuer: Issuer, header: Mapping[str, Any]) -> tuple[Key, KeyRing]:
    """Raises InvalidTokenError, and KeysMissing."""
    ring = issuer.keys.ring
    key = None if ring is None else ring.find(header)
    if key is None and await issuer.keys.look_again():
        ring = issuer.keys.ring
        key = None if ring is None else ring.find(header)
    if ring is None:
        raise KeysMissing("The keys that tokens are checked with cannot be had at the moment")
    if key is None:
        raise InvalidTokenError("no key has its `kid` and `alg`")
    return key, ring


def _object(payload: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(payload, type=dict[str, Any])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DecodeError("its claims are no JSON object") from error


def _claimed_issuer(text: bytes) -> str | None:
    """What stands in a token that nobody has verified."""
    parts = text.split(b".")
    if len(parts) != 3:
        raise DecodeError("it is no JWT: expected three parts with dots between them")
    try:
        payload = base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4))
    except ValueError as error:
        raise DecodeError("its claims are no base64url") from error
    claimed = _object(payload).get("iss")
    return claimed if isinstance(claimed, str) else None


def _issued(claims: Mapping[str, Any]) -> float:
    """s since the epoch; those that do not say it were issued before anything."""
    issued = claims.get("iat")
    return issued if isinstance(issued, int | float) else -float("inf")
