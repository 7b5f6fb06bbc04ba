"""Verification of API keys against a table in memory, which follows the registry."""

import hmac
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import anyio
from jwt.exceptions import InvalidTokenError

from gateway.context import KEY_MARK, Identity, Principal
from registry.access.api_keys import (
    ID_LENGTH,
    PREFIX,
    SECRET_BYTES,
    KnownKey,
    known_keys,
    note_uses,
)
from registry.access.secret_digests import secret_digest
from registry.database.postgres import AWAY, Pool
from schemas.errors import Unavailable

NEW_KEY_WAIT_S = 0.5  # a key made by another process is loaded within milliseconds
MAX_WAITING = 100  # requests with unknown keys at a time; others are refused at once

_SECRET_LENGTH = -(-SECRET_BYTES * 4 // 3)  # in base64url without padding
_FORM = re.compile(rb"%b\w{%d}_[\w-]{%d}" % (PREFIX.encode(), ID_LENGTH, _SECRET_LENGTH))


class UnknownKey(InvalidTokenError):
    """The API key is unknown, wrong, expired or revoked; clients never learn which."""


class KeyTable:
    def __init__(self, clock: Callable[[], float]) -> None:
        """API keys as last loaded; `clock`: seconds since the epoch."""
        self._clock = clock
        self._loaded = False
        self._keys: dict[str, tuple[KnownKey, Identity]] = {}
        self._used: dict[tuple[str, str], float] = {}  # keys used since the last write
        self._next_load = anyio.Event()
        self._waiting = 0

    async def load(self, pool: Pool) -> None:
        """Reload all keys from the registry."""
        keys = {entry.key.id: entry for entry in await known_keys(pool)}
        self._keys = {id_: (entry, self._identity(entry)) for id_, entry in keys.items()}
        self._loaded = True
        loaded, self._next_load = self._next_load, anyio.Event()
        loaded.set()

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

    async def read_when_loaded(self, text: bytes) -> Identity:
        """Wait for a load that has the key, which another process may have made a moment ago, and
        return its identity. Raises UnknownKey after NEW_KEY_WAIT_S; at once for a text that has not
        the form of a key, and beyond MAX_WAITING requests."""
        if self._waiting < MAX_WAITING and _FORM.fullmatch(text):
            self._waiting += 1
            try:
                with anyio.move_on_after(NEW_KEY_WAIT_S):
                    while True:
                        await self._next_load.wait()
                        with suppress(UnknownKey):
                            return self.read(text)
            finally:
                self._waiting -= 1
        raise UnknownKey("no such key")

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
