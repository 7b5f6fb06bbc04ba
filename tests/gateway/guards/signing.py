"""Keys of every kind, and the tokens that they sign."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from jwt.algorithms import get_default_algorithms
from msgspec.structs import replace

from config.access import Auth
from config.load import load

NOW = 1_800_000_000  # s since the epoch: the time in these tests
FOREVER = 4_000_000_000


@dataclass(frozen=True)
class Signer:
    """A private key; `name` tells apart those of one kind."""

    algorithm: str
    private: Any
    kid: str | None = None

    def token(self, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token of ada's for an hour; a claim that is None is left out."""
        said = {"sub": "ada", "exp": NOW + 3600, **claims}
        said = {name: value for name, value in said.items() if value is not None}
        kid = {} if self.kid is None else {"kid": self.kid}
        return self.sign(json.dumps(said).encode(), {**kid, **(headers or {})})

    def sign(self, text: bytes, headers: dict[str, Any] | None = None) -> str:
        """A token of any text, legal or not."""
        return jwt.PyJWS().encode(text, self.private, self.algorithm, headers)

    @property
    def pem(self) -> bytes:
        """The public key."""
        form = PublicFormat.SubjectPublicKeyInfo
        return bytes(self.private.public_key().public_bytes(Encoding.PEM, form))

    @property
    def private_pem(self) -> bytes:
        form = PrivateFormat.PKCS8
        return bytes(self.private.private_bytes(Encoding.PEM, form, NoEncryption()))

    def jwk(self, **members: Any) -> dict[str, Any]:
        """The public key; a member that is None is left out."""
        reader = get_default_algorithms()[self.algorithm]
        kid = {} if self.kid is None else {"kid": self.kid}
        found = {**reader.to_jwk(self.private.public_key(), as_dict=True), **kid, **members}
        return {name: value for name, value in found.items() if value is not None}

    def private_jwk(self) -> dict[str, Any]:
        reader = get_default_algorithms()[self.algorithm]
        return reader.to_jwk(self.private, as_dict=True)


@cache
def signer(algorithm: str, name: str = "", kid: str | None = None) -> Signer:
    """The same key for the same algorithm, name and `kid`."""
    return Signer(algorithm, _private(algorithm, name), kid)


@cache
def _private(algorithm: str, _name: str) -> Any:
    curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
    if algorithm in curves:
        return ec.generate_private_key(curves[algorithm])
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, 2048)


def ed448_signer() -> Signer:
    return Signer("EdDSA", ed448.Ed448PrivateKey.generate())


def by_key(folder: Path, pem: bytes, **changes: Any) -> Auth:
    """Settings of `auth.mode: jwt` with a key file."""
    path = folder / "key.pem"
    path.write_bytes(pem)
    return replace(load(None, {}).auth, mode="jwt", key_file=str(path), **changes)


def by_jwks(folder: Path, keys: Any, **changes: Any) -> Auth:
    """Settings of `auth.mode: jwt` with a JWKS file of these keys."""
    path = folder / "jwks.json"
    path.write_text(json.dumps({"keys": keys}))
    return replace(load(None, {}).auth, mode="jwt", jwks_file=str(path), **changes)
