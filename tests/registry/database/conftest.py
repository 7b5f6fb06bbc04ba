"""Databases with the tables that every gateway has, and no others: some tests count them."""

from collections.abc import Iterator

import pytest

from config.settings import DatabaseSettings
from tests.fixtures_database import TEMPLATE, Cluster, own_database


@pytest.fixture
def database_settings(cluster: Cluster) -> Iterator[DatabaseSettings]:
    yield from own_database(cluster, TEMPLATE)
