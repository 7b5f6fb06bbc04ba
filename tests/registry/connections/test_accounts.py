"""Rows of connections that several gateways write at once."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import psycopg
import pytest

from config.settings import DatabaseSettings
from config.sources import SchemeSettings
from registry.access.access_feed import CHANNEL
from registry.access.secrets import Keys
from registry.connections import CONNECTIONS
from registry.connections.accounts import Connections, NewConnection, Owner, Secret, TooManyAccounts
from registry.database.postgres import Database
from registry.login import LOGIN
from tests.fixtures_database import HOST

pytestmark = pytest.mark.anyio
ANN = Owner(HOST, "corp:ann", "notes")
KEY = NewConnection("key", "api_key", Secret(SchemeSettings(value="a-key-0123456789")))
ROUNDS = 20


@asynccontextmanager
async def open_connections(settings: DatabaseSettings) -> AsyncIterator[Connections]:
    async with Database.open(settings, wait=False, components=(LOGIN, CONNECTIONS)) as database:
        yield Connections(database.pool, HOST, Keys(bytes(32)))


async def roles_of(connections: Connections) -> Sequence[str] | None:
    (row,) = await connections.of(ANN)
    return row.shared_with


async def test_an_account_that_is_taken_back_while_its_owner_connects_stays_unshared(
    database_settings: DatabaseSettings,
) -> None:
    async with open_connections(database_settings) as connections:
        for _ in range(ROUNDS):
            await connections.put(ANN, KEY, 10)
            (row,) = await connections.all(HOST)
            await connections.share(HOST, row, ["team"])
            await connections.put(ANN, KEY, 10)
            assert await roles_of(connections) == ["team"]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(connections.put, ANN, KEY, 10)
                tasks.start_soon(connections.share, HOST, row, [])
            assert await roles_of(connections) is None


async def test_connections_made_at_once_keep_the_limit_of_their_person(
    database_settings: DatabaseSettings,
) -> None:
    async with open_connections(database_settings) as connections:

        async def connect(source: str) -> None:
            try:
                await connections.put(Owner(HOST, "corp:ann", source), KEY, 2)
            except TooManyAccounts:
                refused.append(source)

        refused: list[str] = []
        async with anyio.create_task_group() as tasks:
            for name in ("a", "b", "c", "d", "a", "b"):
                tasks.start_soon(connect, name)
        assert len(await connections.all(HOST)) == 2
        assert refused


async def test_a_renewed_token_is_announced_to_no_gateway_and_an_ended_connection_is(
    database_settings: DatabaseSettings,
) -> None:
    """Else each renewal has all gateways read the connections of everybody again."""
    async with open_connections(database_settings) as connections:
        await connections.put(ANN, KEY, 10)
        async with await psycopg.AsyncConnection.connect(
            database_settings.url, autocommit=True
        ) as listening:
            await listening.execute(f"LISTEN {CHANNEL}")

            async def payloads() -> list[str]:
                await listening.execute("SELECT pg_notify(%s, 'end')", [CHANNEL])
                return [notice.payload async for notice in listening.notifies(stop_after=1)]

            (row,) = await connections.of(ANN)
            renewed = {"lasts_s": 60.0, "scopes": ["notes.read"]}
            assert await connections.store_renewal(ANN, row, KEY.secret, **renewed)
            assert await payloads() == ["end"]
            (row,) = await connections.of(ANN)
            await connections.fail_renewal(row, "later", over=False)
            assert await payloads() == ["end"]
            await connections.fail_renewal(row, "over", over=True)
            assert await payloads() == ["connections", "end"]
