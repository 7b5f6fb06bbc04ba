"""Bearer tokens: JWTs (RFC 7519) that somebody we trust has signed.

Only `exp` must be there. Times are checked here and not by the library, because its clock cannot
be set, and because a token that is remembered has to be checked against them again.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jwt
from jwt.exceptions import (
    DecodeError,
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidTokenError,
)

from config.settings import Auth
from gateway.guards.keys import KeyRing, load_keys

# Who the token is about, else the application that it was made for (light-oauth2's names too).
NAMES = ("sub", "user_id", "userId", "client_id", "cid")
NAME_LIMIT = 255  # OpenID Connect Core 1.0, section 2: `sub` has no more


@dataclass(frozen=True, slots=True)
class Token:
    """What a verified token says."""

    name: str | None
    scopes: frozenset[str]
    claims: Mapping[str, Any]
    ends: float  # s since the epoch; `auth.leeway_s` after its `exp`


class Tokens:
    """Verifies tokens, and remembers those that were good until they end."""

    def __init__(self, auth: Auth, clock: Callable[[], float]) -> None:
        """`clock`: seconds since the epoch. Raises ToolgateError for keys that are of no use."""
        self._auth = auth
        self._keys: KeyRing = load_keys(auth)
        self._clock = clock
        self._known: dict[bytes, Token] = {}  # by digest, so that no token stays in memory

    def read(self, text: bytes) -> Token:
        """Raises ExpiredSignatureError, or another InvalidTokenError."""
        if len(text) > self._auth.token_limit_bytes:
            raise InvalidTokenError("longer than auth.token_limit_bytes")
        digest = hashlib.sha256(text).digest()
        known = self._known.get(digest)
        token = known or self._verified(text)
        if token.ends <= self._clock():
            self._known.pop(digest, None)
            raise ExpiredSignatureError("expired")
        if known is None:
            self._remember(digest, token)
        return token

    def _remember(self, digest: bytes, token: Token) -> None:
        if len(self._known) >= self._auth.cached_tokens:
            del self._known[next(iter(self._known))]
        self._known[digest] = token

    def _verified(self, text: bytes) -> Token:
        """The token, which may have ended."""
        auth = self._auth
        key = self._keys.find(jwt.get_unverified_header(text))
        claims = jwt.decode(
            text,
            key.public,
            algorithms=key.algorithms,  # the key's, never what the token asks for (RFC 8725, 3.1)
            issuer=auth.issuer or None,
            audience=auth.audience or None,
            options={
                "require": ["exp"],
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
                "verify_aud": bool(auth.audience),
            },
        )
        if "nbf" in claims and _moment(claims["nbf"]) > self._clock() + auth.leeway_s:
            raise ImmatureSignatureError("not valid yet")
        ends = _moment(claims["exp"]) + auth.leeway_s
        return Token(_name(claims), _scopes(claims), claims, ends)


def _moment(value: Any) -> float:
    """A NumericDate. Raises DecodeError for anything else."""
    if type(value) not in (int, float):
        raise DecodeError("a time that is no number")
    try:
        moment = float(value)
    except OverflowError as error:
        raise DecodeError("a time that is out of range") from error
    if not math.isfinite(moment):
        raise DecodeError("a time that is out of range")
    return moment


def _name(claims: Mapping[str, Any]) -> str | None:
    """The first of NAMES, if it is fit to stand in logs and in the database."""
    name = next((claims[claim] for claim in NAMES if claims.get(claim)), None)
    usable = isinstance(name, str) and len(name) <= NAME_LIMIT and name.isprintable()
    return name if usable else None


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    given = claims.get("scope", claims.get("scp"))
    texts = given if isinstance(given, list) else [given]
    return frozenset(scope for text in texts if isinstance(text, str) for scope in text.split())
