"""Actions in Python that take their time, and clients that do not wait for them."""

import asyncio
import threading
import time
from functools import partial
from typing import Any

import anyio
import pytest

from gateway.hybrid.python_services import Handler, Service
from gateway.upstreams.python import ActionLimits, PythonUpstream
from schemas.binding import PythonBinding
from schemas.hybrid import StatusFault
from schemas.tool import TextContent, ToolResult
from tests.gateway.upstreams.python_calls import ID, Keys, call_arguments, tool, upstream_of

pytestmark = pytest.mark.anyio

LATE = "HTTP 504 ERR18504 UPSTREAM_TIMEOUT"


@pytest.mark.parametrize("side", ["query", "command"])
async def test_an_action_that_takes_too_long_is_stopped(side: str) -> None:
    stopped = asyncio.Event()

    async def slow(_data: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    upstream = upstream_of(Handler(slow, takes_call=False, is_async=True), timeout_s=0.01)
    with anyio.fail_after(30):
        result = await upstream.call(*call_arguments(side=side))
        await stopped.wait()
    assert result.content[0].text.startswith(LATE)
    assert b'"status":504' in bytes(result.structured_content)


async def test_a_command_that_was_stopped_is_not_done_again_under_its_key() -> None:
    async def slow(_data: Any) -> None:
        await asyncio.Event().wait()

    keys = Keys()
    upstream = upstream_of(Handler(slow, False, True), keys.once, timeout_s=0.01)
    with anyio.fail_after(30):
        await upstream.call(*call_arguments("k", side="command"))
        await upstream.finishing.settle(time.monotonic() + 30)
    assert keys.kept[0].content[0].text.startswith(LATE)


async def test_a_thread_that_takes_too_long_goes_on_and_its_result_is_kept() -> None:
    release = threading.Event()

    def slow(_data: Any) -> str:
        release.wait(30)
        return "done"

    keys = Keys()
    upstream = upstream_of(Handler(slow, False, False), keys.once, timeout_s=0.01)
    with anyio.fail_after(30):
        late = await upstream.call(*call_arguments("k", side="command"))
        assert late.content[0].text.startswith(LATE)
        assert keys.kept == []
        release.set()
        await upstream.finishing.settle(time.monotonic() + 30)
    assert keys.kept == [ToolResult((TextContent("done"),))]


async def test_waiting_for_a_thread_counts_as_time() -> None:
    release = threading.Event()
    slow = Handler(lambda _data: release.wait(30), False, False)
    upstream = upstream_of(slow, threads=1, timeout_s=0.01)
    with anyio.fail_after(30):
        results = [await upstream.call(*call_arguments()) for _ in range(2)]
        release.set()
        await upstream.finishing.settle(time.monotonic() + 30)
    assert [one.content[0].text.startswith(LATE) for one in results] == [True, True]


async def test_each_source_has_its_own_time() -> None:
    async def slow(_data: Any) -> None:
        await asyncio.Event().wait()

    service = Service("x", (), {ID: Handler(slow, False, True)})
    times = {"rules": 600.0, "hasty": 0.01}
    limits = ActionLimits(times.__getitem__, threads=1, calls=1)
    upstream = PythonUpstream(dict.fromkeys(times, service), Keys().once, limits)
    _, _, data, context = call_arguments()
    with anyio.fail_after(30):
        hasty = tool(PythonBinding(ID, side="query"), "hasty")
        late = await upstream.call(hasty, None, data, context)
    assert late.content[0].text == f"{LATE}: The action did not answer within 0.01 s"


async def test_a_query_ends_with_its_client() -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def waits(_data: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    upstream = upstream_of(Handler(waits, False, True))
    with anyio.fail_after(30):
        client = asyncio.create_task(upstream.call(*call_arguments(side="query")))
        await begun.wait()
        client.cancel()
        with pytest.raises(asyncio.CancelledError):
            await client
        await stopped.wait()


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_command_ends_although_its_client_has_gone(is_async: bool) -> None:
    begun, release, done = threading.Event(), threading.Event(), threading.Event()

    def work(_data: Any) -> None:
        begun.set()
        release.wait(30)
        done.set()

    async def work_async(_data: Any) -> None:
        begun.set()
        await anyio.to_thread.run_sync(release.wait, 30)
        done.set()

    upstream = upstream_of(Handler(work_async if is_async else work, False, is_async))
    with anyio.fail_after(30):
        client = asyncio.create_task(upstream.call(*call_arguments(side="command")))
        await anyio.to_thread.run_sync(begun.wait)
        client.cancel()
        with pytest.raises(asyncio.CancelledError):
            await client
        assert not done.is_set()
        release.set()
        await upstream.finishing.settle(time.monotonic() + 30)
    assert done.is_set()


async def test_timed_out_threads_count_until_done_and_calls_are_bounded() -> None:
    release, running = threading.Event(), threading.Semaphore(0)

    def work(_data: Any) -> None:
        running.release()
        release.wait(30)

    upstream = upstream_of(Handler(work, False, False), threads=1, calls=2)
    with anyio.fail_after(30):
        clients = [asyncio.create_task(upstream.call(*call_arguments())) for _ in range(2)]
        await anyio.to_thread.run_sync(running.acquire)
        for client in clients:
            client.cancel()
        await asyncio.wait(clients)
        await anyio.wait_all_tasks_blocked()
        second = await anyio.to_thread.run_sync(partial(running.acquire, timeout=0.1))
        assert not second  # it waits for the first's thread
        with pytest.raises(StatusFault) as refused:
            await upstream.call(*call_arguments())
        assert refused.value.status == 503
        release.set()
        await upstream.finishing.settle(time.monotonic() + 30)
        assert running.acquire(blocking=False)
        assert not (await upstream.call(*call_arguments())).is_error
