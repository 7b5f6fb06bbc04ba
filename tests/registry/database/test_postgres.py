"""Reaching, checking and listening to a real database that fails in the ways databases do."""

import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import msgspec
import psycopg
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream
from psycopg import IsolationLevel
from psycopg.errors import LockNotAvailable

from config.settings import DatabaseSettings as Settings
from registry.database import postgres
from registry.database.embedded_server import DatabaseError, Embedded
from registry.database.postgres import RESYNC, Database, Notice, borrow
from tests.fixtures_database import Cluster, settings_for

pytestmark = pytest.mark.anyio

NOWHERE = "postgresql://gateway:s3cret@127.0.0.1:1/registry"


def at(settings: Settings, url: str) -> Settings:
    return msgspec.structs.replace(settings, url=url)


@asynccontextmanager
async def listening(
    database: Database, lost: Callable[[Exception], None] = lambda _error: None
) -> AsyncIterator[MemoryObjectReceiveStream[Notice]]:
    """What comes on channel `test`, as it comes."""
    send, receive = anyio.create_memory_object_stream[Notice](100)
    async with send, receive, anyio.create_task_group() as tasks:
        tasks.start_soon(database.listen, "test", send.send, lost)
        with anyio.fail_after(30):
            yield receive
        tasks.cancel_scope.cancel()


async def end_other_connections(database: Database) -> None:
    async with database.connect() as connection:
        await connection.execute(
            "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


async def test_embedded_is_started_for_us_and_stopped_after_us(scratch: Path) -> None:
    settings = settings_for(scratch / "embedded")
    async with Database.open(settings) as database:
        assert await database.alive()
        assert (scratch / "embedded/postgres-18/postmaster.pid").exists()
    assert not (scratch / "embedded/postgres-18/postmaster.pid").exists()


async def test_an_unreachable_database_is_an_error_where_nobody_waits(
    database_settings: Settings,
) -> None:
    with pytest.raises(DatabaseError, match=r"cannot reach the database: .*database\.url") as error:
        async with Database.open(at(database_settings, NOWHERE), wait=False):
            pass
    assert "s3cret" not in str(error.value)


async def test_an_unreachable_database_is_waited_for_and_each_attempt_says_why(
    scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_for(scratch / "late")
    embedded = await anyio.to_thread.run_sync(Embedded.start, settings)
    await anyio.to_thread.run_sync(embedded.stop)
    refused = anyio.Event()
    watcher = logging.Handler()
    watcher.emit = lambda record: refused.set()  # type: ignore[method-assign]
    logging.getLogger("toolgate.database").addHandler(watcher)

    async def start() -> None:
        await refused.wait()
        await anyio.to_thread.run_sync(embedded.ensure)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            async with Database.open(at(settings, embedded.url)) as database:
                assert await database.alive()
    logging.getLogger("toolgate.database").removeHandler(watcher)
    joined = await anyio.to_thread.run_sync(Embedded.start, settings)
    await anyio.to_thread.run_sync(joined.stop)
    attempts = [record for record in caplog.records if record.message == "database_unreachable"]
    assert "No such file or directory" in attempts[0].__dict__["reason"]
    assert attempts[0].__dict__["retry_s"] == 0.2


async def test_a_url_that_cannot_be_read_is_not_repeated(database_settings: Settings) -> None:
    with pytest.raises(DatabaseError, match=r"database\.url is neither") as error:
        async with Database.open(at(database_settings, "postgresql://me:s3cret@[::1/db")):
            pass
    assert "s3cret" not in str(error.value)
    assert error.value.__cause__ is None


async def test_an_old_server_is_refused(
    database_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "SERVER_NEEDED", 190000)
    with pytest.raises(DatabaseError, match=r"PostgreSQL 16 or newer is needed; .* 18\."):
        async with Database.open(database_settings):
            pass


async def test_an_old_pgvector_is_refused(
    database_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "VECTOR_NEEDED", (0, 99))
    with pytest.raises(DatabaseError, match=r"has 0\.8\.\d+: .*ALTER EXTENSION vector UPDATE"):
        async with Database.open(database_settings):
            pass


@pytest.mark.parametrize(
    ("version", "number"), [("0.8", (0, 8, 0)), ("0.8.4", (0, 8, 4)), ("0.10.1-dev", (0, 10, 1))]
)
def test_versions_are_compared_in_all_their_parts(version: str, number: tuple[int, ...]) -> None:
    assert postgres._version(version) == number


async def test_a_server_without_pgvector_is_refused(
    empty_settings: Settings, cluster: Cluster
) -> None:
    name = psycopg.conninfo.conninfo_to_dict(empty_settings.url)["dbname"]
    cluster.execute(f"ALTER DATABASE {name} SET extension_control_path = '/nowhere'")
    with pytest.raises(DatabaseError, match="lacks pgvector"):
        async with Database.open(empty_settings):
            pass


async def test_pooled_connections_that_were_cut_are_replaced(database: Database) -> None:
    async with database.pool.connection() as first, database.pool.connection() as second:
        await first.execute("SELECT 1")
        await second.execute("SELECT 1")
    await end_other_connections(database)
    assert await database.alive()


async def test_a_wait_for_a_lock_ends_and_a_slow_statement_goes_on(
    database_settings: Settings,
) -> None:
    bounded = msgspec.structs.replace(database_settings, lock_timeout_s=0.1)
    async with Database.open(bounded, wait=False) as database:
        async with database.connect() as holder, holder.transaction():
            await holder.execute("LOCK TABLE tool_t IN ACCESS EXCLUSIVE MODE")
            with anyio.fail_after(5), pytest.raises(LockNotAvailable):
                async with borrow(database.pool) as connection:
                    await connection.execute("SELECT count(*) FROM tool_t")
        async with borrow(database.pool) as connection:
            await connection.execute("SELECT pg_sleep(0.3)")


async def test_the_longest_bound_of_locks_that_settings_allow_is_taken(
    database_settings: Settings,
) -> None:
    a_year = msgspec.structs.replace(database_settings, lock_timeout_s=31_536_000.0)
    async with Database.open(a_year, wait=False) as database:
        assert await database.alive()


async def test_an_isolation_level_is_not_lent_out_with_its_connection(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut_off() -> None:
        raise KeyError

    level = IsolationLevel.REPEATABLE_READ
    async with borrow(database.pool, level) as connection:
        shown = await (await connection.execute("SHOW transaction_isolation")).fetchone()
    assert shown == ("repeatable read",)
    assert (connection.isolation_level, connection.closed) == (None, False)
    lent = None
    with suppress(KeyError):
        async with borrow(database.pool, level) as lent:
            await lent.execute("SELECT")
            monkeypatch.setattr(lent, "commit", cut_off)  # its transaction stays open
    assert lent is not None
    assert lent.closed


async def test_a_listener_resyncs_first_and_then_receives_notifications(
    database: Database,
) -> None:
    async with listening(database) as notices:
        assert await notices.receive() is RESYNC
        async with database.pool.connection() as connection:
            await connection.execute("NOTIFY test, 'one'; NOTIFY test, 'two'; NOTIFY other, 'x'")
        assert [await notices.receive(), await notices.receive()] == ["one", "two"]


async def test_a_listener_that_was_cut_off_reads_everything_again(database: Database) -> None:
    losses: list[Exception] = []
    async with listening(database, losses.append) as notices:
        assert await notices.receive() is RESYNC
        await end_other_connections(database)
        assert await notices.receive() is RESYNC
        assert len(losses) == 1
        async with database.pool.connection() as connection:
            await connection.execute("NOTIFY test, 'after'")
        assert await notices.receive() == "after"


async def test_a_silent_listener_is_asked_for_a_sign_of_life(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "CHECK_S", 0.01)
    async with listening(database) as notices:
        assert await notices.receive() is RESYNC
        with anyio.fail_after(20):
            async with database.connect() as connection:
                while not await is_asked(connection):
                    pass
            await connection.close()
        async with database.pool.connection() as connection:
            await connection.execute("NOTIFY test, 'still there'")
        assert await notices.receive() == "still there"


async def is_asked(connection: psycopg.AsyncConnection) -> bool:
    found = await connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE query = %s AND datname = current_database()",
        [postgres.HAS_VECTOR],
    )
    return await found.fetchone() != (0,)


async def test_a_handler_that_fails_on_the_database_is_asked_again(database: Database) -> None:
    heard: list[Notice] = []
    done = anyio.Event()

    async def handle(notice: Notice) -> None:
        heard.append(notice)
        if len(heard) == 1:
            raise psycopg.OperationalError("the reload failed")
        done.set()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(database.listen, "test", handle)
            await done.wait()
            tasks.cancel_scope.cancel()
    assert heard == [RESYNC, RESYNC]


async def test_a_listener_starts_the_embedded_server_again(scratch: Path) -> None:
    settings = settings_for(scratch / "killed")
    async with Database.open(settings) as database, listening(database) as notices:
        assert await notices.receive() is RESYNC
        pid_file = scratch / "killed/postgres-18/postmaster.pid"
        os.kill(int(pid_file.read_text().partition("\n")[0]), signal.SIGKILL)
        assert await notices.receive() is RESYNC
        assert await database.alive()


async def test_a_stopped_database_is_not_alive(scratch: Path) -> None:
    settings = msgspec.structs.replace(settings_for(scratch / "down"), connect_timeout_s=0.5)
    embedded = await anyio.to_thread.run_sync(Embedded.start, settings)
    async with Database.open(at(settings, embedded.url)) as database:
        assert await database.alive()
        await anyio.to_thread.run_sync(embedded.stop)
        assert not await database.alive()
        await anyio.to_thread.run_sync(embedded.ensure)
        assert await database.alive()
    last = await anyio.to_thread.run_sync(Embedded.start, settings)
    await anyio.to_thread.run_sync(last.stop)


def test_pauses_grow_to_the_longest() -> None:
    delays = postgres._delays(1.0)
    assert [next(delays) for _ in range(5)] == [0.2, 0.4, 0.8, 1.0, 1.0]
