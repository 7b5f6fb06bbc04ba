"""Claims of verified tokens, read without trusting that they have the expected type."""

import math
from collections.abc import Mapping
from typing import Any

from jwt.exceptions import DecodeError

# Subject of the token, else the client application (light-oauth2's names too).
NAMES = ("sub", "user_id", "userId", "client_id", "cid")
NAME_LIMIT = 255  # OpenID Connect Core 1.0, section 2: limit of `sub`

Claims = Mapping[str, Any]


def claim(claims: Claims, path: str) -> Any:
    """The claim with this name, else the value at the dotted path; None when absent."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for member in path.split("."):
        if not isinstance(value, dict) or member not in value:
            return None
        value = value[member]
    return value


def timestamp(value: Any) -> float:
    """A NumericDate, s since the epoch. Raises DecodeError for anything else."""
    if type(value) not in (int, float):
        raise DecodeError("a time that is no number")
    try:
        number = float(value)
    except OverflowError as error:
        raise DecodeError("a time that is out of range") from error
    if not math.isfinite(number):
        raise DecodeError("a time that is out of range")
    return number


def name(claims: Claims) -> str | None:
    """The first of NAMES that is present and safe for logs and the database."""
    value = next((claims[claim_name] for claim_name in NAMES if claims.get(claim_name)), None)
    usable = isinstance(value, str) and len(value) <= NAME_LIMIT and value.isprintable()
    return value if usable else None


def audiences(claims: Claims) -> frozenset[str]:
    """Values of `aud`. RFC 7519, section 4.1.3: one text, or a list of them. Raises DecodeError."""
    value = claims.get("aud", [])
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise DecodeError("`aud` is neither a text nor a list of texts")
    return frozenset(texts)


def scopes(claims: Claims) -> frozenset[str]:
    """Scopes from `scope`, else from `scp`."""
    return strings(claims.get("scope", claims.get("scp")))


def strings(value: Any) -> frozenset[str]:
    """Words of a list of texts, or of one space-separated text; none for other types."""
    texts = value if isinstance(value, list) else [value]
    return frozenset(word for text in texts if isinstance(text, str) for word in text.split())
