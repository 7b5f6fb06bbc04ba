"""Workers in Python, by the decorator."""

from collections.abc import AsyncIterator

import anyio
import pytest

from config.events import EventSkill
from config.settings import Settings
from gateway.client.skill_worker import SkillCall, SkillWorker, TryAgain
from tests.fixtures_gateway import DEADLINE_S, Client, running
from tests.wings.events.rig import ROOT, invoke_skill, wait_for_end, with_events

pytestmark = pytest.mark.anyio

SKILLS = {name: EventSkill() for name in ("report", "flaky", "endless")}


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[Client]:
    async with running(with_events(settings, skills=SKILLS)) as client:
        yield client


async def test_a_worker_runs_its_skills(client: Client) -> None:
    worker, keys = SkillWorker(client.url, concurrency=2), list[str]()
    asking = SkillWorker(client.url, lease_s=0.3)  # often whether its call is cancelled
    begun = anyio.Event()

    @worker.skill("report")
    async def report(call: SkillCall) -> dict[str, int]:
        return {"pages": call.arguments["pages"]}

    @worker.skill("flaky")
    async def flaky(call: SkillCall) -> str:
        keys.append(call.idempotency_key)
        if call.attempt == 1:
            raise TryAgain("not yet")
        raise ValueError("never")

    @asking.skill("endless")
    async def endless(_call: SkillCall) -> None:
        begun.set()
        await anyio.sleep_forever()

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            group.start_soon(asking.run)
            one = await invoke_skill(client, "report", {"pages": 3})
            assert (await wait_for_end(client, one["id"]))["result"] == {"pages": 3}
            two = await invoke_skill(client, "flaky", attempts=2)
            over = await wait_for_end(client, two["id"])
            assert (over["reason"], over["error"]) == ("attempts", {"message": "never"})
            assert keys == [two["id"]] * 2
            three = await invoke_skill(client, "endless")
            await begun.wait()
            async with client.http.delete(f"{client.url}{ROOT}/{three['id']}"):
                pass
            assert (await wait_for_end(client, three["id"]))["reason"] == "cancelled"
            group.cancel_scope.cancel()
