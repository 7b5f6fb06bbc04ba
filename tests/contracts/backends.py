"""The stores of two gateways that share a backend; memory shares by being the same store."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import msgspec
import pytest

from config.load import load
from config.settings import DatabaseSettings, StateSettings
from gateway.state.postgres import GetDatabase
from gateway.state.stores import Retention, Stores, make_stores
from registry.database.postgres import Database
from schemas.errors import Unavailable
from tests.fixtures_database import Cluster
from tests.fixtures_redis import RedisCluster, RedisServer

DEADLINE_S = 60  # a loaded machine is slow, not wrong
KEEP = Retention(events=1000, seconds=300)


@asynccontextmanager
async def open_stores(
    settings: StateSettings, keep: Retention, opened: GetDatabase
) -> AsyncIterator[Stores]:
    """Stores that are closed on exit."""
    stores = make_stores(settings, keep, opened)
    try:
        yield stores
    finally:
        await stores.close()


@dataclass(frozen=True)
class Pair:
    """Two nodes."""

    a: Stores
    b: Stores


@dataclass(frozen=True)
class Backend:
    state: StateSettings
    database: DatabaseSettings | None = None
    away: Callable[[], AbstractContextManager[None]] | None = None  # inside, it does not answer
    secret_places: tuple[str, ...] = ()  # what no client may read

    @asynccontextmanager
    async def nodes(self, keep: Retention = KEEP) -> AsyncIterator[Pair]:
        if self.state.backend == "memory":
            stores = make_stores(self.state, keep, lambda: None)
            yield Pair(stores, stores)
        else:
            async with self._node(keep) as a, self._node(keep) as b:
                yield Pair(a, b)

    async def refuses(self, *calls: Coroutine[Any, Any, Any]) -> None:
        """All of them, while it is away."""
        assert self.away is not None
        with self.away():
            async with anyio.create_task_group() as tasks:
                for call in calls:
                    tasks.start_soon(self._refuses, call)

    async def _refuses(self, call: Coroutine[Any, Any, Any]) -> None:
        with pytest.raises(Unavailable) as refused:
            await call
        assert not any(place in refused.value.message for place in self.secret_places)

    @asynccontextmanager
    async def _node(self, keep: Retention) -> AsyncIterator[Stores]:
        async with (
            self._open_database() as database,
            open_stores(self.state, keep, lambda: database) as stores,
            anyio.create_task_group() as tasks,
        ):
            listens = anyio.Event()
            with stores.log.watch("", listens.set):  # all are woken when listening begins
                tasks.start_soon(stores.run)
                with anyio.fail_after(DEADLINE_S):
                    await listens.wait()
            yield stores
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def _open_database(self) -> AsyncIterator[Database | None]:
        if self.database is None:
            yield None
        else:
            async with Database.open(self.database, wait=False, migrate=False) as database:
                yield database


def in_memory() -> Backend:
    return Backend(load(None, {}).state)


def in_postgres(settings: DatabaseSettings, cluster: Cluster) -> Backend:
    name = settings.url.rpartition("/")[2].partition("?")[0]

    @contextmanager
    def away() -> Iterator[None]:
        cluster.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        cluster.execute(
            "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity"
            f" WHERE datname = '{name}'"
        )
        yield
        cluster.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")

    quick = msgspec.structs.replace(settings, connect_timeout_s=3)
    state = msgspec.structs.replace(load(None, {}).state, backend="postgres")
    return Backend(state, quick, away, ("host=", name, "/tmp"))


def in_redis(server: RedisServer | RedisCluster, database: DatabaseSettings) -> Backend:
    @contextmanager
    def away() -> Iterator[None]:
        server.stop()
        yield
        server.start()

    changes = {"redis_url": server.url, "timeout_s": 30, "connections": 4}
    state = msgspec.structs.replace(load(None, {}).state, backend="redis", **changes)
    return Backend(state, database, away, ("unix:", "redis.sock", "/tmp"))
