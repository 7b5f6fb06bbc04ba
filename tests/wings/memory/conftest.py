"""Databases that have the tables of the memory, used again by one test after the other."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest

from config.settings import DatabaseSettings
from gateway.wings.memory.wing import MIGRATIONS
from registry.database.postgres import Database
from tests.fixtures_database import TEMPLATE, Cluster
from tests.recycling import Recycling
from tests.wings.memory.rig import Rig, rigged

WITH_MEMORY = "template_memory"


@pytest.fixture(scope="session")
def with_memory(cluster: Cluster) -> Iterator[Recycling]:
    cluster.execute(f"CREATE DATABASE {WITH_MEMORY} TEMPLATE {TEMPLATE} STRATEGY file_copy")
    asyncio.run(_migrate(msgspec.structs.replace(cluster.settings, url=cluster.url(WITH_MEMORY))))
    recycling = Recycling(cluster.url, cluster.execute, WITH_MEMORY)
    yield recycling
    recycling.close()


@pytest.fixture
def database_settings(cluster: Cluster, with_memory: Recycling) -> Iterator[DatabaseSettings]:
    database = with_memory.take()
    yield msgspec.structs.replace(cluster.settings, url=database.url)
    with_memory.give_back(database)


@pytest.fixture
async def rig(database: Database) -> AsyncIterator[Rig]:
    async with rigged(database) as rig:
        yield rig


async def _migrate(settings: DatabaseSettings) -> None:
    async with Database.open(settings, wait=False, migrate=True, components=(MIGRATIONS,)):
        pass
