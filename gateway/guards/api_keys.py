"""API keys, as the registry has them: held in memory, so that a call asks no database."""

import hmac
import logging
from collections.abc import Callable
from functools import partial

import psycopg
from jwt.exceptions import InvalidTokenError
from psycopg_pool import PoolTimeout

from gateway.context import KEY_MARK, Identity, Principal
from registry.access.keys import PREFIX, KnownKey, digest_of, known_keys, note_uses
from registry.database.postgres import Pool

log = logging.getLogger("toolgate.auth")

USED_EVERY_S = 60.0  # `last_used` is written no more often


class UnknownKey(InvalidTokenError):
    """A key that is unknown, wrong, expired or revoked: nobody is told which."""


class KeyTable:
    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds since the epoch."""
        self._clock = clock
        self._keys: dict[str, tuple[KnownKey, Identity]] = {}
        self._used: dict[str, float] = {}  # since that was last written

    async def load(self, pool: Pool) -> None:
        """Read all of them again."""
        found = {known.key.id: known for known in await known_keys(pool)}
        self._keys = {id_: (known, self._identity(known)) for id_, known in found.items()}

    def read(self, text: bytes) -> Identity:
        """Who has the key `text`. Raises UnknownKey."""
        _, id_, secret = [*text.decode("latin-1").split("_", 2), "", ""][:3]
        known, identity = self._keys.get(id_, (None, None))
        given = digest_of(secret)
        # compared where there is no such key, too: the time tells nothing
        same = hmac.compare_digest(given, known.digest if known else bytes(len(given)))
        same = same and is_key(text)
        if known is None or identity is None or not same or not self._is_good(known):
            raise UnknownKey("no such key")
        self._used[id_] = self._clock()
        return identity

    async def write_uses(self, pool: Pool) -> None:
        """Have the registry know which keys were used since that was last done."""
        used, self._used = self._used, {}
        if not used:
            return
        try:
            await note_uses(pool, used)
        except (psycopg.OperationalError, PoolTimeout):
            self._used = {**used, **self._used}

    def _identity(self, known: KnownKey) -> Identity:
        key = known.key
        principal = Principal(
            key.principal,
            known.tenant,
            frozenset(key.scopes),
            roles=frozenset(key.roles),
            mark=f"{KEY_MARK}{key.id}",
            makers=frozenset(key.makers),
        )
        return Identity(principal, verified=True, still=partial(self._still_good, known))

    def _is_good(self, known: KnownKey) -> bool:
        expires = known.key.expires
        return expires is None or expires.timestamp() > self._clock()

    def _still_good(self, known: KnownKey) -> bool:
        now = self._keys.get(known.key.id)
        return now is not None and now[0].digest == known.digest and self._is_good(known)


def is_key(text: bytes) -> bool:
    return text.startswith(PREFIX.encode())
