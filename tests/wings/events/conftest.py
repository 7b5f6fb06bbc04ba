"""A database with the journal for the tests of a module, emptied for each."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from importlib.resources import files

import psycopg
import pytest

from config.settings import DatabaseSettings
from gateway.wings.events.invocation_journal import Journal
from registry.database.migrate import REGISTRY, Component
from registry.database.postgres import Database
from registry.jobs.store import JOBS
from tests.fixtures_database import TEMPLATE, Cluster, own_database
from tests.wings.events.kafka import broker

EVENTS = Component("events", files("gateway.wings.events").joinpath("sql"))
TABLES = "invocation_t, invocation_done_t, invocation_attempt_t, outbox_t"


@pytest.fixture(scope="module")
def events_database(cluster: Cluster) -> Iterator[DatabaseSettings]:
    for settings in own_database(cluster, TEMPLATE):
        asyncio.run(_migrate(settings))
        yield settings


async def _migrate(settings: DatabaseSettings) -> None:
    async with Database.open(settings, wait=False, components=(REGISTRY, JOBS, EVENTS)):
        pass


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
