"""Workers elsewhere: they claim skills over HTTP, and report with the fence of their delivery."""

import json
from typing import Any

import anyio
import pytest

from tests.fixtures_gateway import DEADLINE_S, Client
from tests.wings.events.rig import ROOT, got, invoke_skill, wait_for_end
from tests.wings.events.shared import anyio_backend, client, service, shared_events

__all__ = ["anyio_backend", "client", "service", "shared_events"]

pytestmark = pytest.mark.anyio

CLAIMS = "/events/v1/claims"


@pytest.fixture(scope="module")
def event_changes() -> dict[str, Any]:
    return {"wait_s": 3600.0}


async def claim(client: Client, **more: Any) -> list[dict[str, Any]]:
    status, answer, _ = await client.post(CLAIMS, {"skills": ["report"], **more})
    assert status == 200, answer
    items: list[dict[str, Any]] = answer["items"]
    return items


async def report(client: Client, id_: str, what: str, **body: Any) -> tuple[int, Any]:
    status, answer, _ = await client.post(f"{ROOT}/{id_}/{what}", body)
    return status, answer


async def test_a_worker_acks_once(client: Client) -> None:
    """A worker acks once (V07)."""
    one = await invoke_skill(client, "report", {"year": 2026}, idempotencyKey="k" * 128)
    wrong = {"skillName": "report", "idempotencyKey": "k" * 129}
    assert (await client.post(ROOT, wrong))[0] == 422
    [taken] = await claim(client)
    assert (taken["arguments"], taken["attempt"], taken["idempotencyKey"]) == (
        {"year": 2026},
        1,
        one["id"],
    )
    assert await claim(client) == []
    assert (await report(client, one["id"], "ack", fence=2, result=1))[0] == 409
    assert (await report(client, one["id"], "ack", fence=2**63, result=1))[0] == 422
    for _ in range(2):
        assert await report(client, one["id"], "ack", fence=1, result={"pages": 3}) == (
            200,
            {"status": "ACKED"},
        )
    assert (await report(client, one["id"], "fail", fence=1, error="no"))[0] == 409
    assert (await wait_for_end(client, one["id"]))["result"] == {"pages": 3}


async def test_a_worker_waits_for_work(client: Client) -> None:
    """A worker waits for work (V16)."""
    taken: list[Any] = []

    async def wait() -> None:
        taken.extend(await claim(client, waitS=30))

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            one = await invoke_skill(client, "report")
    assert [each["id"] for each in taken] == [one["id"]]


async def test_a_worker_that_has_gone_takes_nothing(client: Client) -> None:
    """The server hears of it, and its request ends."""
    body, left = json.dumps({"skills": ["report"], "waitS": 3600}).encode(), anyio.Event()
    messages = [{"type": "http.request", "body": body}]

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(_message: Any) -> None:
        pass

    scope = post_scope(CLAIMS, body)
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(client.gateway.app(), scope, receive, send)
            left.set()
    one = await invoke_skill(client, "report")
    [taken] = await claim(client, waitS=30)
    assert (taken["id"], taken["fence"]) == (one["id"], 1)


@pytest.mark.parametrize("path", [f"{ROOT}/%s", "/events/v1/topics/agent-commands"])
async def test_a_long_poll_ends_when_its_client_has_left(client: Client, path: str) -> None:
    """It held its place to the end of its wait (mending 9)."""
    one = await invoke_skill(client, "report")
    path = path.replace("%s", one["id"])

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(_message: Any) -> None:
        pass

    scope = post_scope(path, b"", "GET", b"waitS=3600")
    with anyio.fail_after(DEADLINE_S):
        await client.gateway.app()(scope, receive, send)


def post_scope(path: str, body: bytes, method: str = "POST", query: bytes = b"") -> dict[str, Any]:
    """The ASGI scope of a request of JSON."""
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "root_path": "",
        "headers": [
            (b"host", b"127.0.0.1"),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }


async def test_failures_are_retried_with_the_same_key(client: Client) -> None:
    """Failures are retried with the same key (V08)."""
    one = await invoke_skill(client, "report", attempts=2, deadlineS=600)
    [taken] = await claim(client)
    assert 0 < taken["deadlineS"] <= 600
    assert await report(client, one["id"], "fail", fence=1, error="away", retryAfterS=0) == (
        200,
        {"status": "PENDING"},
    )
    [again] = await claim(client, waitS=30)
    assert (again["attempt"], again["idempotencyKey"]) == (2, taken["idempotencyKey"])
    assert await report(client, one["id"], "fail", fence=2, error="away") == (
        200,
        {"status": "FAILED"},
    )
    assert (await report(client, one["id"], "ack", fence=2, result=1))[0] == 409
    over = await wait_for_end(client, one["id"])
    assert (over["reason"], len(over["attempts"])) == ("attempts", 2)


async def test_a_worker_is_told_of_cancellation_and_can_release(client: Client) -> None:
    """A worker is told of cancellation and can release (V16)."""
    one = await invoke_skill(client, "report")
    await claim(client)
    assert (await report(client, one["id"], "extend", fence=1, leaseS=60)) == (
        200,
        {"status": "DISPATCHED"},
    )
    assert (await report(client, one["id"], "release", fence=1))[1] == {"status": "PENDING"}
    assert (await report(client, one["id"], "extend", fence=1))[0] == 409
    [taken] = await claim(client)
    assert taken["attempt"] == 1
    async with client.http.delete(f"{client.url}{ROOT}/{one['id']}"):
        pass
    assert (await report(client, one["id"], "extend", fence=2))[1]["cancelling"]


async def test_workers_reach_only_skills(client: Client) -> None:
    """Workers reach only skills (V16)."""
    status, _, _ = await client.post(CLAIMS, {"skills": [""]})
    assert status == 422
    one = await invoke_skill(client, "getPet", {"id": 7})
    assert (await report(client, one["id"], "ack", fence=1, result=1))[0] == 404


async def test_large_results_are_read_separately(client: Client) -> None:
    """Large results are read separately (V25)."""
    one = await invoke_skill(client, "report")
    await claim(client)
    await report(client, one["id"], "ack", fence=1, result="x" * 300_000)
    over = await wait_for_end(client, one["id"])
    assert ("result" in over, over["resultBytes"]) == (False, 300_002)
    large = {"skillName": "report", "arguments": {"text": "x" * 262_144}}
    status, problem, _ = await client.post(ROOT, large)
    assert (status, "events.payload_bytes" in problem["detail"]) == (422, True)
    assert (await got(client, f"{ROOT}/{one['id']}/result")) == (200, "x" * 300_000)
