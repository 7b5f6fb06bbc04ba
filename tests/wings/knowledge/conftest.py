"""Databases that have the tables of the knowledge, used again by one test after the other."""

from collections.abc import AsyncIterator, Iterator

import pytest

from config.settings import DatabaseSettings
from gateway.wings.knowledge.wing import MIGRATIONS
from registry.database.postgres import Database
from tests.fixtures_database import Cluster, taken
from tests.recycling import Recycling
from tests.wings.databases import with_tables
from tests.wings.knowledge.rig import KnowledgeRig, rigged


@pytest.fixture(scope="session")
def with_knowledge(cluster: Cluster) -> Iterator[Recycling]:
    yield from with_tables(cluster, MIGRATIONS)


@pytest.fixture
def database_settings(cluster: Cluster, with_knowledge: Recycling) -> Iterator[DatabaseSettings]:
    yield from taken(cluster, with_knowledge)


@pytest.fixture
async def rig(database: Database) -> AsyncIterator[KnowledgeRig]:
    async with rigged(database) as rig:
        yield rig
