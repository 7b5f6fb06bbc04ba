"""Work of which one run at a time is enough."""

import anyio
import pytest

from registry.catalog.feed import SingleFlight

pytestmark = pytest.mark.anyio


class Work:
    """Runs until told to go on; counts."""

    def __init__(self) -> None:
        self.runs = 0
        self.at_once = 0
        self.most_at_once = 0
        self.go = anyio.Event()

    async def __call__(self) -> None:
        self.runs += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.go.wait()
        finally:
            self.at_once -= 1


async def test_callers_during_a_run_share_the_next_run() -> None:
    flights, work = SingleFlight(), Work()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(flights.run, work)
            await anyio.wait_all_tasks_blocked()
            assert work.runs == 1
            work.go.set()
    assert (work.runs, work.most_at_once) == (2, 1)
    await flights.run(work)
    assert work.runs == 3


async def test_a_cancelled_waiter_does_not_prevent_the_run() -> None:
    flights, work = SingleFlight(), Work()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flights.run, work)
            await anyio.wait_all_tasks_blocked()
            async with anyio.create_task_group() as impatient:
                impatient.start_soon(flights.run, work)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(flights.run, work)
                await anyio.wait_all_tasks_blocked()
                impatient.cancel_scope.cancel()
            work.go.set()
    assert work.runs == 2


async def test_a_run_that_was_cancelled_counts_for_nobody() -> None:
    flights, work = SingleFlight(), Work()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as first:
                first.start_soon(flights.run, work)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(flights.run, work)
                await anyio.wait_all_tasks_blocked()
                first.cancel_scope.cancel()
            work.go.set()
    assert work.runs == 2


async def test_a_failed_run_raises_for_its_starter_and_is_not_repeated_for_all() -> None:
    flights, runs = SingleFlight(), 0
    go = anyio.Event()

    async def fail() -> None:
        nonlocal runs
        runs += 1
        await go.wait()
        raise RuntimeError(str(runs))

    async def expect_failure() -> None:
        with pytest.raises(RuntimeError, match="1"):
            await flights.run(fail)

    async def second() -> None:
        try:
            await flights.run(fail)
        except RuntimeError as error:
            assert str(error) == "2"  # noqa: PT017 - only one of them begins a run

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(expect_failure)
            await anyio.wait_all_tasks_blocked()
            for _ in range(5):
                tasks.start_soon(second)
            await anyio.wait_all_tasks_blocked()
            go.set()
    assert runs == 2
