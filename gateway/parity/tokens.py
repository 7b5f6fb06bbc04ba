"""The tokens that vectors name, created for each run: tokens.json has their claims."""

import time
from functools import cache
from pathlib import Path
from typing import Any, Literal

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from msgspec import Struct

from gateway.parity.vectors import TOKENS, Suite
from schemas.errors import ToolgateError

KEY = Path("keys", "public-test-key.pem")
STRANGER_BITS = 2048


class TokenSpec(Struct, frozen=True, forbid_unknown_fields=True):
    claims: dict[str, Any]
    lifetime_s: int  # negative: it has expired
    signer: Literal["key", "stranger", "nobody"] = "key"


class TokenFile(Struct, frozen=True, forbid_unknown_fields=True):
    kid: str
    algorithm: str
    tokens: dict[str, TokenSpec]


def mint(suite: Suite, key_file: Path | None) -> dict[str, str]:
    """The tokens of `suite` by name, signed with `key_file`, else with the key beside the vectors.
    Raises ToolgateError for missing files, and for a token that vectors name without a
    definition."""
    file = _read(suite.folder / TOKENS)
    for vector in suite.vectors:
        for step in vector.all_steps:
            for name in (step.given.token, step.given.scope_token):
                if name is not None and name not in file.tokens:
                    raise ToolgateError(f"{vector.id}: {TOKENS} has no token {name!r}")
    key = _key(key_file or suite.folder / KEY, given=key_file is not None)
    return {name: _made(token, file, key) for name, token in file.tokens.items()}


def _made(token: TokenSpec, file: TokenFile, key: Any) -> str:
    now = int(time.time())
    expires = now + token.lifetime_s
    claims = {"iat": min(now, expires) - 1, "exp": expires, **token.claims}
    headers = {"kid": file.kid}
    if token.signer == "nobody":
        return jwt.encode(claims, "", "none", headers)
    signer = key if token.signer == "key" else _stranger()
    return jwt.encode(claims, signer, file.algorithm, headers)


def _read(path: Path) -> TokenFile:
    try:
        return msgspec.json.decode(path.read_bytes(), type=TokenFile)
    except OSError as error:
        raise ToolgateError(f"{path}: {error.strerror}; it describes the tokens") from error
    except msgspec.DecodeError as error:
        raise ToolgateError(f"{path}: {error}") from error


def _key(path: Path, *, given: bool) -> Any:
    try:
        return load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        hint = "" if given else ". Name the private key that the target trusts: --key FILE"
        raise ToolgateError(f"{path}: {error.strerror}{hint}") from error
    except (ValueError, TypeError) as error:
        raise ToolgateError(f"{path}: expected a private key in PEM, without a password") from error


@cache
def _stranger() -> rsa.RSAPrivateKey:
    """An untrusted key."""
    return rsa.generate_private_key(65537, STRANGER_BITS)
