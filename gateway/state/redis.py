"""Sessions and counters in a Redis of 6.2 or later, shared by gateways.

What expires does so in Redis. No command is sent twice: after a lost connection nobody knows
whether an event was added, and adding it again would show it twice.
"""

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as TimedOut

from gateway.abc import SessionRecord, Verdict
from gateway.state.windows import MICROS, SLOTS, admit, live, slot_us
from schemas.errors import ToolgateError, Unavailable

log = logging.getLogger("toolgate.state")

PREFIX = "toolgate:"
SCANNED = 1000  # keys at a time
AWAY = "The Redis that gateways share does not answer; try again later"
UNREADABLE = "state.redis_url cannot be used: an option in it is unknown or has a wrong value"

# KEYS: the counter. ARGV: limit, length of a slot in microseconds, slots, ms to keep it, uses that
# are wanted. Returns the time in microseconds, and the slots with their uses before these.
HIT = """
local now = redis.call('TIME')
local micros = now[1] * 1000000 + now[2]
local current = math.floor(micros / ARGV[2])
local uses, total = redis.call('HGETALL', KEYS[1]), 0
for i = 1, #uses, 2 do
  if tonumber(uses[i]) < current - ARGV[3] then
    redis.call('HDEL', KEYS[1], uses[i])
  else
    total = total + uses[i + 1]
  end
end
if total < tonumber(ARGV[1]) then
  local granted = math.min(ARGV[1] - total, ARGV[5])
  redis.call('HINCRBY', KEYS[1], string.format('%d', current), string.format('%d', granted))
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
return {string.format('%d', micros), uses}
"""

_records = msgspec.json.Decoder(SessionRecord)


def connect(url: str, timeout_s: float, connections: int) -> Redis:
    """A client, which connects when it is used. Raises ToolgateError for a URL that it cannot
    read."""
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=connections,
            timeout=timeout_s,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
            client_name="toolgate",
        )
        pool.connection_class(**pool.connection_kwargs)  # which reads the options; connects later
        return Redis.from_pool(pool)
    except (ValueError, TypeError):
        raise ToolgateError(UNREADABLE) from None  # the reason may quote a password


@contextmanager
def asking() -> Iterator[None]:
    """Errors of Redis become Unavailable."""
    try:
        yield
    except (Disconnected, TimedOut, OSError) as error:  # whoever listens reports it
        raise Unavailable(AWAY) from error
    except RedisError as error:
        log.error("redis_refused", extra={"reason": str(error)})
        raise Unavailable(AWAY) from error


class RedisSessions:
    shared = True

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def put(self, record: SessionRecord, ttl_s: float) -> None:
        with asking():
            await self._redis.set(
                _session_key(record.id), msgspec.json.encode(record), px=milliseconds(ttl_s)
            )

    async def get(self, session_id: str) -> SessionRecord | None:
        with asking():
            found: Any = await self._redis.get(_session_key(session_id))
        return None if found is None else _records.decode(found)

    async def touch(self, session_id: str, ttl_s: float) -> None:
        with asking():
            await self._redis.pexpire(_session_key(session_id), milliseconds(ttl_s))

    async def delete(self, session_id: str) -> bool:
        with asking():
            return bool(await self._redis.delete(_session_key(session_id)))

    async def all(self) -> list[SessionRecord]:
        found: dict[str, SessionRecord] = {}
        with asking():
            async for key in self._redis.scan_iter(_session_key("*"), count=SCANNED):
                if (record := await self._redis.get(key)) is not None:
                    read = _records.decode(record)
                    found[read.id] = read  # a scan may tell of a key twice
        return list(found.values())

    async def purge(self) -> int:
        return 0  # Redis does, and does not say how many

    async def beat(self, node: str, ttl_s: float) -> None:
        with asking():
            await self._redis.set(f"{PREFIX}node:{node}", b"1", px=milliseconds(ttl_s))

    async def beats(self, node: str) -> bool:
        with asking():
            return bool(await self._redis.exists(f"{PREFIX}node:{node}"))

    async def secret(self) -> bytes:
        key = f"{PREFIX}secret"
        with asking():
            await self._redis.set(key, secrets.token_bytes(32), nx=True)
            kept: Any = await self._redis.get(key)
        return bytes(kept) if kept else await self.secret()  # Redis was emptied in between


class RedisCounter:
    def __init__(self, redis: Redis) -> None:
        self._hit = redis.register_script(HIT)

    async def hit(self, key: str, limit: int, window_s: float, wanted: int = 1) -> Verdict:
        slot = slot_us(window_s)
        arguments = [limit, slot, SLOTS, milliseconds((SLOTS + 1) * slot / MICROS), wanted]
        with asking():
            now, stored = await self._hit([f"{PREFIX}uses:{slot}:{key}"], arguments)
        uses = dict(zip(map(int, stored[::2]), map(int, stored[1::2]), strict=True))
        return admit(live(uses, int(now), slot), limit, int(now), slot, wanted)

    async def purge(self) -> None:
        """Redis does."""


def _session_key(session_id: str) -> str:
    return f"{PREFIX}session:{session_id}"


def milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
