import asyncio

import anyio
import pytest

from gateway.http.deadline import Deadline

pytestmark = pytest.mark.anyio

FOREVER_S = 60


async def forever(seconds):
    with Deadline(seconds):
        await asyncio.Event().wait()


async def test_what_takes_too_long_is_a_timeout():
    with anyio.fail_after(30), pytest.raises(TimeoutError):
        await forever(0.001)
    assert asyncio.current_task().cancelling() == 0  # and the task goes on


async def test_what_is_done_in_time_is_left_alone():
    with Deadline(FOREVER_S):
        await anyio.lowlevel.checkpoint()
    with pytest.raises(KeyError), Deadline(FOREVER_S):
        raise KeyError


async def test_nothing_fires_after_the_block():
    with Deadline(0):
        pass
    await anyio.wait_all_tasks_blocked()
    assert asyncio.current_task().cancelling() == 0


async def test_cancellation_by_somebody_else_stays_one():
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


async def test_an_error_on_the_way_out_is_the_one_that_is_seen():
    async def clumsy():
        with Deadline(0.001):
            try:
                await asyncio.Event().wait()
            finally:
                raise KeyError

    with anyio.fail_after(30), pytest.raises(KeyError):
        await clumsy()
    assert asyncio.current_task().cancelling() == 0
