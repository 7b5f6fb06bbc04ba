"""Fixtures: a real embedded PostgreSQL for the session, and a database of its own for each test.

A migrated database is emptied and used again (`tests.recycling`): to empty one takes a tenth of the
time that a new one does.
"""

import asyncio
import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import msgspec
import psycopg
import pytest

from config.settings import DatabaseSettings as Settings
from registry.database.embedded_server import Embedded
from registry.database.migrate import REGISTRY, Component
from registry.database.postgres import Database
from registry.jobs.store import JOBS
from registry.sources.tool_store import ToolStore
from tests.clusters import quick_place, without_copies
from tests.recycling import Recycling

# Components that only some gateways have, and that add no kind of search.
OPTIONAL = tuple(
    Component(package.rpartition(".")[2], files(package).joinpath("sql"))
    for package in (
        *("registry.login", "registry.connections", "gateway.console"),
        *("gateway.wings.agent", "gateway.wings.code", "gateway.wings.events"),
    )
)
HOST = "00000000-0000-0000-0000-000000000001"
TEMPLATE = "template_toolgate"  # with the tables that every gateway has
WHOLE = "template_whole"  # and those of `OPTIONAL`

_numbers = itertools.count(1)


def settings_for(data_dir: Path) -> Settings:
    """Settings of an embedded database that need not survive a power failure."""
    return Settings(
        url="embedded",
        data_dir=str(data_dir),
        instance="",
        system_user="nobody",  # as root: no account has to be made for tests
        shared_buffers="32MB",
        maintenance_work_mem="32MB",
        max_connections=100,
        options={"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"},
        pool_max=8,
        connect_timeout_s=5,
        answer_timeout_s=10,
        lock_timeout_s=30,
        retry_max_s=0.2,
        read_url="",
        read_pool_max=4,
        read_timeout_s=0.5,
    )


@dataclass(frozen=True, slots=True)
class Cluster:
    """The session's server."""

    settings: Settings
    embedded: Embedded

    def url(self, database: str) -> str:
        return self.embedded.url.replace("/toolgate?", f"/{database}?")

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """A directory that every user may enter, as `tmp_path` is not."""
    path = Path(tempfile.mkdtemp(prefix="toolgate-", dir=quick_place()))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def cluster(scratch: Path) -> Iterator[Cluster]:
    settings = settings_for(scratch / "data")
    with without_copies():
        embedded = Embedded.start(settings)
    cluster = Cluster(settings, embedded)
    for template, base, components in ((TEMPLATE, "template1", ()), (WHOLE, TEMPLATE, OPTIONAL)):
        cluster.execute(f"CREATE DATABASE {template} TEMPLATE {base} STRATEGY file_copy")
        own = msgspec.structs.replace(settings, url=cluster.url(template))
        asyncio.run(_migrate(own, components))
    yield cluster
    embedded.stop()


@pytest.fixture
def empty_settings(cluster: Cluster) -> Iterator[Settings]:
    """Leads to an empty database of the test's own."""
    yield from own_database(cluster, "template1")


@pytest.fixture(scope="session")
def recycling(cluster: Cluster) -> Iterator[Recycling]:
    recycling = Recycling(cluster.url, cluster.execute, WHOLE)
    yield recycling
    recycling.close()


@pytest.fixture
def database_settings(cluster: Cluster, recycling: Recycling) -> Iterator[Settings]:
    """Leads to a migrated database of the test's own."""
    yield from lend_database(cluster, recycling)


@pytest.fixture
async def database(database_settings: Settings) -> AsyncIterator[Database]:
    async with Database.open(database_settings, wait=False) as database:
        yield database


@pytest.fixture
def store(database: Database) -> ToolStore:
    return ToolStore(database.pool)


def lend_database(cluster: Cluster, recycling: Recycling) -> Iterator[Settings]:
    """Leads to a database that tests use one after the other."""
    database = recycling.take()
    yield msgspec.structs.replace(cluster.settings, url=database.url)
    recycling.give_back(database)


def own_database(cluster: Cluster, template: str) -> Iterator[Settings]:
    """Leads to a new database, which goes when the test does."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    cluster.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    yield msgspec.structs.replace(cluster.settings, url=cluster.url(name))
    cluster.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def _migrate(settings: Settings, more: Sequence[Component]) -> None:
    """A database with tables that a gateway of a test has made is not used again."""
    async with Database.open(settings, wait=False, components=(REGISTRY, JOBS, *more)):
        pass
