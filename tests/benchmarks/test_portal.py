"""The portal's part of the benchmarks: the same call in each dialect, and what a member costs."""

from urllib.parse import parse_qs, urlsplit

import aiohttp
import msgspec
import pytest

from benchmarks import calls, portal
from benchmarks.floor import app as floor
from benchmarks.report import Report
from benchmarks.service import ID
from benchmarks.table import missed
from benchmarks.toolgate import SERVICE
from gateway.context import Principal
from gateway.hybrid import python_services
from schemas.hybrid import service_id
from tests.fixtures_servers import Serve


def report(per_s: float, busy: float = 1.0) -> Report:
    return Report(int(per_s), 1.0, 0, 100.0, 1.0, 2.0, 3.0, busy)


def test_a_member_costs_the_time_of_the_batch_beyond_the_echo() -> None:
    costs = portal.member_cost([report(1000), report(1000)], [report(500), report(250)])
    assert costs == pytest.approx((20.0, 60.0))  # 1 ms and 3 ms more, for 50 members


def test_a_members_cost_is_cpu_time_whatever_else_runs_on_the_core() -> None:
    assert portal.member_cost([report(500, busy=0.5)], [report(250, busy=0.5)]) == pytest.approx(
        portal.member_cost([report(1000)], [report(500)])
    )


def test_a_round_with_a_broken_side_does_not_count() -> None:
    assert portal.member_cost([report(1000), report(1000)], [report(0), report(500)]) == (20.0,)


def test_a_cost_that_could_not_be_measured_is_missed() -> None:
    assert missed(portal._member_row(None, None)) == ["no figure"]


def test_both_legacy_requests_name_the_action_of_the_service() -> None:
    posted = msgspec.json.decode(portal.legacy_post(1).bodies[0])
    query = parse_qs(urlsplit(portal.legacy_get(1).path).query)
    assert msgspec.json.decode(query["cmd"][0]) == posted
    assert (service_id(posted), posted["data"]) == (ID, calls.ARGUMENTS)


@pytest.mark.anyio
async def test_the_floor_answers_like_the_action(serve: Serve) -> None:
    message = calls.messages(ID, calls.ARGUMENTS)[0]
    async with aiohttp.ClientSession(await serve(floor)) as http:
        async with http.post("/answer", data=message) as response:
            answer = await response.json()
        async with http.post("/echo", data=message) as response:
            assert await response.read() == message
    handler = python_services.load(str(SERVICE)).handlers[ID]
    call = python_services.Call(Principal("anonymous", "tenant"), "1", ID)
    assert answer == {"jsonrpc": "2.0", "id": 1, "result": await handler(calls.ARGUMENTS, call)}
    assert calls.NEEDLE.decode() in answer["result"]["name"]
