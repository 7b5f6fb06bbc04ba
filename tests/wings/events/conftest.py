"""A database with the journal for the tests of a module, emptied for each."""

from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from config.settings import DatabaseSettings
from gateway.wings.events.invocation_journal import Journal
from registry.database.postgres import Database
from tests.fixtures_database import Cluster, lend_database
from tests.recycling import Recycling
from tests.wings.events.kafka import broker

TABLES = "invocation_t, invocation_done_t, invocation_attempt_t, invocation_question_t, outbox_t"


@pytest.fixture(scope="module")
def events_database(cluster: Cluster, recycling: Recycling) -> Iterator[DatabaseSettings]:
    yield from lend_database(cluster, recycling)


def empty_tables(settings: DatabaseSettings) -> None:
    with psycopg.connect(settings.url, autocommit=True) as connection:
        connection.execute(f"TRUNCATE {TABLES}".encode())


@pytest.fixture
async def journal(events_database: DatabaseSettings) -> AsyncIterator[Journal]:
    empty_tables(events_database)
    async with Database.open(events_database, wait=False, migrate=False) as database:
        yield Journal(database.pool)


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    with broker() as address:
        yield address
