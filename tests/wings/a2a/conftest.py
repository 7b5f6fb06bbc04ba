"""One gateway for the tests of a module."""

from collections.abc import AsyncIterator, Iterator

import pytest

from config.settings import DatabaseSettings
from tests.fixtures_database import TEMPLATE, Cluster, own_database
from tests.wings.a2a.rig import Rig, open_rig


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture(scope="module")
def module_database(cluster: Cluster) -> Iterator[DatabaseSettings]:
    yield from own_database(cluster, TEMPLATE)


@pytest.fixture(scope="module")
async def rig(
    module_database: DatabaseSettings, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Rig]:
    async with open_rig(module_database, tmp_path_factory.mktemp("a2a")) as rig:
        yield rig
