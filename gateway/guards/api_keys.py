"""Verification of API keys against a table in memory, which follows the registry."""

import hmac
from collections.abc import Callable
from functools import partial

from jwt.exceptions import InvalidTokenError

from gateway.context import KEY_MARK, Identity, Principal
from registry.access.api_keys import PREFIX, KnownKey, known_keys, note_uses
from registry.access.secret_digests import secret_digest
from registry.database.postgres import AWAY, Pool
from schemas.errors import Unavailable


class UnknownKey(InvalidTokenError):
    """The API key is unknown, wrong, expired or revoked; clients never learn which."""


class KeyTable:
    def __init__(self, clock: Callable[[], float]) -> None:
        """API keys as last loaded; `clock`: seconds since the epoch."""
        self._clock = clock
        self._loaded = False
        self._keys: dict[str, tuple[KnownKey, Identity]] = {}
        self._used: dict[tuple[str, str], float] = {}  # keys used since the last write

    async def load(self, pool: Pool) -> None:
        """Reload all keys from the registry."""
        keys = {entry.key.id: entry for entry in await known_keys(pool)}
        self._keys = {id_: (entry, self._identity(entry)) for id_, entry in keys.items()}
        self._loaded = True

    def read(self, text: bytes) -> Identity:
        """The identity that the API key `text` belongs to. Raises UnknownKey, and Unavailable
        before the first load: a client that gets 401 from a gateway that starts would give its key
        up."""
        if not self._loaded and is_key(text):
            raise Unavailable("The gateway is starting; /ready has the details")
        _, id_, secret = [*text.decode("latin-1").split("_", 2), "", ""][:3]
        entry, identity = self._keys.get(id_, (None, None))
        digest = secret_digest(secret)
        # constant time: an unknown key is compared too, so that timing does not reveal which keys
        # exist
        same = hmac.compare_digest(digest, entry.digest if entry else bytes(len(digest)))
        same = same and is_key(text)
        if entry is None or identity is None or not same or not self._is_good(entry):
            raise UnknownKey("no such key")
        self._used[entry.tenant, id_] = self._clock()
        return identity

    async def write_uses(self, pool: Pool) -> None:
        """Write to the registry which keys were used since the last write."""
        used, self._used = self._used, {}
        if not used:
            return
        try:
            await note_uses(pool, used)
        except AWAY:
            self._used = {**used, **self._used}

    def _identity(self, entry: KnownKey) -> Identity:
        key = entry.key
        principal = Principal(
            key.principal,
            entry.tenant,
            frozenset(key.scopes),
            roles=frozenset(key.roles),
            mark=f"{KEY_MARK}{key.id}",
            makers=frozenset(key.makers),
        )
        return Identity(principal, verified=True, still=partial(self._still_good, entry))

    def _is_good(self, entry: KnownKey) -> bool:
        expires = entry.key.expires
        return expires is None or expires.timestamp() > self._clock()

    def _still_good(self, entry: KnownKey) -> bool:
        now = self._keys.get(entry.key.id)
        return now is not None and now[0].digest == entry.digest and self._is_good(entry)


def is_key(text: bytes) -> bool:
    return text.startswith(PREFIX.encode())
