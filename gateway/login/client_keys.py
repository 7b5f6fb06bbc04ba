"""Keys of clients that sign their authentication: key sets by URL, those used last.

A set is fetched as that of an issuer is (`RemoteKeys`): again after `auth.jwks_ttl_s`, for an
unknown key at most every `auth.jwks_cooldown_s`, and the last one serves while it cannot be had.
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from config.settings import Settings
from gateway.context import new_request_id
from gateway.guards.verification_keys import Key, RemoteKeys, UnusableKey
from gateway.login.answers import LoginError
from schemas.errors import ImportRejected

log = logging.getLogger("toolgate.login")

RETRY_S = 5  # after which a client is to try again

Fetch = Callable[[str, bool], Awaitable[bytes]]
"""The body of a key set; whether an operator chose its URL. Raises ImportRejected."""


class ClientKeys:
    def __init__(self, settings: Settings, fetch: Fetch) -> None:
        self._auth = settings.auth
        self._most = settings.login.key_sets
        self._fetch = fetch
        self._sets: OrderedDict[tuple[str, bool], RemoteKeys] = OrderedDict()

    async def find(self, url: str, header: Mapping[str, Any], *, named: bool) -> Key | None:
        """The key of an assertion with this header, which is still unverified. `named`: an operator
        chose the URL. Raises LoginError while there are no keys."""
        keys = self._set(url, named)
        await keys.fetch_due()
        key = None if keys.ring is None else keys.ring.find(header)
        if key is None and keys.ring is not None and await keys.reload():
            key = None if keys.ring is None else keys.ring.find(header)
        if keys.ring is None:
            number = new_request_id()
            log.warning("client_keys_missing", extra={"request_id": number, "url": url[:200]})
            text = "the keys of this client cannot be had at the moment; try again later"
            raise LoginError(503, "temporarily_unavailable", text, retry_s=RETRY_S, number=number)
        return key

    def _set(self, url: str, named: bool) -> RemoteKeys:
        place = (url, named)
        keys = self._sets.get(place)
        if keys is None:
            auth = self._auth
            keys = RemoteKeys(url, auth.algorithms, auth, read=partial(self._read, url, named))
            self._sets[place] = keys
            if len(self._sets) > self._most:
                self._sets.popitem(last=False)
        self._sets.move_to_end(place)
        return keys

    async def _read(self, url: str, named: bool) -> bytes:
        try:
            return await self._fetch(url, named)
        except ImportRejected as error:
            raise UnusableKey(str(error)[:300]) from error
