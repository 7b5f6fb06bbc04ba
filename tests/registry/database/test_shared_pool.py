"""Connections of the pool, shared out among callers."""

from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest
from psycopg_pool import PoolTimeout

from config.settings import DatabaseSettings
from registry.database.postgres import Database, Pool, autocommit, borrow
from registry.database.shared_pool import Caller, borrow_for
from tests.polling import until
from tests.sharing import hold_turns

pytestmark = pytest.mark.anyio

ANN, BEN, EVE = ("tenant", "ann"), ("tenant", "ben"), ("other tenant", "eve")


class Holders:
    """Tasks that hold connections of a pool until `end` is set."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.end = anyio.Event()
        self.held: list[Caller] = []
        self.late: list[Caller] = []

    async def hold(self, caller: Caller) -> None:
        try:
            with borrow_for(caller):
                async with borrow(self._pool):
                    self.held.append(caller)
                    await self.end.wait()
        except PoolTimeout:
            self.late.append(caller)


async def test_many_requests_of_a_caller_leave_connections_to_other_callers(
    database_settings: DatabaseSettings,
) -> None:
    settings = msgspec.structs.replace(database_settings, pool_max=4)
    async with Database.open(settings, wait=False) as database:
        holders = Holders(database.pool)
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(holders.hold, ANN)
                await until(lambda: len(holders.held) == 3)
                async with borrow(database.pool):  # of the gateway itself
                    pass
                tasks.start_soon(holders.hold, BEN)
                await until(lambda: BEN in holders.held)
                assert holders.held.count(ANN) == 3
                holders.end.set()
        assert holders.held.count(ANN) == 20


async def test_the_next_connection_goes_to_the_next_caller(
    database_settings: DatabaseSettings,
) -> None:
    settings = msgspec.structs.replace(database_settings, pool_max=1)
    async with Database.open(settings, wait=False) as database:
        holders, first = Holders(database.pool), Holders(database.pool)
        holders.end.set()
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(first.hold, ANN)
                await until(lambda: first.held)
                for caller in (ANN, ANN, ANN, BEN, EVE):
                    tasks.start_soon(holders.hold, caller)
                await anyio.wait_all_tasks_blocked()
                first.end.set()
        assert holders.held == [ANN, EVE, BEN, ANN, ANN]


async def test_a_turn_that_does_not_come_ends_like_a_pool_without_connections(
    database_settings: DatabaseSettings,
) -> None:
    settings = msgspec.structs.replace(database_settings, pool_max=1, connect_timeout_s=0.5)
    async with Database.open(settings, wait=False) as database:
        holders = Holders(database.pool)
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(holders.hold, ANN)
                await until(lambda: len(holders.late) == 2)
                holders.end.set()
        assert (holders.held, holders.late) == ([ANN], [ANN, ANN])
        with borrow_for(ANN):
            async with borrow(database.pool):
                pass


async def test_requests_of_a_burst_wait_for_one_another_longer_than_for_a_connection(
    database_settings: DatabaseSettings,
) -> None:
    settings = msgspec.structs.replace(database_settings, pool_max=1, connect_timeout_s=0.5)
    served = 0
    async with Database.open(settings, wait=False) as database:

        async def work() -> None:
            nonlocal served
            with borrow_for(ANN):
                async with borrow(database.pool):
                    await anyio.sleep(0.3)
                    served += 1

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(work)
    assert served == 5


async def test_tasks_that_outlive_their_request_borrow_for_no_caller(
    database_settings: DatabaseSettings,
) -> None:
    """They copied its context when they were started, some of them for the life of the process."""
    settings = msgspec.structs.replace(database_settings, pool_max=4)
    async with Database.open(settings, wait=False) as database:
        holders, requested = Holders(database.pool), anyio.Event()
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:

                async def follow() -> None:
                    await requested.wait()
                    async with borrow(database.pool):
                        holders.end.set()

                with borrow_for(ANN):
                    tasks.start_soon(follow)
                    await anyio.wait_all_tasks_blocked()
                for _ in range(4):
                    tasks.start_soon(holders.hold, ANN)
                await until(lambda: len(holders.held) == 3)
                requested.set()
        assert holders.late == []


async def test_second_connections_of_requests_need_no_turn(
    database_settings: DatabaseSettings,
) -> None:
    """Else as many requests as one caller has turns wait for one another."""
    settings = msgspec.structs.replace(database_settings, pool_max=4, connect_timeout_s=1)
    async with Database.open(settings, wait=False) as database:
        holders = Holders(database.pool)
        seconds = 0

        async def hold_two() -> None:
            nonlocal seconds
            with borrow_for(ANN):
                async with borrow(database.pool):
                    holders.held.append(ANN)
                    await until(lambda: len(holders.held) >= 3)
                    async with borrow(database.pool):
                        seconds += 1

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for _ in range(9):
                    tasks.start_soon(hold_two)
        assert seconds == 9


@pytest.mark.parametrize("lend", [borrow, autocommit])
async def test_a_cancelled_request_waits_for_no_turn(
    database_settings: DatabaseSettings, lend: Callable[[Pool], Any]
) -> None:
    """Its client is gone, or its deadline is over; the turn goes to the next request."""
    settings = msgspec.structs.replace(database_settings, pool_max=4)
    async with (
        Database.open(settings, wait=False) as database,
        hold_turns(database.pool, ANN),
        anyio.create_task_group() as tasks,
    ):
        with borrow_for(ANN), anyio.fail_after(5):
            with anyio.move_on_after(0.2) as waited:
                async with lend(database.pool):
                    pytest.fail("a turn beyond the caller's share")
            assert waited.cancelled_caught
        holders = Holders(database.pool)
        tasks.start_soon(holders.hold, BEN)
        await until(lambda: holders.held)
        holders.end.set()
