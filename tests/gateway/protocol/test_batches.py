"""Batches: JSON-RPC 2.0, section 6."""

import asyncio
import json

import anyio
import pytest

from gateway.protocol.batches import Batches, BatchLimits, member_server
from schemas.errors import InvalidRequest
from schemas.jsonrpc import Invalid, Response
from schemas.mcp.revisions import V2025_03_26
from tests.gateway.protocol.conftest import context, notification, request, session

pytestmark = pytest.mark.anyio

LIMITS = BatchLimits(items=100, concurrency=4, timeout_s=5, answer_bytes=1_000_000, connections=100)


async def run(verbs, batch, limits=LIMITS, around=None):
    """The decoded answers; None when there are none."""
    with anyio.fail_after(30):
        serve = member_server(verbs.dispatcher())
        body = await Batches(limits).run(serve, around or context(), batch)
    return None if body is None else json.loads(body)


def start(verbs, batch, limits=LIMITS):
    return asyncio.create_task(run(verbs, batch, limits))


async def await_held_calls(verbs, count):
    with anyio.fail_after(30):
        for _ in range(count):
            await verbs.holding.acquire()


async def test_answers_come_in_the_order_of_their_requests(verbs):
    batch = [request("hold", id_=0), *(request("sum", [n], n) for n in range(1, 20))]
    running = start(
        verbs,
        batch,
        BatchLimits(items=100, concurrency=2, timeout_s=5, answer_bytes=1_000_000, connections=100),
    )
    await await_held_calls(verbs, 1)  # the first is still at it while the others are served
    verbs.release.set()
    assert [answer["id"] for answer in await running] == list(range(20))


async def test_a_member_fails_alone(verbs):
    batch = [
        request("crash", id_=1),
        Invalid(None, InvalidRequest("no message")),
        request("foobar", id_=2),
        request("subtract", ["x"], 3),
        request("unwritable", id_=4),
        request("sum", [1, 2], 5),
    ]
    answers = await run(verbs, batch)
    codes = [answer.get("error", {}).get("code") for answer in answers]
    assert codes == [-32603, -32600, -32601, -32602, -32603, None]
    assert [answer["id"] for answer in answers] == [1, None, 2, 3, 4, 5]
    assert answers[-1]["result"] == 3


async def test_notifications_run_and_are_silent(verbs):
    batch = [notification("update", [n]) for n in range(10)] + [notification("crash")]
    assert await run(verbs, batch) is None
    assert sorted(call.params[0] for call in verbs.calls) == list(range(10))


async def test_responses_are_silent(verbs):
    assert await run(verbs, [Response(1, {}), Response(2, {})]) is None


async def test_equal_ids_are_all_answered(verbs):
    answers = await run(verbs, [request("sum", [1], 7), request("sum", [2], 7)])
    assert [(answer["id"], answer["result"]) for answer in answers] == [(7, 1), (7, 2)]


async def test_equal_ids_of_a_session_are_all_answered_too(verbs):
    around = context(V2025_03_26, session(V2025_03_26))
    answers = await run(verbs, [request("sum", [1], 7), request("sum", [2], 7)], around=around)
    assert [answer["id"] for answer in answers] == [7, 7]


async def test_an_id_that_mcp_does_not_have_is_refused_by_its_member_only(verbs):
    around = context(V2025_03_26, session(V2025_03_26))
    answers = await run(verbs, [request("sum", [1], 1.5), request("sum", [2], 2)], around=around)
    assert [answer.get("result") for answer in answers] == [None, 2]
    assert answers[0]["error"]["code"] == -32600


@pytest.mark.parametrize("concurrency", [1, 3, 50])
async def test_no_more_members_run_at_a_time_than_allowed(verbs, concurrency):
    batch = [request("hold", id_=n) for n in range(10)]
    running = start(
        verbs,
        batch,
        BatchLimits(
            items=100, concurrency=concurrency, timeout_s=5, answer_bytes=1_000_000, connections=100
        ),
    )
    await await_held_calls(verbs, min(concurrency, 10))
    await anyio.wait_all_tasks_blocked()
    assert verbs.now == min(concurrency, 10)
    verbs.release.set()
    assert len(await running) == 10
    assert verbs.most == min(concurrency, 10)


async def test_members_that_are_not_done_in_time_are_stopped_and_say_so(verbs):
    batch = [request("sum", [1], "a"), request("hold", id_="b"), notification("hold")]
    batch += [request("sum", [1], "c"), request("hold", id_="d"), request("sum", [1], "e")]
    answers = await run(
        verbs,
        batch,
        BatchLimits(
            items=100, concurrency=2, timeout_s=0.05, answer_bytes=1_000_000, connections=100
        ),
    )
    outcomes = {answer["id"]: answer.get("error", {}).get("code") for answer in answers}
    assert outcomes["a"] is None
    assert outcomes["b"] == outcomes["d"] == outcomes["e"] == 1503
    assert [answer["id"] for answer in answers] == ["a", "b", "c", "d", "e"]
    assert "took over 0.05 s" in answers[1]["error"]["message"]
    assert verbs.stopped == 2
    assert verbs.now == 0


async def test_a_batch_whose_caller_is_cancelled_leaves_nothing_running(verbs):
    running = start(verbs, [request("hold", id_=n) for n in range(4)])
    await await_held_calls(verbs, 4)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (verbs.stopped, verbs.now) == (4, 0)


async def test_a_batch_is_not_empty(verbs):
    with pytest.raises(InvalidRequest):
        await run(verbs, [])


async def test_answers_that_grow_too_large_stop_the_rest_of_the_batch(verbs):
    limits = BatchLimits(items=100, concurrency=1, timeout_s=5, answer_bytes=100, connections=100)
    answers = await run(verbs, [request("get_data", id_=n) for n in range(9)], limits)
    codes = [answer.get("error", {}).get("code") for answer in answers]
    assert [answer["id"] for answer in answers] == list(range(9))
    assert codes[0] is None
    assert codes[-1] == 1503
    assert codes.count(None) < 9


async def test_a_batch_of_the_longest_length_is_served(verbs):
    batch = [request("sum", [n], n) for n in range(100)]
    assert [answer["result"] for answer in await run(verbs, batch)] == list(range(100))
