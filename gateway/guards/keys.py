"""The public keys that tokens are verified with: one in a PEM file, or several in a JWKS file.

Public ones only. A file that can sign has no place on a gateway, and a shared secret (HS256) would
let everybody who verifies tokens make them, so both are refused, not ignored. A certificate is
taken for its key; nobody looks at its dates or at who issued it.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509 import load_pem_x509_certificate
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import InvalidTokenError, PyJWTError

from config.settings import Auth
from schemas.errors import ToolgateError

log = logging.getLogger("toolgate.auth")

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey | Ed448PublicKey

PEM = "expected a PEM file with one public key, or with a certificate"
JWKS = 'expected a JWKS file, {"keys": [...]}, with public keys for signatures (RFC 7517)'
RSA_BITS = 2048  # RFC 7518, 3.3: smaller keys must not be used
RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
CURVES = {"secp256r1": ("ES256",), "secp384r1": ("ES384",), "secp521r1": ("ES512",)}
READERS: Mapping[str, Callable[[dict[str, Any]], object]] = {
    "RSA": RSAAlgorithm.from_jwk,
    "EC": ECAlgorithm.from_jwk,
    "OKP": OKPAlgorithm.from_jwk,
}


class Unusable(ToolgateError):
    """A key that no token can be verified with; says why."""


@dataclass(frozen=True, slots=True)
class Key:
    id: str | None  # `kid`
    public: PublicKey
    algorithms: tuple[str, ...]  # those of auth.algorithms that suit it


class KeyRing:
    """Finds the key for a token."""

    def __init__(self, keys: Sequence[Key], named: bool) -> None:
        """`named`: a `kid` must be right. A single key from a PEM file has none, whatever the
        token calls it."""
        self._keys = keys
        self._named = named

    def find(self, header: Mapping[str, Any]) -> Key:
        """The key for a token with this header, not yet to be trusted. Raises InvalidTokenError."""
        kid = header.get("kid")
        suited = [key for key in self._keys if header.get("alg") in key.algorithms]
        for key in suited:
            if key.id == kid:
                return key
        if len(suited) == 1 and (kid is None or not self._named):
            return suited[0]
        raise InvalidTokenError("no key has this kid and algorithm")


def load_keys(auth: Auth) -> KeyRing:
    """The keys of `auth.jwks_file` or `auth.key_file`. Raises ToolgateError that names it."""
    setting, path, expected = ("auth.key_file", auth.key_file, PEM)
    if auth.jwks_file:
        setting, path, expected = ("auth.jwks_file", auth.jwks_file, JWKS)
    try:
        data = Path(path).read_bytes()
        keys = _jwks(data, auth.algorithms) if auth.jwks_file else [_pem(data, auth.algorithms)]
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise ToolgateError(f"{setting}: {path}: {reason}; {expected}") from error
    except Unusable as error:
        raise ToolgateError(f"{setting}: {path}: {error}; {expected}") from error
    return KeyRing(keys, named=bool(auth.jwks_file))


def _pem(data: bytes, accepted: Sequence[str]) -> Key:
    if b"PRIVATE KEY-----" in data:
        raise Unusable("found a private key")
    if data.count(b"PUBLIC KEY-----") > 2:  # where one begins, and where it ends
        raise Unusable("found several keys; a JWKS file (auth.jwks_file) can have them")
    try:
        if b"-----BEGIN CERTIFICATE-----" in data:
            found: object = load_pem_x509_certificate(data).public_key()
        else:
            found = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise Unusable("found neither, or one that cannot be read") from error
    return Key(None, *_suited(found, accepted))


def _jwks(data: bytes, accepted: Sequence[str]) -> list[Key]:
    """The usable keys of a JWKS; those that are not are left out, as RFC 7517 (5) has it."""
    keys, reasons = [], []
    for number, jwk in enumerate(_members(data), 1):
        try:
            keys.append(_from_jwk(jwk, accepted))
        except Unusable as error:
            reasons.append(f"key {number}: {error}")
            log.info("key_left_out", extra={"key": number, "reason": str(error)})
    if not keys:
        raise Unusable(f"found no usable key ({', '.join(reasons) or 'there is none at all'})")
    names = [(key.id, algorithm) for key in keys for algorithm in key.algorithms]
    if len(set(names)) < len(names):
        raise Unusable("found two keys with the same `kid`, or without one, for one algorithm")
    return keys


def _members(data: bytes) -> list[dict[str, Any]]:
    """The keys as they stand there. Raises Unusable where one is secret."""
    try:
        members = msgspec.json.decode(data)["keys"]
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Unusable("found no JSON") from error
    except (TypeError, KeyError) as error:
        raise Unusable("found other JSON") from error
    if not isinstance(members, list) or not all(isinstance(jwk, dict) for jwk in members):
        raise Unusable("found `keys` that is no list of objects")
    for number, jwk in enumerate(members, 1):
        if jwk.get("kty") == "oct" or "d" in jwk or "k" in jwk:
            kind = "symmetric" if jwk.get("kty") == "oct" else "private"
            raise Unusable(f"found a {kind} key (key {number})")
    return members


def _from_jwk(jwk: Mapping[str, Any], accepted: Sequence[str]) -> Key:
    kid, alg, operations = jwk.get("kid"), jwk.get("alg"), jwk.get("key_ops", ["verify"])
    if not isinstance(kid, str | None):
        raise Unusable("its `kid` is no text")
    verifies = isinstance(operations, list) and "verify" in operations
    if jwk.get("use", "sig") != "sig" or not verifies:
        raise Unusable("it is not for signatures (`use`, `key_ops`)")
    read = READERS.get(str(jwk.get("kty")))
    if read is None:
        raise Unusable(f"its `kty` is none of {', '.join(READERS)}")
    try:
        found = read(dict(jwk))
    except (PyJWTError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise Unusable("its members make no public key") from error
    return Key(kid, *_suited(found, accepted if alg is None else [a for a in accepted if a == alg]))


def _suited(key: object, accepted: Sequence[str]) -> tuple[PublicKey, tuple[str, ...]]:
    """The key, if it is of a kind that we know, and the algorithms that suit it."""
    match key:
        case RSAPublicKey():
            if key.key_size < RSA_BITS:
                raise Unusable(f"an RSA key needs {RSA_BITS} bits, this has {key.key_size}")
            possible: Sequence[str] = RSA
        case EllipticCurvePublicKey():
            possible = CURVES.get(key.curve.name, ())
        case Ed25519PublicKey() | Ed448PublicKey():
            possible = ("EdDSA",)
        case _:
            raise Unusable("it is a key of another kind")
    algorithms = tuple(name for name in possible if name in accepted)
    if not algorithms:
        found = ", ".join(possible) or "none that we know"
        raise Unusable(f"it is for {found}, and auth.algorithms or its `alg` excludes that")
    return key, algorithms
