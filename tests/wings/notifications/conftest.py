"""Databases that have the tables of the notifications, used again by one test after the other."""

from collections.abc import Iterator

import pytest

from config.settings import DatabaseSettings
from gateway.wings.notifications.wing import WING
from tests.fixtures_database import WHOLE, Cluster, lend_database
from tests.recycling import Recycling
from tests.wings.databases import with_tables


@pytest.fixture(scope="session")
def with_targets(cluster: Cluster) -> Iterator[Recycling]:
    assert WING.migrations is not None
    yield from with_tables(cluster, WING.migrations, base=WHOLE)


@pytest.fixture
def database_settings(cluster: Cluster, with_targets: Recycling) -> Iterator[DatabaseSettings]:
    yield from lend_database(cluster, with_targets)
