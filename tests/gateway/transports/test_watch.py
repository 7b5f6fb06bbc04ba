"""Who is still there: a client that leaves cancels what runs for it."""

import asyncio

import anyio
import pytest

from gateway.transports.client_connection import DisconnectWatch, KeepAliveTimer, send_all
from gateway.transports.http_messages import Responder
from tests.gateway.asgi import DISCONNECT, Wire, part

pytestmark = pytest.mark.anyio


async def serve(wire, work, timer=None):
    """A request whose answer is what `work` gives; None when its client left."""
    with DisconnectWatch(wire.receive, timer):
        return await work
    return None


async def start_watch(wire, work):
    running = asyncio.create_task(serve(wire, work))
    with anyio.fail_after(30):
        while wire.reading == 0:
            await anyio.lowlevel.checkpoint()
    return running


async def test_a_leaving_client_cancels_its_work():
    wire, stopped = Wire(), asyncio.Event()

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    running = await start_watch(wire, work())
    wire.arrive(DISCONNECT)
    with anyio.fail_after(30):
        assert await running is None
    assert stopped.is_set()
    assert not running.cancelled()  # it just ended
    assert running.cancelling() == 0


async def test_a_client_that_stays_gets_its_answer():
    wire, go = Wire(), asyncio.Event()

    async def work():
        await go.wait()
        return "answer"

    running = await start_watch(wire, work())
    go.set()
    assert await running == "answer"
    await anyio.wait_all_tasks_blocked()
    assert wire.reading == 0  # nobody watches any more


async def test_short_work_is_not_watched():
    wire = Wire()

    async def work():
        await anyio.lowlevel.checkpoint()
        return "answer"

    assert await serve(wire, work(), KeepAliveTimer(60)) == "answer"
    assert wire.reading == 0


async def test_long_work_is_watched_once():
    wire, timer = Wire(), KeepAliveTimer(0.003)
    with anyio.fail_after(30):
        running = asyncio.create_task(serve(wire, asyncio.Event().wait(), timer))
        while wire.reading == 0:
            await anyio.lowlevel.checkpoint()
        await anyio.sleep(0.01)  # further turns of the timer
        assert wire.reading == 1
        wire.arrive(DISCONNECT)
        assert await running is None


async def test_more_of_the_request_is_not_the_end():
    wire, go = Wire(), asyncio.Event()

    async def work():
        await go.wait()
        return "answer"

    running = await start_watch(wire, work())
    wire.arrive(part(b""), part(b""))
    await anyio.wait_all_tasks_blocked()
    go.set()
    assert await running == "answer"


async def test_an_error_passes_through():
    wire, go = Wire(), asyncio.Event()

    async def work():
        await go.wait()
        raise KeyError

    running = await start_watch(wire, work())
    go.set()
    with pytest.raises(KeyError):
        await running
    await anyio.wait_all_tasks_blocked()
    assert wire.reading == 0


async def test_a_server_that_stops_cancels_for_good():
    wire = Wire()
    running = await start_watch(wire, asyncio.Event().wait())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await anyio.wait_all_tasks_blocked()
    assert wire.reading == 0


async def test_a_server_that_stops_wins_over_a_client_that_leaves():
    wire = Wire()
    running = await start_watch(wire, asyncio.Event().wait())
    wire.arrive(DISCONNECT)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("left_first", [True, False])
async def test_a_client_that_leaves_just_as_its_answer_is_there(left_first):
    wire, go = Wire(), asyncio.Event()

    async def work():
        await go.wait()
        return "answer"

    running = await start_watch(wire, work())
    happens = [lambda: wire.arrive(DISCONNECT), go.set]
    for happen in happens if left_first else reversed(happens):
        happen()
    await running
    assert running.result() == (None if left_first else "answer")
    await anyio.wait_all_tasks_blocked()
    assert running.cancelling() == 0
    assert wire.reading == 0


async def test_a_client_that_is_not_worth_waiting_for_is_as_good_as_gone():
    wire = Wire()
    with anyio.fail_after(30), DisconnectWatch(wire.receive) as watch:
        asyncio.get_running_loop().call_soon(watch.give_up)
        asyncio.get_running_loop().call_soon(watch.give_up)  # twice does no more
        await asyncio.Event().wait()
    assert watch.gone
    assert asyncio.current_task().cancelling() == 0
    watch.give_up()  # what is over is left alone
    await anyio.lowlevel.checkpoint()


async def test_a_stream_ends_though_its_task_missed_that_the_client_left():
    wire, waiting = Wire(), asyncio.Event()

    async def chunks():
        yield b"1"
        try:
            waiting.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:  # as asyncio.wait_for may do in Python 3.11
            yield b"2"
        raise AssertionError

    async def stream():
        responder = Responder(wire.send)
        await responder.stream()
        with DisconnectWatch(wire.receive) as watch:
            await send_all(responder, chunks(), watch)

    running = asyncio.create_task(stream())
    with anyio.fail_after(30):
        await waiting.wait()
        wire.arrive(DISCONNECT)
        await running
    assert wire.body == b"1"


async def test_many_requests_leave_nothing_behind():
    before = asyncio.all_tasks()
    wires = [Wire() for _ in range(100)]
    running = [await start_watch(wire, asyncio.Event().wait()) for wire in wires]
    for wire in wires:
        wire.arrive(DISCONNECT)
    with anyio.fail_after(30):
        assert await asyncio.gather(*running) == [None] * 100
    await anyio.wait_all_tasks_blocked()
    assert asyncio.all_tasks() <= before
