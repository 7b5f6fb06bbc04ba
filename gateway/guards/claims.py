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
    found: Any = claims
    for member in path.split("."):
        if not isinstance(found, dict) or member not in found:
            return None
        found = found[member]
    return found


def timestamp(value: Any) -> float:
    """A NumericDate, s since the epoch. Raises DecodeError for anything else."""
    if type(value) not in (int, float):
        raise DecodeError("a time that is no number")
    try:
        found = float(value)
    except OverflowError as error:
        raise DecodeError("a time that is out of range") from error
    if not math.isfinite(found):
        raise DecodeError("a time that is out of range")
    return found


def name(claims: Claims) -> str | None:
    """The first of NAMES that is present and safe for logs and the database."""
    found = next((claims[one] for one in NAMES if claims.get(one)), None)
    usable = isinstance(found, str) and len(found) <= NAME_LIMIT and found.isprintable()
    return found if usable else None


def audiences(claims: Claims) -> frozenset[str]:
    """Values of `aud`. RFC 7519, section 4.1.3: one text, or a list of them. Raises DecodeError."""
    found = claims.get("aud", [])
    texts = found if isinstance(found, list) else [found]
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
