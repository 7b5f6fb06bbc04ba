"""Invocations through a gateway: accepted, run for their caller, read, cancelled, redriven."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from config.settings import Settings
from gateway.operations.operation import cursor
from tests.fixtures_gateway import Client, Recorder, running
from tests.wings.events.rig import ROOT, ended, got, invoked, with_events

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[Client]:
    async with running(with_events(settings)) as client:
        yield client


async def test_v01_a_tool_is_called_after_the_request(client: Client, service: Recorder) -> None:
    one = await invoked(client, "getPet", {"id": 7}, correlationId="pet-7")
    assert one["correlationId"] == "pet-7"
    over = await ended(client, "pet-7")
    assert (over["id"], over["status"], over["attempt"]) == (one["id"], "ACKED", 1)
    assert over["result"]["structuredContent"]["heard"]["path"] == "/pets/7"
    assert [one["path"] for one in service.requests] == ["/pets/7"]


async def test_v05_the_same_request_is_the_same_invocation(client: Client) -> None:
    one = await invoked(client, "getPet", {"id": 7}, correlationId="pet-7")
    again = await invoked(client, "getPet", {"id": 7}, correlationId="pet-7")
    assert again["id"] == one["id"]
    body = {"skillName": "getPet", "arguments": {"id": 8}, "correlationId": "pet-7"}
    status, problem, _ = await client.post(ROOT, body)
    assert (status, "correlationId" in problem["detail"]) == (409, True)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"skillName": "nowhere"}, "Unknown tool: nowhere"),
        ({"skillName": "getPet", "arguments": {"id": "x"}}, "Invalid arguments for getPet"),
        ({"skillName": "events_stats"}, "at once only"),
        ({"skillName": "search_tools", "arguments": {"query": "x"}}, "at once only"),
        ({"skillName": "listPets", "replyTo": "http://10.0.0.1/"}, "replyTo"),
        ({"skillName": "listPets", "replyTo": "session"}, "replyTo"),
        ({"skillName": "listPets", "topic": "else"}, "agent-commands"),
        ({"skillName": "listPets", "notBefore": "9999-12-31T23:59:59Z"}, "within a year"),
    ],
)
async def test_v06_what_cannot_be_accepted_is_refused(
    client: Client, body: dict[str, Any], said: str
) -> None:
    status, problem, _ = await client.post(ROOT, body)
    assert status == 422, problem
    assert said in problem["detail"]
    assert (await got(client, ROOT))[1] == {"items": []}


async def test_v09_a_failure_of_the_service_is_final(client: Client, service: Recorder) -> None:
    one = await invoked(client, "getPet", {"id": 404})
    over = await ended(client, one["id"])
    assert (over["status"], over["reason"], over["error"]["status"]) == ("FAILED", "error", 404)
    assert over["result"]["isError"]
    assert len(service.requests) == 1


async def test_v22_an_invocation_is_cancelled_while_it_runs(
    client: Client, service: Recorder
) -> None:
    one = await invoked(client, "slow")
    await service.arrived.wait()
    async with client.http.delete(f"{client.url}{ROOT}/{one['id']}") as response:
        assert response.status == 200
    await service.gone.wait()
    assert (await ended(client, one["id"]))["reason"] == "cancelled"


async def test_invocations_are_listed_page_by_page(client: Client) -> None:
    ids = [(await invoked(client, "report", delayS=3600))["id"] for _ in range(3)]
    status, page = await got(client, f"{ROOT}?limit=2&status=PENDING")
    assert (status, [one["id"] for one in page["items"]]) == (200, ids[:0:-1])
    _, rest = await got(client, f"{ROOT}?limit=2&after={page['next']}")
    assert [one["id"] for one in rest["items"]] == ids[:1]
    for foreign in ("AAAA", cursor("9" * 19)):
        assert (await got(client, f"{ROOT}?after={foreign}"))[0] == 422
    topic = "/events/v1/topics/agent-events"
    assert (await got(client, f"{topic}?after={'9' * 19}.{'9' * 18}"))[0] == 200
    assert (await got(client, f"{topic}?after={'9' * 20}.1"))[0] == 400
    assert (await got(client, f"{ROOT}/nowhere"))[0] == 404
