"""Access tokens for services (RFC 6749, section 4.4; RFC 8693): single-flight, cached until expiry.

A secret is sent to its own `token_url` only: not to one that a description names, and not after a
redirect. The token_url of a secret in the database must be a public address. Errors contain no
address, and of the server's text only its registered error codes.
"""

import asyncio
import logging
import ssl
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass, replace

import aiohttp

from config.sources import TokenExchange
from gateway.http_client.token_requests import (
    INTERACTIONS,
    AccessToken,
    ClientCredentials,
    TokenEndpoint,
    TokenFailed,
)
from gateway.upstreams.auth.caller import Caller
from gateway.upstreams.auth.exchange_profiles import ACCESS_TOKEN, profile_of

TOKEN_LIMIT_BYTES = 32768  # servers accept no longer headers

_OWN = ("gateway",)

log = logging.getLogger("toolgate.upstream")


# Between two tokens that were refused: a service that always answers 401 must not cause a token
# request for each call. Also the negative cache of a refused token request.
REJECTED_TTL_S = 30.0
INTERACTION_TTL_S = 3.0  # likewise, where a person has to act, who then calls again
ENTRY_BYTES = 500  # overhead of a cache entry besides its text

_NEVER_REJECTED = -REJECTED_TTL_S


async def client_token(
    endpoint: TokenEndpoint, http: aiohttp.ClientSession, scope: str
) -> AccessToken:
    """A token of the gateway's own, by the client credentials grant. Raises TokenFailed."""
    form = {"grant_type": "client_credentials"}
    if scope:
        form["scope"] = scope
    requested_at = time.monotonic()
    return endpoint.token(await endpoint.request(http, form), requested_at)


class SourceExchange:
    """Token exchanges of one source."""

    def __init__(
        self, settings: TokenExchange, timeout_s: float, tls: ssl.SSLContext | bool
    ) -> None:
        self._settings = settings
        self.profile = profile_of(settings)
        self._tokens = AccessTokens(settings.cached_bytes)
        login = ClientCredentials(
            settings.token_url, settings.client_id, settings.client_secret, settings.client_auth
        )
        self._endpoint = TokenEndpoint(login, "this caller", timeout_s, tls)
        self._own_endpoint = TokenEndpoint(login, "the gateway itself", timeout_s, tls)

    @property
    def client_id(self) -> str:
        return self._settings.client_id

    @property
    def has_own(self) -> bool:
        return self._settings.actor == "client"

    async def token(
        self, http: aiohttp.ClientSession, caller: Caller, scopes: Iterable[str]
    ) -> str:
        """The exchanged token for the source, from the cache if possible. Raises TokenFailed."""
        scope = self.profile.scope(scopes)

        async def fetch() -> AccessToken:
            actor = await self.own(http) if self.has_own else ""
            try:
                return await self._exchange(http, caller, scope, actor)
            except TokenFailed as error:
                # the actor's token may have been revoked
                if not (actor and error.rejected and self._tokens.invalidate(_OWN, actor)):
                    raise
            return await self._exchange(http, caller, scope, await self.own(http))

        return await self._tokens.get((caller.digest, scope), fetch)

    def reject(self, caller: Caller, scopes: Iterable[str], token: str) -> bool:
        """Invalidate `token` after a 401; whether a new one may succeed."""
        return self._tokens.invalidate((caller.digest, self.profile.scope(scopes)), token)

    async def own(self, http: aiohttp.ClientSession) -> str:
        """The gateway's own token: used as the actor, and for requests without a caller. Raises
        TokenFailed."""

        async def fetch() -> AccessToken:
            return await client_token(self._own_endpoint, http, "")

        return await self._tokens.get(_OWN, fetch)

    def own_rejected(self, token: str) -> bool:
        return self._tokens.invalidate(_OWN, token)

    async def close(self) -> None:
        await self._tokens.close()

    async def _exchange(
        self, http: aiohttp.ClientSession, caller: Caller, scope: str, actor: str
    ) -> AccessToken:
        try:
            subject, person = caller.token, caller.person
            if person is not None:
                subject = await person.tokens.access_token(
                    person.principal, self._settings.token_url, self.profile.subject_scope
                )
            form = self.profile.form(subject, scope)
        except ValueError as error:
            text = "has no token for this caller: its exchange.certificate cannot be used"
            raise TokenFailed(text) from error
        if actor:
            form |= {"actor_token": actor, "actor_token_type": ACCESS_TOKEN}
        requested_at, epoch_s = time.monotonic(), time.time()
        non_empty = {name: value for name, value in form.items() if value}
        answer = await self._endpoint.request(http, non_empty)
        if not self.profile.has_type(answer):
            raise self._endpoint.failure("issued a token of another type than requested")
        token = self._endpoint.token(answer, requested_at)
        if len(token.text) > TOKEN_LIMIT_BYTES:
            raise self._endpoint.failure("answered a token that cannot be sent")
        if caller.ends is None:
            return token
        return AccessToken(token.text, min(token.ends, requested_at + caller.ends - epoch_s))


Fetch = Callable[[], Awaitable[AccessToken]]
"""Ask for a token. Raises TokenFailed."""


@dataclass(frozen=True, slots=True)
class _CachedToken:
    token: AccessToken | None  # None: the service refused the last one, or there is none
    failure: TokenFailed | None = None  # expires as a token does
    until: float = 0.0  # s, monotonic clock
    rejected: float = _NEVER_REJECTED  # when the service last refused one: s, monotonic clock

    @property
    def size(self) -> int:
        return ENTRY_BYTES + (len(self.token.text) if self.token else 0)


_EMPTY = _CachedToken(None)


class AccessTokens:
    """LRU cache of the tokens of one source, by purpose."""

    def __init__(self, limit_bytes: int) -> None:
        """A cache of `limit_bytes`, above which the least recently used tokens are evicted."""
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._cached: OrderedDict[Hashable, _CachedToken] = OrderedDict()
        self._fetching: dict[Hashable, asyncio.Task[AccessToken]] = {}
        self.version = 0  # grows when a token is stored, or invalidated

    def fresh(self, key: Hashable) -> AccessToken | None:
        """The cached token, if it has not expired."""
        cached = self._cached.get(key)
        return cached.token if cached is not None and cached.until > time.monotonic() else None

    async def get(self, key: Hashable, fetch: Fetch) -> str:
        """The cached token, or a new one; single-flight: concurrent callers share one request.
        Raises TokenFailed."""
        cached = self._cached.get(key)
        if cached is not None and cached.until > time.monotonic():
            self._cached.move_to_end(key)
            if cached.token is not None:
                return cached.token.text
            if cached.failure is not None:
                failure = cached.failure
                raise TokenFailed(
                    str(failure), rejected=True, error=failure.error, claims=failure.claims
                )
        if key not in self._fetching:
            task = asyncio.create_task(self._renew(key, fetch))
            task.add_done_callback(_mark_retrieved)
            self._fetching[key] = task
        # A caller may be cancelled; the others still need the token.
        return (await asyncio.shield(self._fetching[key])).text

    def invalidate(self, key: Hashable, text: str) -> bool:
        """Invalidate the token `text` after a 401; whether a new one may succeed."""
        cached = self._cached.get(key)
        if cached is None or cached.token is None or cached.token.text != text:
            return True  # another call has renewed it
        now = time.monotonic()
        if now - cached.rejected < REJECTED_TTL_S:
            return False
        self._store(key, _CachedToken(None, rejected=now))
        return True

    async def close(self) -> None:
        tasks = list(self._fetching.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _renew(self, key: Hashable, fetch: Fetch) -> AccessToken:
        try:
            token = await fetch()
            before = self._cached.get(key, _EMPTY)
            self._store(key, replace(before, token=token, failure=None, until=token.ends))
            return token
        except TokenFailed as error:
            log.warning("token_failed", extra={"reason": str(error)})
            if error.rejected:
                acts = error.error in INTERACTIONS
                until = time.monotonic() + (INTERACTION_TTL_S if acts else REJECTED_TTL_S)
                self._store(key, _CachedToken(None, error, until))
            raise
        finally:
            del self._fetching[key]

    def _store(self, key: Hashable, token: _CachedToken) -> None:
        if before := self._cached.pop(key, None):
            self._bytes -= before.size
        self._cached[key] = token
        self._bytes += token.size
        self.version += 1
        while self._bytes > self._limit_bytes and self._cached:
            _, oldest = self._cached.popitem(last=False)
            self._bytes -= oldest.size


def _mark_retrieved(task: asyncio.Task[AccessToken]) -> None:
    """Mark the exception of `task` as retrieved: all callers may have been cancelled."""
    if not task.cancelled():
        task.exception()
