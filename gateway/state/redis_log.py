"""Streams of events in a Redis of 6.2 or later, shared by gateways.

A stream is a Redis stream whose ids we choose, <born>-<n>, so that gaps are detected. One pub/sub
channel announces to all nodes which stream was appended to.
"""

import itertools
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any

import anyio
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError

from gateway.abc import Event
from gateway.state.redis import PREFIX, asking, milliseconds
from gateway.state.streams import StreamPlace, check, event_id, place_of
from gateway.state.watches import Watchers

log = logging.getLogger("toolgate.state")

CHANNEL = f"{PREFIX}appended"
CHECK_S = 15.0  # a listening connection silent for this long is pinged
FIRST_RETRY_S, LONGEST_RETRY_S = 0.2, 5.0

# KEYS: the stream. ARGV: data, events to keep, TTL in ms, channel, the stream's name at nodes.
# Returns the id in the stream, <born>-<n>.
APPEND = """
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local born, n
if newest then
  born, n = string.match(newest[1], '^(%d+)-(%d+)$')
else
  local now = redis.call('TIME')
  born, n = now[1] .. string.format('%06d', now[2]), 0
end
local id = born .. '-' .. string.format('%d', n + 1)
redis.call('XADD', KEYS[1], 'MAXLEN', ARGV[2], id, 'd', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PUBLISH', ARGV[4], ARGV[5])
return id
"""


class RedisLog:
    def __init__(
        self,
        redis: Redis,
        keep_events: int,
        keep_s: float,
        apart: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Keeps at most `keep_events` of a stream (`apart` overrides this by stream name), for
        `keep_s` after its last event."""
        self._redis = redis
        self._keep_events = keep_events
        self._apart = apart
        self._keep_ms = milliseconds(keep_s)
        self._append = redis.register_script(APPEND)
        self._watchers = Watchers()
        self.away = False  # Redis does not answer; updated while `listen` runs

    async def listen(self) -> None:
        """Wake watchers on notifications, until cancelled."""
        delays = _delays()
        while True:
            try:
                async with self._redis.pubsub() as channel:
                    await channel.subscribe(CHANNEL)
                    async for stream in _heard(channel):
                        delays, self.away = _delays(), False
                        self._wake(stream)
            except (RedisError, OSError) as error:
                delay_s, self.away = next(delays), True
                reason = {"reason": str(error) or type(error).__name__, "retry_s": delay_s}
                log.warning("redis_connection_lost", extra=reason)
                await anyio.sleep(delay_s)

    async def append(self, stream: str, data: bytes) -> str:
        keep_events = self._apart.get(stream, self._keep_events)
        arguments: list[Any] = [data, keep_events, self._keep_ms, CHANNEL, stream]
        with asking():
            added = await self._append([_stream_key(stream)], arguments)
        return event_id(stream, _place(added))

    async def read(self, stream: str, after: str, limit: int = 1000) -> Sequence[Event]:
        place, key = place_of(stream, after), _stream_key(stream)
        with asking():
            async with self._redis.pipeline(transaction=True) as pipeline:
                pipeline.xrange(key, count=1)
                pipeline.xrevrange(key, count=1)
                pipeline.xrange(key, min=f"({place.born}-{place.n}", count=limit)
                oldest, newest, found = await pipeline.execute()
        if not newest:
            return []
        check(place, _place(oldest[0][0]), _place(newest[0][0]))
        return [
            Event(event_id(stream, _place(known)), entry.get(b"d", b"")) for known, entry in found
        ]

    async def last(self, stream: str) -> str:
        with asking():
            newest: Any = await self._redis.xrevrange(_stream_key(stream), count=1)
        return event_id(stream, _place(newest[0][0])) if newest else ""

    def watch(self, stream: str, wake: Callable[[], None]) -> AbstractContextManager[None]:
        return self._watchers.watch(stream, wake)

    async def drop(self, stream: str) -> None:
        with asking():
            await self._redis.unlink(_stream_key(stream))

    async def purge(self) -> None:
        """Redis expires keys itself."""

    def _wake(self, stream: str | None) -> None:
        if stream is None:
            self._watchers.wake_all()
        else:
            self._watchers.wake(stream)


async def _heard(channel: PubSub) -> AsyncIterator[str | None]:
    """Names of streams that were appended to; None where some may have been missed."""
    asked = False
    while True:
        message = await channel.get_message(timeout=CHECK_S)
        if message is None:
            if asked:
                raise Disconnected("no answer to a ping")
            await channel.ping()
        elif message["type"] == "subscribe":
            yield None
        elif message["type"] == "message":
            yield message["data"].decode(errors="replace")
        asked = message is None


def _place(known: bytes) -> StreamPlace:
    born, n = known.split(b"-")
    return StreamPlace(int(born), int(n))


def _stream_key(stream: str) -> str:
    return f"{PREFIX}stream:{stream}"


def _delays() -> Iterator[float]:
    """Exponential backoff: 0.2, 0.4, 0.8 ... seconds, capped at the longest."""
    growing: Iterable[float] = (FIRST_RETRY_S * 2**n for n in itertools.count())
    return itertools.chain(
        itertools.takewhile(lambda delay: delay < LONGEST_RETRY_S, growing),
        itertools.repeat(LONGEST_RETRY_S),
    )
