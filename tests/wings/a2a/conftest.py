"""One gateway for the tests of a module."""

from collections.abc import AsyncIterator, Iterator

import pytest

from config.settings import DatabaseSettings
from gateway.wings.a2a.wing import TABLES
from tests.fixtures_database import WHOLE, Cluster, lend_database
from tests.recycling import Recycling
from tests.wings.a2a.rig import Rig, open_rig
from tests.wings.databases import with_tables


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture(scope="session")
def with_tasks(cluster: Cluster) -> Iterator[Recycling]:
    yield from with_tables(cluster, TABLES, base=WHOLE)


@pytest.fixture
def database_settings(cluster: Cluster, with_tasks: Recycling) -> Iterator[DatabaseSettings]:
    yield from lend_database(cluster, with_tasks)


@pytest.fixture(scope="module")
def module_database(cluster: Cluster, with_tasks: Recycling) -> Iterator[DatabaseSettings]:
    yield from lend_database(cluster, with_tasks)


@pytest.fixture(scope="module")
async def rig(
    module_database: DatabaseSettings, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Rig]:
    async with open_rig(module_database, tmp_path_factory.mktemp("a2a")) as rig:
        yield rig
