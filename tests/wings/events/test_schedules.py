"""Invocations that are accepted at certain times, by one of all gateways."""

import pytest
from msgspec.structs import replace

from config.settings import EventSchedule, Settings
from tests.fixtures_gateway import Client, Recorder, running
from tests.polling import until
from tests.wings.events.rig import ROOT, got, with_events

pytestmark = pytest.mark.anyio


async def test_a_schedule_makes_invocations(settings: Settings, service: Recorder) -> None:
    schedule = EventSchedule(
        cron="* * * * * *", skill="getPet", principal="clock", arguments={"id": 7}
    )
    jobs = replace(settings.jobs, poll_s=0.05)
    evented = with_events(replace(settings, jobs=jobs), schedules={"often": schedule})
    async with running(evented) as client:
        items = await until(lambda: acked(client))
        assert {one["principal"] for one in items} == {"clock"}
        assert {one["skillName"] for one in items} == {"getPet"}
    assert service.requests[0]["path"] == "/pets/7"


async def test_a_scheduled_call_has_the_scopes_of_its_schedule_alone(settings: Settings) -> None:
    schedule = EventSchedule(
        cron="* * * * * *", skill="memory_forget", principal="clock",
        arguments={"subject": "ann"}, scopes=("memory:write",),
    )  # fmt: skip
    given = replace(
        settings,
        jobs=replace(settings.jobs, poll_s=0.05),
        memory=replace(settings.memory, enabled=True),
    )
    async with running(with_events(given, schedules={"often": schedule})) as client:
        [failed, *_] = await until(lambda: ended(client))
        shown = (await got(client, f"{ROOT}/{failed['id']}"))[1]
        assert (failed["status"], "memory:erase" in str(shown)) == ("FAILED", True)


async def ended(client: Client) -> object:
    items = (await got(client, f"{ROOT}?everyone=true"))[1]["items"]
    return [one for one in items if one["status"] in ("ACKED", "FAILED", "DEAD")]


async def acked(client: Client) -> object:
    return (await got(client, f"{ROOT}?everyone=true&status=ACKED"))[1]["items"]
