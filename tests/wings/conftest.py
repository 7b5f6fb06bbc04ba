"""Databases that wings share."""

from collections.abc import Iterator

import pytest

from gateway.wings.knowledge.wing import MIGRATIONS as KNOWLEDGE
from gateway.wings.librarian.wing import MIGRATIONS as LIBRARIAN
from gateway.wings.table import WINGS, load_wing
from tests.fixtures_database import WHOLE, Cluster
from tests.recycling import Recycling
from tests.wings.databases import with_tables
from tests.wings.toy.wing import WING as TOY


@pytest.fixture(scope="session")
def with_documents(cluster: Cluster) -> Iterator[Recycling]:
    """Databases with the tables of the knowledge and of the librarian."""
    yield from with_tables(cluster, KNOWLEDGE, LIBRARIAN)


@pytest.fixture(scope="session")
def with_wings(cluster: Cluster) -> Iterator[Recycling]:
    """Databases with the tables of all wings."""
    migrations = filter(None, (load_wing(name).migrations for name in WINGS))
    yield from with_tables(cluster, *migrations, base=WHOLE, name="wings")


@pytest.fixture(scope="session")
def with_notes(cluster: Cluster) -> Iterator[Recycling]:
    """Databases with the tables of the toy."""
    yield from with_tables(cluster, TOY.migrations)
