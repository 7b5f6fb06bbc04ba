"""Tokens that were fetched, while they are good: one request for however many want the same."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, replace

from gateway.upstreams.auth.token_endpoint import AccessToken, TokenFailed

log = logging.getLogger("toolgate.upstream")

# Between two tokens that were refused: a service that answers 401 for reasons of its own must not
# have every call ask for one. And before a question is repeated that was answered with a no.
REFUSED_S = 30.0
ENTRY_BYTES = 500  # what one takes besides its text

Fetch = Callable[[], Awaitable[AccessToken]]
"""Ask for a token. Raises TokenFailed."""

_NEVER = -REFUSED_S


@dataclass(frozen=True, slots=True)
class _Held:
    token: AccessToken | None  # None: the service refused the last one, or there is none
    failure: TokenFailed | None = None  # which ends as a token does
    until: float = 0.0  # s, monotonic clock
    refused: float = _NEVER  # when the service last refused one, s, monotonic clock

    @property
    def size(self) -> int:
        return ENTRY_BYTES + (len(self.token.text) if self.token else 0)


_NOTHING = _Held(None)


class AccessTokens:
    """Those of one source, by what they are for."""

    def __init__(self, limit_bytes: int) -> None:
        """Beyond `limit_bytes` those go first that were not used for the longest time."""
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._held: OrderedDict[Hashable, _Held] = OrderedDict()
        self._fetching: dict[Hashable, asyncio.Task[AccessToken]] = {}

    async def get(self, key: Hashable, fetch: Fetch) -> str:
        """The token in use, or a new one; however many ask, one request is made. Raises
        TokenFailed."""
        held = self._held.get(key)
        if held is not None and held.until > time.monotonic():
            self._held.move_to_end(key)
            if held.token is not None:
                return held.token.text
            if held.failure is not None:
                raise TokenFailed(str(held.failure), refused=True)
        if key not in self._fetching:
            task = asyncio.create_task(self._renew(key, fetch))
            task.add_done_callback(_seen)
            self._fetching[key] = task
        # One of those who wait may give up; the others still want it.
        return (await asyncio.shield(self._fetching[key])).text

    def forget(self, key: Hashable, text: str) -> bool:
        """The service refused the token `text`: whether another one may do better."""
        held = self._held.get(key)
        if held is None or held.token is None or held.token.text != text:
            return True  # another call has seen to it
        now = time.monotonic()
        if now - held.refused < REFUSED_S:
            return False
        self._hold(key, _Held(None, refused=now))
        return True

    async def close(self) -> None:
        tasks = list(self._fetching.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _renew(self, key: Hashable, fetch: Fetch) -> AccessToken:
        try:
            token = await fetch()
            before = self._held.get(key, _NOTHING)
            self._hold(key, replace(before, token=token, failure=None, until=token.ends))
            return token
        except TokenFailed as error:
            log.warning("token_failed", extra={"reason": str(error)})
            if error.refused:
                self._hold(key, _Held(None, error, time.monotonic() + REFUSED_S))
            raise
        finally:
            del self._fetching[key]

    def _hold(self, key: Hashable, held: _Held) -> None:
        if before := self._held.pop(key, None):
            self._bytes -= before.size
        self._held[key] = held
        self._bytes += held.size
        while self._bytes > self._limit_bytes and self._held:
            _, oldest = self._held.popitem(last=False)
            self._bytes -= oldest.size


def _seen(task: asyncio.Task[AccessToken]) -> None:
    """Its failure is told to whoever waits; that may be nobody any more."""
    if not task.cancelled():
        task.exception()
