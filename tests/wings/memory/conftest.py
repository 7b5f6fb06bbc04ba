"""Databases that have the tables of the memory, used again by one test after the other."""

from collections.abc import AsyncIterator, Iterator

import pytest

from config.settings import DatabaseSettings
from gateway.wings.memory.wing import MIGRATIONS
from registry.database.postgres import Database
from tests.fixtures_database import Cluster, lend_database
from tests.recycling import Recycling
from tests.wings.databases import with_tables
from tests.wings.memory.rig import Rig, open_rig


@pytest.fixture(scope="session")
def with_memory(cluster: Cluster) -> Iterator[Recycling]:
    yield from with_tables(cluster, MIGRATIONS)


@pytest.fixture
def database_settings(cluster: Cluster, with_memory: Recycling) -> Iterator[DatabaseSettings]:
    yield from lend_database(cluster, with_memory)


@pytest.fixture
async def rig(database: Database) -> AsyncIterator[Rig]:
    async with open_rig(database) as rig:
        yield rig
