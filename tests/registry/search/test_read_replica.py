"""Searches on a read replica: a real standby, which is paused, stopped and started again."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import psycopg
import pytest
from msgspec.structs import replace

from config.settings import DatabaseSettings
from gateway.cli.doctor.environment import replica as doctor
from registry.database.embedded_server import Embedded
from registry.database.postgres import Database
from registry.search import Filters, Search, SearchQuery
from registry.search.read_replica import Replica
from registry.sources.tool_store import SourceDraft, ToolStore
from schemas.signals import Signal
from tests.fixtures_database import HOST, Cluster, settings_for
from tests.polling import until
from tests.registry.search.finding import SETTINGS
from tests.registry.search.test_words import draft

pytestmark = pytest.mark.anyio


class Standby:
    """A streaming replica of the session's server, with a data directory of its own."""

    def __init__(self, cluster: Cluster, data_dir: Path) -> None:
        self._settings = settings_for(data_dir)
        self._url = cluster.embedded.url
        made = Embedded(self._settings)
        target = made._directory.prepare(made._directory.cluster)
        done = made._installation.run(
            "pg_basebackup",
            *("--pgdata", str(target), "--dbname", self._url, "--write-recovery-conf"),
            *("--checkpoint", "fast", "--no-sync"),
            timeout_s=60,
        )
        assert done.returncode == 0, done.stdout
        self._server: Embedded | None = None

    def start(self) -> None:
        if self._server is None:
            self._server = Embedded.start(self._settings)

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def url(self, name: str) -> str:
        made = self._server or Embedded(self._settings)
        return made.url.replace("/toolgate?", f"/{name}?")

    def execute(self, statement: str) -> object:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            row = connection.execute(statement.encode()).fetchone()
        return row[0] if row else None

    async def replays(self, position: str) -> None:
        """Return when everything up to this position of the primary is there."""
        await until(lambda: self.execute(f"SELECT pg_last_wal_replay_lsn() >= '{position}'"))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def standby_server(cluster: Cluster, scratch: Path) -> Iterator[Standby]:
    standby = Standby(cluster, scratch / "standby")
    standby.start()
    yield standby
    standby.stop()


@pytest.fixture
def standby(standby_server: Standby) -> Standby:
    standby_server.start()
    standby_server.execute("SELECT pg_wal_replay_resume()")
    return standby_server


@pytest.fixture
def replica_settings(database_settings: DatabaseSettings, standby: Standby) -> DatabaseSettings:
    name = database_settings.url.rpartition("/")[2].partition("?")[0]
    # On a loaded machine a connection may take longer than the default allows.
    return replace(database_settings, read_url=standby.url(name), read_timeout_s=20.0)


class Bench:
    """A gateway's search, and the catalog it serves."""

    def __init__(self, database: Database, settings: DatabaseSettings) -> None:
        self.loaded: Signal[str] = Signal()
        self.clock = Clock()
        self.replica = Replica(settings, self.loaded, self.clock)
        self.search = Search(lambda: database.pool, lambda _: None, SETTINGS, replica=self.replica)
        self._store = ToolStore(database.pool)
        self._database = database

    async def serve(self, *names: str) -> str:
        """Import these tools and load the catalog; the position that searches wait for."""
        drafts = [draft(name, "Lists all branches.") for name in names]
        await self._store.save(HOST, SourceDraft("forge", "openapi", "forge.json"), drafts)
        self.loaded.publish(HOST)
        return str(await self.replica._known_position(self._database.pool))

    async def find_names(self) -> list[str]:
        with anyio.fail_after(60):
            found = await self.search.run(SearchQuery("branches", 5, "lexical", Filters(HOST)))
        return sorted(hit.name for hit in found.hits)

    @property
    def transaction_counts(self) -> tuple[int, int]:
        """Transactions on the replica, and those that the primary took over, since last asked."""
        used = self.replica.reads, self.replica.fallbacks
        self.replica.reads = self.replica.fallbacks = 0
        return used


@asynccontextmanager
async def searching(settings: DatabaseSettings) -> AsyncIterator[Bench]:
    async with Database.open(settings, wait=False, migrate=False) as database:
        bench = Bench(database, settings)
        await bench.replica.open()
        yield bench
        await bench.replica.close()


async def test_a_replica_is_used_once_caught_up(
    replica_settings: DatabaseSettings, standby: Standby
) -> None:
    async with searching(replica_settings) as bench:
        await standby.replays(await bench.serve("one"))
        assert await bench.find_names() == ["one"]
        assert bench.transaction_counts == (2, 0)  # both transactions of a search


async def test_a_replica_that_lags_behind_the_catalog_is_not_used(
    replica_settings: DatabaseSettings, standby: Standby
) -> None:
    async with searching(replica_settings) as bench:
        await standby.replays(await bench.serve("one"))
        assert await bench.find_names() == ["one"]
        standby.execute("SELECT pg_wal_replay_pause()")
        assert await bench.find_names() == ["one"]
        assert bench.transaction_counts == (4, 0)  # it lags, and has all that the catalog has
        position = await bench.serve("one", "two")
        assert await bench.find_names() == ["one", "two"]
        assert bench.transaction_counts == (0, 2)
        standby.execute("SELECT pg_wal_replay_resume()")
        await standby.replays(position)
        assert await bench.find_names() == ["one", "two"]
        assert bench.transaction_counts == (2, 0)


async def test_a_replica_that_is_down_is_left_alone_for_a_while(
    replica_settings: DatabaseSettings, standby: Standby, caplog: pytest.LogCaptureFixture
) -> None:
    async with searching(replace(replica_settings, read_timeout_s=3.0)) as bench:
        await standby.replays(await bench.serve("one"))
        assert await bench.find_names() == ["one"]
        standby.stop()
        assert await bench.find_names() == ["one"]
        assert bench.transaction_counts == (2, 1)  # the second transaction does not try
        standby.start()
        assert await bench.find_names() == ["one"]
        assert bench.transaction_counts == (0, 0)
        bench.clock.now += 1
        with anyio.fail_after(60):
            while bench.transaction_counts != (2, 0):
                assert await bench.find_names() == ["one"]
                bench.clock.now += 20
    events = [record.message for record in caplog.records if record.name == "toolgate.search"]
    assert "search_replica_unavailable" in events


async def test_a_database_that_is_no_replica_is_not_read(
    database_settings: DatabaseSettings, empty_settings: DatabaseSettings
) -> None:
    """Whatever it contains: its log says nothing of what it has of the primary's."""
    other = replace(database_settings, read_url=empty_settings.url)
    async with searching(other) as bench:
        await bench.serve("one")
        assert await bench.find_names() == ["one"]
        assert bench.transaction_counts == (0, 2)


async def test_doctor_names_faults_of_a_replica(
    replica_settings: DatabaseSettings, standby: Standby
) -> None:
    async with (
        Database.open(replica_settings, wait=False, migrate=False) as database,
        database.connect() as connection,
    ):
        found = await doctor(replica_settings, connection)
        assert (found.status, found.detail.partition(" ")[2]) == (
            "ok",
            "bytes behind (database.read_url)",
        )
        itself = await doctor(replace(replica_settings, read_url=replica_settings.url), connection)
        assert itself.status == "failed"
        assert "no streaming replica" in itself.detail
        gone = replace(replica_settings, read_url="postgresql://me:hunter2@127.0.0.1:1/x")
        away = await doctor(gone, connection)
        assert away.status == "warning"
        assert "hunter2" not in away.detail
