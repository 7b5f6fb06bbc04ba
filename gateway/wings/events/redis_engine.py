"""Redis Streams as wake-ups and as topics: the journal decides, a stream only says what is new.

Each tenant has a stream of the ids that were accepted, and its workers are one consumer group, so
that one of them wakes for each. An entry is acknowledged once its invocation was tried to be
claimed: leases are the journal's. Whatever Redis loses is found by polling the journal.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import anyio
from redis.exceptions import RedisError, ResponseError

from gateway.state.redis import KeyPrefix, connect
from gateway.wings.events.wakeups import Work
from registry.database.postgres import is_uuid
from schemas.errors import Unavailable

log = logging.getLogger("toolgate.events")

GROUP = "workers"
PREFIX = "tg:"  # of keys
MOST = 100_000  # entries of a stream
BLOCK_MS = 2000
IDLE_MS = 30_000  # entries that a consumer has left for so long are another's
COUNT = 100
RETRY_S = 1.0
FULL_S = 0.02  # interval of looking for room
TENANTS = "tenants"  # those that have a stream


class RedisEngine:
    def __init__(
        self,
        url: str,
        consumer: str,
        *,
        work: Work,
        room: Callable[[], int],
        installation: Callable[[], Awaitable[str]],
        prefix: str = PREFIX,
    ) -> None:
        """`consumer` is the name of this process, `room` how many more invocations it can run:
        entries are left to others while there is none. `prefix` and `installation` as KeyPrefix
        has them. Raises ToolgateError for a bad URL."""
        self._redis: Any = connect(url, timeout_s=BLOCK_MS / 1000 + 5, connections=8)
        self._consumer = consumer
        self._prefix = KeyPrefix(self._redis, prefix, installation)
        self._work = work
        self._room = room
        self._unsent: list[tuple[str, str]] = []
        self._wake = anyio.Event()

    def announce(self, host_id: str, invocation_id: str) -> None:
        """Tell workers soon. Called after the commit."""
        self._unsent.append((host_id, invocation_id))
        self._wake.set()

    async def publish(self, host_id: str, topic: str, event: bytes) -> None:
        """Append an event to the stream of a topic. Raises Unavailable."""
        try:
            stream = f"{await self._prefix.resolve()}{host_id}:{topic}"
            await self._redis.xadd(stream, {"event": event}, maxlen=MOST, approximate=True)
        except (RedisError, OSError) as error:
            raise Unavailable("Redis does not answer") from error

    async def send(self) -> None:
        """Send what was accepted, until cancelled; what fails is found by polling."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            entries, self._unsent = self._unsent, []
            try:
                await self._add(entries)
            except (RedisError, OSError, Unavailable):
                log.warning("redis_unavailable", extra={"unsent": len(entries)})
                await anyio.sleep(RETRY_S)

    async def _add(self, entries: Iterable[tuple[str, str]]) -> None:
        prefix = await self._prefix.resolve()
        async with self._redis.pipeline(transaction=False) as pipe:
            for host_id, id_ in entries:
                pipe.sadd(prefix + TENANTS, host_id)
                pipe.xadd(_stream(prefix, host_id), {"id": id_}, maxlen=MOST, approximate=True)
            await pipe.execute()

    async def read(self) -> None:
        """Wake for what others have accepted, until cancelled."""
        while True:
            try:
                await self._read_some()
            except (RedisError, OSError, Unavailable):
                await anyio.sleep(RETRY_S)

    async def _read_some(self) -> None:
        if (room := self._room()) <= 0:
            await anyio.sleep(FULL_S)
            return
        prefix = await self._prefix.resolve()
        names = [
            tenant.decode(errors="replace")
            for tenant in await self._redis.smembers(prefix + TENANTS)
        ]
        hosts = sorted(filter(is_uuid, names))
        if not hosts:
            await anyio.sleep(RETRY_S / 10)
            return
        streams = {_stream(prefix, host_id): ">" for host_id in hosts}
        for stream in streams:
            await self._make_group(stream)
        await self._left_behind(streams)
        entries_by_stream = await self._redis.xreadgroup(
            GROUP, self._consumer, streams, count=room, block=BLOCK_MS // 4
        )
        for stream, entries in entries_by_stream or ():
            await self._acknowledge(stream.decode(), [id_ for id_, _ in entries])

    async def _make_group(self, stream: str) -> None:
        try:
            await self._redis.xgroup_create(stream, GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def _left_behind(self, streams: Iterable[str]) -> None:
        """Take entries of consumers that died between reading and acknowledging. Redis 6.2 gives
        nil for those that were trimmed; they are acknowledged alike."""
        for stream in streams:
            claimed = await self._redis.xautoclaim(
                stream, GROUP, self._consumer, IDLE_MS, justid=True, count=COUNT
            )
            ids: Any = claimed if claimed and isinstance(claimed[0], bytes) else claimed[1:2]
            flat = [part for part in _flat(ids) if isinstance(part, bytes) and b"-" in part]
            if flat:
                await self._acknowledge(stream, flat)

    async def _acknowledge(self, stream: str, ids: list[bytes]) -> None:
        self._work(stream.split(":")[-2])
        if ids:
            await self._redis.xack(stream, GROUP, *ids)

    async def close(self) -> None:
        await self._redis.aclose()


def _stream(prefix: str, host_id: str) -> str:
    return f"{prefix}{host_id}:invocations"


def _flat(reply: Any) -> Iterable[Any]:
    for item in reply or ():
        if isinstance(item, list | tuple):
            yield from _flat(item)
        else:
            yield item
