"""The keys that access tokens are signed with; the newest one signs."""

from secrets import token_hex
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet


class Keys:
    def __init__(self) -> None:
        self._keys = [_new()]

    def rotate(self) -> None:
        """Sign with a new key from now on; the others go on verifying what they have signed."""
        self._keys = [_new(), *self._keys]

    def forget(self) -> None:
        """Whatever was signed is worth nothing from now on, as after a theft."""
        self._keys = [_new()]

    @property
    def signing(self) -> KeySet:
        """One key. In a set, or the header of a token would not name it."""
        return KeySet(self._keys[:1])

    @property
    def public(self) -> dict[str, Any]:
        """A JWKS (RFC 7517)."""
        return {"keys": [key.as_dict(private=False) for key in self._keys]}

    def sign(self, claims: dict[str, Any]) -> str:
        newest = self._keys[0]
        return jwt.encode({"alg": "ES256", "kid": newest.kid}, claims, newest)

    def read(self, token: str) -> dict[str, Any]:
        """The claims of a token of ours. Raises joserfc.errors.JoseError, and ValueError."""
        return dict(jwt.decode(token, KeySet(self._keys), algorithms=["ES256"]).claims)


def _new() -> ECKey:
    return ECKey.generate_key("P-256", {"kid": token_hex(8), "use": "sig", "alg": "ES256"})
