"""Databases that have the tables of the knowledge, used again by one test after the other."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest

from config.settings import DatabaseSettings
from gateway.wings.knowledge.wing import MIGRATIONS
from registry.database.postgres import Database
from tests.fixtures_database import TEMPLATE, Cluster
from tests.recycling import Recycling
from tests.wings.knowledge.rig import KnowledgeRig, rigged

WITH_KNOWLEDGE = "template_knowledge"


@pytest.fixture(scope="session")
def with_knowledge(cluster: Cluster) -> Iterator[Recycling]:
    cluster.execute(f"CREATE DATABASE {WITH_KNOWLEDGE} TEMPLATE {TEMPLATE} STRATEGY file_copy")
    url = cluster.url(WITH_KNOWLEDGE)
    asyncio.run(_migrate(msgspec.structs.replace(cluster.settings, url=url)))
    recycling = Recycling(cluster.url, cluster.execute, WITH_KNOWLEDGE)
    yield recycling
    recycling.close()


@pytest.fixture
def database_settings(cluster: Cluster, with_knowledge: Recycling) -> Iterator[DatabaseSettings]:
    database = with_knowledge.take()
    yield msgspec.structs.replace(cluster.settings, url=database.url)
    with_knowledge.give_back(database)


@pytest.fixture
async def rig(database: Database) -> AsyncIterator[KnowledgeRig]:
    async with rigged(database) as rig:
        yield rig


async def _migrate(settings: DatabaseSettings) -> None:
    async with Database.open(settings, wait=False, migrate=True, components=(MIGRATIONS,)):
        pass
