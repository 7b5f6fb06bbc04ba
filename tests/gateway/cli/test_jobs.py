"""`toolgate jobs`, and `toolgate admin` with an operation that runs as a job."""

import json
import signal
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from config.settings import Settings
from gateway.cli.common.checks import Check
from gateway.cli.doctor.registry import jobs
from registry.database.postgres import Database
from registry.jobs.queue import JobQueue
from registry.jobs.store import JobDraft, JobStore
from tests.fixtures_database import HOST
from tests.fixtures_gateway import DEADLINE_S, Recorder, running
from tests.gateway.admin.client import KEY, key_file
from tests.gateway.cli.processes import command, start
from tests.gateway.guards.signing import by_jwks

pytestmark = pytest.mark.anyio


@pytest.fixture
def with_jobs(settings: Settings, tmp_path: Path) -> Settings:
    return replace(
        settings,
        auth=by_jwks(tmp_path, [KEY.jwk()]),
        jobs=replace(settings.jobs, poll_s=0.05),
        imports=replace(settings.imports, private_networks=True),
    )


async def test_jobs_are_waited_for_listed_shown_and_cancelled(
    with_jobs: Settings, service: Recorder, tmp_path: Path
) -> None:
    key = key_file(tmp_path)
    async with running(with_jobs) as client:
        at = ("--key-file", str(key), "--url", client.url)
        code, printed, _ = await command("admin", "verifyAudit", *at)
        done = json.loads(printed)
        assert (code, done["state"], done["result"]["problems"]) == (0, "succeeded", [])
        code, printed, told = await command(
            "admin", "refreshSource", "source=no", "as_job=true", *at
        )
        assert (code, json.loads(printed)["state"]) == (1, "failed")
        assert "There is no source 'no'" in told
        body = json.dumps({"kind": "openapi", "name": "slow", "url": f"{service.url}/slow"})
        process = await start("admin", "importSource", f"body={body}", "as_job=true", *at)
        with anyio.fail_after(DEADLINE_S):
            await service.arrived.wait()
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
        rows = json.loads((await command("jobs", "list", "--json", *at))[1])
        job = rows[0]["job"]
        with anyio.fail_after(DEADLINE_S):
            while json.loads((await command("jobs", "wait", job, *at))[1])["state"] != "cancelled":
                await checkpoint()
        assert (
            json.loads((await command("jobs", "cancel", done["job"], "--json", *at))[1])["state"]
            == "succeeded"
        )
        assert json.loads((await command("jobs", "show", done["job"], "--json", *at))[1]) == done
        listed = (await command("jobs", "list", *at))[1].splitlines()
        assert [line.split()[1] for line in listed] == [
            "importSource", "refreshSource", "verifyAudit"
        ]  # fmt: skip


async def test_the_doctor_sees_jobs_that_no_worker_runs(
    database: Database, settings: Settings
) -> None:
    assert await jobs(database, settings.jobs) == Check("jobs", "ok", "0 wait, 0 run")
    job = await JobQueue(database.pool, 9).put(JobDraft(HOST, "work", "ada", b"{}", b"{}"))
    check = await jobs(database, settings.jobs)
    assert (check.status, "1 wait, but no worker runs" in check.detail) == ("warning", True)
    assert await JobStore(database.pool).claim(job) is not None
    async with database.connect() as connection:
        await connection.execute("UPDATE job_t SET beat_ts = beat_ts - interval '1 hour'")
    check = await jobs(database, settings.jobs)
    assert (check.status, "1 stalled (no heartbeat)" in check.detail) == ("warning", True)
