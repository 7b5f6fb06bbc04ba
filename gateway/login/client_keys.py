"""Keys of clients that sign their authentication: key sets by URL, those used last.

A set is fetched as that of an issuer is (`RemoteKeys`): again after `auth.jwks_ttl_s`, for an
unknown key at most every `auth.jwks_cooldown_s`, and the last one serves while it cannot be had.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial

from config.settings import Settings
from gateway.guards.verification_keys import RemoteKeys, UnusableKey
from schemas.errors import ImportRejected

Fetch = Callable[[str, bool], Awaitable[bytes]]
"""The body of a key set; whether an operator chose its URL. Raises ImportRejected."""


class ClientKeys:
    def __init__(self, settings: Settings, fetch: Fetch) -> None:
        self._auth = settings.auth
        self._most = settings.login.key_sets
        self._fetch = fetch
        self._sets: OrderedDict[tuple[str, bool], RemoteKeys] = OrderedDict()

    async def of(self, url: str, *, by_operator: bool) -> RemoteKeys:
        """The keys at a URL, no older than those of an issuer may be. `by_operator`: an operator
        chose the URL."""
        keys = self._set(url, by_operator)
        await keys.fetch_due()
        return keys

    def _set(self, url: str, by_operator: bool) -> RemoteKeys:
        place = (url, by_operator)
        keys = self._sets.get(place)
        if keys is None:
            auth = self._auth
            keys = RemoteKeys(
                url, auth.algorithms, auth, read=partial(self._read, url, by_operator)
            )
            self._sets[place] = keys
            if len(self._sets) > self._most:
                self._sets.popitem(last=False)
        self._sets.move_to_end(place)
        return keys

    async def _read(self, url: str, by_operator: bool) -> bytes:
        try:
            return await self._fetch(url, by_operator)
        except ImportRejected as error:
            raise UnusableKey(str(error)[:300]) from error
