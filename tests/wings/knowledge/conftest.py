"""Databases that have the tables of the knowledge, used again by one test after the other."""

from collections.abc import AsyncIterator, Iterator

import pytest

from config.settings import DatabaseSettings
from registry.database.postgres import Database
from tests.fixtures_database import Cluster, lend_database
from tests.recycling import Recycling
from tests.wings.knowledge.rig import KnowledgeRig, open_rig


@pytest.fixture
def database_settings(cluster: Cluster, with_documents: Recycling) -> Iterator[DatabaseSettings]:
    yield from lend_database(cluster, with_documents)


@pytest.fixture
async def rig(database: Database) -> AsyncIterator[KnowledgeRig]:
    async with open_rig(database) as rig:
        yield rig
