"""Operations of a wing as jobs: on every front, on a schedule, and in a worker that is killed."""

import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from config.access import Rule
from config.settings import DatabaseSettings, Settings
from gateway.operations.job_declarations import RESPOND_ASYNC
from registry.access.policies import Policies
from registry.database.postgres import Database
from registry.jobs.store import JobStore
from tests import polling
from tests.fixtures_database import HOST, Cluster, lend_database
from tests.fixtures_gateway import Client, running
from tests.gateway.admin.client import KEY, bearer
from tests.gateway.cli.processes import Served, environment
from tests.gateway.guards.signing import by_jwks
from tests.kinds.test_parrot import ask_gateway
from tests.recycling import Recycling
from tests.wings.rig import wings, with_toy
from tests.wings.test_toy import got, rpc
from tests.wings.toy.wing import LIFE

pytestmark = pytest.mark.anyio

ASYNC = {"Prefer": RESPOND_ASYNC}
COPY = {"texts": ["milk", "tea"]}


@pytest.fixture
def database_settings(cluster: Cluster, with_notes: Recycling) -> Iterator[DatabaseSettings]:
    yield from lend_database(cluster, with_notes)


@pytest.fixture(autouse=True)
def with_row() -> Iterator[None]:
    with wings():
        yield


@pytest.fixture
def toy_settings(settings: Settings) -> Settings:
    jobs = replace(settings.jobs, poll_s=0.05, retry_s=0.05)
    guardrails = replace(settings.guardrails, mask=True)
    return with_toy(replace(settings, jobs=jobs, guardrails=guardrails), enabled=True)


@pytest.fixture
async def client(toy_settings: Settings) -> AsyncIterator[Client]:
    async with running(toy_settings) as client:
        yield client


async def until(client: Client, job: str, state: str, **caller: str) -> Any:
    """The job, once it is in this state."""

    async def poll_view() -> Any:
        status, view, _ = await got(client, f"/toy/v1/jobs/{job}", **caller)
        assert status == 200
        return view if view["state"] == state else None

    return await polling.until(poll_view)


async def test_rest_runs_operations_as_jobs_with_progress_and_masked_result(
    client: Client,
) -> None:
    status, job, headers = await client.post("/toy/v1/copies", COPY, ASYNC)
    assert (status, headers["location"]) == (202, f"/toy/v1/jobs/{job['job']}")

    async def waiting() -> bool:
        return (await until(client, job["job"], "running")).get("note") == "waiting"

    await polling.until(waiting)
    await client.post("/toy/v1/notes", {"text": "go"})
    ended = await until(client, job["job"], "succeeded")
    assert (ended["done"], ended["total"]) == (2, 2)
    assert [(one["text"], one["owner"]) for one in ended["result"]["notes"]] == [
        (text, "***") for text in ("go", "milk", "tea")
    ]
    at_once = await client.post("/toy/v1/copies", COPY)
    assert (at_once[0], len(at_once[1]["notes"])) == (200, 5)
    assert len((await got(client, "/toy/v1/jobs"))[1]["items"]) == 1


async def test_a_tool_runs_as_a_job_and_is_cancelled(client: Client) -> None:
    call = {"name": "toy_copy", "arguments": {**COPY, "as_job": True}}
    made = await ask_gateway(client, "2025-11-25", "tools/call", call)
    job = made["structuredContent"]["job"]
    await until(client, job, "running")
    call = {"name": "toy_cancel_job", "arguments": {"job": job}}
    cancelled = await ask_gateway(client, "2025-11-25", "tools/call", call)
    assert cancelled["structuredContent"]["cancelling"]
    await until(client, job, "cancelled")


async def test_a_method_runs_as_a_job_that_calls_other_tools(client: Client) -> None:
    params = {"tool": "listPets", "arguments": {}, "as_job": True}
    job = (await client.rpc(rpc("toy_call", params)))["result"]["job"]
    await until(client, job, "succeeded")
    shown = (await client.rpc(rpc("toy_get_job", {"job": job})))["result"]
    assert shown["result"]["text"].startswith("(TextContent")


async def test_jobs_belong_to_their_caller_and_keep_its_scopes(
    toy_settings: Settings, tmp_path: Path
) -> None:
    async with running(replace(toy_settings, auth=by_jwks(tmp_path, [KEY.jwk()]))) as client:
        ada, eve = (bearer(name, scope="toy:write toy:read") for name in ("ada", "eve"))
        assert (await client.post("/toy/v1/copies", COPY, ASYNC))[0] == 401
        reader = bearer("ada", scope="toy:read")
        assert (await client.post("/toy/v1/copies", COPY, {**reader, **ASYNC}))[0] == 403
        job = (await client.post("/toy/v1/copies", COPY, {**ada, **ASYNC}))[1]["job"]
        assert (await got(client, f"/toy/v1/jobs/{job}", **eve))[0] == 404
        assert (await got(client, "/toy/v1/jobs", **eve))[1] == {"items": []}
        await client.post("/toy/v1/notes", {"text": "go"}, ada)
        assert (await until(client, job, "succeeded", **ada))["principal"] == "ada"
        params = {"tool": "toy_search", "arguments": {"text": "go"}}
        writer = bearer("ada", scope="toy:write")
        job = (await client.post("/toy/v1/calls", params, {**writer, **ASYNC}))[1]["job"]
        failed = await until(client, job, "failed", **ada)
        assert "toy:read" in failed["problem"]["detail"]


@pytest.mark.parametrize("by_worker", [False, True])
async def test_a_rule_stored_after_the_acceptance_of_a_job_stops_the_job(
    toy_settings: Settings, by_worker: bool
) -> None:
    waiting = replace(toy_settings, jobs=replace(toy_settings.jobs, concurrency=0))
    async with running(waiting) as client:
        pool = client.gateway.feed.pool
        assert pool is not None
        params = {"tool": "toy_add", "arguments": {"text": "milk"}}
        call = (await client.post("/toy/v1/calls", params, ASYNC))[1]["job"]
        copy = (await client.post("/toy/v1/copies", COPY, ASYNC))[1]["job"]
        await client.post("/toy/v1/notes", {"text": "go"})
        when = 'arguments.arguments.text == "milk"'
        await Policies(pool, HOST).put("no-milk", Rule("deny", tools=("toy_call",), when=when))
    async with running(waiting if by_worker else toy_settings) as client:
        other = await worker(toy_settings) if by_worker else None
        denied = await until(client, call, "failed")
        assert denied["problem"]["type"] == "problems/denied"
        await until(client, copy, "succeeded")
        if other is not None:
            await other.stop(signal.SIGTERM)


async def test_a_schedule_runs_its_job_once_per_tick(toy_settings: Settings) -> None:
    settings = replace(toy_settings, toy=replace(toy_settings.toy, schedule="* * * * * *"))  # type: ignore[attr-defined]
    async with running(settings) as client:
        pool = client.gateway.feed.pool
        assert pool is not None
        await await_scheduled_job(pool)


async def test_a_wing_that_is_opened_late_has_its_schedule_and_its_waiting_jobs(
    toy_settings: Settings,
) -> None:
    async with running(toy_settings) as client:
        await client.post("/toy/v1/notes", {"text": "go"})
        stopped = replace(toy_settings.jobs, concurrency=0)
    async with running(replace(toy_settings, jobs=stopped)) as client:
        job = (await client.post("/toy/v1/copies", COPY, ASYNC))[1]["job"]
    late = replace(toy_settings, toy=replace(toy_settings.toy, schedule="* * * * * *", fails=True))  # type: ignore[attr-defined]
    async with running(late) as client:
        pool = client.gateway.feed.pool
        assert pool is not None

        async def is_attempted() -> bool:
            row = await JobStore(pool).get(HOST, job)
            return row is not None and row.attempt > 0

        async def has_succeeded() -> bool:
            row = await JobStore(pool).get(HOST, job)
            return row is not None and row.state == "succeeded"

        await polling.until(is_attempted)
        LIFE.append("repaired")
        await polling.until(has_succeeded)
        await await_scheduled_job(pool)


async def await_scheduled_job(pool: Any) -> None:
    store = JobStore(pool)
    await polling.until(lambda: store.page(HOST, ["toy_count"], limit=1, state="succeeded"))


async def test_a_killed_worker_is_followed_by_another(
    toy_settings: Settings, database: Database
) -> None:
    jobs = replace(toy_settings.jobs, concurrency=0)
    async with running(replace(toy_settings, jobs=jobs)) as client:
        job = (await client.post("/toy/v1/copies", COPY, ASYNC))[1]["job"]
        first = await worker(toy_settings)
        await until(client, job, "running")
        first.process.send_signal(signal.SIGKILL)
        await first.process.wait()
        async with database.connect() as connection:
            await connection.execute("UPDATE job_t SET beat_ts = beat_ts - interval '1 hour'")
        await client.post("/toy/v1/notes", {"text": "go"})
        second = await worker(toy_settings)
        assert (await until(client, job, "succeeded"))["attempt"] == 2
        code, _ = await second.stop(signal.SIGTERM)
        assert code == 0


async def worker(settings: Settings) -> Served:
    """`toolgate worker`, once it is ready."""
    process = await anyio.open_process(
        [sys.executable, "-m", "tests.wings.toy.program", "worker"],
        stdin=None,
        stdout=PIPE,
        stderr=PIPE,
        env=environment(
            TOOLGATE_TOY__ENABLED="true",
            TOOLGATE_DATABASE__URL=settings.database.url or "",
            TOOLGATE_EMBEDDING__PROVIDER="disabled",
            TOOLGATE_JOBS__POLL_S="0.05",
            TOOLGATE_AUDIT__MODE="never",
        ),
    )
    served = Served(process._process)  # type: ignore[attr-defined]
    assert await served.line() == "Worker is ready: jobs"
    return served
