"""Requests of a session, and how they are taken back."""

import asyncio

import anyio
import pytest
from msgspec import Raw

from gateway.context import CANCELLED_BY_CLIENT
from gateway.protocol.batches import Batches, BatchLimits, member_server
from gateway.protocol.cancellable_requests import run_cancellable
from gateway.protocol.dispatcher import Dispatcher, Method
from schemas.jsonrpc import Reply
from schemas.mcp.revisions import V2025_03_26, V2025_06_18
from tests.gateway.protocol.conftest import context, notification, request, session

pytestmark = pytest.mark.anyio


@pytest.fixture
def of_session():
    return session(V2025_06_18)


def start(verbs, of_session, message):
    around = context(V2025_06_18, of_session)
    run = run_cancellable(verbs.dispatcher(), around, of_session, message)
    return asyncio.create_task(run)


async def wait_for_holders(verbs, count=1):
    with anyio.fail_after(30):
        for _ in range(count):
            await verbs.holding.acquire()


async def test_a_running_request_is_registered_in_its_session_until_done(verbs, of_session):
    running = start(verbs, of_session, request("hold", id_=7))
    await wait_for_holders(verbs)
    assert list(of_session.running) == [7]
    verbs.release.set()
    assert await running == Reply(7, Raw(b'"held"'))
    assert of_session.running == {}


async def test_a_request_taken_back_stops_and_is_not_answered(verbs, of_session):
    running = start(verbs, of_session, request("hold", id_="a"))
    await wait_for_holders(verbs)
    assert of_session.cancel("a") is True
    assert await running is None
    assert verbs.stopped == 1
    assert running.cancelling() == 0  # the task itself goes on as if nothing had been
    assert of_session.running == {}


@pytest.mark.parametrize("other", ["1", 2, ""])
async def test_only_the_request_that_is_named_is_taken_back(verbs, of_session, other):
    running = start(verbs, of_session, request("hold", id_=1))
    await wait_for_holders(verbs)
    assert of_session.cancel(other) is False
    verbs.release.set()
    assert await running == Reply(1, Raw(b'"held"'))


async def test_a_request_that_has_ended_cannot_be_taken_back(verbs, of_session):
    await start(verbs, of_session, request("sum", [], 1))
    assert of_session.cancel(1) is False


async def test_ending_the_session_stops_all_that_runs(verbs, of_session):
    running = [start(verbs, of_session, request("hold", id_=id_)) for id_ in (1, "1", 2)]
    await wait_for_holders(verbs, 3)
    of_session.end()
    assert await asyncio.gather(*running) == [None, None, None]
    assert of_session.outbox.closed


async def test_cancellation_by_anybody_else_passes_through(verbs, of_session):
    running = start(verbs, of_session, request("hold", id_=1))
    await wait_for_holders(verbs)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert of_session.running == {}


async def test_an_id_cannot_run_twice_at_a_time(verbs, of_session):
    first = start(verbs, of_session, request("hold", id_=1))
    await wait_for_holders(verbs)
    second = await start(verbs, of_session, request("sum", [1], 1))
    assert second.error.code == -32600
    assert "already running" in second.error.message
    assert list(of_session.running) == [1]  # the first one still is
    verbs.release.set()
    assert (await first).id == 1
    assert await start(verbs, of_session, request("sum", [1], 1)) == Reply(1, Raw(b"1"))


async def test_initialize_cannot_be_taken_back(verbs, of_session):
    methods = {"initialize": Method(verbs.hold, lambda _revision: True)}
    around = context(V2025_06_18, of_session)
    run = run_cancellable(
        Dispatcher(methods, verbs.missing), around, of_session, request("initialize", id_=0)
    )
    running = asyncio.create_task(run)
    await wait_for_holders(verbs)
    assert of_session.cancel(0) is False
    verbs.release.set()
    assert await running == Reply(0, Raw(b'"held"'))


async def test_a_notification_runs_without_an_id(verbs, of_session):
    assert await start(verbs, of_session, notification("notifications/hello")) is None
    assert len(verbs.calls) == 1


async def test_a_request_that_runs_keeps_its_session_young(verbs, of_session):
    of_session.last_used = 0.0
    await start(verbs, of_session, request("sum", [], 1))
    assert of_session.last_used > 0


async def test_a_member_of_a_batch_is_taken_back_alone(verbs):
    old = session(V2025_03_26)
    batch = [request("hold", id_=1), request("hold", id_=2), request("sum", [5], 3)]
    limits = BatchLimits(
        items=10, concurrency=2, timeout_s=5, answer_bytes=1_000_000, connections=100
    )
    around = context(V2025_03_26, old)
    running = asyncio.create_task(
        Batches(limits).run(member_server(verbs.dispatcher()), around, batch)
    )
    await wait_for_holders(verbs, 2)
    old.cancel(1)
    verbs.release.set()
    answer = await running
    assert b'"id":1,' not in answer
    assert answer == (
        b'[{"jsonrpc":"2.0","id":2,"result":"held"},{"jsonrpc":"2.0","id":3,"result":5}]'
    )


async def test_a_member_taken_back_is_not_answered_when_the_batch_is_late(verbs):
    old = session(V2025_03_26)
    batch = [request("hold", id_=1), request("hold", id_=2)]
    around = context(V2025_03_26, old)
    limits = BatchLimits(
        items=10, concurrency=2, timeout_s=0.3, answer_bytes=1_000_000, connections=100
    )
    running = asyncio.create_task(
        Batches(limits).run(member_server(verbs.dispatcher()), around, batch)
    )
    await wait_for_holders(verbs, 2)
    old.running[1].cancel(CANCELLED_BY_CLIENT)
    answer = await running
    assert b'"id":1,' not in answer
    assert b'"id":2,' in answer
