"""Runs that nobody waits for: as jobs, as tasks of MCP, and those that are cancelled."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from config.access import Rule
from config.settings import Settings
from registry.access.approvals import Approvals
from tests.polling import until
from tests.wings.code.shop import CodeShop, code_shop
from tests.wings.events.rig import with_events

pytestmark = pytest.mark.anyio

WRITING = "run_code_writing"
MAIL = "tools.change_item(id=1, count=2)\ntools.send_mail(text='a')\n'sent'"
OVER = ("succeeded", "failed", "cancelled")


def with_rules(settings: Settings) -> dict[str, Any]:
    jobs = replace(settings.jobs, poll_s=0.05)
    rules = {"mails": Rule("approve", tools=("send_mail",))}
    return {"policy": replace(settings.policy, rules=rules), "jobs": jobs}


async def begin_job(shop: CodeShop, code: str) -> str:
    body, prefer = {"code": code}, {"Prefer": "respond-async"}
    status, job, headers = await shop.client.post("/code/v1/run-writing", body, prefer)
    assert (status, headers["location"]) == (202, f"/code/v1/jobs/{job['job']}")
    return str(job["job"])


async def prefer_job(shop: CodeShop, code: str) -> str:
    """The job by which /rpc answers with 202."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "run_code", "params": {"code": code}}
    status, answer, headers = await shop.client.post("/rpc", body, {"Prefer": "respond-async"})
    job = str(answer["result"]["job"])
    assert (status, headers["location"]) == (202, f"/code/v1/jobs/{job}")
    return job


async def read_job(shop: CodeShop, job: str) -> dict[str, Any]:
    async with shop.client.http.get(f"{shop.client.url}/code/v1/jobs/{job}") as response:
        read: dict[str, Any] = await response.json()
        return read


async def wait_for_job(shop: CodeShop, job: str) -> dict[str, Any]:
    async def read_ended_job() -> dict[str, Any] | None:
        read = await read_job(shop, job)
        return read if read["state"] in OVER else None

    ended: dict[str, Any] = await until(read_ended_job)
    return ended


async def approve_next(shop: CodeShop) -> None:
    gateway = shop.client.gateway
    approvals = Approvals(gateway.feed.pool, gateway.principal.tenant)
    waiting = await until(approvals.waiting)
    assert await approvals.decide(waiting[0].id, True, "carol")


async def test_a_run_as_a_job_ends_after_its_approval(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.wings.code.program_runner.APPROVAL_POLL_S", 1.0)
    async with code_shop(settings, tmp_path, **with_rules(settings)) as shop:
        job = await begin_job(shop, MAIL)
        await approve_next(shop)
        ended = await wait_for_job(shop, job)
        assert (ended["state"], ended["result"]["result"]) == ("succeeded", "sent")
        assert (shop.shop.mails, shop.shop.stock[1]) == (["a"], 2)
        again = await shop.ask("", WRITING, run=job)  # the id of the job is that of the run
        assert again["result"]["result"] == "sent"


async def test_a_run_as_a_task_of_mcp_ends_after_its_approval(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.wings.code.program_runner.APPROVAL_POLL_S", 1.0)
    events = with_events(settings).events
    async with code_shop(settings, tmp_path, events=events, **with_rules(settings)) as shop:
        session = await shop.client.session("2025-11-25")
        params = {"name": WRITING, "arguments": {"code": MAIL}, "task": {"ttl": 60_000}}
        task = (await session.call("tools/call", params))["result"]["task"]
        await approve_next(shop)
        with anyio.fail_after(20):
            ended = await session.call("tasks/result", {"taskId": task["taskId"]})
        assert ended["result"]["structuredContent"]["result"] == "sent", ended
        assert shop.shop.mails == ["a"]


async def hang(shop: CodeShop, code: str) -> str:
    """A job whose eight open calls hang."""
    shop.shop.hangs = True
    job = await begin_job(shop, code)
    await until(lambda: shop.shop.open >= 8)
    return job


HANGING = "tools.change_item(id=1, count=2)\ntools.all([tools.get_item(id=i) for i in range(8)])"


@pytest.mark.parametrize("by", ["job", "run"])
async def test_a_cancelled_run_ends_its_process_and_open_calls(
    by: str, settings: Settings, tmp_path: Path
) -> None:
    """Within a second, of which the deadlines here are a multiple for slow machines."""
    async with code_shop(settings, tmp_path, **with_rules(settings)) as shop:
        job = await hang(shop, HANGING)
        with anyio.fail_after(5):
            if by == "job":
                url = f"{shop.client.url}/code/v1/jobs/{job}"
                async with shop.client.http.delete(url) as response:
                    assert response.status == 200
            else:
                ended = await shop.ask("", WRITING, run=job, cancel=True)
                assert ended["result"]["error"] == "the run was cancelled"
            await until(lambda: not shop.shop.open)
        state = "cancelled" if by == "job" else "succeeded"
        assert (await wait_for_job(shop, job))["state"] == state


async def test_a_job_may_take_longer_than_a_caller_waits(
    settings: Settings, tmp_path: Path
) -> None:
    code = {"wall_s": 0.5, "job_s": 60}
    async with code_shop(settings, tmp_path, code=code, **with_rules(settings)) as shop:
        shop.shop.slow_s = 0.7
        program = "tools.get_item(id=1)['count']"
        assert "more than 0.5 s" in (await shop.run(program))["error"]
        body = {"jsonrpc": "2.0", "id": 1, "method": "get-item", "params": {"id": 1}}
        answer = await shop.client.post("/rpc", body, {"Prefer": "respond-async"})
        assert (answer[0], answer[1]["result"]["count"]) == (200, 10)  # no job: it answers
        by_rpc = (await shop.ask(program, as_job=True))["result"]["job"]
        for job in (await begin_job(shop, program), by_rpc, await prefer_job(shop, program)):
            ended = await wait_for_job(shop, job)
            assert ended["result"]["result"] == 10
