"""The wait for one of several."""

import asyncio

import pytest

from gateway.state.background_tasks import wait_for_first

pytestmark = pytest.mark.anyio


async def test_coroutines_that_have_not_ended_are_cancelled_and_futures_go_on():
    cancelled, entered = asyncio.Event(), asyncio.Event()

    async def wait_forever():
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    future = asyncio.get_running_loop().create_future()
    await wait_for_first(future, wait_forever(), entered.wait())
    async with asyncio.timeout(5):
        await cancelled.wait()
    assert not future.done()


async def test_a_cancelled_wait_cancels_its_coroutines():
    event = asyncio.Event()
    future = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(wait_for_first(future, event.wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert not future.done()
    assert [task for task in asyncio.all_tasks() if "Event.wait" in repr(task)] == []
