"""The stores of one gateway, in the backend that the settings name."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

from config.settings import StateSettings
from gateway.interfaces import Counter, Log, SessionStore
from gateway.state import node_bus, stored_answers
from gateway.state.memory import MemoryCounter, MemoryLog, MemorySessions
from gateway.state.postgres import (
    PURPOSE,
    GetDatabase,
    PostgresCounter,
    PostgresLog,
    PostgresSessions,
    derive_secret,
    read_installation,
)
from schemas.errors import Unavailable

log = logging.getLogger("toolgate.state")

ALL_EVENTS = 1_000_000  # of a stored result: its writer bounds it
OWN_LIMITS = {
    node_bus.STREAM: node_bus.EVENTS_LIMIT
}  # streams with their own number of kept events


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention of streams for clients that resume them."""

    events: int
    seconds: float  # after its last event
    answers_s: float = 900.0  # retention of stored results
    answers_bytes: int = 1 << 29  # of all of them in memory


async def _no_op() -> None:
    """No-op: the memory backend needs no listener and no close."""


@dataclass(frozen=True, slots=True)
class Stores:
    log: Log
    answers: Log  # streams whose names begin with `stored_answers.PREFIX`
    sessions: SessionStore
    counter: Counter
    purges: tuple[Callable[[], Awaitable[Any]], ...]
    configured_secret: str = field(default="", repr=False)
    listen: Callable[[], Awaitable[None]] = _no_op
    close: Callable[[], Awaitable[None]] = _no_op
    unreachable: Callable[[], bool] | None = None  # whether a separate backend does not answer

    async def run(self) -> None:
        """Wake watchers when other nodes append to streams, until cancelled. Returns at once for
        the memory backend."""
        await self.listen()

    async def purge(self) -> None:
        """Delete what has expired; an unavailable store is skipped until the next run."""
        for purge in self.purges:
            try:
                await purge()
            except Unavailable as error:
                log.warning("state_not_purged", extra={"reason": error.message})
                return

    async def secret(self) -> bytes:
        """32 bytes, the same at all gateways. Raises Unavailable when they are in the backend and
        that does not answer."""
        if self.configured_secret:
            return blake2b(self.configured_secret.encode(), digest_size=32, person=PURPOSE).digest()
        return await self.sessions.secret()


def make_stores(settings: StateSettings, retention: Retention, database: GetDatabase) -> Stores:
    """`database` returns the registry's database, None until it has answered for the first time.

    Raises ToolgateError for a Redis URL that cannot be parsed; does not connect yet.
    """
    if settings.backend == "redis":
        return _in_redis(settings, retention, database)
    if settings.backend == "postgres":
        return _in_postgres(settings, retention, database)
    log = MemoryLog(
        retention.events, retention.seconds, settings.memory_bytes, limits_by_stream=OWN_LIMITS
    )
    answers = MemoryLog(ALL_EVENTS, retention.answers_s, retention.answers_bytes)
    sessions, counter = MemorySessions(), MemoryCounter()
    purges = (log.purge, answers.purge, sessions.purge, counter.purge)
    return Stores(
        log,
        answers,
        sessions=sessions,
        counter=counter,
        purges=purges,
        configured_secret=settings.secret,
    )


def _in_redis(settings: StateSettings, retention: Retention, database: GetDatabase) -> Stores:
    # The client takes 0.2 s to import, and 10 MB with what it imports.
    from gateway.state.redis import KeyPrefix, RedisCounter, RedisLog, RedisSessions, connect

    redis = connect(settings.redis_url, settings.timeout_s, settings.connections)
    prefix = KeyPrefix(redis, settings.redis_prefix, partial(read_installation, database))
    log = RedisLog(redis, retention.events, retention.seconds, OWN_LIMITS, prefix=prefix)
    sessions = RedisSessions(redis, prefix, partial(derive_secret, database))
    return Stores(
        log,
        RedisLog(redis, ALL_EVENTS, retention.answers_s, prefix=prefix),
        sessions=sessions,
        counter=RedisCounter(redis, prefix),
        purges=(),
        configured_secret=settings.secret,
        listen=log.listen,
        close=redis.aclose,
        unreachable=lambda: log.unreachable,
    )


def _in_postgres(settings: StateSettings, retention: Retention, database: GetDatabase) -> Stores:
    log = PostgresLog(
        database,
        retention.events,
        retention.seconds,
        limits_by_stream=OWN_LIMITS,
        not_prefix=stored_answers.PREFIX,
    )
    answers = PostgresLog(database, ALL_EVENTS, retention.answers_s, prefix=stored_answers.PREFIX)
    sessions, counter = PostgresSessions(database), PostgresCounter(database, settings.timeout_s)
    purges = (log.purge, answers.purge, sessions.purge, counter.purge)
    return Stores(
        log,
        answers,
        sessions=sessions,
        counter=counter,
        purges=purges,
        configured_secret=settings.secret,
        listen=log.listen,
    )
