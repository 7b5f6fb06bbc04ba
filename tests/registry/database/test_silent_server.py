"""A server that accepts connections and statements, and answers none of them."""

import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import psycopg
import pytest
from msgspec.structs import replace
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import ConnectionTimeout

from config.settings import DatabaseSettings as Settings
from registry.database import postgres
from registry.database.postgres import RESYNC, Database, borrow
from registry.database.silent_server import BoundedConnection, ServerProbe
from tests import polling
from tests.servers.freezing import SOCKET, FreezingRelay, freezing

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def open_relayed(
    settings: Settings, directory: Path
) -> AsyncIterator[tuple[Database, FreezingRelay]]:
    """The database, reached through a relay."""
    async with (
        freezing(settings, directory) as (through, relay),
        Database.open(through, wait=False) as database,
    ):
        yield database, relay


async def test_statements_fail_while_their_server_is_frozen(
    database_settings: Settings, tmp_path: Path
) -> None:
    async with open_relayed(database_settings, tmp_path) as (database, relay):
        failures: list[psycopg.OperationalError] = []

        async def wait_for_an_answer(begun: anyio.Event) -> None:
            try:
                async with borrow(database.pool) as connection:
                    begun.set()
                    await connection.execute("SELECT pg_sleep(300)")
            except psycopg.OperationalError as error:
                failures.append(error)

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    begun = anyio.Event()
                    tasks.start_soon(wait_for_an_answer, begun)
                    await begun.wait()
                accepted = relay.accepted
                relay.freeze()
        assert len(failures) == 5
        assert "the server has not answered for 0.2 s" in str(failures[0])
        assert relay.accepted - accepted <= 1 + 5  # one asks for all; the pool replaces five
        relay.thaw()
        assert await polling.until(database.alive)


async def test_a_slow_statement_of_a_living_server_goes_on(
    database_settings: Settings, tmp_path: Path
) -> None:
    async with open_relayed(database_settings, tmp_path) as (database, relay):
        async with borrow(database.pool) as connection:
            rows = await connection.execute("SELECT 1 FROM pg_sleep(1)")
            assert await rows.fetchone() == (1,)
            large = await connection.execute("SELECT repeat('x', 1000000), pg_sleep(0.5)")
            assert (await large.fetchall())[0][0] == "x" * 1000000
        assert relay.accepted > 2  # it was asked


async def test_a_large_statement_goes_on_when_a_stalled_server_reads_again(
    database_settings: Settings, tmp_path: Path
) -> None:
    async with freezing(database_settings, tmp_path) as (through, relay):

        async def thaw() -> bool:
            relay.thaw()
            return True

        connection = await BoundedConnection.connect(through.url, autocommit=True)
        connection.answer_timeout_s = 0.2
        connection.is_answered = thaw
        relay.freeze()
        with anyio.fail_after(30):
            rows = await connection.execute("SELECT length(%s)", ["x" * 5_000_000])
            assert await rows.fetchone() == (5_000_000,)
        await connection.close()


async def test_the_host_of_the_statement_is_asked(
    database_settings: Settings, tmp_path: Path
) -> None:
    """The first of two hosts refuses, and later accepts connections without an answer."""
    host = conninfo_to_dict(database_settings.url)["host"]
    url = make_conninfo(database_settings.url, host=f"{tmp_path},{host}")
    settings = replace(database_settings, url=url, answer_timeout_s=0.2, connect_timeout_s=1.0)
    async with (
        Database.open(settings, wait=False, migrate=False) as database,
        borrow(database.pool) as connection,
    ):
        await connection.execute("SELECT")
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(str(tmp_path / SOCKET))
            silent.listen()
            rows = await connection.execute("SELECT 1 FROM pg_sleep(1)")
            assert await rows.fetchone() == (1,)


@pytest.mark.parametrize(
    ("address", "is_answered"),
    [("127.0.0.1", True), ("127.255.255.255", False)],  # no TCP connection leads to a broadcast
    ids=["refused", "unreachable"],
)
async def test_an_unreachable_server_is_silent(address: str, is_answered: bool) -> None:
    probe = ServerProbe(f"host={address} port=1 dbname=test", timeout_s=10)
    assert await probe.is_answered() is is_answered


async def test_a_cancelled_statement_of_a_frozen_server_ends(
    database_settings: Settings, tmp_path: Path
) -> None:
    async with open_relayed(database_settings, tmp_path) as (database, relay):
        async with borrow(database.pool) as connection:
            await connection.execute("SELECT")
            relay.freeze()
            with anyio.fail_after(30), anyio.move_on_after(0.3) as scope:
                await connection.execute("SELECT")
            assert scope.cancelled_caught
            assert connection.closed
        relay.thaw()
        assert await polling.until(database.alive)


@pytest.mark.parametrize("is_checked", [True, False])
async def test_a_listener_detects_a_frozen_server(
    database_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_checked: bool
) -> None:
    """By its own check, or before that because a statement had no answer."""
    monkeypatch.setattr(postgres, "CHECK_S", 0.05 if is_checked else 600)
    async with open_relayed(database_settings, tmp_path) as (database, relay):
        send, receive = anyio.create_memory_object_stream[object](100)
        lost = anyio.Event()
        async with send, receive, anyio.create_task_group() as tasks:
            tasks.start_soon(database.listen, "test", send.send, lambda _error: lost.set())
            with anyio.fail_after(30):
                assert await receive.receive() is RESYNC
                async with postgres.autocommit(database.pool) as connection:
                    await connection.execute("SELECT")
                    relay.freeze()
                    if not is_checked:
                        with pytest.raises(psycopg.OperationalError):
                            await connection.execute("SELECT")
                await lost.wait()
                relay.thaw()
                assert await receive.receive() is RESYNC
            tasks.cancel_scope.cancel()


async def test_a_connection_that_was_not_made_in_time_is_closed_at_once(
    database_settings: Settings, tmp_path: Path
) -> None:
    """Else its backend stays when the server is back, until the garbage collector has found it."""
    async with freezing(database_settings, tmp_path) as (through, relay):
        relay.freeze()
        gc.disable()
        try:
            with pytest.raises(ConnectionTimeout):
                await BoundedConnection.connect(through.url, connect_timeout=2)
            relay.thaw()
            with anyio.fail_after(10):
                await polling.until(lambda: not relay.transports)
        finally:
            gc.enable()
