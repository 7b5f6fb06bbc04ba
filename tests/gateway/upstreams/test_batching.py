"""Calls that travel together."""

import asyncio

import anyio
import pytest

from gateway.upstreams.hybrid.upstream import HybridUpstream
from tests.gateway.upstreams.conftest import open_client
from tests.gateway.upstreams.hybrid_calls import (
    DELETE,
    STATUS,
    Caller,
    caller,
    failure,
    known_caller,
    open_adjusted,
    rules,
    value,
)
from tests.servers.hybrid import Failed, Hybrid
from tests.servers.rest import Silent

pytestmark = pytest.mark.anyio


def sizes(service):
    """How many calls each request held; 0 for one that was no batch."""
    return [len(body) if isinstance(body, list) else 0 for body in service.bodies]


async def together(*calls):
    async with asyncio.timeout(30):
        return await asyncio.gather(*calls)


@pytest.mark.parametrize(
    ("calls", "limit", "expected"),
    [(1, 10, [0]), (2, 10, [2]), (5, 5, [5]), (5, 2, [0, 2, 2]), (4, 2, [2, 2]), (3, 1, [0, 0, 0])],
)
async def test_calls_of_one_turn_are_one_batch_up_to_the_limit(
    client, serve, calls, limit, expected
):
    service = Hybrid()
    call = Caller.of(client, await serve(service), batch=limit)
    results = await together(*(call({"n": n}) for n in range(calls)))
    assert [value(one) for one in results] == [{"echo": {"n": n}} for n in range(calls)]
    assert sorted(sizes(service)) == expected


async def test_a_lone_call_waits_for_nobody(client, serve):
    service = Hybrid()
    call = Caller.of(client, await serve(service), batch=10)
    for n in range(3):
        assert value(await call({"n": n})) == {"echo": {"n": n}}
    assert sizes(service) == [0, 0, 0]


@pytest.mark.parametrize(
    "reorder",
    [
        lambda answers: answers[::-1],
        lambda answers: answers[2:] + answers[:2],
        lambda answers: [*answers, {"jsonrpc": "2.0", "id": None, "result": "whose?"}],
    ],
)
async def test_answers_find_their_calls_in_any_order(client, serve, reorder):
    service = Hybrid(reorder=reorder)
    call = Caller.of(client, await serve(service), batch=10)
    results = await together(*(call({"n": n}) for n in range(7)))
    assert [value(one) for one in results] == [{"echo": {"n": n}} for n in range(7)]
    assert sizes(service) == [7]


@pytest.mark.parametrize(
    ("reorder", "why"),
    [
        (lambda answers: [answers[0], answers[2]], "rules answered every call of a batch but this"),
        (lambda answers: [*answers, answers[1]], "rules answered this call more than once"),
    ],
)
async def test_a_call_that_is_not_answered_once_fails_alone(client, serve, reorder, why):
    call = Caller.of(client, await serve(Hybrid(reorder=reorder)), batch=10)
    first, second, third = await together(*(call({"n": n}) for n in range(3)))
    assert value(first) == {"echo": {"n": 0}}
    assert failure(second)[0].startswith(f"HTTP 502 ERR18502 UPSTREAM_FAILED: {why}")
    assert value(third) == {"echo": {"n": 2}}


async def test_an_action_that_fails_fails_alone(client, serve):
    def delete(data):
        if data["n"] == 1:
            raise Failed(400, STATUS)
        return

    call = Caller.of(client, await serve(Hybrid({DELETE: delete})), batch=10)
    first, second, third = await together(*(call({"n": n}) for n in range(3)))
    assert (value(first), value(third)) == (None, None)
    assert failure(second)[1] == {"status": 401, "body": STATUS}


async def test_unrepeatable_calls_are_sent_alone(client, serve):
    service = Hybrid()
    call = Caller.of(client, await serve(service), batch=10)
    keyed = caller(idempotency_key="key-1")
    await together(call(), call({}, keyed), call(), call({}, keyed))
    assert sorted(sizes(service)) == [0, 0, 2]
    carrying = [seen for seen in service.seen if seen.all("idempotency-key")]
    assert [seen.body.startswith(b"{") for seen in carrying] == [True, True]


async def test_queries_and_commands_travel_apart(client, serve):
    service = Hybrid()
    url = await serve(service)
    for base in ("", "/api/json"):
        call = Caller.of(client, url + base, batch=10)
        await together(call(side="query"), call(), call(side="query"), call(side="command"))
    assert sizes(service) == [2, 2, 2, 2]


async def test_callers_of_a_trace_of_their_own_travel_apart(client, serve):
    service = Hybrid()
    call = Caller.of(client, await serve(service), batch=10)
    own = [caller(f"r-{n}") for n in range(2)]
    traced = [caller(correlation_id=id_) for id_ in ("a", "b", "a")]
    await together(*(call({}, one) for one in (*own, *traced)))
    found = {seen.all("x-correlation-id")[0]: size for seen, size in zip(
        service.seen, sizes(service), strict=True)}  # fmt: skip
    assert found == {"r-0": 2, "a": 2, "b": 0}


@pytest.mark.parametrize(("forwarded", "expected"), [(False, [4]), (True, [0, 0, 2])])
async def test_calls_with_different_credentials_are_batched_apart(serve, forwarded, expected):
    service = Hybrid()
    letters = [{"authorization": who, "scope_token": app} for who, app in
               (("ann", None), ("bob", None), ("ann", None), ("ann", "app"))]  # fmt: skip
    async with open_adjusted(base_url=await serve(service), forward_token=forwarded) as client:
        call = Caller.of(client, None, batch=10)
        await together(*(call({}, known_caller(**call_headers)) for call_headers in letters))
    assert sorted(sizes(service)) == expected
    told = [seen.all("authorization") + seen.all("x-scope-token") for seen in service.seen]
    ann, bob = "Bearer ann", "Bearer bob"
    assert sorted(told) == ([[ann], [ann, "app"], [bob]] if forwarded else [[]])


async def test_sources_are_called_apart(client, serve):
    ours, theirs = Hybrid(), Hybrid()
    upstream = HybridUpstream(client)
    sources = [rules(await serve(service), batch=10) for service in (ours, theirs)]
    await together(*(Caller(upstream, source)() for source in sources * 2))
    assert (sizes(ours), sizes(theirs)) == ([2], [2])


async def test_a_leaving_caller_does_not_affect_the_batch(client, serve):
    service = Hybrid(held=asyncio.Event())
    call = Caller.of(client, await serve(service), batch=10)
    calls = [asyncio.create_task(call({"n": n})) for n in range(3)]
    with anyio.fail_after(30):
        await service.asked.wait()
        calls[1].cancel()
        await asyncio.wait([calls[1]])
        service.held.set()
        assert value(await calls[0]) == {"echo": {"n": 0}}
        assert value(await calls[2]) == {"echo": {"n": 2}}
    assert calls[1].cancelled()
    assert sizes(service) == [3]


async def test_a_caller_out_of_time_takes_nobody_along(client, serve):
    service = Hybrid(held=asyncio.Event())
    call = Caller.of(client, await serve(service), batch=10)

    async def impatient():
        async with asyncio.timeout(0.05):
            await call({"n": 0})

    patient = asyncio.create_task(call({"n": 1}))
    with anyio.fail_after(30):
        with pytest.raises(TimeoutError):
            await impatient()
        service.held.set()
        assert value(await patient) == {"echo": {"n": 1}}
    assert sizes(service) == [2]


async def test_calls_of_departed_callers_are_not_sent(client, serve):
    service = Hybrid()
    call = Caller.of(client, await serve(service), batch=10)
    gone = asyncio.create_task(call({"n": 0}))
    there = [asyncio.create_task(call({"n": n})) for n in (1, 2)]
    await asyncio.sleep(0)  # they have begun, and nothing is sent yet
    gone.cancel()
    await together(*there)
    assert [[one["params"]["n"] for one in body] for body in service.bodies] == [[1, 2]]


async def test_when_all_callers_have_left_the_service_is_told(serve):
    service = Silent()
    async with open_client(timeout_s=600) as client:
        call = Caller.of(client, await serve(service), batch=10)
        calls = [asyncio.create_task(call()) for _ in range(3)]
        with anyio.fail_after(30):
            await service.asked.wait()
            for one in calls:
                one.cancel()
            await service.left.wait()


async def test_a_service_that_is_too_slow_fails_every_call(serve):
    url = await serve(Silent())
    async with open_client(timeout_s=0.1) as client:
        call = Caller.of(client, url, batch=10)
        results = await together(*(call() for _ in range(3)))
    late = "HTTP 504 ERR18504 UPSTREAM_TIMEOUT: rules did not answer within 0.1 s"
    assert [failure(one)[0] for one in results] == [late] * 3


async def test_a_batch_that_cannot_be_sent_is_an_error_of_every_member(client, serve):
    forged = caller(correlation_id="a\r\nX-Forged: 1")
    service = Hybrid()
    call = Caller.of(client, await serve(service), batch=10)
    async with asyncio.timeout(30):
        results = await asyncio.gather(call({}, forged), call({}, forged))
    assert ["characters that HTTP forbids" in failure(one)[0] for one in results] == [True, True]
    assert service.seen == []
