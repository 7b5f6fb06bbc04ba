"""Sessions and counters in a Redis of 6.2 or later, or a cluster of them, shared by gateways.

Each command and script has one key, as a cluster demands. Redis expires keys itself. No command is
retried: after a lost connection it is unknown whether an event was added, and adding it again would
duplicate it.
"""

import itertools
import logging
import math
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import msgspec
from msgspec import UNSET
from msgspec.structs import replace
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisClusterException, RedisError
from redis.exceptions import TimeoutError as TimedOut

from gateway.interfaces import Event, SessionChange, SessionRecord, Verdict
from gateway.state.rate_windows import MICROS, SLOTS, admit, live, slot_us
from gateway.state.session_streams import StreamPlace, Watchers, check, event_id, place_of
from schemas.errors import ToolgateError, Unavailable

if TYPE_CHECKING:
    from gateway.state.redis_cluster import Cluster

log = logging.getLogger("toolgate.state")

RedisClient: TypeAlias = "Redis | Cluster"

SCAN_COUNT = 1000  # keys at a time
UNAVAILABLE = "The shared Redis does not answer; try again later"
INVALID_STATE = "The shared secret is unusable; try again later"
SECRET_BYTES = 32
CLAIM_S = 10.0  # a claim of the configured prefix that is older is renewed by the next use
SHARED = (
    "Redis was emptied, and gateways of another database have begun to keep their keys under the "
    "same prefix: restart the gateways of this one, which then take a prefix of their own"
)
TAKEN = "gateways of another database keep their keys under the configured prefix of this Redis"
UNREADABLE = "state.redis_url cannot be used: an option in it is unknown or has a wrong value"

# KEYS: the counter. ARGV: limit, length of a slot in microseconds, slots, TTL in ms, wanted uses.
# Uses of later slots, as after the clock went back, count as of now.
# Returns the time in microseconds, and the slots with their uses before these.
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
    if tonumber(uses[i]) > current then
      redis.call('HINCRBY', KEYS[1], string.format('%d', current), uses[i + 1])
      redis.call('HDEL', KEYS[1], uses[i])  -- last: an emptied hash loses its TTL
    end
  end
end
if total < tonumber(ARGV[1]) then
  local granted = math.min(ARGV[1] - total, ARGV[5])
  redis.call('HINCRBY', KEYS[1], string.format('%d', current), string.format('%d', granted))
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
return {string.format('%d', micros), uses}
"""

# KEYS: the session, a hash. ARGV: TTL in ms (0: unchanged), increment of its version, number of the
# following arguments that set fields, each with its value; then fields to remove. Returns all
# fields and values; the type of the key where it is no hash, or "oversized".
SESSION = """
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'hash' then return kind end
if redis.call('HLEN', KEYS[1]) > 10000 then return 'oversized' end
for _, field in ipairs({'record', 'client', 'capabilities'}) do
  if redis.call('HSTRLEN', KEYS[1], field) > 1048576 then return 'oversized' end
end
local set = 3 + tonumber(ARGV[3])
for i = 4, set, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
for i = set + 1, #ARGV do redis.call('HDEL', KEYS[1], ARGV[i]) end
if ARGV[2] ~= '0' then redis.call('HINCRBY', KEYS[1], 'version', ARGV[2]) end
if ARGV[1] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return redis.call('HGETALL', KEYS[1])
"""

# KEYS: the session. ARGV: TTL in ms, fields and values.
PUT = """
redis.call('DEL', KEYS[1])
for i = 2, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
"""
SUBSCRIPTION, SKILL, NODE = (
    b"s:",
    b"k:",
    b"n:",
)  # prefixes of fields that are members of sets

_records = msgspec.json.Decoder(SessionRecord)
_objects = msgspec.json.Decoder(dict[str, Any])

CHANNEL = "appended"
CHECK_S = 15.0  # a listening connection silent for this long is pinged
FIRST_RETRY_S, LONGEST_RETRY_S = 0.2, 5.0


def connect(url: str, timeout_s: float, connections: int) -> RedisClient:
    """A client that connects on first use. Raises ToolgateError for a URL that it cannot parse."""
    try:
        if url.partition(":")[0].endswith("+cluster"):
            from gateway.state.redis_cluster import cluster

            return cluster(url, timeout_s, connections)
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=connections,
            timeout=timeout_s,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
            client_name="toolgate",
        )
        pool.connection_class(**pool.connection_kwargs)  # validates the options, connects later
        return Redis.from_pool(pool)
    except (ValueError, TypeError):
        raise ToolgateError(UNREADABLE) from None  # the reason may quote a password


@contextmanager
def translated_errors() -> Iterator[None]:
    """Converts errors of Redis to Unavailable."""
    try:
        yield
    except (Disconnected, TimedOut, RedisClusterException, OSError) as error:
        # reported by `RedisLog.listen`
        raise Unavailable(UNAVAILABLE) from error
    except RedisError as error:
        log.error("redis_refused", extra={"reason": str(error)})
        raise Unavailable(UNAVAILABLE) from error


class KeyPrefix:
    """Prefix of the keys of one installation, resolved before its first use: the configured one,
    or, where another installation has that, the same with the installation's id behind."""

    def __init__(
        self, redis: RedisClient, configured: str, installation: Callable[[], Awaitable[str]]
    ) -> None:
        """`installation` reads the id, which gateways of one database share; raises Unavailable."""
        self._redis = redis
        self._configured = configured
        self._installation = installation
        self._id = ""
        self._resolved = ""
        self._claimed_at = -math.inf  # by the clock of the loop; inf: there is nothing to claim

    async def resolve(self) -> str:
        """Raises Unavailable before the database has answered, and errors of Redis."""
        if anyio.current_time() - self._claimed_at > CLAIM_S:
            if self._resolved:  # others go on meanwhile
                self._claimed_at = anyio.current_time()
            try:
                await self._claim()
            except BaseException:  # Redis may be emptied before it is back
                self._claimed_at = -math.inf
                raise
        return self._resolved

    async def _claim(self) -> None:
        """Claim the configured prefix: the first installation to do so has it. A claim is renewed,
        since Redis may have been emptied. Claims need no lock, which calls would wait for one after
        the other where Redis hangs: those of one installation have the same outcome."""
        self._id = self._id or await self._installation()
        key = f"{self._configured}installation"
        await self._redis.set(key, self._id, nx=True)
        owner: Any = await self._redis.get(key)
        is_taken = owner not in (None, self._id.encode())
        if not is_taken or self._resolved == self._configured:
            self._claimed_at = anyio.current_time()
            self._resolved = self._configured
            if is_taken:  # a change now would lose sessions, and part nodes from one another
                log.error(
                    "redis_prefix_shared", extra={"reason": SHARED, "prefix": self._configured}
                )
        else:
            self._claimed_at = math.inf
            if not self._resolved:
                self._resolved = f"{self._configured}{self._id}:"
                log.warning("redis_prefix_taken", extra={"reason": TAKEN, "prefix": self._resolved})


class RedisSessions:
    shared = True

    def __init__(
        self, redis: RedisClient, prefix: KeyPrefix, new_secret: Callable[[str], Awaitable[bytes]]
    ) -> None:
        """`new_secret` gives the secret of a key that a Redis lacks, the same to all gateways of a
        database: it may have been emptied, while others go on with theirs. Raises Unavailable."""
        self._redis = redis
        self._prefix = prefix
        self._new_secret = new_secret
        self._put = redis.register_script(PUT)
        self._session = redis.register_script(SESSION)
        self._secret = b""  # as this process knows it

    async def put(self, record: SessionRecord, ttl_s: float) -> None:
        with translated_errors():
            key = await self._key(record.id)
            await self._put([key], [milliseconds(ttl_s), *_pairs(_fields_of(record))])

    async def get(self, session_id: str) -> SessionRecord | None:
        return await self._run(session_id)

    async def hold(self, session_id: str, node: str, ttl_s: float) -> SessionRecord | None:
        return await self._run(session_id, ttl_s, grows=0, fields={NODE + node.encode(): b"1"})

    async def change(
        self, session_id: str, change: SessionChange, ttl_s: float
    ) -> SessionRecord | None:
        fields, removed = _changed_fields(change)
        return await self._run(session_id, ttl_s, grows=1, fields=fields, removed_fields=removed)

    async def delete(self, session_id: str) -> bool:
        with translated_errors():
            return bool(await self._redis.delete(await self._key(session_id)))

    async def all(self) -> list[SessionRecord]:
        records: dict[str, SessionRecord] = {}
        with translated_errors():
            head = await self._prefix.resolve() + SESSION_KEY
            pattern = "".join(map(_literal, head)) + "*}"
            async for key in self._redis.scan_iter(pattern, count=SCAN_COUNT):
                session_id = key.decode(errors="replace")[len(head) : -1]
                if (record := await self._run(session_id)) is not None:
                    records[record.id] = record  # SCAN may return a key twice
        return list(records.values())

    async def purge(self) -> int:
        return 0  # Redis expires keys itself, and returns no count

    async def beat(self, node: str, ttl_s: float) -> None:
        with translated_errors():
            key = await self._node_key(node)
            await self._redis.set(key, b"1", px=milliseconds(ttl_s))
            if self._secret:  # Redis may have been emptied
                await self._redis.set(await self._secret_key(), self._secret, nx=True)

    async def is_alive(self, node: str) -> bool:
        with translated_errors():
            return bool(await self._redis.exists(await self._node_key(node)))

    async def secret(self) -> bytes:
        with translated_errors():
            key = await self._secret_key()
            value: Any = await self._redis.get(key)
            if value is None:  # else the database is not needed
                await self._redis.set(key, self._secret or await self._new_secret(key), nx=True)
                value = await self._redis.get(key)
        if value is None:
            return await self.secret()  # Redis was emptied in between
        if len(value) != SECRET_BYTES:
            log.error("secret_unreadable", extra={"key": key, "bytes": len(value)})
            raise Unavailable(INVALID_STATE)
        self._secret = bytes(value)
        return self._secret

    async def _key(self, session_id: str) -> str:
        """With the id as hash tag: all keys of a session are on one node of a cluster."""
        return f"{await self._prefix.resolve()}{SESSION_KEY}{session_id}}}"

    async def _secret_key(self) -> str:
        return f"{await self._prefix.resolve()}secret"

    async def _node_key(self, node: str) -> str:
        return f"{await self._prefix.resolve()}node:{node}"

    async def _run(
        self,
        session_id: str,
        ttl_s: float = 0,
        *,
        grows: int = 0,
        fields: Mapping[bytes, bytes] = MappingProxyType({}),
        removed_fields: Sequence[bytes] = (),
    ) -> SessionRecord | None:
        pairs, ttl_ms = _pairs(fields), milliseconds(ttl_s) if ttl_s else 0
        arguments: list[Any] = [ttl_ms, grows, len(pairs), *pairs, *removed_fields]
        with translated_errors():
            reply = await self._session([await self._key(session_id)], arguments)
        return _read(session_id, reply)


class RedisCounter:
    def __init__(self, redis: RedisClient, prefix: KeyPrefix) -> None:
        self._prefix = prefix
        self._hit = redis.register_script(HIT)

    async def hit(self, key: str, limit: int, window_s: float, count: int = 1) -> Verdict:
        slot = slot_us(window_s)
        arguments = [limit, slot, SLOTS, milliseconds((SLOTS + 1) * slot / MICROS), count]
        with translated_errors():
            counter = f"{await self._prefix.resolve()}uses:{slot}:{key}"
            now, stored = await self._hit([counter], arguments)
        uses = dict(zip(map(int, stored[::2]), map(int, stored[1::2]), strict=True))
        return admit(live(uses, int(now), slot), limit, int(now), slot, count=count)

    async def purge(self) -> None:
        """Redis expires keys itself."""


def _fields_of(record: SessionRecord) -> dict[bytes, bytes]:
    """A session as a Redis hash: a field for each part that can change separately."""
    bare = replace(record, client={}, capabilities={}, log_level=None, subscriptions=(), skills=())
    first = SessionChange(
        UNSET if record.log_level is None else record.log_level,
        record.client,
        record.capabilities,
        subscribe=record.subscriptions,
        use=record.skills,
    )
    fields = {
        b"record": msgspec.json.encode(replace(bare, nodes=())),
        b"version": b"%d" % record.version,
    }
    return {**fields, **_members(NODE, record.nodes), **_changed_fields(first)[0]}


def _changed_fields(change: SessionChange) -> tuple[dict[bytes, bytes], list[bytes]]:
    """The fields that a change sets, and those that it removes."""
    fields = _members(SUBSCRIPTION, change.subscribe) | _members(SKILL, change.use)
    if change.log_level is not UNSET:
        fields[b"level"] = change.log_level.encode()
    for name in ("client", "capabilities"):
        if (value := getattr(change, name)) is not UNSET:
            fields[name.encode()] = msgspec.json.encode(value)
    removed = _members(SUBSCRIPTION, change.unsubscribe) | _members(SKILL, change.leave)
    return fields, list(removed)


def _pairs(fields: Mapping[bytes, bytes]) -> list[Any]:
    return [part for pair in fields.items() for part in pair]


def _members(kind: bytes, names: Iterable[str]) -> dict[bytes, bytes]:
    return {kind + name.encode(): b"1" for name in names}


def _read(session_id: str, reply: Any) -> SessionRecord | None:
    if isinstance(reply, bytes):  # the type of another kind of key
        if reply != b"none":
            log.error("session_unreadable", extra={"reason": f"its key is {reply.decode()}"})
        return None
    try:
        return _record_of(session_id, dict(zip(reply[::2], reply[1::2], strict=True)))
    except (msgspec.DecodeError, KeyError, ValueError) as error:
        log.error("session_unreadable", extra={"reason": str(error)[:300]})
        return None


def _record_of(session_id: str, fields: dict[bytes, bytes]) -> SessionRecord:
    """Raises DecodeError, KeyError and ValueError for a hash that no gateway has written."""
    level = fields.get(b"level")
    return replace(
        _records.decode(fields[b"record"]),
        id=session_id,
        client=_objects.decode(fields[b"client"]),
        capabilities=_objects.decode(fields[b"capabilities"]),
        log_level=None if level is None else level.decode(),
        subscriptions=_of_kind(SUBSCRIPTION, fields),
        skills=_of_kind(SKILL, fields),
        nodes=_of_kind(NODE, fields),
        version=int(fields[b"version"]),
    )


def _of_kind(kind: bytes, fields: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(sorted(field[len(kind) :].decode() for field in fields if field.startswith(kind)))


SESSION_KEY = "session:{"


def _literal(character: str) -> str:
    """A character in a pattern of SCAN."""
    return f"\\{character}" if character in "*?[]\\^" else character


def milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


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

# KEYS: the stream. ARGV: the place after which events are read, their most. Returns the oldest, the
# newest and these events.
READ = """
return {
  redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1),
  redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1),
  redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])
}
"""


class RedisLog:
    is_remote = True

    def __init__(
        self,
        redis: RedisClient,
        max_events: int,
        keep_s: float,
        limits_by_stream: Mapping[str, int] = MappingProxyType({}),
        *,
        prefix: KeyPrefix,
    ) -> None:
        """A log that keeps at most `max_events` of a stream (`limits_by_stream` overrides this by
        stream name), for `keep_s` after its last event. `prefix` of all keys, and of the
        channel."""
        self._redis = redis
        self._prefix = prefix
        self._max_events = max_events
        self._limits_by_stream = limits_by_stream
        self._retention_ms = milliseconds(keep_s)
        self._append = redis.register_script(APPEND)
        self._read = redis.register_script(READ)
        self._watchers = Watchers()
        self.unreachable = False  # Redis does not answer; updated while `listen` runs

    async def listen(self) -> None:
        """Wake the watchers on notifications, until cancelled."""
        delays = _delays()
        while True:
            try:
                async with self._redis.pubsub() as channel:
                    await channel.subscribe(await self._prefix.resolve() + CHANNEL)
                    async for stream in _appended_streams(channel):
                        delays, self.unreachable = _delays(), False
                        self._wake(stream)
            except Unavailable:  # the database, without which no prefix is known
                await anyio.sleep(FIRST_RETRY_S)
            except (RedisError, RedisClusterException, OSError) as error:
                delay_s, self.unreachable = next(delays), True
                reason = {"reason": str(error) or type(error).__name__, "retry_s": delay_s}
                log.warning("redis_connection_lost", extra=reason)
                await anyio.sleep(delay_s)

    async def append(self, stream: str, data: bytes) -> str:
        max_events = self._limits_by_stream.get(stream, self._max_events)
        with translated_errors():
            prefix = await self._prefix.resolve()
            channel = prefix + CHANNEL
            arguments: list[Any] = [data, max_events, self._retention_ms, channel, stream]
            added = await self._append([_stream_key(prefix, stream)], arguments)
        return event_id(stream, _place(added))

    async def read(self, stream: str, after: str, limit: int = 1000) -> Sequence[Event]:
        place = place_of(stream, after)
        with translated_errors():
            key = _stream_key(await self._prefix.resolve(), stream)
            oldest, newest, entries = await self._read([key], [f"{place.born}-{place.n}", limit])
        if not newest:
            return []
        check(place, _place(oldest[0][0]), _place(newest[0][0]))
        return [
            Event(event_id(stream, _place(position)), entry[1] if entry[0] == b"d" else b"")
            for position, entry in entries
        ]

    async def last(self, stream: str) -> str:
        with translated_errors():
            key = _stream_key(await self._prefix.resolve(), stream)
            newest: Any = await self._redis.xrevrange(key, count=1)
        return event_id(stream, _place(newest[0][0])) if newest else ""

    def watch(self, stream: str, wake: Callable[[], None]) -> AbstractContextManager[None]:
        return self._watchers.watch(stream, wake)

    async def drop(self, stream: str) -> None:
        with translated_errors():
            await self._redis.unlink(_stream_key(await self._prefix.resolve(), stream))

    async def purge(self) -> None:
        """Redis expires keys itself."""

    def _wake(self, stream: str | None) -> None:
        if stream is None:
            self._watchers.wake_all()
        else:
            self._watchers.wake(stream)


def _stream_key(prefix: str, stream: str) -> str:
    """With the owner of the stream, such as a session, as hash tag: KIND/{OWNER}/NAME."""
    kind, _, rest = stream.partition("/")
    owner, slash, name = rest.rpartition("/")
    key = f"{kind}/{{{owner}}}/{name}" if slash else stream
    return f"{prefix}stream:{key}"


async def _appended_streams(channel: PubSub) -> AsyncIterator[str | None]:
    """Names of streams that were appended to; None where some may have been missed."""
    pinged = False
    while True:
        message = await channel.get_message(timeout=CHECK_S)
        if message is None:
            if pinged:
                raise Disconnected("no answer to a ping")
            await channel.ping()
        elif message["type"] == "subscribe":
            yield None
        elif message["type"] == "message":
            yield message["data"].decode(errors="replace")
        pinged = message is None


def _place(place: bytes) -> StreamPlace:
    born, n = place.split(b"-")
    return StreamPlace(int(born), int(n))


def _delays() -> Iterator[float]:
    """Exponential backoff: 0.2, 0.4, 0.8 ... seconds, capped at the longest."""
    growing: Iterable[float] = (FIRST_RETRY_S * 2**n for n in itertools.count())
    return itertools.chain(
        itertools.takewhile(lambda delay: delay < LONGEST_RETRY_S, growing),
        itertools.repeat(LONGEST_RETRY_S),
    )
