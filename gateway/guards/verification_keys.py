"""Keys that verify tokens: PEM files, and key sets fetched from a URL (RFC 7517).

Public keys only. A file that can sign has no place on a gateway, and a shared secret (HS256) would
let every verifier forge tokens, so both are refused, not ignored. The one exception is the
development secret, which comes from no file. A certificate is used for its key only; its dates and
issuer are not checked.

Key sets are fetched when the gateway starts, and again after `auth.jwks_ttl_s`, whatever the
issuer's caching headers are: a withdrawn key must stop working within a known time. A token with an
unknown key id triggers a fetch, too, at most every `auth.jwks_cooldown_s`, however many such tokens
come. While fetching fails the last keys serve, for `auth.jwks_stale_s`. A set without a usable key
counts as a failed fetch.

The gateway starts without key sets. Until they are fetched, requests with a token get 503, not 401,
as do those with an unknown key while fetching fails: a client whose token is called bad discards it
and asks its user to log in again.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509 import load_pem_x509_certificate
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import PyJWTError

from config.access import Auth
from registry.documents.fetch import read_at_most
from schemas.errors import ToolgateError, Unavailable

log = logging.getLogger("toolgate.auth")

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey | Ed448PublicKey

KEYS_LIMIT = 100  # of one JWKS; each is compared with the `kid` of a token
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

FIRST_PAUSE_S = 1.0  # backoff while there are no keys; doubles with each failure


class UnusableKey(ToolgateError):
    """A key that cannot verify tokens; the message has the reason."""


class KeysMissing(Unavailable):
    """A token cannot be verified yet: the keys of its issuer cannot be fetched."""

    def __init__(self) -> None:
        super().__init__("The keys that tokens are checked with cannot be had at the moment")


@dataclass(frozen=True, slots=True)
class Key:
    id: str | None  # `kid`
    material: PublicKey | str  # text: the development secret
    algorithms: tuple[str, ...]  # accepted ones that suit the key


@dataclass(frozen=True, slots=True)
class KeyRing:
    """Finds the key for a token."""

    keys: tuple[Key, ...]
    named: bool  # `kid` must match; a single key from a PEM file has none

    def find(self, header: Mapping[str, Any]) -> Key | None:
        """The key for a token with this header, which is still unverified."""
        kid = header.get("kid")
        suited = [key for key in self.keys if header.get("alg") in key.algorithms]
        for key in suited:
            if key.id == kid:
                return key
        return suited[0] if len(suited) == 1 and (kid is None or not self.named) else None


class LocalKeys:
    """Keys of a file as last read, or the development secret."""

    def __init__(self, ring: KeyRing | None, read: Callable[[], KeyRing], path: str = "") -> None:
        """`path`: the file, if there is one."""
        self.ring = ring
        self.read = read
        self.path = path

    async def reload(self) -> bool:
        """Whether the keys may have changed: never, because files are read only on reload."""
        return False


def file_keys(setting: str, path: str, algorithms: Sequence[str]) -> LocalKeys:
    """Keys of a file. `setting` names the path and ends in key_file or jwks_file. Raises
    ToolgateError that names it."""

    def read() -> KeyRing:
        return _load(setting, path, algorithms)

    return LocalKeys(read(), read, path)


def secret_keys(secret: str) -> LocalKeys:
    """The development secret: the only key that also signs, and for HS256 alone."""
    ring = KeyRing((Key(None, secret, ("HS256",)),), named=False)
    return LocalKeys(ring, lambda: ring)


def _load(setting: str, path: str, algorithms: Sequence[str]) -> KeyRing:
    is_set = setting.endswith("jwks_file")
    expected = JWKS if is_set else PEM
    try:
        data = Path(path).read_bytes()
        return read_jwks(data, algorithms) if is_set else KeyRing((_pem(data, algorithms),), False)
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise ToolgateError(f"{setting}: {path}: {reason}; {expected}") from error
    except UnusableKey as error:
        raise ToolgateError(f"{setting}: {path}: {error}; {expected}") from error


def _pem(data: bytes, algorithms: Sequence[str]) -> Key:
    if b"PRIVATE KEY-----" in data:
        raise UnusableKey("found a private key")
    if data.count(b"PUBLIC KEY-----") > 2:  # one BEGIN and one END line per key
        raise UnusableKey("found several keys; a JWKS file (auth.jwks_file) can have them")
    try:
        if b"-----BEGIN CERTIFICATE-----" in data:
            key: object = load_pem_x509_certificate(data).public_key()
        else:
            key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UnusableKey("found neither, or one that cannot be read") from error
    return Key(None, *_suitable_algorithms(key, algorithms))


def read_jwks(data: bytes, algorithms: Sequence[str]) -> KeyRing:
    """The usable keys of a JWKS; others are left out, as RFC 7517 (5) has it. Raises UnusableKey
    when none is left, and for a set that contains secrets."""
    keys, reasons = [], []
    for number, jwk in enumerate(_members(data), 1):
        try:
            keys.append(_from_jwk(jwk, algorithms))
        except UnusableKey as error:
            reasons.append(f"key {number}: {error}")
            log.info("key_ignored", extra={"key": number, "reason": str(error)})
    if not keys:
        raise UnusableKey(f"found no usable key ({', '.join(reasons) or 'there is none at all'})")
    names = [(key.id, algorithm) for key in keys for algorithm in key.algorithms]
    if len(set(names)) < len(names):
        raise UnusableKey("found two keys with the same `kid`, or without one, for one algorithm")
    return KeyRing(tuple(keys), named=True)


def _members(data: bytes) -> list[dict[str, Any]]:
    """The keys as published. Raises UnusableKey if one is secret."""
    try:
        members = msgspec.json.decode(data)["keys"]
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UnusableKey("found no JSON") from error
    except (TypeError, KeyError) as error:
        raise UnusableKey("found other JSON") from error
    if not isinstance(members, list) or not all(isinstance(jwk, dict) for jwk in members):
        raise UnusableKey("found `keys` that is no list of objects")
    if len(members) > KEYS_LIMIT:
        raise UnusableKey(f"found {len(members)} keys, expected at most {KEYS_LIMIT}")
    for number, jwk in enumerate(members, 1):
        if jwk.get("kty") == "oct" or "d" in jwk or "k" in jwk:
            kind = "symmetric" if jwk.get("kty") == "oct" else "private"
            raise UnusableKey(f"found a {kind} key (key {number})")
    return members


def _from_jwk(jwk: Mapping[str, Any], algorithms: Sequence[str]) -> Key:
    kid, alg, operations = jwk.get("kid"), jwk.get("alg"), jwk.get("key_ops", ["verify"])
    if not isinstance(kid, str | None):
        raise UnusableKey("its `kid` is no text")
    verifies = isinstance(operations, list) and "verify" in operations
    if jwk.get("use", "sig") != "sig" or not verifies:
        raise UnusableKey("it is not for signatures (`use`, `key_ops`)")
    read_key = READERS.get(str(jwk.get("kty")))
    if read_key is None:
        raise UnusableKey(f"its `kty` is none of {', '.join(READERS)}")
    try:
        key = read_key(dict(jwk))
    except (PyJWTError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UnusableKey("its members make no public key") from error
    return Key(
        kid,
        *_suitable_algorithms(
            key, algorithms if alg is None else [a for a in algorithms if a == alg]
        ),
    )


def _suitable_algorithms(key: object, accepted: Sequence[str]) -> tuple[PublicKey, tuple[str, ...]]:
    """The key, if its type is supported, and the algorithms that suit it."""
    match key:
        case RSAPublicKey():
            if key.key_size < RSA_BITS:
                raise UnusableKey(f"an RSA key needs {RSA_BITS} bits, this has {key.key_size}")
            possible: Sequence[str] = RSA
        case EllipticCurvePublicKey():
            possible = CURVES.get(key.curve.name, ())
        case Ed25519PublicKey() | Ed448PublicKey():
            possible = ("EdDSA",)
        case _:
            raise UnusableKey("it is a key of another kind")
    algorithms = tuple(name for name in possible if name in accepted)
    if not algorithms:
        suitable = ", ".join(possible) or "none that we know"
        raise UnusableKey(f"it is for {suitable}, and auth.algorithms or its `alg` excludes that")
    return key, algorithms


class RemoteKeys:
    """Key set of one issuer, fetched by `run`."""

    def __init__(
        self,
        url: str,
        algorithms: Sequence[str],
        auth: Auth,
        clock: Callable[[], float] = time.monotonic,
        *,
        read: Callable[[], Awaitable[bytes]] | None = None,
    ) -> None:
        """`read`: fetches a URL that needs more care than an operator's; raises UnusableKey."""
        self.url = url
        self.ring: KeyRing | None = None  # None: never fetched, or stale
        self._accepted = algorithms
        self._auth = auth
        self._clock = clock
        self._read = read or self._request
        self._turn = asyncio.Lock()
        self._fetched = -float("inf")  # time of the last success, s
        self._tried = -float("inf")
        self._failures = 0  # since the last success
        self._fetches = 0  # completed fetches

    async def run(self) -> None:
        """Fetch periodically until cancelled."""
        while True:
            wait_s = self._due() - self._clock()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
                continue  # another task may have fetched meanwhile
            async with self._turn:
                await self._fetch()

    async def fetch_due(self) -> None:
        """Fetch where `run` would have: for keys that are used now and then, without a task."""
        if self._clock() >= self._due():
            async with self._turn:
                if self._clock() >= self._due():  # nobody else did meanwhile
                    await self._fetch()

    async def reload(self) -> bool:
        """Fetch because a token has an unknown key; False during the cooldown. Single-flight:
        concurrent callers share one request. Raises KeysMissing where the last fetch failed: the
        key may be a new one."""
        now, fetches = self._clock(), self._fetches
        async with self._turn:
            # during our wait for the lock, perhaps begun before it
            is_fetched = self._fetches > fetches
            if not is_fetched and now - self._tried >= self._pause_s():
                await self._fetch()
                is_fetched = True
            if self._failures:
                raise KeysMissing
            return is_fetched

    async def check(self) -> str | None:
        """Fetch the key set; returns the reason why its keys are unusable, if so."""
        async with self._turn:
            return await self._fetch()

    def _due(self) -> float:
        if self._failures or self.ring is None:
            return self._tried + self._pause_s()
        return self._fetched + self._auth.jwks_ttl_s

    def _pause_s(self) -> float:
        """Minimum pause between two fetches, s."""
        if self.ring is None:
            growing = FIRST_PAUSE_S * 2.0 ** min(self._failures - 1, 30)
            return min(growing, self._auth.jwks_cooldown_s)
        return self._auth.jwks_cooldown_s

    async def _fetch(self) -> str | None:
        """Fetch the key set; returns the reason of the failure, if any."""
        self._tried = self._clock()
        try:
            async with asyncio.timeout(self._auth.jwks_timeout_s):
                ring = read_jwks(await self._read(), self._accepted)
        except TimeoutError:
            reason = f"no answer within {self._auth.jwks_timeout_s:g} s (auth.jwks_timeout_s)"
        except UnusableKey as error:
            reason = str(error)
        except (aiohttp.ClientError, OSError) as error:
            reason = f"it cannot be reached ({type(error).__name__})"
        else:
            self._fetched, self._failures = self._tried, 0
            self._fetches += 1
            self._take(ring)
            return None
        self._failures += 1
        self._fetches += 1
        log.warning("jwks_not_fetched", extra={"url": self.url, "reason": reason})
        if self._tried - self._fetched > self._auth.jwks_stale_s:
            self.ring = None
        return reason

    def _take(self, ring: KeyRing) -> None:
        """Replace the ring; verified tokens stay cached only while their ring is current."""
        if ring != self.ring:
            self.ring = ring
            log.info("jwks_changed", extra={"url": self.url, "keys": len(ring.keys)})

    async def _request(self) -> bytes:
        """The body of the key set. Raises UnusableKey."""
        limit = self._auth.jwks_bytes
        headers = {"Accept": "application/jwk-set+json, application/json;q=0.9"}
        async with (
            aiohttp.ClientSession(headers=headers, cookie_jar=aiohttp.DummyCookieJar()) as http,
            http.get(self.url, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise UnusableKey(f"it answered HTTP {response.status}")
            body = await read_at_most(response, limit)
        if body is None:
            raise UnusableKey(f"it is longer than {limit} bytes (auth.jwks_bytes)")
        return body
