"""Places in fair turns of tenants and owners."""

import anyio
import pytest

from registry.database.fair_limiter import FairLimiter

pytestmark = pytest.mark.anyio


async def order_of_turns(limiter: FairLimiter, callers: list[tuple[str, str]]) -> list[str]:
    """The order in which callers get a place that is taken while they come."""
    order: list[str] = []

    async def take(tenant: str, owner: str) -> None:
        async with limiter.turn(tenant, owner):
            order.append(f"{tenant}{owner}")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks, limiter.turn("z", "z"):
            for caller in callers:
                tasks.start_soon(take, *caller)
            await anyio.wait_all_tasks_blocked()
    return order


async def test_tenants_take_turns_then_their_owners() -> None:
    """A burst of one tenant leaves others their turns (mending 4, 5)."""
    burst = [("a", "1")] * 3 + [("a", "2")] * 2
    order = await order_of_turns(FairLimiter(1), [*burst, ("b", "3"), ("b", "3")])
    assert order == ["a1", "b3", "a2", "b3", "a1", "a2", "a1"]


async def test_as_many_run_as_there_are_places() -> None:
    limiter, running, most = FairLimiter(2), 0, 0

    async def work() -> None:
        nonlocal running, most
        async with limiter.turn("a", "1"):
            running += 1
            most = max(most, running)
            await anyio.lowlevel.checkpoint()
            running -= 1

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(work)
    assert (most, running) == (2, 0)


async def test_tenants_and_owners_hold_no_more_than_their_places() -> None:
    """The places that are left go to others, who need not wait."""
    limiter = FairLimiter(4, of_tenant=3, of_owner=2)
    done = anyio.Event()
    begun: list[str] = []

    async def take(tenant: str, owner: str) -> None:
        async with limiter.turn(tenant, owner):
            begun.append(f"{tenant}{owner}")
            await done.wait()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for caller in [("a", "1")] * 5 + [("a", "2")] * 5 + [("b", "3")] * 2:
                tasks.start_soon(take, *caller)
            await anyio.wait_all_tasks_blocked()
            assert begun == ["a1", "a1", "a2", "b3"]
            shortages = [limiter.shortage("a", "1"), limiter.shortage("a", "2")]
            assert [*shortages, limiter.shortage("b", "3")] == ["owner", "tenant", "all"]
            done.set()
    assert len(begun) == 12


@pytest.mark.parametrize("leave", ["while waiting", "when called"])
async def test_callers_that_leave_give_up_their_place(leave: str) -> None:
    limiter = FairLimiter(1)
    scopes: list[anyio.CancelScope] = []

    async def take() -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            async with limiter.turn("a", "1"):
                await anyio.sleep_forever()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            async with limiter.turn("b", "1"):
                tasks.start_soon(take)
                await anyio.wait_all_tasks_blocked()
                if leave == "while waiting":
                    scopes[0].cancel()
            scopes[0].cancel()  # has the place, or has left
        async with limiter.turn("c", "1"):
            pass


async def test_a_tenant_and_an_owner_without_a_place_have_a_reserve() -> None:
    """Nobody waits for the end of long work that others began (mending 5)."""
    limiter, running = FairLimiter(2, reserve=True), list[str]()

    async def work(tenant: str, owner: str) -> None:
        async with limiter.turn(tenant, owner):
            running.append(f"{tenant}{owner}")
            await anyio.sleep_forever()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            callers = [*[("a", "1")] * 5, ("a", "2"), ("a", "3"), ("b", "1"), ("b", "2")]
            for caller in callers:
                tasks.start_soon(work, *caller)
                await anyio.wait_all_tasks_blocked()
            assert running == ["a1", "a1", "a2", "b1"]
            tasks.cancel_scope.cancel()
    assert limiter._held == {}
    assert limiter._waiting == {}


async def test_a_freed_place_wakes_every_waiter_entitled_to_a_place() -> None:
    """A tenant whose last place ends has its reserve again, also behind others (mending 10)."""
    limiter, running, ends = FairLimiter(1, reserve=True), list[str](), anyio.Event()

    async def work(owner: tuple[str, str], end: anyio.Event) -> None:
        async with limiter.turn(*owner):
            running.append("".join(owner))
            await end.wait()

    never = anyio.Event()
    callers = [("a", "1"), ("b", "1"), ("b", "2"), ("a", "1")]
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for number, caller in enumerate(callers):
                tasks.start_soon(work, caller, never if number else ends)
                await anyio.wait_all_tasks_blocked()
            assert running == ["a1", "b1"]
            ends.set()
            await anyio.wait_all_tasks_blocked()
            assert running == ["a1", "b1", "b2", "a1"]
            tasks.cancel_scope.cancel()
    assert limiter._held == {}
