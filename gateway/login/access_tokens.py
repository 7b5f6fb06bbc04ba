"""Access tokens of the login: JWTs (RFC 9068), signed with keys that all nodes share."""

import time
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

import anyio
import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.hashes import SHA256
from jwt.utils import base64url_encode, der_to_raw_signature

from config.login import LoginSettings
from gateway.guards.verification_keys import Key, KeyRing
from registry.access.column_encryption import Vault
from registry.access.secrets import Keys, SecretRefused
from registry.database.postgres import AWAY, Pool, unavailability
from registry.login.signing_keys import ALGORITHM, SigningKey, SigningKeys
from schemas.errors import Unavailable

TOKEN_TYPE = "at+jwt"  # noqa: S105 - RFC 9068, 2.1
UNREADABLE = "The keys that sign tokens cannot be read: see the log"
RELOAD_S = 5.0  # least time between two looks for keys of other nodes


class LoginKeys:
    """The keys of the login's tokens: a source of keys of an issuer, and the signer."""

    def __init__(
        self, settings: LoginSettings, keys: Keys, host_id: str, pool: Callable[[], Pool | None]
    ) -> None:
        self._settings = settings
        self._vault = Vault(keys, host_id)
        self._host_id = host_id
        self._pool = pool
        self._keys: list[SigningKey] = []
        self._loaded = -float("inf")  # monotonic time, s
        self._away: str | None = None  # the reason, where keys could not be loaded the last time
        self._turn = anyio.Lock()
        self.ring: KeyRing | None = None

    async def reload(self) -> bool:
        """Look for the keys of other nodes, now and then; whether they may have changed. Raises
        Unavailable, also without a look where the last one failed: a key that is unknown here may
        be good."""
        async with self._turn:
            if time.monotonic() - self._loaded >= RELOAD_S:
                await self._load()
                return True
            if self._away is not None:
                raise Unavailable(self._away)
            return False

    async def sign(self, claims: dict[str, Any]) -> str:
        """A token with these claims, a `jti` among them. Raises Unavailable."""
        key = await self.current()
        claims = {**claims, "jti": str(uuid4())}
        return jwt.encode(claims, key.private, ALGORITHM, {"kid": key.id, "typ": TOKEN_TYPE})

    async def sign_detached(self, payload: bytes, header: Mapping[str, str]) -> tuple[str, str]:
        """The protected header and the signature of a JWS without its payload (RFC 7515, appendix
        F); the same for the same payload. Raises Unavailable."""
        key = await self.current()
        members = msgspec.json.encode({"alg": ALGORITHM, "kid": key.id, **header})
        protected = base64url_encode(members)
        scheme = ECDSA(SHA256(), deterministic_signing=True)
        der = key.private.sign(b"%b.%b" % (protected, base64url_encode(payload)), scheme)
        signature = base64url_encode(der_to_raw_signature(der, key.private.curve))
        return protected.decode(), signature.decode()

    async def jwks(self) -> bytes:
        """The public keys (RFC 7517). Raises Unavailable."""
        await self.current()
        return msgspec.json.encode({"keys": [key.public for key in self._keys]})

    @property
    def _longest_s(self) -> float:
        """Longest lifetime of a token, of which a client may have its own."""
        client_lifetimes = (client.access_s or 0.0 for client in self._settings.clients.values())
        return max(self._settings.access_s, *client_lifetimes, 0.0)

    async def current(self) -> SigningKey:
        """The key to sign with. Raises Unavailable."""
        async with self._turn:
            newest = self._keys[0].created.timestamp() if self._keys else 0.0
            if newest + self._settings.key_s <= time.time():
                await self._load()
            if not self._keys:
                raise Unavailable("The keys that sign tokens cannot be had at the moment")
            return self._keys[0]

    async def _load(self) -> None:
        pool = self._pool()
        if pool is None:
            return
        self._loaded = time.monotonic()
        store = SigningKeys(pool, self._host_id, self._vault)
        try:
            keys = await store.load(self._settings.key_s, self._longest_s)
        except (*AWAY, SecretRefused) as error:
            is_read = isinstance(error, SecretRefused)
            self._away = UNREADABLE if is_read else unavailability(error)
            raise Unavailable(self._away) from error
        self._away = None
        if [key.id for key in keys] != [key.id for key in self._keys]:
            self._keys = keys
            public = [Key(key.id, key.private.public_key(), (ALGORITHM,)) for key in keys]
            self.ring = KeyRing(tuple(public), named=True)
