"""Invocations that are accepted at certain times, by one of all gateways."""

from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from config.access import Rule
from config.events import EventSchedule
from config.settings import Settings
from gateway.cli.doctor.registry import schedules
from gateway.operations.job_declarations import SCHEDULE
from gateway.wings.events.schedule_checks import check_schedules
from registry.access.api_keys import ApiKeys
from registry.database.postgres import Database
from registry.jobs.store import JobStore
from tests.fixtures_gateway import Client, Recorder, running
from tests.polling import until
from tests.wings.events.rig import ROOT, got, with_events
from tests.wings.events.test_running import approvals_of, waiting_for

pytestmark = pytest.mark.anyio


async def test_a_schedule_makes_invocations(settings: Settings, service: Recorder) -> None:
    schedule = EventSchedule(
        cron="* * * * * *", skill="getPet", principal="clock", arguments={"id": 7}
    )
    jobs = replace(settings.jobs, poll_s=0.05)
    evented = with_events(replace(settings, jobs=jobs), schedules={"often": schedule})
    async with running(evented) as client:
        items = await until(lambda: acked_invocations(client))
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
        console=replace(settings.console, enabled=True),
    )
    async with running(with_events(given, schedules={"often": schedule})) as client:
        [failed, *_] = await until(lambda: ended_items(client))
        shown = (await got(client, f"{ROOT}/{failed['id']}"))[1]
        assert (failed["status"], "memory:erase" in str(shown)) == ("FAILED", True)
        async with aiohttp.ClientSession() as http, http.get(f"{client.url}/console") as page:
            assert "The call of the schedule often failed" in await page.text()


async def test_approvals_of_a_schedule_do_not_pile_up(
    settings: Settings, service: Recorder
) -> None:
    """An approval lets one call run, once; until then no further one is accepted (mending 36)."""
    schedule = EventSchedule(
        cron="0 5 1 1 *", skill="createPet", principal="clock", arguments={"name": "Rex"}
    )
    rules = {"one": Rule(effect="approve", when="!tool.readOnly")}
    given = replace(
        settings,
        jobs=replace(settings.jobs, poll_s=0.05),
        policy=replace(settings.policy, rules=rules),
    )
    async with running(with_events(given, schedules={"often": schedule})) as client:
        await tick_schedule(client, "often")
        [waiting] = await until(lambda: waiting_for(client))
        assert (waiting.tool, waiting.principal) == ("createPet", "clock")

        async def is_paused() -> bool:
            return bool((await items(client))[0].get("approval"))

        await until(is_paused)
        for _ in range(3):
            job = await tick_schedule(client, "often")
            assert job["result"]["skipped"] == "it waits for an approval"
        assert len(await waiting_for(client)) == len(await items(client)) == 1
        await approvals_of(client).decide(waiting.id, True, "carol")
        await until(lambda: acked_invocations(client))
        await tick_schedule(client, "often")
        [again] = await until(lambda: waiting_for(client))
        assert again.id != waiting.id
    assert len(service.requests) == 1


async def tick_schedule(client: Client, name: str) -> Any:
    """The job of a schedule that is begun by hand, once it has ended."""
    status, job, _ = await client.post(f"/events/v1/schedules/{name}", b"")
    assert status == 202, job

    async def is_over() -> Any:
        _, shown = await got(client, f"/events/v1/jobs/{job['job']}")
        return shown if shown["state"] in ("succeeded", "failed") else None

    return await until(is_over)


async def items(client: Client) -> Any:
    return (await got(client, f"{ROOT}?everyone=true"))[1]["items"]


async def ended_items(client: Client) -> object:
    items = (await got(client, f"{ROOT}?everyone=true"))[1]["items"]
    return [one for one in items if one["status"] in ("ACKED", "FAILED", "DEAD")]


async def acked_invocations(client: Client) -> object:
    return (await got(client, f"{ROOT}?everyone=true&status=ACKED"))[1]["items"]


async def test_a_schedule_without_a_skill_is_told_at_start(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """A mistaken name is in the log before its time comes, once (mending 35)."""
    schedules = {
        name: EventSchedule(cron="0 5 1 1 *", skill=skill, principal="clock")
        for name, skill in (("wrong", "getPett"), ("right", "getPet"))
    }
    async with running(with_events(settings, schedules=schedules)):
        await until(lambda: told_of(caplog, "unknown_skill"))
    [record] = told_of(caplog, "unknown_skill")
    assert "events.schedules.wrong.skill" in record.reason


def told_of(caplog: pytest.LogCaptureFixture, event: str) -> list[Any]:
    return [record for record in caplog.records if record.message == event]


async def test_a_schedule_goes_by_the_clocks_of_its_zone(settings: Settings) -> None:
    """The queue of jobs reads a cron in the zone of its schedule (mending 35)."""
    zones = ("Asia/Kathmandu", "")
    schedules = {
        f"at{number}": EventSchedule(
            cron="30 6 * * *", skill="getPet", principal="clock", timezone=zone
        )
        for number, zone in enumerate(zones)
    }
    async with running(with_events(settings, schedules=schedules)) as client:
        assert client.gateway.jobs is not None

        def periodic() -> Any:
            worker = client.gateway.jobs._worker
            tasks = {} if worker is None else worker._app.periodic_registry.periodic_tasks
            found = {name: task for (_, name), task in tasks.items() if "schedule_at" in name}
            return found if len(found) == len(zones) else None

        tasks = await until(periodic)
        day = datetime(2027, 5, 1, tzinfo=UTC).timestamp()
        hours = [
            task.croniter.get_next(float, start_time=day) - day for _, task in sorted(tasks.items())
        ]
    assert hours == [45 * 60, 6.5 * 3600]  # 00:45 UTC is 06:30 in Kathmandu


async def test_a_schedule_that_fails_shows_everywhere(
    settings: Settings, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """Its job is refused for each tick: the log, the metrics, the operator's jobs and doctor say
    so (mending 37)."""
    schedule = EventSchedule(cron="* * * * * *", skill="noSuchTool", principal="clock")
    given = replace(
        settings,
        jobs=replace(settings.jobs, poll_s=0.05),
        auth=replace(settings.auth, mode="keys"),
        metrics=replace(settings.metrics, public=True),
    )
    async with running(with_events(given, schedules={"lost": schedule})) as client:
        await until(lambda: told_of(caplog, "job_failed"))
        [record, *_] = told_of(caplog, "job_failed")
        assert (record.operation, record.levelname) == ("events_schedule_lost", "WARNING")
        counted = 'toolgate_jobs_failed_total{operation="events_schedule_lost"}'

        async def counted_metrics() -> str | None:
            async with client.http.get(f"{client.url}/metrics") as response:
                text = await response.text()
            return text if counted in text else None

        text = await until(counted_metrics)
        assert 'toolgate_jobs_failed_total{operation="importSource"} 0.0' in text

        keys = ApiKeys(database.pool, settings.tenant.host_id)
        _, operator = await keys.create("op", None, ["*"], [settings.admin.operator_role])
        _, admin = await keys.create("admin", None, ["*"], [])
        jobs = await until(lambda: list_jobs(client, operator))
        assert {job["operation"] for job in jobs} == {"events_schedule_lost"}
        assert "noSuchTool" in str(await show_job(client, operator, jobs[0]["job"]))
        assert await list_jobs(client, admin) == []  # of others, whatever the scopes
        checks = [check async for check in schedules(database.pool, settings.tenant.host_id)]
    assert [check.status for check in checks] == ["warning"]
    assert "events_schedule_lost" in checks[0].detail
    assert "noSuchTool" in checks[0].detail


async def list_jobs(client: Client, key: str) -> Any:
    headers = {"Authorization": f"Bearer {key}"}
    url = f"{client.url}/admin/v1/jobs?state=failed"
    async with client.http.get(url, headers=headers) as response:
        return (await response.json())["items"] if response.status == 200 else None


async def show_job(client: Client, key: str, job: str) -> Any:
    headers = {"Authorization": f"Bearer {key}"}
    async with client.http.get(f"{client.url}/admin/v1/jobs/{job}", headers=headers) as response:
        return await response.json()


async def test_a_scheduled_call_that_fails_later_shows_too(
    settings: Settings, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """The job has done its work once the invocation is accepted; what becomes of that is in the
    log and in the wing's own check (mending 37)."""
    schedule = EventSchedule(
        cron="* * * * * *", skill="getPet", principal="clock", arguments={"id": 404}
    )
    given = replace(settings, jobs=replace(settings.jobs, poll_s=0.05))
    evented = with_events(given, schedules={"stray": schedule}, attempts=1)
    async with running(evented) as client:
        await until(lambda: ended_items(client))
        await until(lambda: told_of(caplog, "invocation_failed"))
        jobs = JobStore(database.pool)
        await until(lambda: jobs.newest_ended(settings.tenant.host_id, SCHEDULE))

        async def list_warnings() -> Any:
            checks = check_schedules(evented.events, settings.tenant.host_id, database.pool)
            return [one.detail async for one in checks if one.status == "warning"]

        [text] = await until(list_warnings)
    assert text.startswith("events.schedules.stray: the last invocation failed (")
