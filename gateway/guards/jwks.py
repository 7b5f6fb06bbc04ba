"""Keys that an issuer publishes at a URL (RFC 7517), fetched behind the calls.

They are fetched when the gateway starts, and again after `auth.jwks_ttl_s`, whatever the issuer
says of caching: a key that it took back must work no longer within a time that is known here. A
token that names an unknown key has them fetched, too, but not more often than every
`auth.jwks_cooldown_s`, however many such tokens come. While they cannot be fetched the last ones
serve, for `auth.jwks_stale_s`. A set without a usable key counts as one that could not be fetched.

The gateway starts without them. Whoever comes with a token then gets 503, and no 401: a client that
is told that its token is bad throws it away and bothers its user.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

import aiohttp

from config.access import Auth
from gateway.guards.keys import KeyRing, UnusableKey, read_jwks
from registry.documents.fetch import read_at_most

log = logging.getLogger("toolgate.auth")

FIRST_PAUSE_S = 1.0  # after a failure, while there are no keys; twice as long after each


class RemoteKeys:
    """Those of one issuer. `run` keeps them."""

    def __init__(
        self,
        url: str,
        accepted: Sequence[str],
        auth: Auth,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = url
        self.ring: KeyRing | None = None  # None: never fetched, or too long ago
        self._accepted = accepted
        self._auth = auth
        self._clock = clock
        self._turn = asyncio.Lock()
        self._fetched = -float("inf")  # when that succeeded last, s
        self._tried = -float("inf")
        self._failures = 0  # since then
        self._fetches = 0  # that have ended

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            wait_s = self._due() - self._clock()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
                continue  # somebody else may have fetched them meanwhile
            async with self._turn:
                await self._fetch()

    async def look_again(self) -> bool:
        """Fetch them for a token whose key is not among them; False when that was done too short
        a time ago. However many ask, one request is made."""
        asked, fetches = self._clock(), self._fetches
        async with self._turn:
            if self._fetches > fetches:
                return True  # while we waited for our turn, and perhaps began before
            if asked - self._tried < self._pause_s():
                return False
            await self._fetch()
            return True

    async def check(self) -> str | None:
        """Fetch them; the reason why they are of no use, if so."""
        async with self._turn:
            return await self._fetch()

    def _due(self) -> float:
        if self._failures or self.ring is None:
            return self._tried + self._pause_s()
        return self._fetched + self._auth.jwks_ttl_s

    def _pause_s(self) -> float:
        """At least, between two attempts."""
        if self.ring is None:
            growing = FIRST_PAUSE_S * 2.0 ** min(self._failures - 1, 30)
            return min(growing, self._auth.jwks_cooldown_s)
        return self._auth.jwks_cooldown_s

    async def _fetch(self) -> str | None:
        """The reason why that failed, if so."""
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
        """What was verified with a ring is remembered as long as that ring is there."""
        if ring != self.ring:
            self.ring = ring
            log.info("jwks_changed", extra={"url": self.url, "keys": len(ring.keys)})

    async def _read(self) -> bytes:
        """Raises Unusable."""
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
