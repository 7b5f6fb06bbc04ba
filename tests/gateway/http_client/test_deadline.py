import asyncio

import anyio
import pytest

from gateway.http_client.deadline import Deadline, Deadlines

pytestmark = pytest.mark.anyio

FOREVER_S = 60


async def forever(seconds):
    with Deadline(seconds):
        await asyncio.Event().wait()


async def test_an_expired_deadline_raises_timeout():
    with anyio.fail_after(30), pytest.raises(TimeoutError):
        await forever(0.001)
    assert asyncio.current_task().cancelling() == 0  # and the task goes on


async def test_work_done_in_time_is_unaffected():
    with Deadline(FOREVER_S):
        await anyio.lowlevel.checkpoint()
    with pytest.raises(KeyError), Deadline(FOREVER_S):
        raise KeyError


async def test_nothing_fires_after_the_block():
    with Deadline(0):
        pass
    await anyio.wait_all_tasks_blocked()
    assert asyncio.current_task().cancelling() == 0


async def test_foreign_cancellation_stays_a_cancellation():
    waiting = asyncio.create_task(forever(FOREVER_S))
    await anyio.wait_all_tasks_blocked()
    waiting.cancel("by the client")
    with pytest.raises(asyncio.CancelledError) as caught:
        await waiting
    assert caught.value.args == ("by the client",)


async def test_the_inner_of_two_gives_up_first():
    with Deadline(FOREVER_S):
        with anyio.fail_after(30), pytest.raises(TimeoutError):
            await forever(0.001)
        await anyio.lowlevel.checkpoint()


async def test_the_outer_of_two_stops_the_inner():
    with anyio.fail_after(30), pytest.raises(TimeoutError), Deadline(0.001):
        await forever(FOREVER_S)
    assert asyncio.current_task().cancelling() == 0


async def test_an_error_during_cleanup_replaces_the_timeout():
    async def clumsy():
        with Deadline(0.001):
            try:
                await asyncio.Event().wait()
            finally:
                raise KeyError

    with anyio.fail_after(30), pytest.raises(KeyError):
        await clumsy()
    assert asyncio.current_task().cancelling() == 0


async def running(deadlines, work):
    """A call as `Client.forward` runs it."""
    call = deadlines.begin()
    try:
        return await work
    except asyncio.CancelledError as error:
        if call.expired and call.settle():
            raise TimeoutError from error
        raise
    finally:
        del deadlines.running[call]
        if call.expired:
            call.settle()


async def test_calls_of_one_source_expire_in_order():
    deadlines, ended = Deadlines(0.001), []

    async def wait(name):
        with pytest.raises(TimeoutError):
            await running(deadlines, asyncio.Event().wait())
        assert asyncio.current_task().cancelling() == 0
        ended.append(name)

    with anyio.fail_after(30):
        await running(deadlines, anyio.lowlevel.checkpoint())  # its timer serves the others
        for name in "ab":
            async with asyncio.TaskGroup() as group:
                group.create_task(wait(f"{name}1"))
                group.create_task(wait(f"{name}2"))
    assert ended == ["a1", "a2", "b1", "b2"]
    assert not deadlines.running


async def test_a_call_of_one_source_that_somebody_else_cancels_stays_cancelled():
    deadlines = Deadlines(FOREVER_S)
    waiting = asyncio.create_task(running(deadlines, asyncio.Event().wait()))
    await anyio.wait_all_tasks_blocked()
    waiting.cancel("by the client")
    with pytest.raises(asyncio.CancelledError) as caught:
        await waiting
    assert caught.value.args == ("by the client",)
    assert not deadlines.running


async def test_an_error_of_a_call_at_its_deadline_replaces_the_timeout():
    async def clumsy():
        try:
            await asyncio.Event().wait()
        finally:
            raise KeyError

    with anyio.fail_after(30), pytest.raises(KeyError):
        await running(Deadlines(0.001), clumsy())
    assert asyncio.current_task().cancelling() == 0
