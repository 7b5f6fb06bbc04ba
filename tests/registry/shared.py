"""Fixtures of a module whose tests leave their database as it was, and share it:

    from tests.registry.shared import anyio_backend, database

    __all__ = ["anyio_backend", "database"]

A test that changes it takes `database_settings`, and opens a database of its own.
"""

from collections.abc import AsyncIterator

import pytest

from config.settings import DatabaseSettings
from registry.database.postgres import Database
from tests.gateway.shared import anyio_backend

__all__ = ["anyio_backend", "database"]


@pytest.fixture(scope="module")
async def database(
    shared_database: DatabaseSettings, anyio_backend: str
) -> AsyncIterator[Database]:
    async with Database.open(shared_database, wait=False) as database:
        yield database
